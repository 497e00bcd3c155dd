//! The raw format keeps everything, tells damage from an early end, and takes on no more than it may.

use crate::support::{self, Random, encoded};
use profile_recorder_profile::decode::{self, DecodeErrorKind, Limits};
use profile_recorder_profile::{
    Event, Frame, Label, LabelValue, Options, Profile, Sample, SampleType, Symbols, ThreadId, encode, values,
};

fn raw(of: &(Profile, Symbols)) -> Vec<u8> {
    encoded(encode::raw::encode, of, &Options::default())
}

/// Names and values that other formats have trouble with.
fn odd() -> (Profile, Symbols) {
    let (mut profile, symbols) = support::cpu();
    for name in ["a;b", "two\nlines", "", "\0", "<b>&\"'", "\u{fffd}", &"x".repeat(10_000)] {
        let stack = profile.stacks.intern([Frame::named("main"), Frame::Named(name.to_owned().into())]);
        let labels = vec![
            Label::text(name.to_owned(), name),
            Label { key: "size".into(), value: LabelValue::Number { value: i64::MIN, unit: Some(name.into()) } },
        ];
        profile.samples.push(Sample {
            stack,
            thread: None,
            labels: labels.into(),
            values: values![i64::MAX, i64::MIN],
        });
        profile.comments.push(name.to_owned());
    }
    let deep = profile.stacks.intern((0..1000).map(|i| Frame::Named(format!("recurse_{}", i % 3).into())));
    profile.events.push(Event { unix_ns: i64::MIN, thread: ThreadId(0), stack: deep, weight: -1 });
    profile.events.push(Event { unix_ns: i64::MAX, thread: ThreadId(1), stack: deep, weight: i64::MAX });
    (profile, symbols)
}

#[test]
fn what_was_written_is_read_back_as_it_was() {
    let empty = (Profile::new(vec![SampleType::new("cpu", "nanoseconds")]), Symbols::new());
    for of in [support::cpu(), support::heap(), support::large(20_000, 700), odd(), empty] {
        let bytes = raw(&of);
        let again = decode::raw::decode(&bytes, Limits::default()).unwrap();
        assert!(again == of);
        assert!(raw(&again) == bytes);
    }
}

#[test]
fn through_pprof_and_back_every_value_stays() {
    for of in [support::cpu(), support::heap(), support::large(3000, 200), odd()] {
        let read = decode::raw::decode(&raw(&of), Limits::default()).unwrap();
        let pprof = encoded(encode::pprof::encode, &read, &Options::default());
        let again = decode::pprof::decode(&pprof, Limits::default()).unwrap();
        let again = decode::raw::decode(&raw(&again), Limits::default()).unwrap();
        let values = |profile: &Profile| {
            let mut values: Vec<_> = profile.samples.iter().map(|sample| sample.values.clone()).collect();
            values.sort();
            values
        };
        assert_eq!(values(&again.0), values(&of.0));
    }
}

#[test]
fn a_file_that_was_cut_off_is_a_profile_of_what_it_still_holds() {
    let of = support::large(20_000, 5);
    let bytes = raw(&of);
    let mut most = 0;
    for length in (0..bytes.len()).step_by(bytes.len() / 20) {
        let Ok((profile, _)) = decode::raw::decode(&bytes[..length], Limits::default()) else {
            assert!(length < 100, "there is no head in {length} bytes");
            continue;
        };
        let count = profile.samples.len();
        assert_eq!(profile.comments, [format!("the file ends early: {count} samples were read")]);
        assert!(count >= most && count <= of.0.samples.len());
        // They are the first of the file, with stacks and threads as they were.
        for (sample, expected) in profile.samples.iter().zip(&of.0.samples).step_by(97) {
            assert_eq!(sample, expected);
            let frames =
                |profile: &Profile| profile.stacks.frames_leaf_first(sample.stack).cloned().collect::<Vec<_>>();
            assert_eq!(frames(&profile), frames(&of.0));
        }
        most = count;
    }
    assert!(most > 0, "a part is there before the end");
}

#[test]
fn every_changed_bit_of_a_chunk_is_noticed() {
    let bytes = raw(&support::cpu());
    let whole = decode::raw::decode(&bytes, Limits::default()).unwrap();
    for at in 0..bytes.len() {
        for bit in 0..8 {
            let mut changed = bytes.clone();
            changed[at] ^= 1 << bit;
            match decode::raw::decode(&changed, Limits::default()) {
                Err(error) => assert_eq!(error.kind(), DecodeErrorKind::Corrupt),
                // A length that leads beyond the end looks like a file that was cut off, and says so.
                Ok((profile, _)) => {
                    assert_ne!(profile, whole.0);
                    assert!(
                        profile.comments.last().unwrap().starts_with("the file ends early"),
                        "byte {at}, bit {bit}"
                    );
                }
            }
        }
    }
}

#[test]
fn a_version_that_is_not_known_and_a_file_that_is_too_large_are_told_apart() {
    let mut bytes = raw(&support::large(20_000, 100));
    let error = decode::raw::decode(&bytes, Limits { bytes: 100_000 }).unwrap_err();
    assert_eq!(error.kind(), DecodeErrorKind::TooLarge);
    bytes[8] = 2;
    let error = decode::raw::decode(&bytes, Limits::default()).unwrap_err();
    assert_eq!(error.to_string(), "is of version 2 of the raw format, known is 1");
}

#[test]
fn what_is_checksummed_and_yet_makes_no_sense_is_an_error() {
    let whole = raw(&support::cpu());
    let mut random = Random(11);
    let mut errors = 0;
    for _ in 0..1500 {
        // One chunk's contents changed, and its checksum made to fit.
        let mut bytes = whole.clone();
        let starts = chunks(&bytes);
        let (start, length) = starts[random.below(starts.len() as u64) as usize];
        let mut content = Vec::new();
        let payload = &bytes[start + 9..start + 9 + length];
        std::io::Read::read_to_end(&mut flate2::read::DeflateDecoder::new(payload), &mut content).unwrap();
        let at = random.below(content.len() as u64) as usize;
        content[at] = random.next() as u8;
        let mut deflater = flate2::write::DeflateEncoder::new(Vec::new(), flate2::Compression::fast());
        std::io::Write::write_all(&mut deflater, &content).unwrap();
        let payload = deflater.finish().unwrap();
        let mut hasher = crc32fast::Hasher::new();
        hasher.update(&[bytes[start]]);
        hasher.update(&payload);
        let head =
            [&[bytes[start]], &(payload.len() as u32).to_le_bytes()[..], &hasher.finalize().to_le_bytes()].concat();
        bytes.splice(start..start + 9 + length, [head, payload].concat());
        match decode::raw::decode(&bytes, Limits::default()) {
            Err(_) => errors += 1,
            Ok(of) => {
                encoded(encode::pprof::encode, &of, &Options::default());
                encoded(encode::perf::encode, &of, &Options::default());
            }
        }
    }
    assert!(errors > 150, "{errors}");
}

/// Where chunks begin, and how long their payloads are.
fn chunks(bytes: &[u8]) -> Vec<(usize, usize)> {
    let (mut at, mut found) = (9, Vec::new());
    while at < bytes.len() {
        let length = u32::from_le_bytes(bytes[at + 1..at + 5].try_into().unwrap()) as usize;
        found.push((at, length));
        at += 9 + length;
    }
    found
}
