//! A page that needs nothing else: a flame graph for each sample type, a table of functions, and what was lost.
//!
//! It loads nothing, and its content security policy lets it load nothing. The flame graphs are those of [`super::svg`], root on top,
//! in frames of their own. Functions of allocations are told by who called the allocation function.

use super::svg::{self, Style};
use super::{folded_name, one_line};
use crate::named::{Prefix, Tree};
use crate::top::{self, Leaf};
use crate::{Options, Profile, Symbols};
use rustc_hash::{FxHashMap, FxHashSet};
use serde::Serialize;
use std::borrow::Cow;
use std::io::{self, Write};

/// Rows of the table that each column adds, by own value and again by total.
const ROWS: usize = 300;

/// Writes the profile.
pub fn encode(profile: &Profile, symbols: &Symbols, options: &Options, out: &mut dyn Write) -> io::Result<()> {
    let first = options.column(profile)?;
    let title = svg::title(profile, options);
    let mut out = io::BufWriter::with_capacity(1 << 16, out);
    write!(
        out,
        "{HEAD}<title>{}</title>\n<style>\n{}</style>\n</head>\n<body>\n",
        escape(&title),
        include_str!("page.css")
    )?;
    writeln!(out, "<h1>{}</h1>\n<p id=\"about\"></p>", escape(&title))?;
    if !profile.comments.is_empty() {
        writeln!(out, "<ul id=\"comments\">")?;
        for comment in &profile.comments {
            writeln!(out, "<li>{}</li>", escape(&one_line(comment)))?;
        }
        writeln!(out, "</ul>")?;
    }
    writeln!(out, "<nav role=\"tablist\" aria-label=\"Sample types\"></nav>")?;
    let shares = graphs(profile, symbols, options, first, &title, &mut out)?;
    out.write_all(TABLE.as_bytes())?;
    let data = serde_json::to_string(&data(profile, symbols, first, &shares))?.replace('<', "\\u003c");
    writeln!(out, "<script type=\"application/json\" id=\"data\">{data}</script>")?;
    writeln!(out, "<script>\n{}</script>\n</body>\n</html>", include_str!("page.js"))?;
    out.flush()
}

const HEAD: &str = "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
    <meta name=\"viewport\" content=\"width=device-width\">\n\
    <meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'\">\n";

const TABLE: &str = "<p id=\"drawn\"></p>\n<input id=\"filter\" type=\"search\" placeholder=\"Filter functions\" aria-label=\"Filter functions\">\n\
    <table>\n<thead><tr>\
    <th colspan=\"2\" aria-sort=\"descending\"><button title=\"In the function itself\">Self</button></th>\
    <th colspan=\"2\"><button title=\"In the function and what it called\">Total</button></th>\
    <th>Function</th></tr></thead>\n<tbody></tbody>\n</table>\n<p id=\"more\"></p>\n\
    <noscript><p>The table and the other sample types need scripts.</p></noscript>\n";

/// A frame for each column; only the first is loaded before it is asked for. Returns what each leaves out.
fn graphs(
    profile: &Profile,
    symbols: &Symbols,
    options: &Options,
    first: usize,
    title: &str,
    out: &mut dyn Write,
) -> io::Result<Vec<f64>> {
    let mut shares = Vec::new();
    let prefix = Prefix { process: profile.has_several_processes(), thread: options.thread_frames };
    let tree = Tree::new(profile, symbols, prefix, folded_name);
    for (column, sample_type) in profile.sample_types.iter().enumerate() {
        let mut graph = Vec::new();
        shares.push(svg::draw(&tree, profile, column, title, Style::Page, &mut graph)?);
        let graph = String::from_utf8_lossy(&graph);
        let graph = graph.find("<svg").map_or("", |start| &graph[start..]);
        // Scrolling is the page's: the frame is as high as its contents.
        let height = graph.split("height=\"").nth(1).and_then(|rest| rest.split('"').next()).unwrap_or("400");
        let (attribute, hidden) = if column == first { ("srcdoc", "") } else { ("data-graph", " hidden") };
        let document = format!("{GRAPH_HEAD}<style>{}</style>{graph}", include_str!("graph.css"));
        // Within single quotes only these two characters mean something else.
        let document = document.replace('&', "&amp;").replace('\'', "&#39;");
        let caption = escape(&svg::caption(sample_type));
        writeln!(
            out,
            "<iframe title=\"Flame graph: {caption}\" style=\"height:{height}px\"{hidden} {attribute}='{document}'></iframe>"
        )?;
    }
    Ok(shares)
}

