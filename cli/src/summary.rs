//! What `record` says in the end: what was recorded, what was lost, which files there are.

use crate::args::{CommandLine, Mode};
use crate::numbers::{human_bytes, human_nanos, with_commas};
use layout::Lost;
use profile::store::Decoded;
use profile::{Profile, StackId};
use std::collections::BTreeSet;
use std::io::{Write, stderr};
use std::path::PathBuf;

/// Writes lines to standard error.
pub(crate) fn print(lines: impl IntoIterator<Item = String>) {
    for line in lines {
        let _ = writeln!(stderr(), "profrec: {line}");
    }
}

/// What one mode recorded.
pub(crate) fn of(mode: Mode, profile: &Profile, processes: usize) -> String {
    let total = |kind: &str| profile.column(kind).map(|column| profile.total(column));
    let stacks: BTreeSet<StackId> = profile.samples.iter().map(|sample| sample.stack).collect();
    let what = match mode {
        Mode::Cpu => {
            let samples = total("samples").unwrap_or(0);
            format!("{} of CPU time in {}", human_nanos(total("cpu").unwrap_or(0)), plural(samples, "sample"))
        }
        Mode::Allocs => {
            let objects = total("alloc_objects").unwrap_or(0);
            format!("{}, {}", plural(objects, "allocation"), human_bytes(total("alloc_space").unwrap_or(0)))
        }
        Mode::Heap => {
            let objects = total("inuse_objects").unwrap_or(0);
            let bytes = human_bytes(total("inuse_space").unwrap_or(0));
            format!("{} live at the end, {bytes}", plural(objects, "allocation"))
        }
    };
    let (stacks, processes) =
        (plural(stacks.len() as i64, "stack"), plural_of(processes as i64, "process", "processes"));
    format!("{}: {what}, {stacks} in {processes}", mode.name())
}

/// A line for what could not be recorded, if there is such.
pub(crate) fn losses(stores: &[Decoded]) -> Option<String> {
    let of = |reason: Lost| stores.iter().flat_map(|store| &store.lost).filter(move |loss| loss.reason == reason);
    let reasons: Vec<String> = Lost::ALL
        .into_iter()
        .map(|reason| (reason, of(reason).map(|loss| loss.events).sum::<u64>()))
        .filter(|(_, events)| *events != 0)
        .map(|(reason, events)| format!("{} ({})", with_commas(events), reason.reason()))
        .collect();
    (!reasons.is_empty()).then(|| format!("not recorded in full: {}", reasons.join(", ")))
}

/// A line for the files.
pub(crate) fn written(files: &[PathBuf]) -> Option<String> {
    let names: Vec<String> = files.iter().map(|path| path.display().to_string()).collect();
    (!names.is_empty()).then(|| format!("wrote {}", names.join(", ")))
}

/// How many processes there were; a process that executed several programs is one.
pub(crate) fn processes(stores: &[Decoded]) -> usize {
    stores.iter().map(|store| store.pid).collect::<BTreeSet<_>>().len()
}

/// Why there is nothing, as far as can be told from here.
pub(crate) fn nothing_recorded(command: &CommandLine, empty_stores: usize) -> String {
    let name = command.name();
    if empty_stores == 0 {
        format!(
            "nothing was recorded: the preload library was not loaded into '{name}'; did it clear its environment, or start a static or set-user-ID program? Record that program itself"
        )
    } else {
        format!(
            "nothing was recorded: '{name}' ended before its recording began; is there room for it (df /dev/shm, TMPDIR)?"
        )
    }
}

fn plural(number: i64, noun: &str) -> String {
    plural_of(number, noun, &format!("{noun}s"))
}

fn plural_of(number: i64, one: &str, many: &str) -> String {
    format!("{} {}", with_commas(number), if number == 1 { one } else { many })
}

#[cfg(test)]
mod tests {
    use super::*;
    use profile::store::Loss;
    use profile::{Frame, Sample, SampleType};

    fn profile(columns: &[(&'static str, &'static str)], values: &[i64]) -> Profile {
        let mut profile = Profile::new(columns.iter().map(|(kind, unit)| SampleType::new(kind, unit)).collect());
        let stack = profile.stacks.intern([Frame::named("main")]);
        profile.samples.push(Sample { stack, thread: None, labels: Vec::new(), values: values.to_vec() });
        profile
    }

    #[test]
    fn each_mode_says_what_its_values_are() {
        let cpu = profile(&[("samples", "count"), ("cpu", "nanoseconds")], &[122, 1_234_000_000]);
        assert_eq!(of(Mode::Cpu, &cpu, 1), "cpu: 1.23 s of CPU time in 122 samples, 1 stack in 1 process");
        let allocs = profile(&[("alloc_objects", "count"), ("alloc_space", "bytes")], &[12_345, 1_258_291]);
        assert_eq!(of(Mode::Allocs, &allocs, 2), "allocs: 12,345 allocations, 1.2 MiB, 1 stack in 2 processes");
        let heap = profile(&[("inuse_objects", "count"), ("inuse_space", "bytes")], &[1, 10]);
        assert_eq!(of(Mode::Heap, &heap, 1), "heap: 1 allocation live at the end, 10 B, 1 stack in 1 process");
        assert_eq!(of(Mode::Cpu, &Profile::default(), 1), "cpu: 0 s of CPU time in 0 samples, 0 stacks in 1 process");
    }

    #[test]
    fn losses_are_summed_by_reason_and_left_out_when_there_are_none() {
        let loss = |reason, events| Loss { reason, events, weight: 0 };
        let store = |lost: &[Loss]| Decoded { lost: lost.to_vec(), ..Decoded::default() };
        assert_eq!(losses(&[store(&[]), store(&[loss(Lost::NoThread, 0)])]), None);
        let both = [store(&[loss(Lost::StoreFull, 1000)]), store(&[loss(Lost::NoThread, 2), loss(Lost::StoreFull, 1)])];
        assert_eq!(losses(&both).unwrap(), "not recorded in full: 1,001 (store full), 2 (thread not registered)");
    }

    #[test]
    fn a_process_that_executed_several_programs_is_one() {
        let store = |pid| Decoded { pid, ..Decoded::default() };
        assert_eq!(processes(&[store(1), store(1), store(2)]), 2);
    }
}
