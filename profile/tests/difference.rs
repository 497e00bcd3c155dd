//! Two builds compared: what changed is found, on its line and with its number, and what did not is not news.

use profile_recorder_profile::difference::{Comparison, Counts, Side, Status};
use profile_recorder_profile::{
    AddressKind, Frame, Labels, Mapping, MappingId, Profile, Sample, SampleType, Svma, SymbolFrame, Symbols,
};

/// A build: each stack with lines (root first), the allocation function's frame on top of it, and its objects and bytes.
struct Build {
    profile: Profile,
    symbols: Symbols,
    next: u64,
}

impl Build {
    /// Addresses begin at `base`, so that no two builds share one.
    fn new(base: u64) -> Self {
        let types = vec![SampleType::new("alloc_objects", "count"), SampleType::new("alloc_space", "bytes")];
        let mut profile = Profile::new(types);
        profile.mappings.push(Mapping { path: "/bin/app".into(), ..Mapping::default() });
        profile.period_type = Some(SampleType::new("space", "bytes"));
        profile.period = 1;
        Self { profile, symbols: Symbols::new(), next: base }
    }

    fn add(mut self, levels: &[(&str, u32)], values: [i64; 2]) -> Self {
        let mut frames: Vec<Frame> = Vec::new();
        for (name, line) in levels {
            self.next += 16;
            let frame =
                Frame::Address { mapping: Some(MappingId(0)), svma: Svma(self.next), kind: AddressKind::ReturnAddress };
            let mut symbol = SymbolFrame::named(*name);
            (symbol.file, symbol.line) = (Some("/src/app.c".into()), *line);
            self.symbols.insert(frame.address().unwrap(), vec![symbol]);
            frames.push(frame);
        }
        frames.push(Frame::named("malloc"));
        let stack = self.profile.stacks.intern(frames);
        self.profile.samples.push(Sample { stack, thread: None, labels: Labels::new(), values: values.into() });
        self
    }

    fn side(&self) -> Side<'_> {
        Side { profile: &self.profile, symbols: &self.symbols }
    }
}

fn base() -> Build {
    Build::new(0x1000).add(&[("main", 10), ("parse", 20)], [1000, 16_000]).add(&[("main", 11), ("print", 30)], [5, 50])
}

fn counts(new: usize, grown: usize, shrunk: usize, gone: usize, same: usize, moved: usize) -> Counts {
    Counts { new, grown, shrunk, gone, same, noise: 0, moved }
}

#[test]
fn the_same_program_built_again_has_not_changed() {
    let (old, new) = (base(), Build { next: 0, ..base() });
    let comparison = Comparison::new(old.side(), new.side());
    assert_eq!(comparison.counts(0), counts(0, 0, 0, 0, 2, 0));
    assert!(comparison.stacks(0, 9).is_empty() && comparison.functions(0, 9).is_empty());
    assert_eq!(comparison.columns()[0].total.status(), Status::Same);
    assert!(comparison.columns().iter().all(|column| column.is_exact));
}

#[test]
fn one_more_allocation_in_a_loop_is_found_on_its_line() {
    // Everything moved by ten lines, and line 31 is new.
    let head = Build::new(0x9000)
        .add(&[("main", 20), ("parse", 30)], [1000, 16_000])
        .add(&[("main", 20), ("parse", 31)], [1000, 24_000])
        .add(&[("main", 21), ("print", 40)], [5, 50]);
    let old = base();
    let comparison = Comparison::new(old.side(), head.side());
    let [stack] = comparison.stacks(0, 9).try_into().unwrap();
    let site = stack.site.unwrap();
    assert_eq!((site.name.as_str(), site.line, stack.change.delta()), ("parse", 31, 1000));
    assert_eq!((stack.status, stack.moved), (Status::Grown, false));
    let functions = comparison.functions(0, 9);
    let rows: Vec<_> = functions.iter().map(|f| (f.name.as_str(), f.own.delta(), f.total.delta())).collect();
    assert_eq!(rows, [("parse", 1000, 1000), ("main", 0, 1000), ("malloc", 0, 1000)]);
    assert_eq!(comparison.stacks(1, 9)[0].change.delta(), 24_000);
}

