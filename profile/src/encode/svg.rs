//! A flame graph: one SVG that zooms and searches by itself.

use super::{Growth, collapsed, colors, folded_name, one_line, titles};
use crate::named::{Before, Tree};
use crate::{Options, Profile, SampleType, Symbols};
use inferno::flamegraph::color::{BackgroundColor, PaletteMap};
use inferno::flamegraph::{self, Direction, TextTruncateDirection};
use std::io::{self, Write};

/// Share of the whole below which a frame is not drawn: a fraction of a pixel.
const SMALLEST_SHARE: f64 = 0.000_1;

/// Writes the profile.
///
/// With [`Options::reversed`] stacks begin at their leaf, so that what is expensive by itself is wide whoever called it.
/// Negative sums, which a difference can have, have no width; they are left out and the subtitle says how much that was. Colours tell whose code a function
/// is: the program's, the language's library's, the C library's or the kernel's, the allocator's, an interpreter's. The subtitle has the legend.
pub fn encode(profile: &Profile, symbols: &Symbols, options: &Options, out: &mut dyn Write) -> io::Result<()> {
    let column = options.column(profile)?;
    let tree = Tree::new(profile, symbols, Before::of(profile, options), folded_name);
    let tree = if options.reversed { tree.reversed() } else { tree };
    let colors = colors::of(&tree, profile, symbols);
    draw(&tree, profile, column, &title(profile, options), options.growth, colors, out)
}

/// The title asked for, or what is measured.
pub(super) fn title(profile: &Profile, options: &Options) -> String {
    match (&options.title, profile.threads.first()) {
        (Some(title), _) => one_line(title).into_owned(),
        (None, Some(thread)) if !thread.process.is_empty() && !profile.has_several_processes() => {
            one_line(&thread.process).into_owned()
        }
        _ => "Profile".into(),
    }
}

/// What a reader calls a column.
pub(super) fn caption(sample_type: &SampleType) -> String {
    match (&*sample_type.kind, &*sample_type.unit) {
        ("alloc_objects", _) => "Allocations".into(),
        ("alloc_space", _) => "Allocated bytes".into(),
        ("inuse_objects", _) => "Live allocations".into(),
        ("inuse_space", _) => "Live bytes".into(),
        ("temporary_objects", _) => "Temporary allocations".into(),
        ("cpu", "nanoseconds") => "CPU time".into(),
        ("wall", "nanoseconds") => "Elapsed time".into(),
        ("off_cpu", "nanoseconds") => "Off-CPU time".into(),
        ("samples", "count") => "Samples".into(),
        ("threads", "count") => "Threads".into(),
        (kind, "count") => kind.replace('_', " "),
        (kind, unit) => format!("{} ({unit})", kind.replace('_', " ")),
    }
}

/// What stands after a number of a column, in the text of a frame.
fn count_name(sample_type: &SampleType) -> String {
    match (&*sample_type.kind, &*sample_type.unit) {
        ("alloc_objects" | "inuse_objects" | "temporary_objects", _) => "allocations".into(),
        (_, "nanoseconds") => "microseconds".into(),
        (kind, "count") => kind.replace('_', " "),
        (_, unit) => unit.into(),
    }
}

/// Draws one column.
fn draw(
    tree: &Tree<'_>,
    profile: &Profile,
    column: usize,
    title: &str,
    growth: Growth,
    (mut palette, legend): (PaletteMap, String),
    out: &mut dyn Write,
) -> io::Result<()> {
    let fallback = SampleType::new("samples", "count");
    let sample_type = profile.sample_types.get(column).unwrap_or(&fallback);
    let mut own = tree.own_values(profile, column);
    let left_out: i128 = own.iter().filter(|v| **v < 0).map(|v| i128::from(*v)).sum();
    own.iter_mut().for_each(|value| *value = (*value).max(0));
    let halvings = halvings_to_fit(&own);
    own.iter_mut().for_each(|value| *value >>= halvings);
    let totals = tree.totals(&own);
    fold_narrow(tree, &totals, &mut own, SMALLEST_SHARE);

    let mut options = flamegraph::Options::default();
    options.title = format!("{title}: {}", one_line(&caption(sample_type)));
    let mut notes: Vec<String> = profile.comments.iter().take(3).map(|c| one_line(c).into_owned()).collect();
    if left_out != 0 {
        notes.push(format!("negative values of {left_out} {} are not shown", one_line(&sample_type.unit)));
    }
    notes.push(legend);
    options.palette_map = Some(&mut palette);
    options.subtitle = Some(notes.join("; "));
    options.direction = match growth {
        Growth::Up => Direction::Straight,
        Growth::Down => Direction::Inverted,
    };
    options.min_width = SMALLEST_SHARE * 100.0;
    // Microseconds are what a person can read; the graph divides, so that no rounding adds up.
    let divisor = if sample_type.unit == "nanoseconds" { 1000_u32 } else { 1 };
    options.factor = f64::from(1_u32 << halvings) / f64::from(divisor);
    options.name_type = "Function:".into();
    options.bgcolors = "#ffffff".parse::<BackgroundColor>().ok();
    options.deterministic = true;
    options.text_truncate_direction = TextTruncateDirection::Right;
    options.font_size = 12;
    options.frame_height = 17;
    // The lines are in the order of the tree, in which a frame's lines stand together; the order of their bytes, in which they are sorted
    // otherwise, tears `f` apart when there is an `f:g`. A chart only reverses them.
    options.flame_chart = true;

    let mut lines = String::new();
    collapsed::lines(tree, &own, |line| {
        lines.push_str(line);
        Ok(())
    })?;
    if lines.is_empty() {
        lines.push_str("[nothing recorded] 1");
        options.factor = 1e-9;
    }
    let mut out = io::BufWriter::with_capacity(1 << 16, out);
    let sum = own.iter().map(|value| u128::from(value.unsigned_abs())).sum();
    let divisor = u128::from(divisor);
    let shown = |width| ((u128::from(width) << halvings) + divisor / 2) / divisor;
    titles::draw(options, &one_line(&count_name(sample_type)), sum, lines.lines().rev(), shown, &mut out)?;
    out.flush()
}

/// How often values must be halved so that their sum can be expressed.
fn halvings_to_fit(values: &[i64]) -> u32 {
    let mut sum: i128 = values.iter().map(|v| i128::from(*v)).sum();
    let mut halvings = 0;
    while sum > i128::from(i64::MAX) && halvings < 31 {
        sum >>= 1;
        halvings += 1;
    }
    halvings
}

/// Gives the values of frames that would be too narrow to see to those below them: the picture is the same, and done sooner.
fn fold_narrow(tree: &Tree<'_>, totals: &[i64], own: &mut [i64], min_share: f64) {
    let smallest = totals.first().copied().unwrap_or(0) as f64 * min_share;
    for node in (1..tree.len()).rev() {
        if (totals[node] as f64) < smallest {
            let parent = tree.parent(node as u32) as usize;
            // A whole stack that is too narrow stays: there is nothing below that could stand for it.
            if parent != 0 {
                own[parent] = own[parent].saturating_add(own[node]);
                own[node] = 0;
            }
        }
    }
}
