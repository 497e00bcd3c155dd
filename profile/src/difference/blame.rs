//! Which lines a change is on. Stacks are compared by names alone, because lines move; here the lines of one changed stack are told apart.

use super::paths::Side;
use crate::sites::{self, Level};
use crate::{StackId, names};
use rustc_hash::FxHashMap;

/// One of the ways through the lines of a stack.
#[derive(Clone, Debug)]
struct Way {
    lines: Vec<u32>,
    stack: StackId,
    value: i64,
}

/// The levels of the stack that grew most, leaf first and with the lines of the head; of one that shrank, those of the base.
///
/// What both sides have is taken away first: the same value on the same lines, then the same value on whatever lines, in their order. What is left is what changed.
pub(super) fn levels(base: (Side<'_>, &[StackId]), head: (Side<'_>, &[StackId]), column: (usize, usize)) -> Vec<Level> {
    let mut old = ways(base.0, base.1, column.0);
    let mut new = ways(head.0, head.1, column.1);
    let cancel = |old: &mut Vec<Way>, new: &mut Vec<Way>, is_same: fn(&Way, &Way) -> bool| {
        old.retain(|o| match new.iter().position(|n| n.value == o.value && is_same(n, o)) {
            Some(at) => {
                new.remove(at);
                false
            }
            None => true,
        });
    };
    let (most_old, most_new) = (largest(&old).cloned(), largest(&new).cloned());
    cancel(&mut old, &mut new, |n, o| n.lines == o.lines);
    cancel(&mut old, &mut new, |_, _| true);
    // The same lines with another value: what is left of it is the difference.
    for way in &mut new {
        if let Some(at) = old.iter().position(|o| o.lines == way.lines) {
            way.value = way.value.saturating_sub(old.remove(at).value);
        }
    }
    let sum = |ways: &[Way]| ways.iter().fold(0_i64, |sum, way| sum.saturating_add(way.value));
    let grown = sum(&new) >= sum(&old);
    let of_new = largest(&new).cloned().or(most_new).map(|way| full(head.0, way.stack));
    let of_old = largest(&old).cloned().or(most_old).map(|way| full(base.0, way.stack));
    let (first, second) = if grown { (of_new, of_old) } else { (of_old, of_new) };
    first.or(second).unwrap_or_default()
}

fn largest(ways: &[Way]) -> Option<&Way> {
    ways.iter().max_by(|a, b| a.value.unsigned_abs().cmp(&b.value.unsigned_abs()).then(b.lines.cmp(&a.lines)))
}

/// Every level of a stack, the allocation function included.
fn full(side: Side<'_>, stack: StackId) -> Vec<Level> {
    let frames = side.profile.stacks.frames_leaf_first(stack);
    frames.flat_map(|frame| sites::of_frame(side.profile, side.symbols, frame)).collect()
}

/// Stacks with the same lines are one way: an unrolled loop has many addresses.
fn ways(side: Side<'_>, stacks: &[StackId], column: usize) -> Vec<Way> {
    let mut values: FxHashMap<StackId, i64> = stacks.iter().map(|stack| (*stack, 0)).collect();
    for sample in &side.profile.samples {
        if let Some(sum) = values.get_mut(&sample.stack) {
            *sum = sum.saturating_add(sample.values.get(column).copied().unwrap_or(0));
        }
    }
    let mut ways: Vec<Way> = Vec::new();
    for stack in stacks {
        let value = values.get(stack).copied().unwrap_or(0);
        let lines = lines(side, *stack);
        match ways.iter_mut().find(|way| way.lines == lines) {
            Some(way) => way.value = way.value.saturating_add(value),
            None => ways.push(Way { lines, stack: *stack, value }),
        }
    }
    ways.sort_by(|a, b| a.lines.cmp(&b.lines));
    ways
}

fn lines(side: Side<'_>, stack: StackId) -> Vec<u32> {
    let frames = side.profile.stacks.frames_leaf_first(stack);
    let of = |frame| match side.symbols.get(frame) {
        [] => vec![0; names::of(frame, side.profile, side.symbols).len()],
        found => found.iter().map(|symbol| symbol.line).collect(),
    };
    frames.flat_map(of).collect()
}
