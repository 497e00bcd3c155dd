//! What one format says, read back, is what the model says: totals, and every function's self and total.

use crate::support::{self, Random, encoded};
use profile_recorder_profile::decode::{self, DecodeErrorKind, Limits, Readable};
use profile_recorder_profile::top::{self, Leaf};
use profile_recorder_profile::{
    AddressKind, Format, Frame, Label, Labels, Options, Profile, Sample, SampleType, Stacks, SymbolFrame, Symbols,
    Thread, ThreadId, values,
};

fn written(format: Format, of: &(Profile, Symbols), column: usize) -> Vec<u8> {
    let options = Options { sample_type: Some(column), ..Options::default() };
    encoded(|p, s, o, w| format.encode(p, s, o, w), of, &options)
}

/// Functions as the folded formats can name them.
fn functions((profile, symbols): &(Profile, Symbols), column: usize) -> Vec<(String, i64, i64)> {
    let all = top::functions(profile, symbols, column, Leaf::Recorded).into_iter();
    let mut rows: Vec<_> =
        all.map(|f| (f.name.replace(';', ":").replace("libc.so.6+0x30000", "?"), f.self_value, f.total)).collect();
    rows.iter_mut().filter(|row| row.0.contains("+0x")).for_each(|row| row.0 = "?".into());
    rows.sort();
    rows
}

#[test]
fn every_readable_format_brings_totals_and_functions_back() {
    for (name, of) in [("cpu", support::cpu()), ("heap", support::heap()), ("large", support::large(500, 60))] {
        let types = of.0.sample_types.clone();
        for (format, readable) in [
            (Format::Pprof, Readable::Pprof),
            (Format::Perf, Readable::Perf),
            (Format::Col, Readable::Col),
            (Format::Collapsed, Readable::Collapsed),
            (Format::Raw, Readable::Raw),
        ] {
            for (column, sample_type) in types.iter().enumerate() {
                // Two processes: collapsed stacks begin with a frame for each.
                if name == "heap" && format == Format::Collapsed {
                    continue;
                }
                let bytes = written(format, &of, column);
                let read = decode::read(&bytes, Limits::default()).unwrap();
                if format != Format::Pprof {
                    assert_eq!(Readable::of(&bytes), readable);
                }
                let of_column = match format {
                    Format::Pprof | Format::Raw => column,
                    // Entries, then what they stand for.
                    Format::Perf => 1,
                    _ => 0,
                };
                let what = format!("{name} {format} {sample_type:?}");
                assert_eq!(read.0.total(of_column), of.0.total(column), "{what}");
                assert_eq!(functions(&read, of_column), functions(&of, column), "{what}");
                if matches!(format, Format::Pprof | Format::Raw | Format::Col) {
                    assert_eq!(read.0.sample_types[of_column], *sample_type, "{what}");
                }
            }
        }
    }
}

#[test]
fn perf_script_text_brings_threads_and_times_back() {
    let mut of = support::cpu();
    of.0.events.clear();
    let (read, _) = decode::perf::decode(&written(Format::Perf, &of, 1), Limits::default()).unwrap();
    let threads: Vec<_> = read.threads.iter().map(|t| (t.name.as_str(), t.pid, t.tid)).collect();
    assert!(threads.contains(&("main", 4711, 4711)) && threads.contains(&("worker_7", 4711, 4712)), "{threads:?}");
    assert_eq!(read.sample_types, of.0.sample_types);
    assert_eq!(read.total(0), of.0.total(0), "as many entries as samples");
    assert_eq!(read.start_unix_ns / 1000, of.0.start_unix_ns / 1000);
    assert_eq!(read.comments, of.0.comments);
}

#[test]
fn col_brings_container_and_application_back() {
    let mut profile = Profile::new(vec![SampleType::new("alloc_space", "bytes")]);
    profile.threads = vec![Thread { process: "od;d 7".into(), name: "t".into(), ..Thread::default() }];
    profile.comments = vec!["a \"comment\"\nof two lines".into()];
    let stack = profile.stacks.intern(["main", "f"].map(Frame::named));
    let labels = vec![Label::text("container", "web"), Label::text("appid", "java: a;b 3")];
    profile.samples.push(Sample {
        stack,
        thread: Some(ThreadId(0)),
        labels: labels.into(),
        values: values![(1 << 53) + 1],
    });
    profile.samples.push(Sample { stack, thread: None, labels: Labels::new(), values: values![-7] });
    let bytes = written(Format::Col, &(profile.clone(), Symbols::new()), 0);
    let (read, _) = decode::read(&bytes, Limits::default()).unwrap();
    assert_eq!((&read.sample_types, &read.comments), (&profile.sample_types, &profile.comments));
    let mut samples: Vec<_> = read.samples.iter().map(|s| (s.values[0], s.labels.clone(), s.thread)).collect();
    samples.sort();
    assert_eq!(samples[0], (-7, Labels::new(), None));
    assert_eq!(*samples[1].1, [Label::text("container", "web"), Label::text("appid", "java: a:b_3")]);
    assert_eq!(read.threads[0].process, "od:d_7");
}

