//! The report as a comment on a pull request: a verdict, a table, and the details folded away.

use super::judge::Severity;
use super::lists::{self, shortened};
use super::report::{Blame, Case, Report, percent, signed};
use crate::numbers::with_commas;
use std::fmt::Write as _;
use std::io::{self, Write};
use std::path::Path;

/// GitHub takes no comment with more characters.
const MOST: usize = 65_535;
/// Kept for what ends the comment.
const RESERVED: usize = 400;
/// Stacks and functions of each case.
const LISTED: usize = 15;
/// Levels of a stack.
const LEVELS: usize = 30;
/// Characters of a name.
const NAME: usize = 160;

/// Writes it. Its first line marks the comment, so that the next run finds and replaces it.
pub(super) fn write(report: &Report<'_>, out: &mut dyn Write) -> io::Result<()> {
    let mark = match report.severity() {
        Severity::Exceeded => "❌",
        Severity::Warned | Severity::Noise => "⚠️",
        Severity::Within => "✅",
    };
    let marker = report.name.replace("--", "__").replace(['<', '>', '\n'], "_");
    let mut text = format!("<!-- profile-recorder-diff:{} -->\n", shortened(&marker, NAME));
    let _ = writeln!(text, "{mark} **{}**\n", escaped(&capitalised(&shortened(&report.verdict(), 2000))));
    let mut parts = vec![table(report)];
    let here = std::env::current_dir().unwrap_or_default();
    for case in &report.cases {
        parts.extend(details(report, case, &here));
    }
    let warnings: String = report.warnings().iter().map(|w| format!("- {}\n", escaped(&shortened(w, 1000)))).collect();
    if !warnings.is_empty() {
        parts.push(format!("\n{warnings}"));
    }
    let mut left_out = 0;
    let mut characters = text.chars().count();
    for part in parts {
        let more = part.chars().count();
        if characters + more + RESERVED > MOST {
            left_out += 1;
            continue;
        }
        characters += more;
        text.push_str(&part);
    }
    if left_out != 0 {
        let _ = writeln!(
            text,
            "\n{left_out} parts did not fit into a comment; the reports in the other formats have them."
        );
    }
    out.write_all(text.as_bytes())
}

fn table(report: &Report<'_>) -> String {
    let mut text =
        String::from("| metric | base | head | change | | limit | status |\n|:--|--:|--:|--:|--:|:--|:--|\n");
    // Of many cases those in trouble come first, and the others until there is no more room.
    let mut rows: Vec<_> = report.cases.iter().flat_map(|case| case.metrics.iter().map(move |j| (case, j))).collect();
    rows.sort_by_key(|(_, judged)| std::cmp::Reverse(judged.severity()));
    let all = rows.len();
    let mut shown = 0;
    for (case, judged) in rows {
        let change = judged.metric.change;
        let (base, delta) = match report.has_base {
            true => (with_commas(change.base), signed(change.delta())),
            false => (String::new(), String::new()),
        };
        let width = match change.half_width() {
            0.0 => String::new(),
            width => format!(" ± {}", with_commas(width.round() as i64)),
        };
        let limits: Vec<String> = judged.judgements.iter().map(|j| cell(&j.limit)).collect();
        let unit = match judged.metric.unit.as_str() {
            "count" | "bytes" => String::new(),
            other => format!(" ({other})"),
        };
        let row = format!(
            "| {}{unit} | {base} | {} | {delta}{width} | {} | {} | {} |\n",
            cell(&shortened(&report.label(case, &judged.metric.name), NAME)),
            with_commas(change.head),
            percent(change),
            limits.join(", "),
            judged.status(),
        );
        if text.chars().count() + row.chars().count() > MOST / 3 {
            break;
        }
        text.push_str(&row);
        shown += 1;
    }
    if shown < all {
        let _ = writeln!(text, "\n{} more metrics are not in this table.", all - shown);
    }
    text
}

