//! What was found for one profile, kept for the next: whoever asks every second asks for the same addresses.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use profile::SymbolFrame;

use crate::Detail;

/// Most functions that are kept, of all files together.
const FUNCTIONS: usize = 32 << 10;

/// How long a file's names are kept. Debug files that are installed meanwhile are found then.
const KEPT: Duration = Duration::from_secs(300);

/// Names that were found before, of 32,768 functions at most, for five minutes. The content of a file is told by its build id; of files without one, and of those
/// that were not wholly used, nothing is kept, and nothing of code that was generated at run time.
///
/// Meant for one set of [`Options`](crate::Options), but for the detail.
#[derive(Clone, Debug, Default)]
pub struct Known {
    files: HashMap<(String, Vec<u8>, Detail), File>,
    /// Counts the profiles.
    now: u64,
    functions: usize,
}

#[derive(Clone, Debug)]
struct File {
    since: Instant,
    /// Each with the profile that asked for it last.
    frames: HashMap<u64, (Vec<SymbolFrame>, u64)>,
}

/// The file that addresses are asked of.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Asked<'a> {
    pub(crate) path: &'a str,
    pub(crate) build_id: &'a [u8],
    pub(crate) detail: Detail,
}

impl Known {
    /// Number of functions that are known, inlined ones each time anew.
    pub fn len(&self) -> usize {
        self.functions
    }

    /// Whether nothing is known.
    pub fn is_empty(&self) -> bool {
        self.functions == 0
    }

    /// Another profile: what is too old is forgotten.
    pub(crate) fn begin(&mut self) {
        self.now += 1;
        self.files.retain(|_, file| file.since.elapsed() < KEPT);
        self.count();
    }

    /// The frames at sorted addresses of a file: what is not known `find` finds, if it is told whether others of the file have names, and tells whether the file was wholly used.
    pub(crate) fn frames(
        &mut self,
        asked: Asked<'_>,
        addresses: &[u64],
        find: impl FnOnce(&[u64], bool) -> (Vec<Vec<SymbolFrame>>, bool),
    ) -> Vec<Vec<SymbolFrame>> {
        if asked.build_id.is_empty() {
            return find(addresses, false).0;
        }
        let key = (asked.path.to_owned(), asked.build_id.to_vec(), asked.detail);
        let file = self.files.get_mut(&key);
        let mut frames: Vec<Option<Vec<SymbolFrame>>> = vec![None; addresses.len()];
        if let Some(file) = file {
            for (address, frames) in addresses.iter().zip(&mut frames) {
                *frames = file.frames.get_mut(address).map(|(frames, last)| {
                    *last = self.now;
                    frames.clone()
                });
            }
        }
        let is_unknown = |(address, frames): (&u64, &Option<_>)| frames.is_none().then_some(*address);
        let unknown: Vec<u64> = addresses.iter().zip(&frames).filter_map(is_unknown).collect();
        if unknown.is_empty() {
            return frames.into_iter().flatten().collect();
        }
        let (found, wholly) = find(&unknown, frames.iter().flatten().any(|frames| !frames.is_empty()));
        if wholly {
            self.keep(key, &unknown, &found);
        }
        let mut found = found.into_iter();
        frames.into_iter().map(|known| known.or_else(|| found.next()).unwrap_or_default()).collect()
    }

    fn keep(&mut self, key: (String, Vec<u8>, Detail), addresses: &[u64], found: &[Vec<SymbolFrame>]) {
        let more = found.iter().map(|frames| weight(frames)).sum::<usize>();
        if self.functions + more > FUNCTIONS {
            let now = self.now;
            self.files.values_mut().for_each(|file| file.frames.retain(|_, (_, last)| *last == now));
            self.count();
        }
        if self.functions + more <= FUNCTIONS {
            self.functions += more;
            let new = || File { since: Instant::now(), frames: HashMap::new() };
            let kept = addresses.iter().zip(found).map(|(address, frames)| (*address, (frames.clone(), self.now)));
            self.files.entry(key).or_insert_with(new).frames.extend(kept);
        }
    }

