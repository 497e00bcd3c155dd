//! Stores built by hand decode into the profiles they mean; damaged ones into something, never into a panic.

#[path = "support/store.rs"]
#[allow(unreachable_pub, reason = "shared with nobody yet")]
mod built;
mod support;

use built::Store;
use layout::{Frame as Word, Function, Lost, ModuleIndex, Pseudo, Root, State, Truncated, modes};
use profile_recorder_profile::store::{self, StoreError};
use profile_recorder_profile::{AddressKind, Frame, Label, MappingId, Options, Profile, Sample, Svma, Symbols, encode};

const ONE: u64 = 1 << layout::OBJECTS_FRACTION_BITS;

fn module(index: u16) -> ModuleIndex {
    ModuleIndex::new(index).unwrap()
}

/// Names of a stack, root first: `exe+0x10` for addresses.
fn stack(profile: &Profile, sample: &Sample) -> Vec<String> {
    let symbols = Symbols::new();
    let frames = profile.stacks.frames_leaf_first(sample.stack);
    let mut names: Vec<_> =
        frames.map(|f| profile_recorder_profile::names::of(f, profile, &symbols)[0].clone().into_owned()).collect();
    names.reverse();
    names
}

/// Two threads that allocate: exact values, fractions, a truncated stack, a stack of a thread's that was not kept.
fn allocations(modes: u32) -> Store {
    let mut store = Store::new(modes, "/usr/bin/app");
    let main = store.thread(77, "main", 5, 500);
    let pool = store.thread(0, "pool", 7, 700);
    store.module(1, "/lib/libc.so.6", 0x7000_0000, 0x7000_0000 - 0x1000, false);
    store.module(2, "/usr/bin/app", 0x5000_0000, 0x5000_0000, false);
    store.module(3, "/cache/libprofrec_preload.so", 0x6000_0000, 0x6000_0000, true);
    let root = store.root(Root::Allocs, main);
    let start = store.node(root, Word::return_address(module(1), 0x7000_0100));
    let f = store.node(start, Word::return_address(module(2), 0x5000_0200));
    // Through our own library: the frame goes, what is on both sides of it stays.
    let own = store.node(f, Word::return_address(module(3), 0x6000_0300));
    let malloc = store.node(own, Word::pseudo(Pseudo::Function(Function::Malloc)));
    store.alloc_values(malloc, [3 * ONE, 300, ONE, 100, ONE / 2]);
    let same = store.node(f, Word::pseudo(Pseudo::Function(Function::Malloc)));
    store.alloc_values(same, [ONE + ONE / 4, 100, 0, 0, ONE / 4]);
    let calloc = store.node(f, Word::pseudo(Pseudo::Function(Function::Calloc)));
    store.alloc_values(calloc, [ONE, 8, ONE, 8, 0]);
    let root = store.root(Root::Allocs, pool);
    let cut = store.node(root, Word::pseudo(Pseudo::Truncated(Truncated::NoTable)));
    let nowhere = store.node(cut, Word::instruction(ModuleIndex::NONE, 0x1234));
    store.alloc_values(nowhere, [ONE, 16, 0, 0, 0]);
    let lost = store.node(root, Word::pseudo(Pseudo::Lost(Lost::StoreFull)));
    store.alloc_values(lost, [2 * ONE, 32, 0, 0, 0]);
    store
}

#[test]
fn a_malloc_of_the_executables_own_is_told_in_profiles_of_allocations() {
    let mut store = allocations(modes::ALLOCS);
    let decoded = store::decode(&store.bytes).unwrap();
    assert_eq!(decoded.unseen(), None);
    let before = decoded.allocs.unwrap().comments;
    store.u64(std::mem::offset_of!(layout::Header, own_malloc), 1);
    let decoded = store::decode(&store.bytes).unwrap();
    let unseen = "app exports its own malloc; calls that it makes itself without an import slot are not seen";
    assert_eq!(decoded.unseen().as_deref(), Some(unseen));
    let comments = decoded.allocs.unwrap().comments;
    assert_eq!(comments, [before, vec![format!("app (pid 77): {unseen}")]].concat());
}

