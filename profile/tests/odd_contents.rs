//! Names, values and shapes that formats are easily broken by.

mod support;

use inferno::collapse::Collapse;
use profile_recorder_profile::decode::{self, DecodeErrorKind, Limits};
use profile_recorder_profile::top::{self, Leaf};
use profile_recorder_profile::{
    Format, Frame, Labels, Options, Profile, Sample, SampleType, Symbols, Thread, ThreadId, encode, values,
};
use std::borrow::Cow;
use support::{ODD, encoded};

fn profile_of(stacks: impl IntoIterator<Item = (Vec<String>, i64)>) -> (Profile, Symbols) {
    let mut profile = Profile::new(vec![SampleType::new("samples", "count"), SampleType::new("cpu", "nanoseconds")]);
    for (names, value) in stacks {
        profile.threads.push(Thread {
            pid: 1,
            tid: profile.threads.len() as u32 + 1,
            name: names.first().cloned().unwrap_or_default(),
            process: "\"<odd>\"".into(),
            slot: 0,
        });
        let stack = profile.stacks.intern(names.into_iter().map(|name| Frame::Named(Cow::Owned(name))));
        let thread = Some(ThreadId(profile.threads.len() as u32 - 1));
        profile.samples.push(Sample { stack, thread, labels: Labels::new(), values: values![1, value] });
    }
    profile.comments = ODD.map(str::to_owned).to_vec();
    (profile, Symbols::new())
}

fn odd_names() -> (Profile, Symbols) {
    profile_of(
        ODD.iter().enumerate().map(|(i, name)| (vec!["main".into(), (*name).into(), "leaf".into()], 10 + i as i64)),
    )
}

fn text(format: Format, of: &(Profile, Symbols), options: &Options) -> String {
    let bytes = encoded(|p, s, o, w| format.encode(p, s, o, w), of, options);
    if matches!(format, Format::Pprof | Format::Raw) {
        String::new()
    } else {
        String::from_utf8(bytes).expect("every other format is UTF-8 text")
    }
}

/// A check that XML elements are closed in order and that text is escaped; enough for a flame graph.
fn well_formed(svg: &str) {
    let mut open = Vec::new();
    let mut rest = svg;
    while let Some(at) = rest.find('<') {
        assert!(!rest[..at].contains("]]>"), "the end of CDATA in text");
        rest = &rest[at..];
        let end = ["<!--", "<![CDATA["]
            .iter()
            .zip(["-->", "]]>"])
            .find(|(start, _)| rest.starts_with(**start))
            .map_or(">", |(_, e)| e);
        let length = rest.find(end).expect("a closing bracket") + end.len();
        let tag = &rest[1..length - 1];
        if let Some(name) = tag.strip_prefix('/') {
            assert_eq!(open.pop(), Some(name.trim()));
        } else if !tag.starts_with(['?', '!']) && !tag.ends_with('/') {
            assert!(!tag.contains('<'), "{tag}");
            open.push(tag.split_whitespace().next().unwrap());
        }
        rest = &rest[length..];
    }
    assert!(open.is_empty(), "{open:?}");
}

#[test]
fn odd_names_stay_what_they_are_in_pprof_and_json() {
    let of = odd_names();
    let bytes = encoded(encode::pprof::encode, &of, &Options::default());
    let (decoded, _) = decode::pprof::decode(&bytes, Limits::default()).unwrap();
    assert_eq!(decoded.comments, of.0.comments);
    let json: serde_json::Value = serde_json::from_str(&text(Format::Json, &of, &Options::default())).unwrap();
    let names: Vec<&str> = json["frames"].as_array().unwrap().iter().map(|f| f["name"].as_str().unwrap()).collect();
    for odd in ODD {
        assert!(names.contains(&odd), "{odd:?}");
        // pprof cannot tell an empty name from none.
        let expected = if odd.is_empty() { "[unnamed]" } else { odd };
        assert!(decoded.stacks.frames().contains(&Frame::Named(Cow::Borrowed(expected))), "{odd:?}");
    }
}

#[test]
fn odd_names_are_one_frame_and_keep_their_values_in_collapsed_stacks() {
    let of = odd_names();
    for options in [Options::default(), Options { thread_frames: true, ..Options::default() }] {
        let text = text(Format::Collapsed, &of, &options);
        let read = decode::collapsed::decode(text.as_bytes(), SampleType::new("cpu", "nanoseconds"), Limits::default())
            .unwrap();
        assert_eq!(read.total(0), of.0.total(1));
        for sample in &read.samples {
            assert_eq!(read.stacks.frames_leaf_first(sample.stack).count(), 3 + usize::from(options.thread_frames));
        }
    }
}

