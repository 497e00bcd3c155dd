//! A page that needs nothing else: an interactive flame graph, a table of functions, comparison with another profile, and what was lost.
//!
//! The page is one file, with its style and its scripts inside; it asks nothing of any other place, and its content security policy would let
//! nothing of it be asked. Three use it: a file (the profile inside), a recorder's server and `profrec view` (no profile inside; it asks
//! the process that served it). Names of functions are only ever the text of an element or of the canvas, never markup.
//!
//! The result of a comparison ([`encode_comparison`]) is the same page with pairs of profiles inside:
//! `{"schema": "profile-recorder.comparison", "version": 1, "pairs": [[base, head], ...]}`, each side as below.
//!
//! # The data
//!
//! [`data`] writes what the page draws, as JSON. Where there are many numbers they are a column: LEB128 numbers, one after another, in
//! base64. Signed ones have their sign in the lowest bit.
//!
//! ```text
//! {"schema": "profile-recorder.page", "version": 1, "title": "app", "about": "app (pid 7)", "start_unix_ns": ..., "duration_ns": ...,
//!  "comments": ["..."], "columns": [{"kind": "cpu", "unit": "nanoseconds", "caption": "CPU time", "memory": false, "wide": false}], "first": 0,
//!  "names": ["main", ...], "kinds": "00214...",             number of the `kind::Kind` of each name
//!  "module": column, "modules": ["", "app", ...],           file that has the function, for each name
//!  "canonical": [[12, "app::parse"], ...],                  names that change from build to build, without what changes
//!  "files": [...], "places": {"file": column, "line": column},    place i + 1
//!  "sets": [[3, 9], ...],                                   set i + 1 + number of places: several places; a smaller one is that place; 0 is none
//!  "frames": {"name": column, "set": column},
//!  "nodes": {"climb": column, "frame": column},             the prefix tree in depth-first order, the root left out: node 1 and on
//!  "threads": [{"pid": 7, "tid": 8, "name": "worker", "process": "app"}],
//!  "groups": [{"thread": 0, "labels": [["route", "/"]], "rows": 120}],
//!  "rows": {"node": column, "values": [signed column, ...]}}      of each group in turn, by node: node less that of the row before
//! ```
//!
//! `climb` says how many levels lie between the node before and this one's parent: 0 for a child of the node before, 1 for its sibling. `wide` columns have sums
//! beyond 2^53, which a reader must not keep in a double. Within version 1 members are only ever added.

mod column;
mod data;
mod places;
mod rows;

use super::{one_line, svg};
use crate::difference::Side;
use crate::{Options, Profile, SampleType, Symbols};
use serde::Serialize;
use std::io::{self, Write};

/// The page's own script and style by their hashes, pictures that it draws, and nothing else.
macro_rules! policy {
    ($rest:literal) => {
        concat!(
            "default-src 'none'; script-src '",
            env!("PAGE_SCRIPT_HASH"),
            "'; style-src '",
            env!("PAGE_STYLE_HASH"),
            "'; img-src data: blob:; base-uri 'none'; form-action 'none'",
            $rest
        )
    };
}

/// What the page that [`page`] gives may load and ask, for the header of an HTTP answer: besides what is in it, the process that served it.
pub const CONTENT_SECURITY_POLICY: &str = policy!("; connect-src 'self'; frame-ancestors 'none'");
/// The same within the page: browsers take the last part from a header alone.
const POLICY_OF_PAGES: &str = policy!("; connect-src 'self'");
/// What a file may load and ask: nothing.
const POLICY_OF_FILES: &str = policy!("");

/// What the page asks the process that served it for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Host {
    /// A recorder: it records, and converts what it is sent.
    Recorder,
    /// `profrec view`: it has files, and converts what it is sent.
    Viewer,
}

impl Host {
    const fn name(self) -> &'static str {
        match self {
            Self::Recorder => "recorder",
            Self::Viewer => "viewer",
        }
    }
}

/// Writes the page with the profile inside.
pub fn encode(profile: &Profile, symbols: &Symbols, options: &Options, out: &mut dyn Write) -> io::Result<()> {
    file(&svg::title(profile, options), "", &data::Document::new(profile, symbols, options)?, out)
}

