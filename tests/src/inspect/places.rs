//! Where instructions come from in the source, inlined functions included, as binutils' `addr2line` tells.

use super::library::Library;
use std::collections::BTreeMap;
use std::io::Write as _;
use std::process::{Command, Stdio};

/// A function, inlined or not, and a line of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// The function's own name.
    pub function: String,
    /// Its file: from the package's folder on.
    pub file: String,
    /// The line.
    pub line: u32,
}

impl Place {
    /// The function's name without its path and its type parameters.
    pub fn name(&self) -> String {
        let (mut depth, mut previous) = (0_u32, ' ');
        let mut outside = self.function.clone();
        outside.retain(|c| {
            let arrow = previous == '-';
            previous = c;
            match c {
                '<' => depth += 1,
                '>' if !arrow => depth = depth.saturating_sub(1),
                _ => return depth == 0,
            }
            false
        });
        outside.rsplit("::").find(|part| !part.is_empty()).unwrap_or_default().to_owned()
    }
}

/// Places of instructions, innermost first.
pub struct Places(BTreeMap<u64, Vec<Place>>);

impl Places {
    /// Asks for addresses.
    ///
    /// # Panics
    /// If `addr2line` fails.
    pub fn of(library: &Library, addresses: &[u64]) -> Self {
        let mut child = Command::new("addr2line")
            .args(["-i", "-f", "-a", "-e"])
            .arg(&library.path)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("addr2line runs (binutils)");
        let questions: String = addresses.iter().map(|address| format!("{address:#x}\n")).collect();
        let mut input = child.stdin.take().expect("piped");
        // On a thread of its own: both pipes have an end.
        let asks = std::thread::spawn(move || input.write_all(questions.as_bytes()));
        let output = child.wait_with_output().expect("addr2line ends");
        asks.join().expect("no panic").expect("addr2line reads");
        assert!(output.status.success(), "addr2line: {}", output.status);
        Self(parse(&String::from_utf8_lossy(&output.stdout)))
    }

    /// The places of an instruction, innermost first.
    pub fn get(&self, address: u64) -> &[Place] {
        self.0.get(&address).map_or(&[], Vec::as_slice)
    }

    /// The same as text.
    pub fn chain(&self, address: u64) -> String {
        let places = self.get(address).iter().map(|p| format!("{} {}:{}", p.function, p.file, p.line));
        places.collect::<Vec<_>>().join(" in ")
    }
}

fn parse(answer: &str) -> BTreeMap<u64, Vec<Place>> {
    let mut all: BTreeMap<u64, Vec<Place>> = BTreeMap::new();
    let mut address = 0;
    let mut lines = answer.lines();
    while let Some(line) = lines.next() {
        if let Some(digits) = line.strip_prefix("0x") {
            address = u64::from_str_radix(digits, 16).expect("an address");
            continue;
        }
        let place = lines.next().unwrap_or_default();
        let (file, number) = place.rsplit_once(':').unwrap_or((place, "0"));
        let number = number.split_whitespace().next().and_then(|n| n.parse().ok()).unwrap_or(0);
        let function = format!("{:#}", rustc_demangle::demangle(line));
        all.entry(address).or_default().push(Place { function, file: shorten(file), line: number });
    }
    all
}

/// Paths of the workspace from its root on, others from the package's folder on.
fn shorten(path: &str) -> String {
    let workspace = concat!(env!("CARGO_MANIFEST_DIR"), "/");
    let workspace = workspace.trim_end_matches("tests/");
    if let Some(rest) = path.strip_prefix(workspace) {
        return rest.to_owned();
    }
    let at = ["/library/", "/registry/src/"].iter().find_map(|part| Some(path.find(part)? + part.len()));
    at.and_then(|at| path.get(at..)).unwrap_or(path).to_owned()
}