#[test]
fn odd_names_keep_their_values_in_perf_script_text() {
    let (mut profile, symbols) = odd_names();
    // inferno 0.12 panics on names that are cut between two bytes of a character; perf's own output has the same effect.
    let is_cut = |frame: &Frame| matches!(frame, Frame::Named(name) if !name.is_ascii());
    let stacks = profile.stacks.clone();
    profile.samples.retain(|sample| !stacks.frames_leaf_first(sample.stack).any(is_cut));
    let of = (profile, symbols);
    let mut folded = Vec::new();
    let mut folder = inferno::collapse::perf::Folder::default();
    folder.collapse(text(Format::Perf, &of, &Options::default()).as_bytes(), &mut folded).unwrap();
    let read = decode::collapsed::decode(&folded, SampleType::new("cpu", "nanoseconds"), Limits::default()).unwrap();
    assert_eq!(read.total(0), of.0.total(1));
}

#[test]
fn odd_names_leave_flame_graphs_and_pages_well_formed() {
    let of = odd_names();
    let options = Options { title: Some("</title>\"<&>\n".into()), ..Options::default() };
    let svg = text(Format::Svg, &of, &options);
    well_formed(&svg);
    assert!(svg.contains("&lt;/script&gt;"));
    let html = text(Format::Html, &of, &options);
    assert_eq!(html.matches("<script").count(), 3, "data, code, and what the code looks for in other pages");
    assert_eq!(html.matches("</script>").count(), 2);
    assert!(!html.contains("<script>alert") && html.contains("<title>&lt;/title&gt;&quot;&lt;&amp;&gt; </title>"));
    assert!(html.contains("Content-Security-Policy\" content=\"default-src 'none'") && !html.contains("connect-src"));
    for request in ["src=", "href=", "url(http", "@import", "XMLHttpRequest", "innerHTML", "eval("] {
        assert!(!html.contains(request), "{request}");
    }
}

#[test]
fn long_names_and_deep_stacks_pass_through_every_format() {
    let long = "x".repeat(10_000);
    let deep: Vec<String> = (0..1000).map(|i| format!("recurse_{}", i % 7)).collect();
    let of = profile_of([(vec!["main".into(), long.clone()], 5), (deep, 7), (vec![], 2)]);
    for format in Format::ALL {
        text(format, &of, &Options::default());
    }
    let bytes = encoded(encode::pprof::encode, &of, &Options::default());
    let (decoded, symbols) = decode::pprof::decode(&bytes, Limits::default()).unwrap();
    assert_eq!(decoded.samples.iter().map(|s| decoded.stacks.frames_leaf_first(s.stack).count()).max(), Some(1000));
    assert!(decoded.stacks.frames().contains(&Frame::Named(Cow::Owned(long.clone()))));
    let functions = top::functions(&decoded, &symbols, 1, Leaf::Recorded);
    assert_eq!(functions.iter().filter(|f| f.total == 7).count(), 7);
    for format in [Format::Perf, Format::Col, Format::Collapsed, Format::Raw] {
        let bytes = encoded(|p, s, o, w| format.encode(p, s, o, w), &of, &Options::default());
        let (read, symbols) = decode::read(&bytes, Limits::default()).unwrap();
        let depth = read.samples.iter().map(|s| read.stacks.frames_leaf_first(s.stack).count()).max();
        assert_eq!(depth, Some(1000), "{format}");
        let functions = top::functions(&read, &symbols, 0, Leaf::Recorded);
        assert!(functions.iter().any(|function| function.name == long), "{format}");
    }
    let collapsed = text(Format::Collapsed, &of, &Options::default());
    assert!(collapsed.contains("\n[no stack] 2\n"), "a sample without a stack is not lost");
}

#[test]
fn nothing_recorded_is_a_valid_file_in_every_format() {
    for of in [profile_of([]), (Profile::new(vec![SampleType::new("cpu", "nanoseconds")]), Symbols::new())] {
        for format in Format::ALL {
            text(format, &of, &Options::default());
        }
        well_formed(&text(Format::Svg, &of, &Options::default()));
        let bytes = encoded(encode::pprof::encode, &of, &Options::default());
        let (decoded, _) = decode::pprof::decode(&bytes, Limits::default()).unwrap();
        assert_eq!((decoded.sample_types, decoded.samples.len()), (of.0.sample_types, 0));
    }
}