#[test]
fn allocations_decode_with_their_stacks_threads_and_rounded_counts() {
    let decoded = store::decode(&allocations(modes::ALLOCS | modes::HEAP).bytes).unwrap();
    assert_eq!((decoded.pid, decoded.parent_pid, decoded.process(), decoded.ended), (77, 7, "app", false));
    assert_eq!((decoded.counts.calls_of(Function::Malloc), decoded.counts.bytes_of(Function::Malloc)), (12, 1200));
    assert!(decoded.cpu.is_none() && decoded.wall.is_none());
    let profile = decoded.allocs.unwrap();
    assert_eq!(profile.default_column(), 3);
    assert_eq!((profile.start_unix_ns, profile.duration_ns), (1_700_000_000_000_000_000, 1_000_000_000));
    let paths: Vec<_> = profile.mappings.iter().map(|m| m.path.as_str()).collect();
    assert_eq!(paths, ["/usr/bin/app", "/lib/libc.so.6"], "the executable comes first, our own library not at all");
    assert_eq!(profile.mappings[0].build_id, [2; 20]);
    let samples: Vec<_> = profile
        .samples
        .iter()
        .map(|s| {
            (stack(&profile, s).join(" "), profile.threads[s.thread.unwrap().index()].name.as_str(), &s.values[..])
        })
        .collect();
    let expected: [(&str, &str, &[i64]); 4] = [
        ("libc.so.6+0x10ff app+0x1ff malloc", "main", &[4, 400, 3, 300, 1]),
        ("libc.so.6+0x10ff app+0x1ff calloc", "main", &[1, 8, 0, 0, 0]),
        ("[truncated: no unwind table] [unknown]+0x1234", "pool", &[1, 16, 1, 16, 0]),
        ("[lost: store full]", "pool", &[2, 32, 2, 32, 0]),
    ];
    assert_eq!(samples, expected.map(|(stack, thread, values)| (stack.to_owned(), thread, values)));
    let keys: Vec<_> = profile.addresses().collect();
    assert!(keys.contains(&(Some(MappingId(0)), Svma(0x200), AddressKind::ReturnAddress)), "{keys:?}");
    assert!(keys.contains(&(None, Svma(0x1234), AddressKind::Instruction)), "{keys:?}");
}

#[test]
fn without_frees_there_are_no_columns_about_them() {
    let profile = store::decode(&allocations(modes::ALLOCS).bytes).unwrap().allocs.unwrap();
    assert_eq!(
        profile.sample_types.iter().map(|t| &*t.kind).collect::<Vec<_>>(),
        ["alloc_objects", "alloc_space", "temporary_objects"]
    );
    assert_eq!(profile.default_column(), 0);
    assert_eq!((profile.total(0), profile.total(1)), (8, 456));
}

#[test]
fn counts_alone_make_no_profile() {
    let mut store = Store::new(modes::STAT, "/bin/app");
    store.thread(1, "main", 3, 30);
    let decoded = store::decode(&store.bytes).unwrap();
    assert_eq!(decoded.counts.calls_of(Function::Malloc), 3);
    assert_eq!((decoded.allocs, decoded.cpu, decoded.wall), (None, None, None));
}

#[test]
fn what_the_header_counts_as_lost_becomes_a_sample_and_a_comment() {
    let mut store = allocations(modes::ALLOCS);
    store.lose(Lost::Reentered, 2, 64);
    store.lose(Lost::LogFull, 9, 9);
    let profile = store::decode(&store.bytes).unwrap().allocs.unwrap();
    let lost = profile.samples.iter().find(|s| stack(&profile, s) == ["[lost: inside the recorder]"]).unwrap();
    assert_eq!((lost.thread, &lost.values[..]), (None, &[2, 64, 0][..]));
    assert_eq!(profile.comments, ["app (pid 77): lost: 2 events, 64 bytes (inside the recorder)"]);
}

#[test]
fn losses_of_two_modes_at_once_belong_to_the_mode_that_lost() {
    let mut store = allocations(modes::ALLOCS | modes::CPU);
    store.lose(Lost::Reentered, 2, 64);
    store.lose(Lost::TimeStoreFull, 1, 5_000_000);
    let decoded = store::decode(&store.bytes).unwrap();
    let (allocs, cpu) = (decoded.allocs.unwrap(), decoded.cpu.unwrap());
    let lost = |profile: &Profile| {
        let lost = profile.samples.iter().filter(|s| stack(profile, s).iter().any(|frame| frame.starts_with("[lost")));
        lost.map(|s| s.values.to_vec()).filter(|values| values[..2] != [2, 32]).collect::<Vec<_>>()
    };
    assert_eq!(lost(&allocs), [vec![2, 64, 0]]);
    assert_eq!(lost(&cpu), [vec![1, 5_000_000]]);
    assert_eq!(allocs.comments, ["app (pid 77): lost: 2 events, 64 bytes (inside the recorder)"]);
    assert_eq!(cpu.comments, ["app (pid 77): lost: 1 events, 5.000 ms (store full)"]);
}

