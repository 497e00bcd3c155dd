//! Names for a batch of addresses, from the symbol tables of a file.
//!
//! No index is built: the addresses are sorted and the table streams past them once, so the memory is proportional to
//! the addresses asked for and not to the file. A table of 165,000 symbols passes in a few milliseconds.
//!
//! # Which symbol names an address
//!
//! The sized symbol that covers it and starts last; an address in the gap between two symbols has no name. A symbol
//! without size (labels of hand-written assembly) names what follows it up to the next symbol, the end of its section,
//! or [`UNSIZED_REACH`], where no sized symbol covers that. Of several symbols at one place see [`Rank`].

use std::cmp::Reverse;
use std::sync::Arc;

use object::elf::{self, Sym64};
use object::endian::LittleEndian as LE;
use object::pod;

use crate::demangle::Name;
use crate::elf::{Elf, Section};
use crate::strings::Strings;

/// How far a symbol without size reaches.
const UNSIZED_REACH: u64 = 4096;
/// Symbols that are read at once.
const CHUNK: usize = 2048;
/// Aliases of one place that are compared.
const ALIASES: usize = 64;

/// The function around an address.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Function {
    pub(crate) name: Arc<Name>,
    pub(crate) start: u64,
    pub(crate) sized: bool,
}

/// Fills `found`, which runs parallel to the sorted `addresses`, from one symbol table of `elf`. What has a sized
/// function already is left alone.
pub(crate) fn find(elf: &Elf, table: &Section, addresses: &[u64], found: &mut [Option<Function>]) {
    debug_assert!(addresses.is_sorted() && addresses.len() == found.len());
    let Some(strings) = elf.sections.get(table.link as usize) else { return };
    let mut search = Search::new(addresses);
    stream(elf, table, |symbol| search.offer(symbol));
    let mut places: Vec<(Place, &mut Option<Function>)> = search.places().into_iter().zip(found).collect();
    places.retain(|(place, found)| {
        !place.symbols.is_empty() && found.as_ref().is_none_or(|function| !function.sized && place.sized)
    });
    let offsets = places.iter().flat_map(|(place, _)| place.symbols.iter().map(|symbol| symbol.name));
    let strings = Strings::read(&elf.image, strings, offsets);
    let mut previous: Option<(Place, Function)> = None;
    for (place, found) in places {
        // Neighbours are mostly addresses of the same function.
        let function = match &previous {
            Some((known, function)) if *known == place => function.clone(),
            _ => match place.function(&strings) {
                Some(function) => function,
                None => continue,
            },
        };
        *found = Some(function.clone());
        previous = Some((place, function));
    }
}

/// A symbol that may name code.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Symbol {
    name: u32,
    start: u64,
    size: u64,
    /// End of its section.
    limit: u64,
    typed: bool,
    local: bool,
    weak: bool,
}

fn stream(elf: &Elf, table: &Section, mut offer: impl FnMut(Symbol)) {
    const LENGTH: usize = size_of::<Sym64<LE>>();
    let mut left = usize::try_from(table.size).unwrap_or(0) / LENGTH;
    let mut offset = table.offset;
    let mut buffer = vec![0; CHUNK.min(left) * LENGTH];
    while left > 0 {
        let count = left.min(CHUNK);
        let Some(chunk) = buffer.get_mut(..count * LENGTH) else { return };
        if elf.image.fill(offset, chunk).is_none() {
            return;
        }
        let Ok(symbols) = pod::slice_from_all_bytes::<Sym64<LE>>(chunk) else { return };
        symbols.iter().filter_map(|symbol| code_symbol(elf, symbol)).for_each(&mut offer);
        left -= count;
        offset += (count * LENGTH) as u64;
    }
}

fn code_symbol(elf: &Elf, symbol: &Sym64<LE>) -> Option<Symbol> {
    let kind = symbol.st_info.st_type();
    let typed = kind == elf::STT_FUNC || kind == elf::STT_GNU_IFUNC;
    if (!typed && kind != elf::STT_NOTYPE) || symbol.st_name.get(LE) == 0 {
        return None;
    }
    let section = elf.sections.get(usize::from(symbol.st_shndx.get(LE).index()?))?;
    if !section.flags.contains(elf::SHF_EXECINSTR) {
        return None;
    }
    let binding = symbol.st_info.st_bind();
    Some(Symbol {
        name: symbol.st_name.get(LE),
        start: symbol.st_value.get(LE),
        size: symbol.st_size.get(LE),
        limit: section.end(),
        typed,
        local: binding == elf::STB_LOCAL,
        weak: binding == elf::STB_WEAK,
    })
}

