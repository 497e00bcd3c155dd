//! Small numbers for the ids that occur.
//!
//! Of a million stacks, perhaps fifty thousand have samples, and they lie all over. What is counted for each sample is counted in a table of these alone, which
//! stays in the processor's cache: a look into a table of all costs as much as everything else that is done for a sample.

const BITS: usize = u64::BITS as usize;

/// Which ids occur, and how many smaller ones each has before it.
#[derive(Clone)]
pub(crate) struct Dense {
    /// A bit for each id.
    bits: Vec<u64>,
    /// Ids before each word.
    before: Vec<u32>,
}

impl Dense {
    /// Of ids below a limit.
    ///
    /// # Panics
    /// If an id is not below it.
    pub(crate) fn new(limit: usize, ids: impl Iterator<Item = u32>) -> Self {
        let mut bits = vec![0_u64; limit.div_ceil(BITS)];
        ids.for_each(|id| bits[id as usize / BITS] |= 1 << (id as usize % BITS));
        Self::of(bits)
    }

    /// Of ids below a limit and their parents, whose ids are smaller, down to 0.
    ///
    /// # Panics
    /// If an id is not below the limit.
    pub(crate) fn with_parents(limit: usize, ids: impl Iterator<Item = u32>, parent: impl Fn(u32) -> u32) -> Self {
        let mut bits = vec![0_u64; limit.div_ceil(BITS)];
        bits.iter_mut().take(1).for_each(|word| *word = 1);
        for mut at in ids {
            while bits[at as usize / BITS] & 1 << (at as usize % BITS) == 0 {
                bits[at as usize / BITS] |= 1 << (at as usize % BITS);
                at = parent(at);
            }
        }
        Self::of(bits)
    }

    fn of(bits: Vec<u64>) -> Self {
        let mut count = 0;
        let before = bits.iter().map(|word| {
            let before = count;
            count += word.count_ones();
            before
        });
        let before = before.collect();
        Self { bits, before }
    }

    /// How many there are.
    pub(crate) fn len(&self) -> usize {
        let last = self.bits.last().map_or(0, |word| word.count_ones());
        (self.before.last().copied().unwrap_or(0) + last) as usize
    }

    /// The number of an id that occurs: how many occur that are smaller.
    pub(crate) fn number(&self, id: u32) -> usize {
        let (word, bit) = (id as usize / BITS, id as usize % BITS);
        let smaller = self.bits[word] & ((1 << bit) - 1);
        (self.before[word] + smaller.count_ones()) as usize
    }

    /// The ids that occur, each at the place of its number.
    pub(crate) fn ids(&self) -> impl Iterator<Item = u32> {
        self.bits.iter().zip(0_u32..).flat_map(|(word, at)| {
            let mut left = *word;
            std::iter::from_fn(move || {
                let bit = (left != 0).then(|| left.trailing_zeros())?;
                left &= left - 1;
                Some(at * u64::BITS + bit)
            })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_have_numbers_in_their_order() {
        for ids in [vec![], vec![0], vec![63], vec![64], vec![0, 5, 63, 64, 65, 127, 128, 700, 999]] {
            let dense = Dense::new(1000, ids.iter().rev().chain(&ids).copied());
            assert_eq!(dense.ids().collect::<Vec<_>>(), ids);
            assert_eq!(dense.len(), ids.len());
            assert!(ids.iter().enumerate().all(|(number, id)| dense.number(*id) == number));
        }
        assert_eq!(Dense::new(0, std::iter::empty()).len(), 0);
        let dense = Dense::with_parents(1000, [700, 3, 701].into_iter(), |id| id / 10);
        assert_eq!(dense.ids().collect::<Vec<_>>(), [0, 3, 7, 70, 700, 701]);
    }
}
