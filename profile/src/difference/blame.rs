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
    /// One for each compared column.
    values: Vec<i64>,
}

impl Way {
    fn value(&self) -> i64 {
        self.values.first().copied().unwrap_or(0)
    }
}

/// The levels of the stack that grew most, leaf first and with the lines of the head; of one that shrank, those of the base.
///
/// What both sides have is taken away first: the same values, on the same lines as far as there is a choice. What is left is what changed.
/// `columns` are those whose values are compared, in each side's own numbers; the first is the one that is looked at.
pub(super) fn levels(
    base: (Side<'_>, &[StackId]),
    head: (Side<'_>, &[StackId]),
    columns: &[(usize, usize)],
) -> Vec<Level> {
    let mut old = ways(base.0, base.1, &columns.iter().map(|(base, _)| *base).collect::<Vec<_>>());
    let mut new = ways(head.0, head.1, &columns.iter().map(|(_, head)| *head).collect::<Vec<_>>());
    let largest = |ways: &[Way]| {
        let by =
            |a: &&Way, b: &&Way| a.value().unsigned_abs().cmp(&b.value().unsigned_abs()).then(b.lines.cmp(&a.lines));
        ways.iter().max_by(by).cloned()
    };
    let (most_old, most_new) = (largest(&old), largest(&new));
    cancel(&mut old, &mut new);
    // The same lines with another value: what is left of it is the difference.
    for way in &mut new {
        if let Some(at) = old.iter().position(|o| o.lines == way.lines) {
            let same_lines = old.remove(at);
            way.values.iter_mut().zip(same_lines.values).for_each(|(new, old)| *new = new.saturating_sub(old));
        }
    }
    let sum = |ways: &[Way]| ways.iter().fold(0_i64, |sum, way| sum.saturating_add(way.value()));
    let grown = sum(&new) >= sum(&old);
    let of_new = largest(&new).or(most_new).map(|way| full(head.0, way.stack));
    let of_old = largest(&old).or(most_old).map(|way| full(base.0, way.stack));
    let (first, second) = if grown { (of_new, of_old) } else { (of_old, of_new) };
    first.or(second).unwrap_or_default()
}

/// Takes away what both sides have: the same values, of several such on the most lines that are the same, of several such the first.
fn cancel(old: &mut Vec<Way>, new: &mut Vec<Way>) {
    let mut pairs: Vec<(usize, usize, usize)> = Vec::new();
    for (o, of_old) in old.iter().enumerate() {
        let of_new = new.iter().enumerate().filter(|(_, of_new)| of_new.values == of_old.values);
        pairs.extend(of_new.map(|(n, of_new)| {
            let same = of_new.lines.iter().zip(&of_old.lines).filter(|(new, old)| new == old).count();
            (of_old.lines.len() - same.min(of_old.lines.len()), o, n)
        }));
    }
    pairs.sort_unstable();
    let (mut kept_old, mut kept_new) = (vec![true; old.len()], vec![true; new.len()]);
    for (_, o, n) in pairs {
        if kept_old[o] && kept_new[n] {
            (kept_old[o], kept_new[n]) = (false, false);
        }
    }
    let (mut of_old, mut of_new) = (kept_old.into_iter(), kept_new.into_iter());
    old.retain(|_| of_old.next().unwrap_or(true));
    new.retain(|_| of_new.next().unwrap_or(true));
}

/// Every level of a stack, the allocation function included.
fn full(side: Side<'_>, stack: StackId) -> Vec<Level> {
    let frames = side.profile.stacks.frames_leaf_first(stack);
    frames.flat_map(|frame| sites::of_frame(side.profile, side.symbols, frame)).collect()
}

/// Stacks with the same lines are one way: an unrolled loop has many addresses.
fn ways(side: Side<'_>, stacks: &[StackId], columns: &[usize]) -> Vec<Way> {
    let mut values: FxHashMap<StackId, Vec<i64>> =
        stacks.iter().map(|stack| (*stack, vec![0; columns.len()])).collect();
    for sample in &side.profile.samples {
        let Some(sums) = values.get_mut(&sample.stack) else { continue };
        let of_sample = columns.iter().map(|column| sample.values.get(*column).copied().unwrap_or(0));
        sums.iter_mut().zip(of_sample).for_each(|(sum, value)| *sum = sum.saturating_add(value));
    }
    let mut ways: Vec<Way> = Vec::new();
    for stack in stacks {
        let values = values.remove(stack).unwrap_or_default();
        let lines = lines(side, *stack);
        match ways.iter_mut().find(|way| way.lines == lines) {
            Some(way) => way.values.iter_mut().zip(values).for_each(|(sum, value)| *sum = sum.saturating_add(value)),
            None => ways.push(Way { lines, stack: *stack, values }),
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
