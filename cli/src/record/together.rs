//! Several modes in one profile, for the formats that can hold what they measured side by side.

use super::measured::Measured;
use profile::{Profile, SampleType, Symbols};

/// One profile with the columns of all, and its names. A sample has zero in the columns of the others.
///
/// The first is shown first: its columns come last, and its period and single events are the profile's.
pub(super) fn together(all: &[Measured]) -> (Profile, Symbols) {
    let of = |measured: &Measured| measured.profile.sample_types.clone();
    let types: Vec<SampleType> = all.iter().rev().flat_map(of).collect();
    let mut before = 0;
    let widened: Vec<Profile> = all
        .iter()
        .enumerate()
        .rev()
        .map(|(position, measured)| {
            let mut profile = measured.profile.clone();
            if position != 0 {
                // Events weigh in the unit of the last column.
                profile.events.clear();
            }
            let own = profile.sample_types.len();
            let after = types.len().saturating_sub(before + own);
            for sample in &mut profile.samples {
                sample.values.insert_many(0, std::iter::repeat_n(0, before));
                sample.values.extend(std::iter::repeat_n(0, after));
            }
            (profile.sample_types, profile.default_sample_type) = (types.clone(), None);
            before += own;
            profile
        })
        .collect();
    let mut whole = Profile::merge(widened);
    if let Some(first) = all.first() {
        let shown = first.profile.sample_types.get(first.profile.default_column());
        whole.default_sample_type = shown.and_then(|shown| types.iter().position(|t| t == shown));
        (whole.period_type, whole.period) = (first.profile.period_type.clone(), first.profile.period);
    }
    let symbols = names(&whole, all);
    (whole, symbols)
}

/// The names under the mappings' new ids.
fn names(whole: &Profile, all: &[Measured]) -> Symbols {
    let mut symbols = Symbols::new();
    for Measured { profile, symbols: found, .. } in all {
        let renumbered: Vec<Option<profile::MappingId>> = profile
            .mappings
            .iter()
            .map(|mapping| whole.mappings.iter().position(|m| m == mapping))
            .map(|at| at.and_then(|at| u32::try_from(at).ok()).map(profile::MappingId))
            .collect();
        for frame in profile.stacks.frames() {
            let Some((mapping, svma, kind)) = frame.address() else { continue };
            let mapping = mapping.and_then(|id| renumbered.get(id.index()).copied().flatten());
            symbols.insert((mapping, svma, kind), found.get(frame).to_vec());
        }
    }
    symbols
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::measured::Source;
    use profile::Mode;
    use profile::{AddressKind, Event, Frame, Mapping, MappingId, Sample, Svma, SymbolFrame, Thread, ThreadId};

    fn measured(mode: Mode, types: &[SampleType], module: &'static str, values: Vec<i64>) -> Measured {
        let mut profile = Profile::new(types.to_vec());
        profile.mappings =
            ["/bin/app", module].map(|path| Mapping { path: path.into(), ..Mapping::default() }).to_vec();
        profile.threads.push(Thread { pid: 7, tid: 7, name: "main".into(), ..Thread::default() });
        let frame = Frame::Address { mapping: Some(MappingId(1)), svma: Svma(16), kind: AddressKind::Instruction };
        let stack = profile.stacks.intern([frame.clone()]);
        profile.events.push(Event { unix_ns: 1, thread: ThreadId(0), stack, weight: 9 });
        profile.samples.push(Sample {
            stack,
            thread: Some(ThreadId(0)),
            labels: profile::Labels::new(),
            values: values.into(),
        });
        profile.period_type = Some(types[0].clone());
        let mut symbols = Symbols::new();
        symbols.insert(frame.address().unwrap(), vec![SymbolFrame::named(module)]);
        Measured { source: Source::of(mode), profile, symbols }
    }

    #[test]
    fn every_column_keeps_its_total_and_every_address_its_name() {
        let cpu = [SampleType::new("samples", "count"), SampleType::new("cpu", "nanoseconds")];
        let allocs = [SampleType::new("alloc_objects", "count")];
        let all = [
            measured(Mode::Cpu, &cpu, "/lib/a.so", vec![2, 50]),
            measured(Mode::Allocs, &allocs, "/lib/b.so", vec![3]),
        ];
        let (whole, symbols) = together(&all);
        let kinds: Vec<&str> = whole.sample_types.iter().map(|t| &*t.kind).collect();
        assert_eq!(kinds, ["alloc_objects", "samples", "cpu"]);
        assert_eq!([0, 1, 2].map(|column| whole.total(column)), [3, 2, 50]);
        assert_eq!(whole.default_column(), 2, "the first mode is shown first");
        assert_eq!(whole.events.len(), 1, "those of the last column");
        assert_eq!(whole.period_type, Some(cpu[0].clone()));
        assert_eq!((whole.mappings.len(), whole.threads.len(), whole.samples.len()), (3, 1, 2));
        let mut names: Vec<String> = whole
            .samples
            .iter()
            .map(|sample| symbols.get(whole.stacks.frame(sample.stack).unwrap())[0].name.to_string())
            .collect();
        names.sort();
        assert_eq!(names, ["/lib/a.so", "/lib/b.so"]);
    }

    #[test]
    fn of_one_it_is_that_one() {
        let cpu = [SampleType::new("cpu", "nanoseconds")];
        let one = measured(Mode::Cpu, &cpu, "/lib/a.so", vec![5]);
        let (whole, symbols) = together(std::slice::from_ref(&one));
        assert_eq!((whole.samples, symbols), (one.profile.samples, one.symbols));
        assert_eq!(whole.events.len(), 1);
    }
}
