//! CPU time that no sample explains: of processes and threads that ended before their first tick, of threads that block the signal, of moments after the last tick.

use super::{Decoded, saturate};
use crate::{Frame, Labels, Profile, Sample};
use rustc_hash::FxHashMap;
use std::borrow::Cow;

/// What stands for its stack.
pub(super) fn frame() -> Frame {
    Frame::Named(Cow::Borrowed("[unsampled]"))
}

/// Counts what each process used before its recording began, in the kernel and in the dynamic linker, as `[unsampled]` time of its CPU profile.
///
/// `stores` are all those of a recording that began with the processes, in the order in which they were begun. The CPU clock goes on through an exec: so of a process that became
/// another program, the second store is charged with the time since the last sign of the first.
pub fn count_starts(stores: &mut [Decoded]) {
    let mut clocks: FxHashMap<u32, u64> = FxHashMap::default();
    for store in stores {
        // A clock that went back is that of another process with the same number.
        let before = clocks.get(&store.pid).copied().filter(|before| *before <= store.start_cpu_ns).unwrap_or(0);
        if let Some(profile) = store.cpu.as_mut().filter(|_| store.last_cpu_ns != 0) {
            add(profile, store.start_cpu_ns.saturating_sub(before));
        }
        clocks.insert(store.pid, store.last_cpu_ns.max(store.start_cpu_ns));
    }
}

/// Takes out of a window's profile what the samples explained twice: the clock of the process and those of its threads are read one after the other, so between two moments a little less
/// than nothing can be left.
pub fn settle(window: &mut Profile) {
    let stack = window.stacks.intern([frame()]);
    window.samples.retain(|sample| sample.stack != stack || sample.values.iter().all(|value| *value >= 0));
}

fn add(profile: &mut Profile, nanos: u64) {
    let Some(column) = profile.column("cpu").filter(|_| nanos != 0) else { return };
    let stack = profile.stacks.intern([frame()]);
    let is_it = |sample: &&mut Sample| sample.stack == stack && sample.thread.is_none();
    if let Some(value) = profile.samples.iter_mut().find(is_it).and_then(|sample| sample.values.get_mut(column)) {
        *value = value.saturating_add(saturate(nanos));
        return;
    }
    let mut values = crate::values![0; profile.sample_types.len()];
    if let Some(value) = values.get_mut(column) {
        *value = saturate(nanos);
    }
    profile.samples.push(Sample { stack, thread: None, labels: Labels::new(), values });
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::SampleType;

    #[test]
    fn a_window_has_no_less_than_nothing() {
        let mut window = Profile::new(vec![SampleType::new("samples", "count"), SampleType::new("cpu", "nanoseconds")]);
        let of = |window: &mut Profile, frame: Frame, nanos: i64| {
            let stack = window.stacks.intern([frame]);
            window.samples.push(Sample {
                stack,
                thread: None,
                labels: Labels::new(),
                values: crate::values![0, nanos],
            });
        };
        of(&mut window, Frame::named("works"), 10);
        of(&mut window, frame(), -1);
        settle(&mut window);
        assert_eq!(window.samples.iter().map(|sample| sample.values[1]).collect::<Vec<_>>(), [10]);
        of(&mut window, frame(), 5);
        settle(&mut window);
        assert_eq!(window.samples.iter().map(|sample| sample.values[1]).collect::<Vec<_>>(), [10, 5]);
    }

    fn store(pid: u32, start_cpu_ns: u64, last_cpu_ns: u64) -> Decoded {
        let types = vec![SampleType::new("samples", "count"), SampleType::new("cpu", "nanoseconds")];
        Decoded { pid, start_cpu_ns, last_cpu_ns, cpu: Some(Profile::new(types)), ..Decoded::default() }
    }

    fn totals(stores: &[Decoded]) -> Vec<i64> {
        stores.iter().map(|store| store.cpu.as_ref().map_or(-1, |profile| profile.total(1))).collect()
    }

    #[test]
    fn a_process_is_charged_with_its_start_and_a_program_with_what_came_since_the_one_before() {
        let mut stores = [store(7, 10, 50), store(8, 3, 4), store(7, 65, 90), store(7, 20, 30)];
        count_starts(&mut stores);
        assert_eq!(totals(&stores), [10, 3, 15, 20], "the last one is another process");
        count_starts(&mut stores[..1]);
        assert_eq!(totals(&stores)[0], 20, "one sample, not two");
        assert_eq!(stores[0].cpu.as_ref().unwrap().samples.len(), 1);
    }

    #[test]
    fn without_a_clock_nothing_is_charged() {
        let mut stores = [store(7, 10, 0)];
        count_starts(&mut stores);
        assert_eq!(totals(&stores), [0]);
    }
}
