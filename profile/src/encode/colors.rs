//! Colours of a flame graph: a hue for each kind of code, a shade for each name.

use super::folded_name;
use crate::kind::{self, Kind};
use crate::named::Tree;
use crate::{Profile, Symbols};
use inferno::flamegraph::color::{Color, PaletteMap};
use rustc_hash::FxBuildHasher;
use std::hash::BuildHasher;

/// The colour of each name in the tree, and a text that says what they mean.
pub(super) fn of(tree: &Tree<'_>, profile: &Profile, symbols: &Symbols) -> (PaletteMap, String) {
    let mut palette = PaletteMap::default();
    let mut occurs = [false; LEGEND.len()];
    let names = kind::of_names(profile, symbols);
    let folded = names.iter().map(|(name, kind)| (folded_name(name), *kind));
    let mut kinds: rustc_hash::FxHashMap<_, Kind> = rustc_hash::FxHashMap::default();
    for (name, kind) in folded {
        // Two names can look the same when they are folded.
        let known = kinds.entry(name).or_insert(kind);
        *known = kind.min(*known);
    }
    // The frame below all others, as the library calls it.
    palette.insert("all", shade(color(Kind::Missing), "all"));
    for name in tree.names().iter().skip(1) {
        // Frames of processes, threads and labels are nobody's code.
        let kind = kinds.get(&**name).copied().unwrap_or(Kind::Missing);
        let color = color(kind);
        occurs[color] = true;
        palette.insert(name, shade(color, name));
    }
    let legend = LEGEND.iter().zip(occurs).filter(|(_, occurs)| *occurs).map(|(entry, _)| entry.0);
    (palette, legend.collect::<Vec<_>>().join(", "))
}

/// What the legend says of each colour, and its darkest and lightest shade: all light enough for black text.
type Entry = (&'static str, (u8, u8, u8), (u8, u8, u8));
const LEGEND: [Entry; 6] = [
    ("orange: program", (236, 126, 56), (252, 172, 98)),
    ("green: standard library", (116, 186, 110), (168, 214, 146)),
    ("blue: libc and kernel", (112, 166, 216), (160, 202, 236)),
    ("pink: allocator", (216, 126, 182), (238, 172, 212)),
    ("yellow: interpreter or JIT", (222, 196, 72), (244, 224, 120)),
    ("grey: other", (186, 186, 186), (212, 212, 212)),
];

/// The colour's place in the legend.
const fn color(kind: Kind) -> usize {
    match kind {
        Kind::Program => 0,
        Kind::Standard => 1,
        Kind::System => 2,
        Kind::Allocator | Kind::Allocation => 3,
        Kind::Interpreter => 4,
        Kind::Missing => 5,
    }
}

fn shade(color: usize, name: &str) -> Color {
    let (_, from, to) = LEGEND[color];
    let position = (FxBuildHasher.hash_one(name) >> 56) as u32;
    let between = |from: u8, to: u8| (u32::from(from) + (u32::from(to) - u32::from(from)) * position / 255) as u8;
    Color { r: between(from.0, to.0), g: between(from.1, to.1), b: between(from.2, to.2) }
}