#[test]
fn the_same_line_called_more_often_is_found_too_and_less_often_on_the_bases_line() {
    let more = Build::new(0x9000).add(&[("main", 12), ("parse", 22)], [1500, 24_000]);
    let more = more.add(&[("main", 13), ("print", 33)], [5, 50]);
    let old = base();
    let comparison = Comparison::new(old.side(), more.side());
    let stacks = comparison.stacks(0, 9);
    assert_eq!((stacks.len(), stacks[0].site.as_ref().unwrap().line, stacks[0].change.delta()), (1, 22, 500));
    let comparison = Comparison::new(more.side(), old.side());
    let stacks = comparison.stacks(0, 9);
    assert_eq!((stacks[0].site.as_ref().unwrap().line, stacks[0].status), (22, Status::Shrunk));
}

#[test]
fn renamed_functions_are_told_and_are_no_change() {
    let head = Build::new(0x9000)
        .add(&[("main", 10), ("parse_order", 20)], [1000, 16_000])
        .add(&[("main", 11), ("print", 30)], [5, 50]);
    let old = base();
    let comparison = Comparison::new(old.side(), head.side());
    assert_eq!(comparison.counts(0), counts(0, 0, 0, 0, 2, 1));
    assert_eq!(comparison.renamed(), [("parse", "parse_order")]);
    assert!(comparison.stacks(0, 9).is_empty() && comparison.functions(0, 9).is_empty());
}

#[test]
fn a_renamed_function_that_allocates_more_has_grown() {
    let head = Build::new(0x9000)
        .add(&[("main", 10), ("parse_order", 20)], [1001, 16_016])
        .add(&[("main", 11), ("print", 30)], [5, 50]);
    let old = base();
    let comparison = Comparison::new(old.side(), head.side());
    let [stack] = comparison.stacks(0, 9).try_into().unwrap();
    assert_eq!((stack.status, stack.moved, stack.change.delta()), (Status::Grown, true, 1));
    let function = &comparison.functions(0, 9)[0];
    assert_eq!((function.name.as_str(), function.was.as_deref()), ("parse_order", Some("parse")));
    assert_eq!((function.own.base, function.own.head), (1000, 1001));
}

#[test]
fn a_function_that_was_inlined_away_or_split_off_is_no_change() {
    let inlined = Build::new(0x9000).add(&[("main", 10)], [1000, 16_000]).add(&[("main", 11), ("print", 30)], [5, 50]);
    let split = Build::new(0x5000)
        .add(&[("main", 10), ("parse", 20), ("parse_word", 25)], [1000, 16_000])
        .add(&[("main", 11), ("print", 30)], [5, 50]);
    let old = base();
    for head in [&inlined, &split] {
        let comparison = Comparison::new(old.side(), head.side());
        assert_eq!(comparison.counts(0), counts(0, 0, 0, 0, 2, 1));
    }
    let back = Comparison::new(inlined.side(), old.side());
    assert_eq!(back.counts(0), counts(0, 0, 0, 0, 2, 1));
}

#[test]
fn what_is_really_new_is_new_and_what_is_gone_is_gone() {
    let head = base().add(&[("main", 12), ("log", 40)], [7, 70]);
    let old = base().add(&[("main", 14), ("trace", 41), ("write", 42)], [3, 30]);
    let comparison = Comparison::new(old.side(), head.side());
    // Both hang on `main` by functions that the other side does not know: they are not taken for one another with different values.
    let stacks = comparison.stacks(0, 9);
    let told: i64 = stacks.iter().map(|stack| stack.change.delta()).sum();
    assert_eq!(told, comparison.columns()[0].total.delta());
    let old = base();
    let comparison = Comparison::new(old.side(), head.side());
    let [stack] = comparison.stacks(0, 9).try_into().unwrap();
    assert_eq!((stack.status, stack.site.unwrap().line), (Status::New, 40));
    let comparison = Comparison::new(head.side(), old.side());
    let [stack] = comparison.stacks(0, 9).try_into().unwrap();
    assert_eq!((stack.status, stack.site.unwrap().name.as_str()), (Status::Gone, "log"));
}

