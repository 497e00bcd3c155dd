//! Label sets: attributes of what a thread is doing, as text in the store.
//!
//! A set is named by the [`RecordId`](crate::RecordId) of its text, and never changes once it has a name: `u32` length of what follows, then for each label
//! `u16` length of the key, `u16` length of the value, key, value. A key occurs once. Call trees name it by [`crate::Pseudo::Labels`].

/// Most bytes of a set's text, its length included.
pub const MOST_LABEL_BYTES: usize = 1024;
/// Most labels of a set.
const MOST_LABELS: usize = 16;

const LENGTH: usize = size_of::<u32>();

/// The labels of a set, as (key, value); ends early where the bytes make no sense.
#[derive(Clone, Copy, Debug)]
pub struct Labels<'a> {
    rest: &'a [u8],
    left: usize,
}

impl<'a> Labels<'a> {
    /// The labels in a text; `None` if it is none, or not there in full.
    pub fn new(text: &'a [u8]) -> Option<Self> {
        let length = text_length(text)?;
        Some(Self { rest: text.get(LENGTH..length)?, left: MOST_LABELS })
    }
}

/// Bytes of the set's text that begins here; `None` if it is none.
pub fn text_length(bytes: &[u8]) -> Option<usize> {
    let length = u32::from_le_bytes(bytes.get(..LENGTH)?.try_into().ok()?);
    let length = LENGTH.checked_add(usize::try_from(length).ok()?)?;
    (LENGTH + 1..=MOST_LABEL_BYTES).contains(&length).then_some(length)
}

impl<'a> Iterator for Labels<'a> {
    type Item = (&'a [u8], &'a [u8]);

    fn next(&mut self) -> Option<Self::Item> {
        self.left = self.left.checked_sub(1)?;
        let length = |at: usize| {
            let bytes = self.rest.get(at..at + 2)?;
            Some(usize::from(u16::from_le_bytes(bytes.try_into().ok()?)))
        };
        let key_end = 4 + length(0)?;
        let value_end = key_end + length(2)?;
        let label = (self.rest.get(4..key_end)?, self.rest.get(key_end..value_end)?);
        self.rest = self.rest.get(value_end..)?;
        Some(label)
    }
}

/// The text of a set, being made.
#[derive(Clone, Debug)]
pub struct LabelText {
    bytes: [u8; MOST_LABEL_BYTES],
    length: usize,
}

impl LabelText {
    /// The text of `outer`'s labels and one more, which takes the place of one with its key. `None` if it is too long, or of too many labels.
    pub fn new(outer: Option<Labels<'_>>, key: &[u8], value: &[u8]) -> Option<Self> {
        let mut text = Self { bytes: [0; MOST_LABEL_BYTES], length: LENGTH };
        let (mut is_there, mut count) = (false, 0);
        for (outer_key, outer_value) in outer.into_iter().flatten() {
            count += 1;
            let is_same = outer_key == key;
            is_there |= is_same;
            text.push(outer_key, if is_same { value } else { outer_value })?;
        }
        if !is_there {
            if count == MOST_LABELS {
                return None;
            }
            text.push(key, value)?;
        }
        let length = u32::try_from(text.length - LENGTH).ok()?;
        text.put(0, &length.to_le_bytes())?;
        Some(text)
    }

    /// The bytes.
    pub fn bytes(&self) -> &[u8] {
        self.bytes.get(..self.length).unwrap_or_default()
    }

    fn push(&mut self, key: &[u8], value: &[u8]) -> Option<()> {
        let lengths = [u16::try_from(key.len()).ok()?, u16::try_from(value.len()).ok()?];
        for length in lengths {
            self.length = self.put(self.length, &length.to_le_bytes())?;
        }
        for part in [key, value] {
            self.length = self.put(self.length, part)?;
        }
        Some(())
    }

    fn put(&mut self, at: usize, part: &[u8]) -> Option<usize> {
        let end = at.checked_add(part.len())?;
        self.bytes.get_mut(at..end)?.copy_from_slice(part);
        Some(end)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(text: &LabelText) -> [Option<(&[u8], &[u8])>; 3] {
        let mut all = Labels::new(text.bytes()).unwrap();
        [all.next(), all.next(), all.next()]
    }

    #[test]
    fn an_inner_label_is_added_or_takes_the_place_of_the_outer_one() {
        let outer = LabelText::new(None, b"request", b"7").unwrap();
        assert_eq!(labels(&outer), [Some((&b"request"[..], &b"7"[..])), None, None]);
        let inner = LabelText::new(Labels::new(outer.bytes()), b"user", b"").unwrap();
        assert_eq!(labels(&inner), [Some((&b"request"[..], &b"7"[..])), Some((&b"user"[..], &b""[..])), None]);
        let other = LabelText::new(Labels::new(inner.bytes()), b"request", b"42").unwrap();
        assert_eq!(labels(&other), [Some((&b"request"[..], &b"42"[..])), Some((&b"user"[..], &b""[..])), None]);
    }

    #[test]
    fn a_set_that_is_too_long_is_refused() {
        let value = [b'v'; MOST_LABEL_BYTES];
        assert!(LabelText::new(None, b"k", &value[..MOST_LABEL_BYTES - 9]).is_some());
        assert!(LabelText::new(None, b"k", &value[..MOST_LABEL_BYTES - 8]).is_none());
    }

    #[test]
    fn a_set_of_too_many_labels_is_refused_but_its_values_can_change() {
        let keys: [[u8; 1]; MOST_LABELS + 1] = core::array::from_fn(|i| [b'a' + i as u8]);
        let mut text = LabelText::new(None, &keys[0], b"1").unwrap();
        for key in &keys[1..MOST_LABELS] {
            text = LabelText::new(Labels::new(text.bytes()), key, b"1").unwrap();
        }
        assert_eq!(Labels::new(text.bytes()).unwrap().count(), MOST_LABELS);
        assert!(LabelText::new(Labels::new(text.bytes()), &keys[MOST_LABELS], b"1").is_none());
        assert!(LabelText::new(Labels::new(text.bytes()), &keys[3], b"2").is_some());
    }

    #[test]
    fn bytes_that_are_no_set_have_no_labels() {
        assert!(Labels::new(&[]).is_none() && Labels::new(&[0; 64]).is_none() && Labels::new(&[0xff; 64]).is_none());
        let mut cut = [0; 16];
        cut[0] = 12;
        cut[4] = 200;
        assert_eq!(Labels::new(&cut).unwrap().count(), 0, "a key longer than the text");
    }
}
