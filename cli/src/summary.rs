//! What `record` says in the end: what was recorded, what was lost, which files there are.

use crate::args::CommandLine;
use crate::numbers::{human_bytes, human_nanos, with_commas};
use layout::{Lost, Unfollowed};
use profile::Mode;
use profile::store::Decoded;
use profile::{Format, Profile, StackId, Symbols, sites};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::io::{Write, stderr};
use std::path::{Path, PathBuf};

/// A file of text with more bytes is more than anybody reads.
const LARGE: u64 = 256 << 20;

/// Writes lines to standard error.
pub(crate) fn print(lines: impl IntoIterator<Item = String>) {
    for line in lines {
        let _ = writeln!(stderr(), "profrec: {line}");
    }
}

/// Writes lines that belong to the line before.
pub(crate) fn print_below(lines: impl IntoIterator<Item = String>) {
    for line in lines {
        let _ = writeln!(stderr(), "{line}");
    }
}

/// What one mode recorded.
pub(crate) fn of(mode: Mode, profile: &Profile, processes: usize) -> String {
    let total = |kind: &str| profile.column(kind).map(|column| profile.total(column));
    let stacks: BTreeSet<StackId> = profile.samples.iter().map(|sample| sample.stack).collect();
    let time = |what: &str| {
        let (nanos, samples) = (total(mode.default_sample_type()).unwrap_or(0), total("samples").unwrap_or(0));
        format!("{} of {what} in {}", human_nanos(nanos), plural(samples, "sample"))
    };
    let what = match mode {
        Mode::Cpu => time("CPU time"),
        Mode::Wall => time("elapsed time of all threads"),
        Mode::OffCpu => time("time in which threads were blocked"),
        Mode::Allocs => {
            let objects = total("alloc_objects").unwrap_or(0);
            format!("{}, {}", plural(objects, "allocation"), human_bytes(total("alloc_space").unwrap_or(0)))
        }
        Mode::Heap => {
            let objects = total("inuse_objects").unwrap_or(0);
            let bytes = human_bytes(total("inuse_space").unwrap_or(0));
            format!("{} live at the end, {bytes}", plural(objects, "allocation"))
        }
        Mode::Threads => plural(total("threads").unwrap_or(0), "thread"),
    };
    let (stacks, processes) =
        (plural(stacks.len() as i64, "stack"), plural_of(processes as i64, "process", "processes"));
    format!("{}: {what}, {stacks} in {processes}", mode.name())
}

/// Lines of the table of who allocated what is still live.
const PLACES: usize = 10;

/// Who allocated what was live at the end, those with the most bytes first. Empty if nothing was, or it was not followed.
pub(crate) fn live(profile: &Profile, symbols: &Symbols) -> Vec<String> {
    let (Some(objects), Some(bytes)) = (profile.column("inuse_objects"), profile.column("inuse_space")) else {
        return Vec::new();
    };
    let mut of_stack: HashMap<StackId, (i64, i64)> = HashMap::new();
    for sample in &profile.samples {
        let value = |column: usize| sample.values.get(column).copied().unwrap_or(0);
        add(of_stack.entry(sample.stack).or_default(), (value(objects), value(bytes)));
    }
    let here = std::env::current_dir().unwrap_or_default();
    let mut of_place: HashMap<String, (i64, i64)> = HashMap::new();
    for (stack, values) in of_stack.into_iter().filter(|(_, values)| *values != (0, 0)) {
        let site = sites::site(sites::levels(profile, symbols, stack));
        let place = site.map_or_else(|| "[no stack]".to_owned(), |level| level.line(&here));
        add(of_place.entry(place).or_default(), values);
    }
    let mut places: Vec<_> = of_place.into_iter().collect();
    places.sort_by(|(a, x), (b, y)| (y.1, y.0).cmp(&(x.1, x.0)).then_with(|| a.cmp(b)));
    let others = places.split_off(places.len().min(PLACES));
    if !others.is_empty() {
        let mut sum = (0, 0);
        others.iter().for_each(|(_, values)| add(&mut sum, *values));
        places.push((format!("in {} other places", with_commas(others.len() as i64)), sum));
    }
    let line = |(place, (objects, bytes)): (String, (i64, i64))| {
        format!("{:>12}  {:>10}  {place}", with_commas(objects), human_bytes(bytes))
    };
    let header =
        (!places.is_empty()).then(|| format!("{:>12}  {:>10}  {}", "live objects", "live bytes", "allocated by"));
    header.into_iter().chain(places.into_iter().map(line)).collect()
}