fn time() -> Store {
    let mut store = Store::new(modes::CPU | modes::WALL, "/usr/bin/app");
    let main = store.thread(77, "main", 0, 0);
    let pool = store.thread(0, "pool", 0, 0);
    store.module(1, "/usr/bin/app", 0x5000_0000, 0x5000_0000, false);
    let root = store.root(Root::Cpu, main);
    let f = store.node(root, Word::return_address(module(1), 0x5000_0100));
    let g = store.node(f, Word::instruction(module(1), 0x5000_0200));
    store.time_values(g, 3, 30_000_000);
    store.time_values(f, 1, 9_000_000);
    let root = store.root(Root::Cpu, pool);
    let h = store.node(root, Word::instruction(module(1), 0x5000_0300));
    store.time_values(h, 2, 20_000_000);
    store.time_sample(h, pool, 80, 2_000, 10_000_000);
    store.time_sample(g, main, 77, 1_000, 10_000_000);
    store.time_sample(h, pool, 81, 3_000, 10_000_000);
    let root = store.root(Root::Wall, main);
    let wait = store.node(root, Word::return_address(module(1), 0x5000_0400));
    let off = store.node(wait, Word::pseudo(Pseudo::State(State::OffCpu)));
    let call = store.node(off, Word::pseudo(Pseudo::SystemCall(u32::MAX)));
    store.time_values(call, 5, 50_000_000);
    let on = store.node(wait, Word::pseudo(Pseudo::State(State::OnCpu)));
    store.time_values(on, 1, 10_000_000);
    store
}

#[test]
fn time_decodes_by_mode_with_states_as_labels_and_samples_in_order() {
    let decoded = store::decode(&time().bytes).unwrap();
    let (cpu, wall) = (decoded.cpu.unwrap(), decoded.wall.unwrap());
    assert!(decoded.allocs.is_none());
    assert_eq!((cpu.total(0), cpu.total(1), cpu.period), (6, 59_000_000, 10_000_000));
    let start = cpu.start_unix_ns;
    let events: Vec<_> =
        cpu.events.iter().map(|e| (e.unix_ns - start + 5_000, cpu.threads[e.thread.index()].tid)).collect();
    assert_eq!(events, [(1_000, 77), (2_000, 80), (3_000, 81)], "a record of several threads keeps their ids apart");
    let leaf = cpu.stacks.frame(cpu.events[0].stack).unwrap();
    assert_eq!(
        *leaf,
        Frame::Address { mapping: Some(MappingId(0)), svma: Svma(0x200), kind: AddressKind::Instruction }
    );

    assert_eq!(wall.sample_types[1].kind, "wall");
    let samples: Vec<_> =
        wall.samples.iter().map(|s| (stack(&wall, s).join(" "), s.labels.to_vec(), s.values[1])).collect();
    let labels = [
        vec![Label::text("state", "off-cpu"), Label::text("syscall", "4294967295")],
        vec![Label::text("state", "on-cpu")],
    ];
    assert_eq!(
        samples,
        [("app+0x3ff".into(), labels[0].clone(), 50_000_000), ("app+0x3ff".into(), labels[1].clone(), 10_000_000)]
    );
}

/// One stack under two label sets and under none, and one whose set is not there.
fn labelled() -> Store {
    let mut store = Store::new(modes::ALLOCS | modes::WALL, "/usr/bin/app");
    let main = store.thread(77, "main", 0, 0);
    let (first, second) = (store.labels(&[("request", "1")]), store.labels(&[("user", "eve"), ("request", "2")]));
    let root = store.root(Root::Allocs, main);
    for (set, objects) in [(first, 2), (second, 3), (layout::RecordId(u32::MAX), 50)] {
        let below = store.node(root, Word::pseudo(Pseudo::Labels(set)));
        let malloc = store.node(below, Word::pseudo(Pseudo::Function(Function::Malloc)));
        store.alloc_values(malloc, [objects * ONE, objects * 10, 0, 0, 0]);
    }
    let malloc = store.node(root, Word::pseudo(Pseudo::Function(Function::Malloc)));
    store.alloc_values(malloc, [ONE, 10, 0, 0, 0]);
    let root = store.root(Root::Wall, main);
    let below = store.node(root, Word::pseudo(Pseudo::Labels(first)));
    let off = store.node(below, Word::pseudo(Pseudo::State(State::OffCpu)));
    store.time_values(off, 5, 50_000_000);
    store.lose(Lost::LabelsFull, 9, 0);
    store
}

