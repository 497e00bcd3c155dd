//! Collapsed stacks, a line for each: `main;parse;malloc 12`.

use super::{DecodeError, Limits};
use crate::{Frame, Labels, Profile, Sample, SampleType, StackId, Stacks};
use rustc_hash::FxHashMap;
use std::borrow::Cow;

/// Reads the lines. Values are whole numbers, in the unit that the caller knows; `#` begins a comment. Equal stacks are added up.
pub fn decode(bytes: &[u8], sample_type: SampleType, limits: Limits) -> Result<Profile, DecodeError> {
    if bytes.len() > limits.bytes {
        return Err(DecodeError::too_large(limits));
    }
    let mut profile = Profile::new(vec![sample_type]);
    let mut by_stack: FxHashMap<StackId, usize> = FxHashMap::default();
    for (number, line) in bytes.split(|byte| *byte == b'\n').enumerate() {
        let line = String::from_utf8_lossy(line);
        let line = line.trim();
        if let Some(comment) = line.strip_prefix('#') {
            profile.comments.push(comment.trim().to_owned());
            continue;
        }
        if line.is_empty() {
            continue;
        }
        let at = |what: &str| DecodeError::corrupt(format!("line {}: {what}", number + 1));
        let (names, value) = line.rsplit_once(' ').ok_or_else(|| at("no value after the stack"))?;
        let value: i64 = value.parse().map_err(|_| at("the value is not a whole number"))?;
        let mut stack = Stacks::ROOT;
        for name in names.trim().split(';') {
            let frame = profile.stacks.frame_id(Frame::Named(Cow::Owned(name.to_owned())));
            stack = profile.stacks.push(stack, frame);
        }
        let samples = &mut profile.samples;
        let index = *by_stack.entry(stack).or_insert(samples.len());
        match samples.get_mut(index) {
            Some(sample) => sample.values[0] = sample.values[0].saturating_add(value),
            None => samples.push(Sample { stack, thread: None, labels: Labels::new(), values: crate::values![value] }),
        }
    }
    Ok(profile)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Profile, DecodeError> {
        decode(text.as_bytes(), SampleType::new("samples", "count"), Limits::default())
    }

    #[test]
    fn equal_stacks_are_added_up() {
        let profile =
            read("# note\nmain;operator new(unsigned long) 2\nmain 1\n\nmain;operator new(unsigned long) 3\r\n")
                .unwrap();
        assert_eq!(profile.samples.iter().map(|s| s.values[0]).collect::<Vec<_>>(), [5, 1]);
        assert_eq!(profile.stacks.frame(profile.samples[0].stack), Some(&Frame::named("operator new(unsigned long)")));
        assert_eq!(profile.comments, ["note"]);
    }

    #[test]
    fn a_line_without_a_whole_number_is_an_error_that_names_it() {
        for (text, expected) in [
            ("a 1\nb", "line 2: no value after the stack"),
            ("a 1.5", "line 1: the value is not a whole number"),
            ("a 99999999999999999999", "line 1: the value is not a whole number"),
        ] {
            assert_eq!(read(text).unwrap_err().to_string(), expected);
        }
    }
}