    fn count(&mut self) {
        self.files.retain(|_, file| !file.frames.is_empty());
        self.functions =
            self.files.values().flat_map(|file| file.frames.values()).map(|(frames, _)| weight(frames)).sum();
    }
}

/// An address without a name takes room as well.
fn weight(frames: &[SymbolFrame]) -> usize {
    frames.len().max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: Asked<'_> = Asked { path: "/bin/a", build_id: &[1, 2], detail: Detail::Full };

    const NONE: [u64; 0] = [];

    /// Asks, and tells which addresses were looked for.
    fn ask(known: &mut Known, asked: Asked<'_>, addresses: &[u64]) -> Vec<u64> {
        let mut looked_for = Vec::new();
        known.begin();
        let frames = known.frames(asked, addresses, |unknown, _| {
            looked_for = unknown.to_vec();
            (unknown.iter().map(|address| named(*address)).collect(), true)
        });
        assert_eq!(frames, addresses.iter().map(|address| named(*address)).collect::<Vec<_>>());
        looked_for
    }

    /// Every fifth address has no name.
    fn named(address: u64) -> Vec<SymbolFrame> {
        let frame = SymbolFrame::named(format!("f{address}"));
        if address.is_multiple_of(5) { Vec::new() } else { vec![frame; 1 + address as usize % 2] }
    }

    #[test]
    fn each_address_of_a_file_is_looked_for_once() {
        let mut known = Known::default();
        assert_eq!(ask(&mut known, FILE, &[1, 4, 5, 9]), [1, 4, 5, 9]);
        assert_eq!(ask(&mut known, FILE, &[1, 4, 5, 9]), NONE);
        assert_eq!(ask(&mut known, FILE, &[0, 1, 5, 7, 9, 11]), [0, 7, 11]);
        assert_eq!(ask(&mut known, Asked { detail: Detail::Names, ..FILE }, &[1, 4]), [1, 4]);
        assert_eq!(ask(&mut known, Asked { build_id: &[2], ..FILE }, &[1, 4]), [1, 4]);
        assert_eq!(known.len(), 17);
    }

    #[test]
    fn nothing_is_kept_of_a_file_that_cannot_be_told_from_another_or_was_not_wholly_used() {
        let mut known = Known::default();
        let nameless = Asked { build_id: &[], ..FILE };
        assert_eq!(ask(&mut known, nameless, &[1, 4]), [1, 4]);
        assert_eq!(ask(&mut known, nameless, &[1, 4]), [1, 4]);
        known.frames(FILE, &[1], |unknown, _| (unknown.iter().map(|address| named(*address)).collect(), false));
        assert_eq!(ask(&mut known, FILE, &[1]), [1]);
    }

    #[test]
    fn what_no_profile_asked_for_any_more_makes_room() {
        let mut known = Known::default();
        let most: Vec<u64> = (0..FUNCTIONS as u64).step_by(2).collect();
        assert_eq!(ask(&mut known, FILE, &most), most);
        let others: Vec<u64> = (0..FUNCTIONS as u64).skip(1).step_by(2).collect();
        assert_eq!(ask(&mut known, FILE, &others), others);
        assert_eq!(ask(&mut known, FILE, &others), NONE);
        assert!(known.len() <= FUNCTIONS);
        // More than there is room for is found each time.
        let all: Vec<u64> = (0..2 * FUNCTIONS as u64).collect();
        ask(&mut known, FILE, &all);
        assert!(known.len() <= FUNCTIONS);
        assert!(!ask(&mut known, FILE, &all).is_empty());
    }

    #[test]
    fn what_is_old_is_found_anew() {
        let mut known = Known::default();
        ask(&mut known, FILE, &[1, 4]);
        for file in known.files.values_mut() {
            file.since = file.since.checked_sub(KEPT).expect("the clock is older");
        }
        assert_eq!(ask(&mut known, FILE, &[1, 4]), [1, 4]);
    }
}