#[test]
fn large_and_negative_values_stay_exact() {
    let values = [i64::MAX, (1 << 53) + 1, i64::MIN + 1, -7, 0];
    let of = profile_of(values.iter().enumerate().map(|(i, value)| (vec![format!("f{i}x")], *value)));
    let bytes = encoded(encode::pprof::encode, &of, &Options::default());
    let (decoded, _) = decode::pprof::decode(&bytes, Limits::default()).unwrap();
    assert_eq!(decoded.samples.iter().map(|s| s.values[1]).collect::<Vec<_>>(), values);
    let json: serde_json::Value = serde_json::from_str(&text(Format::Json, &of, &Options::default())).unwrap();
    let read: Vec<_> = json["samples"].as_array().unwrap().iter().map(|s| s["values"][1].as_i64().unwrap()).collect();
    assert_eq!(read, values);
    let collapsed = text(Format::Collapsed, &of, &Options::default());
    assert!(
        collapsed.contains(&format!("f1x {}\n", (1_i64 << 53) + 1)) && collapsed.contains("f3x -7\n"),
        "{collapsed}"
    );
    assert!(!collapsed.contains("f4x"), "what is zero has no line");
    let svg = text(Format::Svg, &of, &Options::default());
    assert!(svg.contains("f1x") && !svg.contains("f3x") && svg.contains("are not shown"));
    assert!(text(Format::Perf, &of, &Options::default()).contains("# negative values of -"));
    text(Format::Html, &of, &Options::default());
}

#[test]
fn values_that_a_double_does_not_hold_come_back_from_every_format_that_is_read() {
    let value = (1 << 53) + 1;
    let of = profile_of([(vec!["main".to_owned(), "f".to_owned()], value), (vec!["g".to_owned()], value + 2)]);
    for format in [Format::Pprof, Format::Perf, Format::Col, Format::Collapsed, Format::Raw] {
        let options = Options { sample_type: Some(1), ..Options::default() };
        let bytes = encoded(|p, s, o, w| format.encode(p, s, o, w), &of, &options);
        let (read, symbols) = decode::read(&bytes, Limits::default()).unwrap();
        let column = if matches!(format, Format::Col | Format::Collapsed) { 0 } else { 1 };
        let functions = top::functions(&read, &symbols, column, Leaf::Recorded);
        let values: Vec<_> = functions.iter().map(|f| (f.name.as_str(), f.self_value, f.total)).collect();
        assert_eq!(values, [("g", value + 2, value + 2), ("f", value, value), ("main", 0, value)], "{format}");
    }
}

#[test]
fn bytes_that_are_no_utf_8_are_marked_and_cost_no_value() {
    let of = profile_of([(vec!["main".to_owned(), "cut12".to_owned()], 7)]);
    for format in [Format::Pprof, Format::Perf, Format::Col, Format::Collapsed] {
        let options = Options { sample_type: Some(1), ..Options::default() };
        let written = encoded(|p, s, o, w| format.encode(p, s, o, w), &of, &options);
        let mut bytes = Vec::new();
        if format == Format::Pprof {
            std::io::Read::read_to_end(&mut flate2::read::MultiGzDecoder::new(&written[..]), &mut bytes).unwrap();
        } else {
            bytes = written;
        }
        let at = bytes.windows(5).position(|bytes| bytes == b"cut12").unwrap();
        bytes[at + 3..at + 5].copy_from_slice(b"\xff\xc3");
        let (read, symbols) = decode::read(&bytes, Limits::default()).unwrap();
        let leaf = top::functions(&read, &symbols, read.sample_types.len() - 1, Leaf::Recorded).remove(0);
        assert_eq!((leaf.name.as_str(), leaf.self_value), ("cut\u{fffd}\u{fffd}", 7), "{format}");
    }
}

#[test]
fn values_whose_sum_cannot_be_expressed_still_make_a_flame_graph() {
    let of = profile_of((0..40).map(|i| (vec![format!("f{i}x")], i64::MAX)));
    assert_eq!(of.0.total(1), i64::MAX);
    well_formed(&text(Format::Svg, &of, &Options::default()));
}