/// The graph's script notes its state in the address, which a frame like this one does not have.
const GRAPH_HEAD: &str = "<!doctype html><meta charset=\"utf-8\"><script>history.replaceState=()=>{}</script>";

#[derive(Serialize)]
struct Data {
    about: String,
    start: i64,
    duration: i64,
    first: usize,
    columns: Vec<Column>,
    /// Name, own value of each column, total of each column.
    functions: Vec<(String, Vec<i64>, Vec<i64>)>,
}

#[derive(Serialize)]
struct Column {
    caption: String,
    unit: String,
    total: i64,
    /// Share of the total below which the flame graph leaves frames out.
    not_drawn_below: f64,
}

fn data(profile: &Profile, symbols: &Symbols, first: usize, shares: &[f64]) -> Data {
    let columns = profile.sample_types.iter().enumerate().map(|(column, sample_type)| Column {
        caption: svg::caption(sample_type),
        unit: sample_type.unit.to_string(),
        total: profile.total(column),
        not_drawn_below: shares[column],
    });
    Data {
        about: about(profile),
        start: profile.start_unix_ns,
        duration: profile.duration_ns,
        first,
        columns: columns.collect(),
        functions: functions(profile, symbols),
    }
}

fn about(profile: &Profile) -> String {
    let pids = profile.pids();
    match (&pids[..], profile.threads.first()) {
        ([pid], Some(thread)) => format!("{} (pid {pid})", thread.process),
        ([_, ..], _) => format!("{} processes", pids.len()),
        _ => String::new(),
    }
}

/// The functions that lead any column, with their values in all of them.
fn functions(profile: &Profile, symbols: &Symbols) -> Vec<(String, Vec<i64>, Vec<i64>)> {
    let tree = Tree::new(profile, symbols, Prefix::NONE, |name| Cow::Borrowed(name));
    let mut columns: Vec<Vec<top::Function>> = (0..profile.sample_types.len())
        .map(|column| {
            let memory = profile.sample_types[column].is_memory();
            top::of_tree(&tree, profile, column, if memory { Leaf::Caller } else { Leaf::Recorded })
        })
        .collect();
    let mut names: FxHashSet<String> = FxHashSet::default();
    for functions in &mut columns {
        names.extend(functions.iter().take(ROWS).map(|f| f.name.clone()));
        let mut by_total: Vec<&top::Function> = functions.iter().collect();
        by_total.sort_by(|a, b| b.total.cmp(&a.total).then_with(|| a.name.cmp(&b.name)));
        names.extend(by_total.into_iter().take(ROWS).map(|f| f.name.clone()));
    }
    let mut names: Vec<String> = names.into_iter().collect();
    names.sort_unstable();
    let lookup: Vec<FxHashMap<&str, &top::Function>> =
        columns.iter().map(|functions| functions.iter().map(|f| (f.name.as_str(), f)).collect()).collect();
    let values = |name: &str, value: fn(&top::Function) -> i64| -> Vec<i64> {
        lookup.iter().map(|column| column.get(name).map_or(0, |f| value(f))).collect()
    };
    names
        .iter()
        .map(|name| (one_line(name).into_owned(), values(name, |f| f.self_value), values(name, |f| f.total)))
        .collect()
}

fn escape(text: &str) -> String {
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