/// The symbols that start at one address and compete for its name.
#[derive(Clone, Debug, Default, PartialEq)]
struct Place {
    sized: bool,
    symbols: Vec<Symbol>,
}

impl Place {
    fn add(&mut self, symbol: Symbol) {
        match self.symbols.first() {
            Some(first) if first.start > symbol.start => {}
            Some(first) if first.start == symbol.start => {
                if self.symbols.len() < ALIASES {
                    self.symbols.push(symbol);
                }
            }
            _ => {
                self.symbols.clear();
                self.symbols.push(symbol);
            }
        }
    }

    fn function(&self, strings: &Strings) -> Option<Function> {
        let named = self.symbols.iter().filter_map(|symbol| {
            let name = strings.get(symbol.name)?;
            // Versions of shared symbols are written into the names of static tables: `read@@GLIBC_2.2.5`.
            let plain = name.find('@').filter(|&at| at > 0).unwrap_or(name.len());
            (plain > 0).then(|| Rank::new(symbol, &name[..plain]))
        });
        let best = named.min()?;
        let start = self.symbols.first()?.start;
        Some(Function { name: Arc::new(Name::new(best.name)), start, sized: self.sized })
    }
}

/// Orders the names of one place, the best first: functions before bare labels, visible ones before local ones, then
/// few leading underscores (`malloc`, not `__libc_malloc`), strong before weak, short before long, and the alphabet.
#[derive(Debug, Eq, Ord, PartialEq, PartialOrd)]
struct Rank<'a> {
    label: bool,
    local: bool,
    underscores: usize,
    weak: bool,
    length: usize,
    name: &'a str,
}

impl<'a> Rank<'a> {
    fn new(symbol: &Symbol, name: &'a str) -> Rank<'a> {
        let mangled = name.starts_with("_Z") || name.starts_with("_R");
        Rank {
            label: !symbol.typed,
            local: symbol.local,
            underscores: if mangled { 0 } else { name.bytes().take_while(|&byte| byte == b'_').count() },
            weak: symbol.weak,
            length: name.len(),
            name,
        }
    }
}

/// The state of one pass of symbols over the addresses.
struct Search<'a> {
    addresses: &'a [u64],
    covering: Vec<Place>,
    /// At the first address not below their start: symbols without size, and the last start of any symbol.
    unsized_from: Vec<Place>,
    last_start: Vec<u64>,
}

impl<'a> Search<'a> {
    fn new(addresses: &'a [u64]) -> Search<'a> {
        let covering = vec![Place { sized: true, symbols: Vec::new() }; addresses.len()];
        let unsized_from = vec![Place::default(); addresses.len()];
        Search { addresses, covering, unsized_from, last_start: vec![0; addresses.len()] }
    }

    fn offer(&mut self, symbol: Symbol) {
        let first = self.addresses.partition_point(|&address| address < symbol.start);
        let Some(last_start) = self.last_start.get_mut(first) else { return };
        *last_start = symbol.start.max(*last_start);
        if symbol.size == 0 {
            self.unsized_from[first].add(symbol);
            return;
        }
        let end = symbol.start.saturating_add(symbol.size);
        let covered = self.addresses[first..].iter().take_while(|&&address| address < end).count();
        for place in &mut self.covering[first..first + covered] {
            place.add(symbol);
        }
    }

    /// The symbols for each address.
    fn places(self) -> Vec<Place> {
        let mut nearest = Place::default();
        let mut last_start = 0;
        let mut places = self.covering;
        let starts = self.unsized_from.into_iter().zip(self.last_start);
        for ((place, (unsized_from, start)), &address) in places.iter_mut().zip(starts).zip(self.addresses) {
            for symbol in unsized_from.symbols {
                nearest.add(symbol);
            }
            last_start = start.max(last_start);
            if !place.symbols.is_empty() {
                continue;
            }
            let reaches = |symbol: &&Symbol| {
                symbol.start == last_start && address < symbol.limit && address - symbol.start < UNSIZED_REACH
            };
            *place = Place { sized: false, symbols: nearest.symbols.iter().filter(reaches).copied().collect() };
        }
        places
    }
}

/// Says which of several tables to ask: the ones that the file has, the fullest first.
pub(crate) fn tables(elf: &Elf) -> Vec<&Section> {
    let mut tables: Vec<&Section> =
        elf.sections.iter().filter(|section| [elf::SHT_SYMTAB, elf::SHT_DYNSYM].contains(&section.kind)).collect();
    tables.sort_by_key(|section| (Reverse(section.kind == elf::SHT_SYMTAB), section.offset));
    tables
}

#[cfg(test)]
mod tests {
    use super::*;