/// What one thread is about to run is where another's call will return to: in pprof they are one place, whichever of the two has a name.
#[test]
fn an_address_of_both_kinds_is_one_location() {
    for (named, other) in [(0, 1), (1, 0)] {
        let frames = [
            support::at(0, 0x2101, AddressKind::ReturnAddress),
            support::at(0, 0x2100, AddressKind::Instruction),
            Frame::named("[no stack]"),
        ];
        let mut profile = support::cpu().0;
        (profile.samples, profile.events, profile.stacks) = Default::default();
        let stacks = [named, other, 2].map(|of| profile.stacks.intern([frames[of].clone()]));
        for stack in [stacks[0], stacks[1], stacks[2], Stacks::ROOT] {
            profile.samples.push(Sample { stack, thread: None, labels: Labels::new(), values: values![1, 10] });
        }
        for of in [named, other] {
            let mut symbols = Symbols::new();
            symbols.insert(frames[of].address().unwrap(), vec![SymbolFrame::named("both")]);
            let bytes = written(Format::Pprof, &(profile.clone(), symbols), 0);
            let (read, symbols) = decode::read(&bytes, Limits::default()).unwrap();
            let read_frames = read.stacks.frames();
            assert_eq!(read_frames.len(), 2, "{read_frames:?}");
            let names: Vec<_> = read_frames.iter().flat_map(|frame| symbols.get(frame)).collect();
            assert_eq!(names.len(), 1, "{names:?}");
            assert_eq!(&*names[0].name, "both");
            assert_eq!(read.samples.len(), 4);
        }
    }
}

#[test]
fn files_are_known_by_their_contents_gzipped_too() {
    for (text, expected) in [
        ("main;f 1\n", Readable::Collapsed),
        ("# note\nmain;f 1\n", Readable::Collapsed),
        ("", Readable::Collapsed),
        ("# {\"metadata\": {}}\n0;;c;main 1\n", Readable::Col),
        ("# captured\n\ncomm 1/2 3.4: 5 cycles:\n\tff main (x)\n\n", Readable::Perf),
        ("{\"dhatFileVersion\":2,\"pps\":[],\"ftbl\":[]}", Readable::Dhat),
        ("PROFREC\0\x01", Readable::Raw),
    ] {
        assert_eq!(Readable::of(text.as_bytes()), expected, "{text:?}");
    }
    let collapsed = b"main;f 41\n";
    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    std::io::Write::write_all(&mut gzip, collapsed).unwrap();
    let (read, _) = decode::read(&gzip.finish().unwrap(), Limits::default()).unwrap();
    assert_eq!(read.total(0), 41);
}

#[test]
fn no_reader_takes_on_more_than_it_may() {
    let of = support::large(2000, 200);
    for format in [Format::Pprof, Format::Perf, Format::Col, Format::Collapsed, Format::Raw] {
        let error = decode::read(&written(format, &of, 1), Limits { bytes: 1000 }).unwrap_err();
        assert_eq!(error.kind(), DecodeErrorKind::TooLarge, "{format}");
    }
}

#[test]
fn damaged_texts_are_errors_and_never_panics() {
    let of = support::cpu();
    let mut random = Random(5);
    for format in [Format::Perf, Format::Col, Format::Collapsed] {
        let whole = written(format, &of, 1);
        let mut errors = 0;
        for _ in 0..2000 {
            let mut bytes = whole.clone();
            for _ in 0..1 + random.below(4) {
                let at = random.below(bytes.len() as u64) as usize;
                bytes[at] = random.next() as u8;
            }
            if random.below(4) == 0 {
                bytes.truncate(random.below(bytes.len() as u64) as usize);
            }
            errors += usize::from(decode::read(&bytes, Limits::default()).is_err());
        }
        assert!(errors > 50, "{format}: {errors}");
    }
}
