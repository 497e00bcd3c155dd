//! Formats out: one pure function in one file each.

pub mod col;
pub mod collapsed;
mod colors;
pub mod firefox;
mod gzip;
pub mod html;
pub mod json;
pub mod perf;
pub mod pprof;
pub mod raw;
pub mod speedscope;
pub mod svg;
mod timeline;
pub(crate) mod titles;

use crate::Profile;
use std::borrow::Cow;
use std::io;

/// What the formats may be told. Each uses what concerns it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// The column to show, for formats that show one; `None`: the profile's default. For others the one to show first.
    pub sample_type: Option<usize>,
    /// Title of flame graphs and pages.
    pub title: Option<String>,
    /// Begin each stack with a frame that names the thread, for formats that know no threads.
    pub thread_frames: bool,
    /// Continue with a frame for each label of the sample, `key=value`, in formats that know no labels.
    pub label_frames: bool,
    /// Begin the stacks of flame graphs at their leaf: who called a function lies on it.
    pub reversed: bool,
    /// Where flame graphs have their beginning.
    pub growth: Growth,
}

/// The way a flame graph grows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Growth {
    /// From the top down (an icicle graph): deep stacks make tall pictures, and a reader starts at the top.
    #[default]
    Down,
    /// From the bottom up.
    Up,
}

impl Options {
    /// The column that these options ask for.
    fn column(&self, profile: &Profile) -> io::Result<usize> {
        match self.sample_type {
            Some(column) if column >= profile.sample_types.len() => Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                format!("the profile has {} sample types, not number {column}", profile.sample_types.len()),
            )),
            Some(column) => Ok(column),
            None => Ok(profile.default_column()),
        }
    }
}

/// A text without line breaks and other control characters, each of which becomes a space.
pub(crate) fn one_line(text: &str) -> Cow<'_, str> {
    // Bytes of control characters in UTF-8, and 0xc2, which others begin with too: without these there is none. All bytes are looked at, which the compiler does many at a time.
    let may_have = text.bytes().fold(false, |found, byte| found | (byte < 0x20) | matches!(byte, 0x7f | 0xc2));
    if may_have && text.contains(char::is_control) {
        Cow::Owned(text.replace(char::is_control, " "))
    } else {
        Cow::Borrowed(text)
    }
}

/// A name as the folded formats can hold it: `;` separates frames, so it becomes `:`. A last word of digits would be read as a
/// value, and a `#` at the beginning as a comment: a `_` keeps them apart.
pub(crate) fn folded_name(name: &str) -> Cow<'_, str> {
    let mut folded = match one_line(name) {
        Cow::Borrowed(line) => Cow::Borrowed(line.trim()),
        // A control character at an end is a space now.
        Cow::Owned(line) => Cow::Owned(line.trim().to_owned()),
    };
    if folded.is_empty() {
        folded = Cow::Borrowed("_");
    }
    if folded.contains(';') {
        folded = Cow::Owned(folded.replace(';', ":"));
    }
    folded = without_value(folded);
    if folded.starts_with('#') {
        folded = Cow::Owned(format!("_{folded}"));
    }
    folded
}

/// A text that no reader takes for a stack and its value: a last word of digits is joined to the one before.
pub(crate) fn without_value(text: Cow<'_, str>) -> Cow<'_, str> {
    let before = text.trim_end_matches(|c: char| c.is_ascii_digit() || c == '.' || c == '-');
    match before.chars().next_back().filter(|c| c.is_whitespace()) {
        Some(space) if text[before.len()..].starts_with(|c: char| c.is_ascii_digit() || c == '-') => {
            let (first, last) = (&before[..before.len() - space.len_utf8()], &text[before.len()..]);
            Cow::Owned(format!("{first}_{last}"))
        }
        _ => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_never_looks_like_more_than_one_frame_or_like_a_value() {
        for (name, expected) in [
            ("operator new(unsigned long)", "operator new(unsigned long)"),
            ("a;b\nc", "a:b c"),
            ("worker 3", "worker_3"),
            ("worker 3.5", "worker_3.5"),
            ("worker -3", "worker_-3"),
            ("worker 3a", "worker 3a"),
            ("# note", "_# note"),
            (" ", "_"),
        ] {
            assert_eq!(folded_name(name), expected);
        }
    }
}
