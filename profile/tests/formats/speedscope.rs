//! speedscope itself, in a headless browser, comes to the model's numbers.

use crate::readers::installed;
use crate::support::{self, ODD, encoded};
use profile_recorder_profile::top::{self, Leaf};
use profile_recorder_profile::{Format, Frame, Labels, Options, Profile, Sample, SampleType, Symbols, encode, values};
use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::Command;

/// Rows of its table of functions, by own value: total, self, name. Those on the screen, which are thirty or so.
fn rows(name: &str, file: Vec<u8>) -> Vec<(String, String, String)> {
    let release = installed("node_modules/speedscope/dist/release");
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    // Ends with the test's process.
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let (release, file) = (release.clone(), file.clone());
            std::thread::spawn(move || serve(stream, &release, &file));
        }
    });
    let directory = tempfile_directory(name);
    let page =
        format!("http://127.0.0.1:{port}/index.html#profileURL=http://127.0.0.1:{port}/file/{name}&view=sandwich");
    let output = Command::new("chromium")
        .args(["--headless", "--no-sandbox", "--disable-gpu", "--virtual-time-budget=8000", "--dump-dom"])
        .arg(format!("--user-data-dir={}", directory.display()))
        .arg(page)
        .output()
        .expect("chromium: tests/run installs it");
    let _ = std::fs::remove_dir_all(directory);
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let table = text.split_once("Symbol Name</th>").unwrap_or_else(|| panic!("no table in {text}")).1;
    table
        .split("<tr ")
        .skip(1)
        .filter_map(|row| {
            let mut cells = row.split("<td ").skip(1).map(|cell| cell.split_once('>').unwrap().1);
            let mut number = || cells.next()?.split_once(" (").map(|(number, _)| number.to_owned());
            let (total, own) = (number()?, number()?);
            let name = cells.next()?.split_once("</span>")?.1.split_once("</td>")?.0;
            let name = name.replace("&lt;", "<").replace("&gt;", ">").replace("&quot;", "\"").replace("&amp;", "&");
            Some((total, own, name))
        })
        .collect()
}

fn tempfile_directory(name: &str) -> std::path::PathBuf {
    std::env::temp_dir().join(format!("profrec-speedscope-{name}-{}", std::process::id()))
}

fn serve(mut stream: TcpStream, release: &Path, file: &[u8]) {
    let mut line = String::new();
    let mut reader = BufReader::new(stream.try_clone().unwrap());
    reader.read_line(&mut line).unwrap();
    let mut rest = String::new();
    while reader.read_line(&mut rest).is_ok_and(|length| length > 2) {
        rest.clear();
    }
    let path = line.split(' ').nth(1).unwrap_or("/").trim_start_matches('/').to_owned();
    let content = if path.starts_with("file/") { Some(file.to_vec()) } else { std::fs::read(release.join(&path)).ok() };
    let kind = match path.rsplit('.').next() {
        Some("html") => "text/html",
        Some("js") => "text/javascript",
        Some("css") => "text/css",
        _ => "application/octet-stream",
    };
    let (status, content) = content.map_or(("404 Not Found", Vec::new()), |content| ("200 OK", content));
    let head = format!(
        "HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
        content.len()
    );
    let _ = stream.write_all(head.as_bytes()).and_then(|()| stream.write_all(&content));
}

/// How it shows a value.
fn shown(value: i64, unit: &str) -> String {
    let value = value as f64;
    let rounded = |value: f64, unit: &str| format!("{value:.2}{unit}");
    match unit {
        "bytes" if value < 1024.0 => format!("{value:.0} B"),
        "bytes" if value < 1024.0 * 1024.0 => rounded(value / 1024.0, " KB"),
        "bytes" => rounded(value / 1024.0 / 1024.0, " MB"),
        "nanoseconds" if value < 1e3 => rounded(value, "ns"),
        "nanoseconds" if value < 1e6 => rounded(value / 1e3, "µs"),
        "nanoseconds" if value < 1e9 => rounded(value / 1e6, "ms"),
        "nanoseconds" => rounded(value / 1e9, "s"),
        _ => {
            let digits = format!("{value:.0}");
            let groups: Vec<&str> =
                digits.as_bytes().rchunks(3).rev().map(|c| std::str::from_utf8(c).unwrap()).collect();
            groups.join(",")
        }
    }
}