#[test]
fn label_sets_become_labels_of_the_samples_below_them() {
    let decoded = store::decode(&labelled().bytes).unwrap();
    let (allocs, wall) = (decoded.allocs.unwrap(), decoded.wall.unwrap());
    let samples: Vec<_> = allocs.samples.iter().map(|s| (s.labels.to_vec(), s.values[0])).collect();
    let request = |value| Label::text("request", value);
    let sets = [vec![request("1")], vec![request("2"), Label::text("user", "eve")], vec![]];
    assert_eq!(samples, [(sets[0].clone(), 2), (sets[1].clone(), 3), (sets[2].clone(), 1)]);
    assert_eq!(*wall.samples[0].labels, [request("1"), Label::text("state", "off-cpu")]);
    for profile in [allocs, wall] {
        let comments =
            ["app (pid 77): lost: 9 labels (too many labels)", "app (pid 77): 1 stacks in its store could not be read"];
        assert_eq!(profile.comments, comments);
    }
}

#[test]
fn bytes_that_are_no_store_are_refused() {
    assert_eq!(store::decode(&[]).unwrap_err(), StoreError::NotAStore);
    let mut other = Store::new(0, "");
    other.u32(8, 99);
    assert_eq!(store::decode(&other.bytes).unwrap_err(), StoreError::Version(99));
}

#[test]
fn nodes_that_lead_in_circles_are_left_out_and_told() {
    let mut store = allocations(modes::ALLOCS);
    let a = store.node(layout::RecordId::NONE, Word::instruction(module(1), 1));
    let b = store.node(a, Word::instruction(module(1), 2));
    store.u32(a.offset(), b.0);
    store.alloc_values(b, [ONE, 1, 0, 0, 0]);
    let profile = store::decode(&store.bytes).unwrap().allocs.unwrap();
    assert_eq!(profile.total(0), 8);
    assert_eq!(profile.comments, ["app (pid 77): 1 stacks in its store could not be read"]);
}

/// Whatever the bytes are: a result, and one that every format can write.
fn survives(bytes: &[u8]) {
    let Ok(decoded) = store::decode(bytes) else { return };
    for mut profile in [decoded.allocs, decoded.cpu, decoded.wall].into_iter().flatten() {
        profile.sort();
        let of = (profile, Symbols::new());
        for format in profile_recorder_profile::Format::ALL {
            if format != profile_recorder_profile::Format::Html {
                support::encoded(|p, s, o, w| format.encode(p, s, o, w), &of, &Options::default());
            }
        }
        _ = support::encoded(encode::collapsed::encode, &of, &Options { thread_frames: true, ..Options::default() });
    }
}

#[test]
fn a_store_cut_off_anywhere_is_read_as_far_as_it_goes() {
    for store in [allocations(modes::ALLOCS | modes::HEAP), time(), labelled()] {
        for end in (0..store.bytes.len()).step_by(97) {
            survives(&store.bytes[..end]);
        }
    }
}

#[test]
fn no_damage_makes_the_decoder_panic() {
    let mut random = support::Random(7);
    for store in [allocations(modes::ALLOCS | modes::HEAP), time(), labelled()] {
        let written: Vec<usize> = (0..store.bytes.len()).filter(|i| store.bytes[*i] != 0).collect();
        for _ in 0..1500 {
            let mut bytes = store.bytes.clone();
            for _ in 0..1 + random.below(8) {
                // Mostly where there is something, sometimes anywhere.
                let near = written[random.below(written.len() as u64) as usize];
                let at = if random.below(4) == 0 { random.below(bytes.len() as u64) as usize } else { near };
                bytes[at] = if random.below(3) == 0 { 0xff } else { random.next() as u8 };
            }
            survives(&bytes);
        }
    }
}
