//! A differential flame graph: as wide as the head, red where it grew and blue where it shrank.

use super::Comparison;
use crate::encode::{folded_name, one_line, titles};
use inferno::flamegraph::color::BackgroundColor;
use inferno::flamegraph::{self, Direction, TextTruncateDirection};
use std::io::{self, Write};

impl Comparison<'_> {
    /// Draws a column, with the base's values in each frame's text. What is in the base only has no width: the subtitle says how much that is.
    pub fn write_svg(&self, column: usize, title: &str, out: &mut dyn Write) -> io::Result<()> {
        let Some(of) = self.columns().get(column) else {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "there is no such column"));
        };
        let (kind, unit) = (one_line(&of.sample_type.kind), one_line(&of.sample_type.unit));
        let (mut lines, mut gone) = (Vec::new(), 0_i128);
        let all: u128 =
            self.every_stack(column).map(|(_, c)| u128::from(c.base.max(c.head).max(0).unsigned_abs())).sum();
        // The library adds up in 64 bits, and has differences in as many.
        let halvings = (128 - all.leading_zeros()).saturating_sub(63);
        let shown = |value: i64| value.max(0) >> halvings;
        for (names, change) in self.every_stack(column) {
            if change.head <= 0 {
                gone += i128::from(change.base);
            }
            let stack: Vec<_> = names.into_iter().map(folded_name).collect();
            let stack = if stack.is_empty() { "[no stack]".to_owned() } else { stack.join(";") };
            lines.push(format!("{stack} {} {}", shown(change.base), shown(change.head)));
        }
        lines.sort_unstable();
        let mut options = flamegraph::Options::default();
        options.title = format!("{}: {kind} (red: more than before, blue: less)", one_line(title));
        options.subtitle = (gone > 0).then(|| format!("stacks that are gone, {gone} {unit} in all, are not shown"));
        options.factor = 2_f64.powi(halvings as i32);
        options.direction = Direction::Inverted;
        options.bgcolors = "#ffffff".parse::<BackgroundColor>().ok();
        options.deterministic = true;
        options.text_truncate_direction = TextTruncateDirection::Right;
        options.font_size = 12;
        options.frame_height = 17;
        let total = lines.iter().any(|line| !line.ends_with(" 0"));
        if !total {
            // The library refuses a picture of nothing.
            lines = vec!["[nothing in the head] 0 1".to_owned()];
        }
        let lines = lines.iter().map(String::as_str);
        titles::draw(options, &unit, all, lines, |width| u128::from(width) << halvings, out)
    }
}