fn top_equals(name: &str, format: Format, of: &(Profile, Symbols), column: usize) {
    let options = Options { sample_type: Some(column), ..Options::default() };
    let rows = rows(name, encoded(|p, s, o, w| format.encode(p, s, o, w), of, &options));
    let unit = &of.0.sample_types[column].unit;
    let functions = top::functions(&of.0, &of.1, column, Leaf::Recorded);
    assert!(rows.len() >= functions.len().min(10), "{name}: {rows:?}");
    for (i, (total, own, function)) in rows.iter().take(10).enumerate() {
        // Where values are equal it orders functions as it likes.
        assert_eq!(*own, shown(functions[i].self_value, unit), "{name}: row {i}");
        let ours = functions.iter().find(|f| f.name == *function).unwrap_or_else(|| panic!("{name}: {function}"));
        assert_eq!((own, total), (&shown(ours.self_value, unit), &shown(ours.total, unit)), "{name}: {function}");
    }
}

#[test]
fn its_top_ten_of_our_file_are_the_models() {
    top_equals("count", Format::Speedscope, &support::large(3000, 200), 0);
    top_equals("bytes", Format::Speedscope, &support::large(3000, 200), 1);
    top_equals("time", Format::Speedscope, &support::cpu(), 1);
}

#[test]
fn its_top_ten_of_pprof_and_collapsed_stacks_are_the_models() {
    // Of a pprof file it shows the last column.
    for (name, format, column) in [("a.pb.gz", Format::Pprof, 1), ("a.folded", Format::Collapsed, 0)] {
        top_equals(name, format, &support::large(3000, 200), column);
    }
}

#[test]
fn odd_names_are_rows_of_their_value() {
    let mut profile = Profile::new(vec![SampleType::new("samples", "count")]);
    for (i, name) in ODD.iter().enumerate() {
        let stack = profile.stacks.intern(["main", name, "leaf"].map(Frame::named));
        profile.samples.push(Sample { stack, thread: None, labels: Labels::new(), values: values![1 << i] });
    }
    let file = encoded(encode::speedscope::encode, &(profile, Symbols::new()), &Options::default());
    let rows = rows("odd", file);
    assert_eq!(rows.len(), ODD.len() + 2, "and main and leaf: {rows:?}");
    for (i, name) in ODD.iter().enumerate() {
        let row = (shown(1 << i, "count"), "0".to_owned(), (*name).to_owned());
        assert!(rows.contains(&row), "{row:?} is not among {rows:?}");
    }
}

#[test]
fn a_profile_of_nothing_is_a_table_without_rows() {
    let nothing = Profile::new(vec![SampleType::new("samples", "count")]);
    let file = encoded(encode::speedscope::encode, &(nothing, Symbols::new()), &Options::default());
    assert_eq!(rows("nothing", file), []);
}

#[test]
fn a_weight_in_its_file_is_the_exact_number() {
    let (mut profile, symbols) = support::cpu();
    profile.samples[0].values[1] = (1 << 53) + 1;
    profile.samples[2].values[1] = -5;
    let text = encoded(encode::speedscope::encode, &(profile, symbols), &Options::default());
    let json: serde_json::Value = serde_json::from_slice(&text).unwrap();
    assert_eq!(json["activeProfileIndex"], 1);
    let cpu = &json["profiles"][1];
    assert_eq!(cpu["name"], "CPU time (without -5 nanoseconds)");
    let weights: Vec<i64> = cpu["weights"].as_array().unwrap().iter().map(|w| w.as_i64().unwrap()).collect();
    assert!(weights.contains(&((1 << 53) + 1 + 20_000_000)), "{weights:?}");
    assert_eq!(weights.iter().sum::<i64>(), cpu["endValue"].as_i64().unwrap());
    assert_eq!(weights.len(), cpu["samples"].as_array().unwrap().len());
    let names: Vec<&str> = json["profiles"].as_array().unwrap().iter().map(|p| p["name"].as_str().unwrap()).collect();
    assert!(names.contains(&"worker 7 (4712)"), "{names:?}");
}
