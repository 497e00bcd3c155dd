//! A flame graph: one SVG that zooms and searches by itself.

use super::{Growth, collapsed, colors, folded_name, one_line};
use crate::named::{Before, Tree};
use crate::{Options, Profile, SampleType, Symbols};
use inferno::flamegraph::color::{BackgroundColor, BasicPalette, MultiPalette, Palette, PaletteMap};
use inferno::flamegraph::{self, Direction, TextTruncateDirection};
use std::io::{self, Write};

/// Where a flame graph is shown.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Style {
    /// By itself, with title and comments.
    File(Growth),
    /// On the page, next to others.
    Page,
}

/// More frames than this make a page slow that shows several graphs.
const MAX_FRAMES_ON_PAGE: usize = 2500;

impl Style {
    /// Share of the whole below which a frame is not drawn: at first a fraction of a pixel, more on a page with too many frames.
    fn smallest_share(self, totals: &[i64]) -> f64 {
        let whole = totals.first().copied().unwrap_or(0).max(1) as f64;
        match self {
            Self::File(_) => 0.000_1,
            Self::Page if totals.len() <= MAX_FRAMES_ON_PAGE => 0.000_3,
            Self::Page => {
                let mut sorted = totals.to_vec();
                let (_, smallest, _) = sorted.select_nth_unstable_by(MAX_FRAMES_ON_PAGE, |a, b| b.cmp(a));
                (smallest.saturating_add(1) as f64 / whole).max(0.000_3)
            }
        }
    }
}

/// Writes the profile.
///
/// With [`Options::reversed`] stacks begin at their leaf, so that what is expensive by itself is wide whoever called it.
/// Negative sums, which a difference can have, have no width; they are left out and the subtitle says how much that was. Colours tell whose code a function
/// is: the program's, the language's library's, the C library's or the kernel's, the allocator's, an interpreter's. The subtitle has the legend.
pub fn encode(profile: &Profile, symbols: &Symbols, options: &Options, out: &mut dyn Write) -> io::Result<()> {
    let column = options.column(profile)?;
    let tree = Tree::new(profile, symbols, Before::of(profile, options), folded_name);
    let tree = if options.reversed { tree.reversed() } else { tree };
    let (mut palette, legend) = colors::of(&tree, profile, symbols);
    let colors = Some((&mut palette, legend.as_str()));
    draw_colored(&tree, profile, column, &title(profile, options), Style::File(options.growth), colors, out).map(drop)
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

/// Draws one column; returns the share of the whole below which frames are left out.
pub(super) fn draw(
    tree: &Tree,
    profile: &Profile,
    column: usize,
    title: &str,
    style: Style,
    out: &mut dyn Write,
) -> io::Result<f64> {
    draw_colored(tree, profile, column, title, style, None, out)
}

/// The same with colours by name, and what they mean.
fn draw_colored(
    tree: &Tree,
    profile: &Profile,
    column: usize,
    title: &str,
    style: Style,
    colors: Option<(&mut PaletteMap, &str)>,
    out: &mut dyn Write,
) -> io::Result<f64> {
    let fallback = SampleType::new("samples", "count");
    let sample_type = profile.sample_types.get(column).unwrap_or(&fallback);
    let mut own = tree.own_values(profile, column);
    let left_out: i128 = own.iter().filter(|v| **v < 0).map(|v| i128::from(*v)).sum();
    own.iter_mut().for_each(|value| *value = (*value).max(0));
    let halvings = halvings_to_fit(&own);
    own.iter_mut().for_each(|value| *value >>= halvings);
    let totals = tree.totals(&own);
    let smallest_share = style.smallest_share(&totals);
    fold_narrow(tree, &totals, &mut own, smallest_share);

    let mut options = flamegraph::Options::default();
    options.title = format!("{title}: {}", caption(sample_type));
    let mut notes: Vec<String> = profile.comments.iter().take(3).map(|c| one_line(c).into_owned()).collect();
    if left_out != 0 {
        notes.push(format!("negative values of {left_out} {} are not shown", sample_type.unit));
    }
    if let Some((palette, legend)) = colors {
        notes.push(legend.to_owned());
        options.palette_map = Some(palette);
    }
    options.subtitle = (!notes.is_empty() && matches!(style, Style::File(_))).then(|| notes.join("; "));
    options.direction = match style {
        Style::File(Growth::Up) => Direction::Straight,
        Style::File(Growth::Down) | Style::Page => Direction::Inverted,
    };
    options.min_width = smallest_share * 100.0;
    options.count_name = count_name(sample_type);
    // Microseconds are what a person can read; the graph divides, so that no rounding adds up.
    let unit = if sample_type.unit == "nanoseconds" { 0.001 } else { 1.0 };
    options.factor = unit * f64::from(1_u32 << halvings);
    options.name_type = "Function:".into();
    options.colors = match (&*sample_type.kind, sample_type.is_memory()) {
        (_, true) => Palette::Basic(BasicPalette::Mem),
        ("wall" | "off_cpu", _) => Palette::Basic(BasicPalette::Io),
        _ => Palette::Multi(MultiPalette::Rust),
    };
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
    flamegraph::from_lines(&mut options, lines.lines().rev(), &mut out)?;
    out.flush()?;
    Ok(smallest_share)
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
fn fold_narrow(tree: &Tree, totals: &[i64], own: &mut [i64], min_share: f64) {
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