/// Each of these is left out as a whole where there is no room for it.
fn details(report: &Report<'_>, case: &Case<'_>, here: &Path) -> Vec<String> {
    let Some(blame) = &case.blame else { return Vec::new() };
    let mut parts = Vec::new();
    if let Some(summary) = summary(report, case, blame, here) {
        parts.push(summary);
    }
    let title = report.label(case, &blame.metric);
    if !blame.stacks.is_empty() {
        let mut text = format!("\n<details><summary>{}: {}</summary>\n\n", html(&title), html(&lists::counts(blame)));
        for stack in blame.stacks.iter().take(LISTED) {
            let _ = writeln!(text, "{} {}\n\n```text", stack.status.name(), escaped(&lists::change(stack)));
            for level in stack.levels.iter().take(LEVELS) {
                let _ = writeln!(text, "{}", fenced(&shortened(&lists::level(level, here), NAME)));
            }
            if stack.levels.len() > LEVELS {
                let _ = writeln!(text, "... {} more", stack.levels.len() - LEVELS);
            }
            text.push_str("```\n\n");
        }
        text.push_str("</details>\n");
        parts.push(text);
    }
    if !blame.functions.is_empty() {
        let mut text = format!("\n<details><summary>{}: functions</summary>\n\n", html(&title));
        text.push_str("| own | with callees | function |\n|--:|--:|:--|\n");
        for function in blame.functions.iter().take(LISTED) {
            let name = code(&shortened(&lists::function(function), NAME));
            let _ =
                writeln!(text, "| {} | {} | {name} |", signed(function.own.delta()), signed(function.total.delta()));
        }
        text.push_str("\n</details>\n");
        parts.push(text);
    }
    let renamed = blame.comparison.renamed();
    if !renamed.is_empty() {
        let mut text = format!("\n<details><summary>{}: renamed functions</summary>\n\n", html(&title));
        for (old, new) in renamed.iter().take(LISTED) {
            let _ = writeln!(text, "- {} is {} now", code(&shortened(old, NAME)), code(&shortened(new, NAME)));
        }
        text.push_str("\n</details>\n");
        parts.push(text);
    }
    parts
}

/// The places that changed most, for a reader who unfolds nothing.
fn summary(report: &Report<'_>, case: &Case<'_>, blame: &Blame<'_>, here: &Path) -> Option<String> {
    if blame.stacks.is_empty() {
        return None;
    }
    let mut text = format!("\n{}:\n", escaped(&report.label(case, &blame.metric)));
    for stack in blame.stacks.iter().take(3) {
        let place = code(&shortened(&lists::place(stack, here), NAME));
        let _ = writeln!(text, "- **{}** in {place}", escaped(&lists::change(stack)));
    }
    Some(text)
}

fn capitalised(text: &str) -> String {
    let mut characters = text.chars();
    characters.next().map_or_else(String::new, |first| first.to_uppercase().chain(characters).collect())
}

/// Text in which nothing is an instruction to the reader of markdown.
fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '&' => escaped.push_str("&amp;"),
            // A mention would send mail.
            '@' => escaped.push_str("@\u{200b}"),
            '\\' | '`' | '*' | '_' | '[' | ']' | '|' | '#' | '~' => {
                escaped.push('\\');
                escaped.push(character);
            }
            '\n' | '\r' => escaped.push(' '),
            other => escaped.push(other),
        }
    }
    escaped
}

fn cell(text: &str) -> String {
    escaped(text)
}

fn html(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace(['\n', '\r'], " ")
}

/// Code in a line or a table's cell.
fn code(text: &str) -> String {
    format!(
        "<code>{}</code>",
        html(text)
            .replace('|', "&#124;")
            .replace('`', "&#96;")
            .replace('*', "&#42;")
            .replace('_', "&#95;")
            .replace('@', "&#64;")
    )
}

/// A line in a fenced block, which nothing in it may end.
fn fenced(text: &str) -> String {
    text.replace("```", "'''").replace(['\n', '\r'], " ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_no_markup() {
        assert_eq!(escaped("a|b*c_d<T>@me"), "a\\|b\\*c\\_d&lt;T&gt;@\u{200b}me");
        assert_eq!(code("Vec<T>::f|`x`"), "<code>Vec&lt;T&gt;::f&#124;&#96;x&#96;</code>");
        assert_eq!(fenced("a```\nb"), "a''' b");
    }
}
