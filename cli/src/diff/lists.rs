//! Levels and places as lines of text.

use super::report::{Blame, percent, signed};
use crate::numbers::with_commas;
use profile::difference::{FunctionChange, StackChange};
use profile::sites::Level;
use std::path::Path;

/// A level with its file and line, the file by its path from `here`.
pub(super) fn level(level: &Level, here: &Path) -> String {
    level.line(here)
}

/// Where a stack's change is.
pub(super) fn place(stack: &StackChange, here: &Path) -> String {
    stack.site.as_ref().map_or_else(|| "[no stack]".to_owned(), |site| level(site, here))
}

/// `+1,000 (0 to 1,000)`: the difference, and from what to what.
pub(super) fn change(stack: &StackChange) -> String {
    let percent = percent(stack.change);
    let share = if percent.is_empty() { String::new() } else { format!(", {percent}") };
    format!(
        "{} ({} to {}{share})",
        signed(stack.change.delta()),
        with_commas(stack.change.base),
        with_commas(stack.change.head)
    )
}

/// The name of a function, and its name in the base.
pub(super) fn function(function: &FunctionChange) -> String {
    match &function.was {
        Some(was) => format!("{} (was {was})", function.name),
        None => function.name.clone(),
    }
}

/// How many stacks became what, in a line.
pub(super) fn counts(blame: &Blame<'_>) -> String {
    let counts = blame.counts;
    let of = [
        (counts.new, "new"),
        (counts.grown, "grown"),
        (counts.shrunk, "shrunk"),
        (counts.gone, "gone"),
        (counts.noise, "within noise"),
        (counts.same, "unchanged"),
    ];
    let told: Vec<String> =
        of.iter().filter(|(n, _)| *n != 0).map(|(n, what)| format!("{} {what}", with_commas(*n as i64))).collect();
    let moved = match counts.moved {
        0 => String::new(),
        n => format!(" ({} of them by another path: renamed or inlined functions)", with_commas(n as i64)),
    };
    if told.is_empty() { "no stacks".to_owned() } else { format!("stacks: {}{moved}", told.join(", ")) }
}

/// A text of at most so many characters, its middle left out.
pub(super) fn shortened(text: &str, most: usize) -> String {
    let length = text.chars().count();
    if length <= most {
        return text.to_owned();
    }
    let half = most.saturating_sub(3) / 2;
    let end: String = text.chars().skip(length - half).collect();
    format!("{}...{end}", text.chars().take(half).collect::<String>())
}
