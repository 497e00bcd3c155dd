//! The message of a limit that was passed: who allocated.

use super::{AllocStats, Limit, Plural};
use alloc_hook::marks::Marked;
use capture::{copy, region};
use profile::sites::{self, Level};
use profile::store;
use std::fmt::Write as _;
use std::path::Path;

/// Stacks that are listed.
const STACKS: usize = 10;
/// Frames of each.
const FRAMES: usize = 8;
/// Below this function are those of the block, above it those of whoever asserts.
const BORDER: &str = "alloc::limit::assert_at_most";

pub(super) fn of(limit: Limit, stats: &AllocStats, marked: &[Marked]) -> String {
    let allowed = match (limit.allocs, limit.bytes) {
        (Some(allocs), Some(bytes)) => format!("at most {allocs}, of {}", Plural(bytes, "byte")),
        (Some(allocs), None) => format!("at most {allocs}"),
        (None, bytes) => format!("at most {}", Plural(bytes.unwrap_or(0), "byte")),
    };
    let mut text = format!("too many allocations: {stats}; allowed: {allowed}");
    let stacks = stacks(marked);
    for stack in stacks.iter().take(STACKS) {
        let _ = write!(text, "\n{}, {}:", Plural(stack.objects, "allocation"), Plural(stack.bytes, "byte"));
        for line in &stack.lines {
            let _ = write!(text, "\n    {line}");
        }
    }
    let listed: u64 = stacks.iter().take(STACKS).map(|stack| stack.objects).sum();
    if listed < stats.allocs() {
        let others = stacks.len().saturating_sub(STACKS);
        let what = if others == 0 { "stacks that were not kept".to_owned() } else { format!("{others} other stacks") };
        let _ = write!(text, "\n{} in {what}", Plural(stats.allocs() - listed, "allocation"));
    }
    text
}

/// Allocations whose stacks look the same.
struct Stack {
    lines: Vec<String>,
    objects: u64,
    bytes: u64,
}

fn stacks(marked: &[Marked]) -> Vec<Stack> {
    let mut bytes = vec![0; region::used_bytes()];
    let length = copy::copy(&mut bytes);
    let marked: Vec<_> = marked.iter().map(|m| (m.values, [m.objects, m.bytes])).collect();
    let Ok(profile) = store::chosen(&bytes[..length], &marked) else { return Vec::new() };
    let symbols = symbolize::symbolize(&profile, &symbolize::Options::default()).symbols;
    let here = std::env::current_dir().unwrap_or_default();
    let mut stacks: Vec<Stack> = Vec::new();
    for sample in &profile.samples {
        let lines = lines(sites::levels(&profile, &symbols, sample.stack).collect(), &here);
        let [objects, bytes] = [0, 1].map(|i| sample.values.get(i).map_or(0, |value| value.unsigned_abs()));
        match stacks.iter_mut().find(|stack| stack.lines == lines) {
            Some(stack) => (stack.objects, stack.bytes) = (stack.objects + objects, stack.bytes + bytes),
            None => stacks.push(Stack { lines, objects, bytes }),
        }
    }
    stacks.sort_by(|a, b| (b.objects, b.bytes).cmp(&(a.objects, a.bytes)).then_with(|| a.lines.cmp(&b.lines)));
    stacks
}

/// A stack as it is shown: the program's own functions, the one that allocates first.
fn lines(mut levels: Vec<Level>, here: &Path) -> Vec<String> {
    if let Some(border) = levels.iter().position(|level| level.name.contains(BORDER)) {
        levels.truncate(border);
    }
    if levels.iter().any(|level| level.is_program) {
        levels.retain(|level| level.is_program);
    }
    levels.iter().take(FRAMES).map(|level| level.line(here)).collect()
}
