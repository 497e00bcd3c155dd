//! Collapsed stacks: a line for each, root first, `main;parse;malloc 12`.
//!
//! Readers: `flamegraph.pl`, inferno, speedscope, Firefox Profiler. One column of the profile is written. Samples of the same names are
//! added up; the order of the lines is that of the names. Stacks whose sum is zero are left out; a sum can be negative in a difference,
//! which not every reader takes. Comments come first, after `# `.

use super::{folded_name, one_line, without_value};
use crate::named::{Before, Tree};
use crate::{Options, Profile, Symbols};
use std::fmt::Write as _;
use std::io::{self, Write};

/// Writes the profile.
///
/// When the profile holds several processes, the first frame names the process. With [`Options::thread_frames`] the next one names the
/// thread, with [`Options::label_frames`] the ones after it the labels.
pub fn encode(profile: &Profile, symbols: &Symbols, options: &Options, out: &mut dyn Write) -> io::Result<()> {
    let column = options.column(profile)?;
    let tree = Tree::new(profile, symbols, Before::of(profile, options), folded_name);
    let own = tree.own_values(profile, column);
    let mut out = io::BufWriter::with_capacity(1 << 16, out);
    for comment in &profile.comments {
        // Readers that know no comments skip lines that do not end in a value.
        writeln!(out, "{}", without_value(format!("# {}", one_line(comment)).into()))?;
    }
    lines(&tree, &own, |line| out.write_all(line.as_bytes()))?;
    out.flush()
}

/// Passes on a line, with its line break, for each node whose own value is not zero.
pub(super) fn lines(tree: &Tree<'_>, own: &[i64], mut each: impl FnMut(&str) -> io::Result<()>) -> io::Result<()> {
    let mut line = String::new();
    // Where the name at each depth of the current path ends.
    let mut ends: Vec<usize> = vec![0];
    for (node, depth) in tree.depth_first() {
        ends.truncate(depth);
        line.truncate(ends[depth - 1]);
        if depth > 1 {
            line.push(';');
        }
        line.push_str(tree.name(node));
        ends.push(line.len());
        let value = own[node as usize];
        if value != 0 {
            // A text takes whatever is written to it.
            let _ = writeln!(line, " {value}");
            each(&line)?;
        }
    }
    Ok(())
}
