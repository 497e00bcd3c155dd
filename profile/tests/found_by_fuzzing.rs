//! What the fuzz targets found, and what looking for the like found: each as small as it gets.

#[path = "support/store.rs"]
#[allow(unreachable_pub, dead_code, reason = "shared with other tests")]
mod built;

use built::Store;
use layout::{CHUNK, Module, RecordId};
use profile_recorder_profile::decode::{self, DecodeErrorKind, Limits};
use profile_recorder_profile::{
    Frame, LabelValue, Labels, Options, Profile, Sample, SampleType, Symbols, encode, values,
};
use std::mem::offset_of;

/// A field of a protocol buffer that holds bytes, a message or packed numbers.
fn field(tag: u8, bytes: &[u8]) -> Vec<u8> {
    let mut all = vec![tag << 3 | 2];
    let mut length = bytes.len();
    while length >= 0x80 {
        all.push(length as u8 | 0x80);
        length >>= 7;
    }
    all.push(length as u8);
    all.extend(bytes);
    all
}

/// A field that holds a small number.
fn number(tag: u8, number: u8) -> [u8; 2] {
    assert!(number < 0x80);
    [tag << 3, number]
}

const SAMPLE_TYPE: u8 = 1;
const SAMPLE: u8 = 2;
const MAPPING: u8 = 3;
const LOCATION: u8 = 4;
const FUNCTION: u8 = 5;
const STRING: u8 = 6;
const COMMENT: u8 = 13;

const LONG: usize = 10_000;

/// The beginning of a pprof file: string 1 is long, string 2 is not.
fn pprof() -> Vec<u8> {
    [
        field(SAMPLE_TYPE, &[number(1, 2), number(2, 2)].concat()),
        field(STRING, b""),
        field(STRING, &[b'x'; LONG]),
        field(STRING, b"short"),
    ]
    .concat()
}

fn assert_too_large(file: &[u8]) {
    let limits = Limits { bytes: 100_000 };
    assert!(file.len() < limits.bytes);
    let error = decode::pprof::decode(file, limits).expect_err("the profile is a hundred times larger than its file");
    assert_eq!(error.kind(), DecodeErrorKind::TooLarge);
}

#[test]
fn a_long_text_that_comments_name_a_thousand_times_is_too_large() {
    assert_too_large(&[pprof(), field(COMMENT, &[1; 1000])].concat());
    assert!(decode::pprof::decode(&[pprof(), field(COMMENT, &[2; 1000])].concat(), Limits::default()).is_ok());
}

/// Found by reading: such a frame was left out of its stacks.
#[test]
fn a_location_without_a_function_has_the_name_that_another_gives_its_address() {
    const ADDRESS: [u8; 2] = [3 << 3, 5];
    let named = field(LOCATION, &[&number(1, 1)[..], &ADDRESS, &field(4, &number(1, 1))].concat());
    let other = field(LOCATION, &[number(1, 2), ADDRESS].concat());
    let function = field(FUNCTION, &[number(1, 1), number(2, 2)].concat());
    let sample = field(SAMPLE, &[field(1, &[2, 1]), field(2, &[1])].concat());
    let file = [pprof(), named, other, function, sample].concat();
    let (profile, symbols) = decode::pprof::decode(&file, Limits::default()).unwrap();
    let stack = profile.samples[0].stack;
    let names: Vec<&str> =
        profile.stacks.frames_leaf_first(stack).flat_map(|frame| symbols.get(frame)).map(|f| &*f.name).collect();
    assert_eq!(names, ["short", "short"]);
}

/// Found by reading: the time for it grew with the square of their number.
#[test]
fn a_location_may_have_many_functions() {
    const COUNT: usize = 200_000;
    let function = field(FUNCTION, &[number(1, 1), number(2, 2)].concat());
    let lines = field(4, &number(1, 1)).repeat(COUNT);
    let location = field(LOCATION, &[&number(1, 1)[..], &[3 << 3, 5], &lines].concat());
    let sample = field(SAMPLE, &[field(1, &[1]), field(2, &[1])].concat());
    let file = [pprof(), function, location, sample].concat();
    let (profile, symbols) = decode::pprof::decode(&file, Limits::default()).unwrap();
    let inlined: Vec<bool> = symbols.get(&profile.stacks.frames()[0]).iter().map(|function| function.inlined).collect();
    assert_eq!(inlined.len(), COUNT);
    assert_eq!(inlined.iter().position(|inlined| !inlined), Some(COUNT - 1), "all but the one that encloses them");
}

