//! Stacks that are on one side only because a function of theirs was renamed, inlined away, split off or put in between.
//!
//! Functions that the other side does not know at all are taken out of such stacks; what is left is compared again. So a renaming, which changes every stack
//! through the function, changes none.

use super::paths::{Name, Paths};
use super::rows::{Row, Rows};
use rustc_hash::{FxHashMap, FxHashSet};

/// The rows of one reduced stack that are on one side only.
#[derive(Default)]
struct Group {
    base: Vec<Row>,
    head: Vec<Row>,
}

/// Pairs rows of one side with rows of the other. Returns functions that have another name now: old name by new name.
pub(super) fn pair(rows: &mut Rows, paths: &Paths) -> FxHashMap<Name, Name> {
    let (in_base, in_head) = (known(rows, paths, Row::is_in_base), known(rows, paths, Row::is_in_head));
    let shared = |name: &Name| in_base.contains(name) && in_head.contains(name);
    let (one_sided, mut kept): (Vec<Row>, Vec<Row>) =
        std::mem::take(&mut rows.all).into_iter().partition(|row| row.is_in_base() != row.is_in_head());
    let mut order: Vec<Vec<Name>> = Vec::new();
    let mut groups: FxHashMap<Vec<Name>, Group> = FxHashMap::default();
    for row in one_sided {
        let reduced: Vec<Name> = paths.leaf_first(row.node).filter(shared).collect();
        if !groups.contains_key(&reduced) {
            order.push(reduced.clone());
        }
        let group = groups.entry(reduced).or_default();
        if row.is_in_base() { group.base.push(row) } else { group.head.push(row) }
    }
    let mut renamed: FxHashSet<(Name, Name)> = FxHashSet::default();
    for reduced in order {
        let Some(mut group) = groups.remove(&reduced) else { continue };
        if reduced.is_empty() || group.base.is_empty() || group.head.is_empty() {
            kept.extend(group.base.into_iter().chain(group.head));
            continue;
        }
        // Equal ones belong together first, so that what was added is seen by itself.
        group.base.retain_mut(|old| {
            let Some(at) = group.head.iter().position(|new| new.same_values(old)) else { return true };
            let mut new = group.head.remove(at);
            renamed.extend(renaming(paths, &shared, old, &new));
            new.take_over(old);
            kept.push(new);
            false
        });
        if let ([old], [new]) = (group.base.as_slice(), group.head.as_slice()) {
            renamed.extend(renaming(paths, &shared, old, new));
        }
        match group.head.iter().enumerate().max_by_key(|(i, row)| (row.weight(), std::cmp::Reverse(*i))) {
            Some((largest, _)) => {
                let mut row = group.head.swap_remove(largest);
                group.base.iter().for_each(|old| row.take_over(old));
                kept.push(row);
                kept.extend(group.head);
            }
            None => kept.extend(group.base),
        }
    }
    rows.all = kept;
    one_to_one(&renamed)
}

fn known(rows: &Rows, paths: &Paths, is_there: fn(&Row) -> bool) -> FxHashSet<Name> {
    rows.all.iter().filter(|row| is_there(row)).flat_map(|row| paths.leaf_first(row.node)).collect()
}

/// The functions at the same place of both stacks, between the same neighbours, of which each side knows one.
fn renaming(paths: &Paths, shared: &impl Fn(&Name) -> bool, old: &Row, new: &Row) -> Vec<(Name, Name)> {
    let runs = |row: &Row| {
        let mut runs: Vec<Vec<Name>> = vec![Vec::new()];
        for name in paths.leaf_first(row.node) {
            match runs.last_mut() {
                Some(run) if !shared(&name) => run.push(name),
                _ => runs.push(Vec::new()),
            }
        }
        runs
    };
    let pairs = runs(old).into_iter().zip(runs(new));
    pairs.filter(|(old, new)| old.len() == new.len()).flat_map(|(old, new)| old.into_iter().zip(new)).collect()
}

/// Pairs in which each name occurs with one partner only, the old name by the new one.
fn one_to_one(pairs: &FxHashSet<(Name, Name)>) -> FxHashMap<Name, Name> {
    let (mut olds, mut news): (FxHashMap<Name, u32>, FxHashMap<Name, u32>) = Default::default();
    for (old, new) in pairs {
        *olds.entry(*old).or_default() += 1;
        *news.entry(*new).or_default() += 1;
    }
    let is_alone = |(old, new): &(Name, Name)| olds.get(old) == Some(&1) && news.get(new) == Some(&1);
    pairs.iter().filter(|pair| is_alone(pair)).map(|(old, new)| (*new, *old)).collect()
}
