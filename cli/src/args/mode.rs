//! `--mode`: what is measured.

use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use profile::Mode;

/// Of a command that is recorded.
pub(super) fn recorded() -> impl TypedValueParser<Value = Mode> {
    parser([
        (Mode::Cpu, "CPU time of running threads"),
        (Mode::Wall, "Elapsed time of every thread, running or not"),
        (Mode::OffCpu, "Elapsed time of blocked threads alone; no thread is sent a signal"),
        (Mode::Allocs, "Allocations, freed or not"),
        (Mode::Heap, "Allocations, and which of them are still live at the end"),
    ])
}

/// Of a recorder that is asked.
pub(super) fn asked() -> impl TypedValueParser<Value = Mode> {
    parser([
        (Mode::Cpu, "CPU time of running threads"),
        (Mode::Wall, "Elapsed time of every thread, on- and off-CPU"),
        (Mode::OffCpu, "Elapsed time of blocked threads alone"),
        (Mode::Allocs, "Allocations, freed or not"),
        (Mode::Heap, "Allocations that are live now"),
        (Mode::Threads, "Every thread's stack, once"),
    ])
}

fn parser<const N: usize>(modes: [(Mode, &'static str); N]) -> impl TypedValueParser<Value = Mode> {
    let values = modes.map(|(mode, help)| PossibleValue::new(mode.name()).help(help));
    PossibleValuesParser::new(values).try_map(|name| Mode::from_name(&name).ok_or("no mode has this name"))
}