fn add(sum: &mut (i64, i64), values: (i64, i64)) {
    *sum = (sum.0.saturating_add(values.0), sum.1.saturating_add(values.1));
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

/// A line for programs that were executed and are not recorded, if there are such.
pub(crate) fn unfollowed(stores: &[Decoded]) -> Option<String> {
    let mut of_reason: BTreeMap<Unfollowed, u64> = BTreeMap::new();
    for (reason, programs) in stores.iter().flat_map(|store| &store.unfollowed) {
        *of_reason.entry(*reason).or_default() += u64::from(*programs);
    }
    let told = |(reason, programs): (Unfollowed, u64)| format!("{} ({})", with_commas(programs), reason.reason());
    let reasons: Vec<String> = of_reason.into_iter().map(told).collect();
    (!reasons.is_empty()).then(|| format!("programs that were executed and not recorded: {}", reasons.join(", ")))
}

/// What cannot be seen of the allocations of some executables: a line for each of them.
pub(crate) fn unseen(stores: &[Decoded]) -> Vec<String> {
    stores.iter().filter_map(Decoded::unseen).collect::<BTreeSet<_>>().into_iter().collect()
}

/// A line for the files.
pub(crate) fn written(files: &[PathBuf]) -> Option<String> {
    let names: Vec<String> = files.iter().map(|path| path.display().to_string()).collect();
    (!names.is_empty()).then(|| format!("wrote {}", names.join(", ")))
}

/// What [`large`] says of a file that was written.
pub(crate) fn large_file(path: &Path, format: Format) -> Option<String> {
    large(path, format, path.metadata().ok()?.len())
}

/// A line for a file of text that is larger than anybody reads: what makes it so, and what holds the same in less.
fn large(path: &Path, format: Format, bytes: u64) -> Option<String> {
    let repeats = matches!(format, Format::Collapsed | Format::Perf | Format::Col);
    (repeats && bytes >= LARGE).then(|| {
        let (path, gib) = (path.display(), bytes as f64 / f64::from(1 << 30));
        format!("{path} has {gib:.1} GiB: {format} repeats every frame of every stack; .pb.gz and .profrec hold the same in about a tenth")
    })
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
        profile.samples.push(Sample { stack, thread: None, labels: profile::Labels::new(), values: values.into() });
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
    fn what_is_live_is_listed_by_who_allocated_it_the_most_bytes_first() {
        let columns = ["inuse_objects", "inuse_space"].map(|kind| SampleType::new(kind, "count"));
        let mut profile = Profile::new(columns.to_vec());
        let mut add = |names: &[&'static str], values: [i64; 2]| {
            let stack = profile.stacks.intern(names.iter().map(|name| Frame::named(name)));
            profile.samples.push(Sample { stack, thread: None, labels: profile::Labels::new(), values: values.into() });
        };
        add(&["main", "small", "malloc"], [1000, 2000]);
        add(&["main", "large", "malloc"], [1, 5000]);
        add(&["other", "large", "calloc"], [2, 5000]);
        add(&["main", "frees", "malloc"], [0, 0]);
        let table = |profile: &Profile| live(profile, &Symbols::new());
        let expected = [
            "live objects  live bytes  allocated by",
            "           3     9.8 KiB  large",
            "       1,000     2.0 KiB  small",
        ];
        assert_eq!(table(&profile), expected);
        for name in ["a", "b", "c", "d", "e", "f", "g", "h", "i", "j", "k"] {
            let stack = profile.stacks.intern([Frame::named(name), Frame::named("malloc")]);
            profile.samples.push(Sample {
                stack,
                thread: None,
                labels: profile::Labels::new(),
                values: profile::values![1, 10],
            });
        }
        let lines = table(&profile);
        assert_eq!(lines.len(), 1 + PLACES + 1);
        assert_eq!(lines.last().unwrap(), "           3        30 B  in 3 other places");
        assert!(table(&Profile::default()).is_empty());
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
    fn programs_that_are_not_recorded_are_summed_by_reason() {
        let store = |unfollowed: &[_]| Decoded { unfollowed: unfollowed.to_vec(), ..Decoded::default() };
        assert_eq!(unfollowed(&[store(&[])]), None);
        let stores = [
            store(&[(Unfollowed::Library, 2), (Unfollowed::Privileged, 1)]),
            store(&[(Unfollowed::Static, 1000), (Unfollowed::Library, 3)]),
        ];
        assert_eq!(
            unfollowed(&stores).unwrap(),
            "programs that were executed and not recorded: 1,000 (statically linked), 5 (for another C library, or an older one), 1 (set-user-ID or set-group-ID)"
        );
    }

    #[test]
    fn executables_with_a_malloc_of_their_own_are_named_once() {
        let store = |exe: &str, own_malloc| Decoded { exe: exe.into(), own_malloc, ..Decoded::default() };
        let stores = [store("/bin/b", true), store("/bin/c", false), store("/bin/a", true), store("/bin/b", true)];
        let text = "exports its own malloc; calls that it makes itself without an import slot are not seen";
        assert_eq!(unseen(&stores), [format!("a {text}"), format!("b {text}")]);
    }

    #[test]
    fn a_text_that_nobody_can_read_is_told_with_what_holds_the_same() {
        let path = Path::new("a.folded");
        assert_eq!(large(path, Format::Collapsed, LARGE - 1), None);
        assert_eq!(large(path, Format::Pprof, LARGE), None);
        let line = large(path, Format::Collapsed, 3_600_000_000).unwrap();
        assert!(line.starts_with("a.folded has 3.4 GiB: collapsed repeats"), "{line}");
    }

    #[test]
    fn a_process_that_executed_several_programs_is_one() {
        let store = |pid| Decoded { pid, ..Decoded::default() };
        assert_eq!(processes(&[store(1), store(1), store(2)]), 2);
    }
}
