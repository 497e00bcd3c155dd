//! Names and definitions in an object's dynamic symbol table.

use super::{Image, Object, u32_of, u64_of};
use crate::probed::Probed;
use unwind::cfi::Source as _;

const SYMBOL: u64 = 24;
/// Most symbols with one hash that are compared.
const CHAIN: u32 = 100_000;

impl Image<'_> {
    /// Address of the function that the object defines under this name, as others find it.
    pub fn defines(&self, name: &[u8]) -> Option<u64> {
        if self.hash == 0 {
            return None;
        }
        let (mut memory, mut names) = (Probed::new(), Names::default());
        let [buckets, first, filters, _] = {
            let header: [u8; 16] = memory.read(self.hash)?;
            [u32_of(&header, 0)?, u32_of(&header, 4)?, u32_of(&header, 8)?, u32_of(&header, 12)?]
        };
        let hash = name.iter().fold(5381_u32, |hash, byte| hash.wrapping_mul(33).wrapping_add(u32::from(*byte)));
        let heads = self.hash.wrapping_add(16 + u64::from(filters) * 8);
        let chains = heads.wrapping_add(u64::from(buckets) * 4);
        let mut word = |at: u64| memory.read(at).map(u32::from_le_bytes);
        let head = word(heads.wrapping_add(u64::from(hash.checked_rem(buckets)?) * 4))?;
        if head < first {
            return None;
        }
        let mut old = None;
        for symbol in head..head.checked_add(CHAIN)? {
            let found = word(chains.wrapping_add(u64::from(symbol - first) * 4))?;
            if found | 1 == hash | 1
                && names.read(self, symbol) == Some(name)
                && let Some(address) = self.function(symbol)
            {
                if !self.is_old(symbol) {
                    return Some(address);
                }
                old = old.or(Some(address));
            }
            if found & 1 != 0 {
                break;
            }
        }
        old
    }

    /// Whether a symbol is there for objects alone that were linked with an older version of it.
    fn is_old(&self, symbol: u32) -> bool {
        const HIDDEN: u16 = 1 << 15;
        let version = |at: u64| Probed::new().read(at).map_or(0, u16::from_le_bytes);
        self.versions != 0 && version(self.versions.wrapping_add(u64::from(symbol) * 2)) & HIDDEN != 0
    }

    /// Address of the function that a symbol defines. (An import that has an address stands for the executable's linkage table.)
    fn function(&self, symbol: u32) -> Option<u64> {
        const FUNCTION: u8 = 2;
        let entry: [u8; 24] = Probed::new().read(self.symbols.wrapping_add(u64::from(symbol) * SYMBOL))?;
        let is_defined = u32_of(&entry, 4)? >> 16 != 0;
        (is_defined && entry.get(4)? & 15 == FUNCTION)
            .then(|| u64_of(&entry, 8))?
            .map(|svma| self.bias.wrapping_add(svma))
    }
}

/// Bytes of the longest name that is read, and the zero behind it.
const LONGEST: usize = 64;

/// Reads names, one after the other: symbols and texts that are needed next lie where the last ones did.
#[derive(Debug)]
pub struct Names {
    symbols: Probed,
    texts: Probed,
    text: [u8; LONGEST],
}

impl Default for Names {
    fn default() -> Self {
        Self { symbols: Probed::new(), texts: Probed::new(), text: [0; LONGEST] }
    }
}

impl Names {
    /// The name of a symbol; `None` if it is longer than any that is looked for.
    pub(super) fn read(&mut self, object: &Object, symbol: u32) -> Option<&[u8]> {
        let entry: [u8; 4] = self.symbols.read(object.symbols.wrapping_add(u64::from(symbol) * SYMBOL))?;
        let start = object.strings.wrapping_add(u64::from(u32::from_le_bytes(entry)));
        for (length, (at, byte)) in (start..).zip(&mut self.text).enumerate() {
            [*byte] = self.texts.read(at)?;
            if *byte == 0 {
                return self.text.get(..length);
            }
        }
        None
    }
}