#[test]
fn a_column_that_does_not_exist_is_an_error() {
    let (profile, symbols) = support::cpu();
    for format in [Format::Collapsed, Format::Perf, Format::Svg, Format::Html, Format::Json] {
        let options = Options { sample_type: Some(2), ..Options::default() };
        let error = format.encode(&profile, &symbols, &options, &mut Vec::new()).unwrap_err();
        assert_eq!(error.kind(), std::io::ErrorKind::InvalidInput);
    }
}

#[test]
fn pprof_files_keep_everything_that_pprof_can_hold() {
    for of in [support::cpu(), support::heap()] {
        let first = encoded(encode::pprof::encode, &of, &Options::default());
        let decoded = decode::pprof::decode(&first, Limits::default()).unwrap();
        assert_eq!(decoded.0.sample_types, of.0.sample_types);
        assert_eq!(decoded.0.default_sample_type, of.0.default_sample_type);
        assert_eq!((decoded.0.period, &decoded.0.period_type), (of.0.period, &of.0.period_type));
        let labels = |p: &Profile| p.samples.iter().map(|s| s.labels.to_vec()).collect::<Vec<_>>();
        assert_eq!(labels(&decoded.0), labels(&of.0));
        for column in 0..of.0.sample_types.len() {
            let top = |of: &(Profile, Symbols)| {
                let mut functions = top::functions(&of.0, &of.1, column, Leaf::Recorded);
                // Names of addresses without symbols depend on the bias, which pprof does not know.
                functions.retain(|f| !f.name.contains("+0x"));
                functions
            };
            assert_eq!(top(&decoded), top(&of));
        }
        let second = encoded(encode::pprof::encode, &decoded, &Options::default());
        assert_eq!(first, second, "a decoded file encodes to the same bytes");
    }
}

#[test]
fn a_damaged_pprof_file_is_an_error_and_never_a_panic() {
    let first = encoded(encode::pprof::encode, &support::cpu(), &Options::default());
    for end in 1..first.len() {
        let error = decode::pprof::decode(&first[..end], Limits::default()).unwrap_err();
        assert_eq!(error.kind(), DecodeErrorKind::Corrupt);
    }
    let mut raw = Vec::new();
    std::io::Read::read_to_end(&mut flate2::read::GzDecoder::new(&first[..]), &mut raw).unwrap();
    decode::pprof::decode(&raw, Limits::default()).expect("uncompressed files are read too");
    let mut random = support::Random(3);
    for _ in 0..20_000 {
        let mut bytes = raw.clone();
        for _ in 0..1 + random.below(4) {
            let at = random.below(bytes.len() as u64) as usize;
            bytes[at] = random.next() as u8;
        }
        if let Ok(of) = decode::pprof::decode(&bytes, Limits::default()) {
            encoded(encode::pprof::encode, &of, &Options::default());
            encoded(encode::json::encode, &of, &Options::default());
            encoded(encode::perf::encode, &of, &Options::default());
        }
    }
}

#[test]
fn a_file_that_unpacks_beyond_the_limit_is_refused() {
    let bytes = encoded(encode::pprof::encode, &support::large(2000, 200), &Options::default());
    let error = decode::pprof::decode(&bytes, Limits { bytes: 10_000 }).unwrap_err();
    assert_eq!((error.kind(), error.to_string().as_str()), (DecodeErrorKind::TooLarge, "more than 10000 bytes"));
    let error = decode::collapsed::decode(b"a 1\nb 2\n", SampleType::new("a", "b"), Limits { bytes: 7 }).unwrap_err();
    assert_eq!(error.kind(), DecodeErrorKind::TooLarge);
}

#[test]
fn every_format_writes_the_same_bytes_every_time() {
    let (mut profile, symbols) = support::large(2000, 300);
    let first: Vec<_> = Format::ALL
        .map(|f| encoded(|p, s, o, w| f.encode(p, s, o, w), &(profile.clone(), symbols.clone()), &Options::default()))
        .into();
    // Hash maps of another history have another order inside.
    profile = Profile::merge([profile.clone()]);
    let again = (profile, symbols.clone());
    for (format, first) in Format::ALL.iter().zip(first) {
        assert!(encoded(|p, s, o, w| format.encode(p, s, o, w), &again, &Options::default()) == first, "{format}");
    }
}
