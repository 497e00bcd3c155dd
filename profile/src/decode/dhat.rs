//! What valgrind's DHAT and the Rust crate `dhat` write (`dhat.out.PID`, `dhat-heap.json`), in version 2 of its format.
//!
//! Blocks and bytes allocated are `alloc_objects` and `alloc_space`, those at the end `inuse_objects` and `inuse_space`; a file of copies or
//! of another kind of events has the one pair. Frames are named by the text that the file has for them, without its address.

use super::{DecodeError, Limits};
use crate::{AddressKind, Frame, Labels, Profile, Sample, SampleType, Stacks, Svma, SymbolFrame, Symbols};
use serde::Deserialize;
use std::borrow::Cow;

#[derive(Deserialize)]
struct File<'a> {
    #[serde(rename = "dhatFileVersion")]
    version: u32,
    #[serde(borrow, default)]
    cmd: Cow<'a, str>,
    #[serde(default)]
    pid: u32,
    pps: Vec<Point>,
    #[serde(borrow)]
    ftbl: Vec<Cow<'a, str>>,
    /// Whether lifetimes were recorded, and with them what is left at the end.
    #[serde(default)]
    bklt: bool,
}

/// A program point: total and final bytes and blocks, and its frames, leaf first.
#[derive(Deserialize)]
struct Point {
    tb: i64,
    tbk: i64,
    #[serde(default)]
    eb: i64,
    #[serde(default)]
    ebk: i64,
    fs: Vec<usize>,
}

/// Reads the file: what was measured, and the names it carries.
pub fn decode(bytes: &[u8], limits: Limits) -> Result<(Profile, Symbols), DecodeError> {
    if bytes.len() > limits.bytes {
        return Err(DecodeError::too_large(limits));
    }
    // valgrind writes the bytes of names as they are.
    let text = String::from_utf8_lossy(bytes);
    let file: File<'_> =
        serde_json::from_str(&text).map_err(|error| DecodeError::corrupt(format!("not a file of DHAT: {error}")))?;
    if file.version != 2 {
        return Err(DecodeError::corrupt(format!("version {} of DHAT's format, known is 2", file.version)));
    }
    let mut types = vec![SampleType::new("alloc_objects", "count"), SampleType::new("alloc_space", "bytes")];
    if file.bklt {
        types.extend([SampleType::new("inuse_objects", "count"), SampleType::new("inuse_space", "bytes")]);
    }
    let mut profile = Profile::new(types);
    let mut symbols = Symbols::new();
    if !file.cmd.is_empty() {
        profile.comments.push(format!("{} (pid {})", file.cmd, file.pid));
    }
    let frames: Vec<_> = file.ftbl.iter().map(|text| profile.stacks.frame_id(frame(text, &mut symbols))).collect();
    for point in file.pps {
        let mut stack = Stacks::ROOT;
        for index in point.fs.iter().rev() {
            let frame = *frames.get(*index).ok_or_else(|| DecodeError::corrupt(format!("no frame {index}")))?;
            stack = profile.stacks.push(stack, frame);
        }
        let mut values = crate::values![point.tbk, point.tb];
        if file.bklt {
            values.extend([point.ebk, point.eb]);
        }
        profile.samples.push(Sample { stack, thread: None, labels: Labels::new(), values });
    }
    Ok((profile, symbols))
}

/// `0x4C2DB8F: malloc (in /usr/lib/x.so)` or `0x55d: app::main (src/main.rs:3:5)`.
fn frame(text: &str, symbols: &mut Symbols) -> Frame {
    let parts = text.strip_prefix("0x").and_then(|rest| rest.split_once(": "));
    let parsed = parts.and_then(|(address, rest)| Some((u64::from_str_radix(address, 16).ok()?, rest)));
    let Some((address, rest)) = parsed else { return Frame::Named(Cow::Owned(text.to_owned())) };
    let (name, place) = match rest.rsplit_once(" (") {
        Some((name, place)) => (name, place.trim_end_matches(')')),
        None => (rest, ""),
    };
    // `file:line` or, from the crate, `file:line:column`.
    let mut words = place.split(':');
    let (file, line) = match (words.next(), words.next().and_then(|line| line.parse::<u32>().ok())) {
        (Some(file), Some(line)) if !file.is_empty() => (Some(file), line),
        _ => (None, 0),
    };
    let frame = Frame::Address { mapping: None, svma: Svma(address), kind: AddressKind::Instruction };
    let symbol = SymbolFrame { file: file.map(Into::into), line, ..SymbolFrame::named(name) };
    match symbols.get(&frame) {
        // Inlined functions stand at the address of the one around them.
        [known] if *known != symbol => return Frame::Named(Cow::Owned(name.to_owned())),
        [] => frame.address().into_iter().for_each(|key| symbols.insert(key, vec![symbol.clone()])),
        _ => {}
    }
    frame
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::top::{Leaf, functions};

    #[test]
    fn points_become_samples_and_keep_their_four_values() {
        let file = r#"{"dhatFileVersion":2,"mode":"rust-heap","verb":"Allocated","bklt":true,"bkacc":false,"cmd":"app","pid":7,
            "pps":[{"tb":100,"tbk":2,"tl":1,"mb":9,"mbk":1,"gb":1,"gbk":1,"eb":40,"ebk":1,"fs":[1,2,3]},{"tb":5,"tbk":1,"eb":0,"ebk":0,"fs":[1,3]}],
            "ftbl":["[root]","0x10: alloc (lib.rs:3:5)","0x20: f<u8> (in /bin/app)","0x20: main (a.c:9)"]}"#;
        let (profile, symbols) = decode(file.as_bytes(), Limits::default()).unwrap();
        assert_eq!((0..4).map(|column| profile.total(column)).collect::<Vec<_>>(), [3, 105, 1, 40]);
        let rows = functions(&profile, &symbols, 1, Leaf::Recorded);
        let rows: Vec<_> = rows.iter().map(|f| (f.name.as_str(), f.self_value, f.total)).collect();
        assert_eq!(rows, [("alloc", 105, 105), ("main", 0, 105), ("f<u8>", 0, 100)]);
    }

    #[test]
    fn bytes_that_are_no_utf_8_are_marked_and_cost_no_value() {
        let file = b"{\"dhatFileVersion\":2,\"cmd\":\"a\xff\",\"pps\":[{\"tb\":5,\"tbk\":1,\"fs\":[0]}],\"ftbl\":[\"0x1: f\xe9\xff (\xc3.c:3)\"]}";
        let (profile, symbols) = decode(file, Limits::default()).unwrap();
        assert_eq!((&*profile.comments, profile.total(1)), (&["a\u{fffd} (pid 0)".to_owned()][..], 5));
        let [symbol] = symbols.get(&profile.stacks.frames()[0]) else { panic!("{symbols:?}") };
        assert_eq!((&*symbol.name, symbol.file.as_deref()), ("f\u{fffd}\u{fffd}", Some("\u{fffd}.c")));
    }

    #[test]
    fn what_is_no_such_file_is_an_error() {
        for file in [
            "",
            "{}",
            r#"{"dhatFileVersion":3,"pps":[],"ftbl":[]}"#,
            r#"{"dhatFileVersion":2,"pps":[{"tb":1,"tbk":1,"fs":[4]}],"ftbl":[]}"#,
        ] {
            decode(file.as_bytes(), Limits::default()).unwrap_err();
        }
    }
}
