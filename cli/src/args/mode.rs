//! `--mode`: what is measured.

use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use profile::Mode;

/// Of a command that is recorded.
pub(super) fn recorded() -> impl TypedValueParser<Value = Mode> {
    parser(&[Mode::Cpu, Mode::Wall, Mode::OffCpu, Mode::Allocs, Mode::Heap])
}

/// Of a recorder that is asked.
pub(super) fn asked() -> impl TypedValueParser<Value = Mode> {
    parser(&[Mode::Cpu, Mode::Wall, Mode::OffCpu, Mode::Allocs, Mode::Heap, Mode::Threads])
}

fn parser(modes: &[Mode]) -> impl TypedValueParser<Value = Mode> {
    let values = modes.iter().map(|mode| PossibleValue::new(mode.name()).help(help(*mode)));
    PossibleValuesParser::new(values).try_map(|name| Mode::from_name(&name).ok_or("no mode has this name"))
}

const fn help(mode: Mode) -> &'static str {
    match mode {
        Mode::Cpu => "CPU time of running threads",
        Mode::Wall => "Elapsed time of every thread, running or not",
        Mode::OffCpu => "Elapsed time of blocked threads alone; no thread is sent a signal",
        Mode::Allocs => "Allocations, freed or not",
        Mode::Heap => "Allocations, and which of them are live",
        Mode::Threads => "Every thread's stack, once",
    }
}
