//! Puts the scripts of the flame graph page together, and tells what they are by their hashes: the page's policy lets nothing else run.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use sha2::{Digest, Sha256};
use std::path::Path;

/// In one scope, in this order.
const SCRIPTS: [&str; 12] = [
    "numbers", "columns", "profile", "other", "side", "frames", "graph", "table", "sources", "record", "choices",
    "main",
];

fn main() {
    let directory = Path::new("src/encode/html/page");
    println!("cargo:rerun-if-changed={}", directory.display());
    let read = |name: &str| std::fs::read_to_string(directory.join(name)).expect("the page's parts are there");
    let parts = SCRIPTS.map(|part| read(&format!("{part}.js")));
    let script = format!("\n'use strict';\n{}", parts.concat());
    let style = format!("\n{}", read("page.css"));
    let out = std::env::var_os("OUT_DIR").expect("cargo tells where to write");
    for (name, text) in [("page.js", &script), ("page.css", &style)] {
        std::fs::write(Path::new(&out).join(name), text).expect("the directory is writable");
    }
    for (name, text) in [("SCRIPT", &script), ("STYLE", &style)] {
        println!("cargo:rustc-env=PAGE_{name}_HASH=sha256-{}", STANDARD.encode(Sha256::digest(text)));
    }
}