#[test]
fn sampled_allocations_within_chance_are_noise() {
    let sampled = |objects| {
        let mut build = Build::new(0x1000).add(&[("main", 1), ("parse", 2)], [objects, objects * 512]);
        build.profile.period = 524_288;
        build
    };
    let (old, more, far_more) = (sampled(100_000), sampled(110_000), sampled(300_000));
    let comparison = Comparison::new(old.side(), more.side());
    assert_eq!(comparison.columns()[0].total.status(), Status::Noise);
    assert_eq!(comparison.counts(0).noise, 1);
    assert!(comparison.stacks(0, 9).is_empty());
    let comparison = Comparison::new(old.side(), far_more.side());
    assert_eq!(comparison.columns()[0].total.status(), Status::Grown);
    assert_eq!(comparison.stacks(0, 9).len(), 1);
}

/// Pseudo-random builds over few names: every way of pairing comes up.
fn random(seed: u64) -> Build {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut next = move |below: u64| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state % below
    };
    let names = ["main", "a", "b", "c", "d", "e", "f", "g"];
    let mut build = Build::new(0x1000 * (seed + 1));
    for _ in 0..40 {
        let depth = 1 + next(5) as usize;
        let levels: Vec<(&str, u32)> =
            (0..depth).map(|_| (names[next(8 - seed % 3) as usize], next(5) as u32)).collect();
        let objects = 1 + next(4) as i64;
        build = build.add(&levels, [objects, objects * 16]);
    }
    build
}

#[test]
fn nothing_is_lost_or_counted_twice_whatever_is_paired_with_what() {
    for seed in 0..60 {
        let (old, new) = (random(seed), random(seed + 100));
        let (there, back) = (Comparison::new(old.side(), new.side()), Comparison::new(new.side(), old.side()));
        for column in 0..2 {
            let total = there.columns()[column].total.delta();
            let of_stacks: i64 = there.stacks(column, usize::MAX).iter().map(|s| s.change.delta()).sum();
            let of_functions: i64 = there.functions(column, usize::MAX).iter().map(|f| f.own.delta()).sum();
            assert_eq!((of_stacks, of_functions), (total, total), "seed {seed}");
            assert_eq!(back.columns()[column].total.delta(), -total);
            for function in there.functions(column, usize::MAX) {
                let same_way = function.own.base <= function.total.base && function.own.head <= function.total.head;
                assert!(same_way, "seed {seed}: {function:?}");
            }
        }
        let own = Comparison::new(old.side(), old.side());
        assert_eq!((own.stacks(0, 9).len(), own.counts(0).moved), (0, 0));
    }
}

#[test]
fn the_picture_shows_both_and_says_what_is_gone() {
    let (old, new) = (base(), Build::new(0x9000).add(&[("main", 10), ("parse", 20)], [1500, 16_000]));
    let comparison = Comparison::new(old.side(), new.side());
    let mut svg = Vec::new();
    comparison.write_svg(0, "app", &mut svg).unwrap();
    let svg = String::from_utf8(svg).unwrap();
    assert!(
        svg.contains("<title>parse (1,500 count, 100.00%; +") || svg.contains("<title>parse (1,500 count"),
        "{svg}"
    );
    assert!(svg.contains("stacks that are gone, 5 count in all, are not shown"), "{svg}");
    let nothing = Build::new(0);
    let mut svg = Vec::new();
    Comparison::new(old.side(), nothing.side()).write_svg(0, "app", &mut svg).unwrap();
    assert!(String::from_utf8(svg).unwrap().contains("nothing in the head"));
    assert!(comparison.write_svg(7, "app", &mut Vec::new()).is_err());
}

#[test]
fn numbers_in_the_picture_are_exact_beyond_what_a_double_holds() {
    let (value, more) = ((1 << 53) + 1, (1 << 60) + 3);
    let (old, new) = (Build::new(0).add(&[("main", 1)], [value, 1]), Build::new(0).add(&[("main", 1)], [more, 1]));
    for (old, new, shown) in [(&old, &new, "1,152,921,504,606,846,979"), (&new, &old, "9,007,199,254,740,993")] {
        let mut svg = Vec::new();
        Comparison::new(old.side(), new.side()).write_svg(0, "app", &mut svg).unwrap();
        let svg = String::from_utf8(svg).unwrap();
        for title in [format!("<title>all ({shown} count, 100%)"), format!("<title>main ({shown} count, 100.00%; ")] {
            assert!(svg.contains(&title), "{title}: {svg}");
        }
    }
}
