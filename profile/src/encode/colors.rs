//! Colours of a flame graph: a hue for each kind of code, a shade for each name.

use super::folded_name;
use crate::kind::{self, Kind};
use crate::named::Tree;
use crate::{Profile, Symbols};
use inferno::flamegraph::color::{Color, PaletteMap};
use rustc_hash::FxBuildHasher;
use std::hash::BuildHasher;

/// The colour of each name in the tree, and a text that says what they mean.
pub(super) fn of(tree: &Tree, profile: &Profile, symbols: &Symbols) -> (PaletteMap, String) {
    let mut palette = PaletteMap::default();
    let mut occurs = [false; Kind::ALL.len()];
    let names = kind::of_names(profile, symbols);
    let folded = names.iter().map(|(name, kind)| (folded_name(name), *kind));
    let mut kinds: rustc_hash::FxHashMap<_, Kind> = rustc_hash::FxHashMap::default();
    for (name, kind) in folded {
        // Two names can look the same when they are folded.
        let known = kinds.entry(name).or_insert(kind);
        *known = kind.min(*known);
    }
    // The frame below all others, as the library calls it.
    palette.insert("all", shade(Kind::Missing, "all"));
    for name in tree.names().iter().skip(1) {
        // Frames of processes, threads and labels are nobody's code.
        let kind = kinds.get(name.as_str()).copied().unwrap_or(Kind::Missing);
        occurs[kind as usize] = true;
        palette.insert(name, shade(kind, name));
    }
    let legend: Vec<String> = Kind::ALL
        .into_iter()
        .zip(occurs)
        .filter(|(_, occurs)| *occurs)
        .map(|(kind, _)| format!("{} {}", hue(kind), kind.caption()))
        .collect();
    (palette, legend.join(", "))
}

/// What a reader calls the colour.
const fn hue(kind: Kind) -> &'static str {
    match kind {
        Kind::Program => "orange:",
        Kind::Standard => "green:",
        Kind::System => "blue:",
        Kind::Allocator => "pink:",
        Kind::Interpreter => "yellow:",
        Kind::Missing => "grey:",
    }
}

/// Light enough for black text.
fn shade(kind: Kind, name: &str) -> Color {
    let (from, to) = match kind {
        Kind::Program => ((236, 126, 56), (252, 172, 98)),
        Kind::Standard => ((116, 186, 110), (168, 214, 146)),
        Kind::System => ((112, 166, 216), (160, 202, 236)),
        Kind::Allocator => ((216, 126, 182), (238, 172, 212)),
        Kind::Interpreter => ((222, 196, 72), (244, 224, 120)),
        Kind::Missing => ((186, 186, 186), (212, 212, 212)),
    };
    let position = (FxBuildHasher.hash_one(name) >> 56) as u32;
    let between = |from: u8, to: u8| (u32::from(from) + (u32::from(to) - u32::from(from)) * position / 255) as u8;
    Color { r: between(from.0, to.0), g: between(from.1, to.1), b: between(from.2, to.2) }
}
