//! Programs compiled for a test, and profiles of their addresses.
#![allow(dead_code, reason = "each test binary uses a part of it")]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use profile::{AddressKind, Frame, Mapping, MappingId, Profile, Svma};
use profile_recorder_symbolize::{Detail, Options, Symbolized, symbolize};

/// Runs a command that has to succeed and returns what it printed.
#[track_caller]
pub(crate) fn run(program: &str, arguments: &[&str]) -> String {
    let output = Command::new(program).args(arguments).output().unwrap_or_else(|error| panic!("{program}: {error}"));
    assert!(
        output.status.success(),
        "{program} {arguments:?}: {}\n{}",
        output.status,
        String::from_utf8_lossy(&output.stderr)
    );
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// A folder of its own for one test.
pub(crate) struct Folder(tempfile::TempDir);

impl Folder {
    pub(crate) fn new() -> Folder {
        Folder(tempfile::tempdir().expect("a temporary folder"))
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// Writes `source` and compiles it with `compiler` into the file `name`.
    #[track_caller]
    pub(crate) fn compile(&self, compiler: &str, source: &str, name: &str, arguments: &[&str]) -> PathBuf {
        let extension = match compiler {
            "gcc" => "c",
            "g++" => "cc",
            _ => "rs",
        };
        let (input, output) = (self.path(&format!("{name}.{extension}")), self.path(name));
        fs::write(&input, source).expect("the source");
        let mut all = vec![text(&input), "-o", text(&output)];
        all.extend(arguments);
        run(compiler, &all);
        output
    }
}

pub(crate) fn text(path: &Path) -> &str {
    path.to_str().expect("test paths are text")
}

/// The build id that readelf prints; empty if there is none.
pub(crate) fn build_id(path: &Path) -> Vec<u8> {
    let notes = run("readelf", &["-nW", text(path)]);
    let hex = notes.lines().find_map(|line| Some(line.split_once("Build ID: ")?.1.trim())).unwrap_or_default();
    (0..hex.len() / 2).map(|at| u8::from_str_radix(&hex[2 * at..2 * at + 2], 16).expect("hexadecimal")).collect()
}

pub(crate) fn mapping(path: &Path, build_id: Vec<u8>) -> Mapping {
    let path = text(path).to_owned();
    Mapping { start: 0x5555_0000_0000, end: 0x5556_0000_0000, file_offset: 0, bias: 0x5555_0000_0000, path, build_id }
}

/// A profile that holds these addresses of one mapping, as instructions.
pub(crate) fn profile(mapping: Mapping, addresses: &[u64]) -> Profile {
    let mut profile = Profile { mappings: vec![mapping], ..Profile::default() };
    for &address in addresses {
        profile.stacks.frame_id(frame(address));
    }
    profile
}

pub(crate) fn frame(address: u64) -> Frame {
    Frame::Address { mapping: Some(MappingId(0)), svma: Svma(address), kind: AddressKind::Instruction }
}

pub(crate) fn options(detail: Detail) -> Options {
    Options { detail, ..Options::default() }
}

/// Symbolises addresses of a file as it is now.
pub(crate) fn symbolized(path: &Path, addresses: &[u64], options: &Options) -> Symbolized {
    symbolize(&profile(mapping(path, build_id(path)), addresses), options)
}

/// The name of the enclosing function at an address, as the linker knows it.
pub(crate) fn linker_name(symbolized: &Symbolized, address: u64) -> Option<String> {
    let last = symbolized.symbols.get(&frame(address)).last()?;
    Some(last.system_name.as_ref().unwrap_or(&last.name).to_string())
}

/// Function symbols as nm tells them: name, start, size.
pub(crate) fn nm(path: &Path, arguments: &[&str]) -> Vec<(String, u64, u64)> {
    let mut all = vec!["--defined-only", "-S", "--without-symbol-versions"];
    all.extend(arguments);
    all.push(text(path));
    let output = run("nm", &all);
    let symbol = |line: &str| {
        let fields: Vec<&str> = line.split(' ').collect();
        let [start, size, kind, name] = fields[..] else { return None };
        let number = |hex| u64::from_str_radix(hex, 16).ok();
        ["t", "T", "w", "W", "i"].contains(&kind).then_some(())?;
        Some((name.to_owned(), number(start)?, number(size)?))
    };
    output.lines().filter_map(symbol).collect()
}

/// The frames that addr2line finds at each address: linker name (absent: `??`), file, line; innermost first.
pub(crate) fn addr2line(path: &Path, addresses: &[u64]) -> Vec<Vec<(String, String, u32)>> {
    let words: Vec<String> = addresses.iter().map(|address| format!("{address:#x}")).collect();
    let mut arguments = vec!["-a", "-f", "-i", "-e", text(path)];
    arguments.extend(words.iter().map(String::as_str));
    let output = run("addr2line", &arguments);
    let mut frames: Vec<Vec<(String, String, u32)>> = Vec::new();
    let mut lines = output.lines();
    while let Some(line) = lines.next() {
        if line.starts_with("0x") {
            frames.push(Vec::new());
            continue;
        }
        let place = lines.next().expect("a place follows each function");
        let place = place.split(" (discriminator").next().expect("a first part");
        let (file, number) = place.rsplit_once(':').expect("FILE:LINE");
        let frame = (line.to_owned(), file.to_owned(), number.parse().unwrap_or(0));
        frames.last_mut().expect("an address comes first").push(frame);
    }
    frames
}