/// Two profiles on one page.
#[derive(Clone, Debug)]
pub struct Compared<'a> {
    /// What stands before `base` and `head` where one of several comparisons is chosen.
    pub name: String,
    /// What is compared with.
    pub base: Side<'a>,
    /// What is shown.
    pub head: Side<'a>,
    /// The column to show first.
    pub shown: SampleType,
}

/// Writes the page with pairs of profiles inside, the first of which is compared. `report` stands above them, as markup: texts in it went through [`escape`].
pub fn encode_comparison(title: &str, report: &str, pairs: &[Compared<'_>], out: &mut dyn Write) -> io::Result<()> {
    let pairs = pairs.iter().map(|Compared { name, base, head, shown }| {
        let (base_name, head_name) = (format!("{name}base"), format!("{name}head"));
        Ok((document(*base, shown, base_name)?, document(*head, shown, head_name)?))
    });
    let pairs = pairs.collect::<io::Result<Vec<_>>>()?;
    file(&one_line(title), report, &data::Comparison::new(&pairs), out)
}

fn document<'a>(side: Side<'a>, shown: &SampleType, title: String) -> io::Result<data::Document<'a>> {
    let sample_type = side.profile.sample_types.iter().position(|t| t == shown);
    data::Document::new(side.profile, side.symbols, &Options { sample_type, title: Some(title), ..Options::default() })
}

/// The page with data inside, below `report`.
fn file(title: &str, report: &str, data: &impl Serialize, out: &mut dyn Write) -> io::Result<()> {
    let mut out = io::BufWriter::with_capacity(1 << 16, out);
    head(&mut out, "file", title, POLICY_OF_FILES)?;
    write!(out, "<section id=\"report\">\n{report}</section>\n<script type=\"application/json\" id=\"data\">")?;
    serde_json::to_writer(io::BufWriter::with_capacity(1 << 16, InScript(&mut out)), data)?;
    out.write_all(b"</script>\n")?;
    end(&mut out, "")?;
    out.flush()
}

/// Writes what the page draws, as JSON.
pub fn data(profile: &Profile, symbols: &Symbols, options: &Options, out: &mut dyn Write) -> io::Result<()> {
    let mut out = io::BufWriter::with_capacity(1 << 16, out);
    serde_json::to_writer(&mut out, &data::Document::new(profile, symbols, options)?)?;
    out.flush()
}

/// The page without a profile. `help` is a text that it shows to those who ask from a terminal; nothing of the process is in the page but that.
pub fn page(host: Host, help: &str) -> String {
    let mut page = Vec::new();
    // A vector takes everything.
    let _ = head(&mut page, host.name(), "Profile Recorder", POLICY_OF_PAGES).and_then(|()| end(&mut page, help));
    String::from_utf8(page).unwrap_or_default()
}

fn head(out: &mut dyn Write, host: &str, title: &str, policy: &str) -> io::Result<()> {
    write!(
        out,
        "<!doctype html>\n<html lang=\"en\" data-host=\"{host}\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width\">\n<meta name=\"referrer\" content=\"no-referrer\">\n\
         <meta http-equiv=\"Content-Security-Policy\" content=\"{policy}\">\n<title>{}</title>\n<style>{}</style>\n</head>\n<body>\n",
        escape(title),
        include_str!(concat!(env!("OUT_DIR"), "/page.css")),
    )
}

fn end(out: &mut dyn Write, help: &str) -> io::Result<()> {
    let body = include_str!("page/body.html");
    let (before, after) = body.split_once("<!-- help -->").unwrap_or((body, ""));
    let script = include_str!(concat!(env!("OUT_DIR"), "/page.js"));
    write!(out, "{before}{}{after}<script>{script}</script>\n</body>\n</html>\n", escape(help))
}

/// JSON within an element: a bracket, which only texts hold, could end it.
struct InScript<'a>(&'a mut dyn Write);

impl Write for InScript<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        for (i, part) in bytes.split(|byte| *byte == b'<').enumerate() {
            if i > 0 {
                self.0.write_all(b"\\u003c")?;
            }
            self.0.write_all(part)?;
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

/// A text as markup.
pub fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len() + text.len() / 4);
    for c in text.chars() {
        match c {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            _ => escaped.push(c),
        }
    }
    escaped
}