#[test]
fn a_long_text_that_a_thousand_mappings_name_is_too_large() {
    let mapping = |id: u16| {
        let id = [1 << 3, id as u8 | 0x80, (id >> 7) as u8];
        field(MAPPING, &[&id[..], &number(5, 1)].concat())
    };
    assert_too_large(&[pprof(), (1..1000).flat_map(mapping).collect()].concat());
}

#[test]
fn a_long_text_that_a_thousand_sets_of_labels_hold_is_too_large() {
    let label = field(3, &[number(1, 2), number(2, 1)].concat());
    let sample = |labels: &[u8]| field(SAMPLE, &[&field(2, &[1])[..], &label, labels].concat());
    let different = (0..1000).flat_map(|i| {
        let numbers = [i % 100, i / 100].map(|i| field(3, &[number(1, 2), number(3, i as u8)].concat()));
        sample(&numbers.concat())
    });
    assert_too_large(&pprof().into_iter().chain(different).collect::<Vec<u8>>());
    // Samples share a set.
    let (profile, _) =
        decode::pprof::decode(&[pprof(), sample(&[]).repeat(1000)].concat(), Limits { bytes: 100_000 }).unwrap();
    assert_eq!(profile.samples.len(), 1000);
    let text = |at: usize| match &profile.samples[at].labels[0].value {
        LabelValue::Text(text) => text.as_str(),
        LabelValue::Number { .. } => panic!("a number"),
    };
    assert!(text(999).len() == LONG && std::ptr::eq(text(0), text(999)));
}

#[test]
fn a_thousand_locations_of_a_thousand_frames_each_are_too_large() {
    let function = field(FUNCTION, &[number(1, 1), number(2, 2)].concat());
    let line = field(4, &number(1, 1));
    let location = field(LOCATION, &[&number(1, 1)[..], &line.repeat(1000)].concat());
    let sample = field(SAMPLE, &[field(1, &[1; 1000]), field(2, &[1])].concat());
    assert_too_large(&[pprof(), function, location, sample].concat());
}

#[test]
fn a_damaged_length_makes_no_path_as_long_as_the_store() {
    let mut store = Store::new(layout::modes::ALLOCS, "/bin/app");
    let thread = store.thread(1, "main", 0, 0);
    let root = store.root(layout::Root::Allocs, thread);
    let frame = layout::Frame::return_address(layout::ModuleIndex::new(1).unwrap(), 0x1000_1000);
    let node = store.node(root, frame);
    store.alloc_values(node, [1 << 16, 1, 0, 0, 0]);
    store.module(1, "/lib/long.so", 0x1000_0000, 0x1000_0000, false);
    let modules = store.bytes.len() - CHUNK;
    store.u32(modules + offset_of!(Module, path), RecordId::at_offset(node.offset() & !(CHUNK - 1)).0);
    store.u32(modules + offset_of!(Module, path_length), 2 * CHUNK as u32);
    let allocs = profile_recorder_profile::store::decode(&store.bytes).unwrap().allocs.unwrap();
    // Bytes that are no text become up to three each.
    assert!(allocs.mappings[0].path.len() <= 3 * CHUNK, "{} bytes", allocs.mappings[0].path.len());
    assert!(allocs.mappings[0].path.chars().count() <= CHUNK);
}

#[test]
fn a_name_that_begins_with_a_control_character_and_a_hash_is_no_comment() {
    let mut profile = Profile::new(vec![SampleType::new("samples", "count")]);
    for name in ["\0# not a comment", "\u{1}", "ends in one\n"] {
        let stack = profile.stacks.intern([Frame::named(name)]);
        profile.samples.push(Sample { stack, thread: None, labels: Labels::new(), values: values![7] });
    }
    let mut written = Vec::new();
    encode::collapsed::encode(&profile, &Symbols::new(), &Options::default(), &mut written).unwrap();
    assert_eq!(String::from_utf8(written).unwrap(), "_ 7\n_# not a comment 7\nends in one 7\n");
}

#[test]
fn counts_that_cancel_each_other_out_are_not_written_one_by_one() {
    let mut profile = Profile::new(vec![SampleType::new("samples", "count")]);
    for (name, value) in [("more", i64::MAX), ("less", -i64::MAX)] {
        let stack = profile.stacks.intern([Frame::named(name)]);
        profile.samples.push(Sample { stack, thread: None, labels: Labels::new(), values: values![value] });
    }
    let mut written = Vec::new();
    encode::perf::encode(&profile, &Symbols::new(), &Options::default(), &mut written).unwrap();
    let entries = String::from_utf8(written).unwrap().lines().filter(|line| line.ends_with(" samples: ")).count();
    assert_eq!(entries, 1, "what is less cannot be expressed");
}