    fn symbol(start: u64, size: u64) -> Symbol {
        Symbol { name: 1, start, size, limit: 0x10_0000, typed: true, local: false, weak: false }
    }

    fn starts(addresses: &[u64], symbols: &[Symbol]) -> Vec<Option<u64>> {
        let mut search = Search::new(addresses);
        symbols.iter().for_each(|&symbol| search.offer(symbol));
        search.places().iter().map(|place| place.symbols.first().map(|symbol| symbol.start)).collect()
    }

    #[test]
    fn an_address_in_a_gap_has_no_name() {
        let symbols = [symbol(0x2000, 0x10), symbol(0x1000, 0x10)];
        let addresses = [0xfff, 0x1000, 0x100f, 0x1010, 0x1fff, 0x2000, 0x200f, 0x2010];
        let expected = [None, Some(0x1000), Some(0x1000), None, None, Some(0x2000), Some(0x2000), None];
        assert_eq!(starts(&addresses, &symbols), expected);
    }

    #[test]
    fn the_innermost_of_nested_symbols_wins_in_any_order() {
        let mut symbols = vec![symbol(0x1000, 0x100), symbol(0x1040, 0x20)];
        for _ in 0..2 {
            assert_eq!(starts(&[0x103f, 0x1040, 0x105f, 0x1060], &symbols), [0x1000, 0x1040, 0x1040, 0x1000].map(Some));
            symbols.reverse();
        }
    }

    #[test]
    fn a_symbol_without_size_reaches_to_the_next_one_only() {
        let mut near_end = symbol(0x9000, 0);
        near_end.limit = 0x9010;
        let symbols = [symbol(0x1000, 0), symbol(0x1100, 0x10), symbol(0x4000, 0), near_end];
        let addresses = [0x0, 0x1000, 0x10ff, 0x1100, 0x1110, 0x4fff, 0x5000, 0x900f, 0x9010];
        let expected = [None, Some(0x1000), Some(0x1000), Some(0x1100), None, Some(0x4000), None, Some(0x9000), None];
        assert_eq!(starts(&addresses, &symbols), expected);
    }

    #[test]
    fn the_public_name_of_several_is_chosen() {
        let best = |names: &[(&str, bool, bool)]| {
            let ranks =
                names.iter().map(|&(name, local, weak)| Rank::new(&Symbol { local, weak, ..symbol(0, 0) }, name));
            ranks.min().map(|rank| rank.name.to_owned())
        };
        assert_eq!(best(&[("__libc_malloc", false, false), ("malloc", false, false)]).as_deref(), Some("malloc"));
        assert_eq!(
            best(&[("__GI___read", true, false), ("__read", false, false), ("read", false, true)]).as_deref(),
            Some("read")
        );
        assert_eq!(best(&[("a.localalias", true, false), ("a", false, false)]).as_deref(), Some("a"));
        assert_eq!(best(&[("_ZN1aC2Ev", false, true), ("_ZN1aC1Ev", false, true)]).as_deref(), Some("_ZN1aC1Ev"));
    }

    #[test]
    fn sizes_that_wrap_around_cover_to_the_end() {
        assert_eq!(starts(&[5, u64::MAX - 1], &[symbol(3, u64::MAX)]), [Some(3), Some(3)]);
    }
}
