//! Programs for aarch64, made by Debian's compilers.

#![allow(dead_code, reason = "each test uses its part")]

use std::path::{Path, PathBuf};
use std::process::Command;

/// Where the packages for cross compilation put the dynamic linker and the libraries.
pub(crate) const ROOT: &str = "/usr/aarch64-linux-gnu";

/// The program of `tests/aarch64`, compiled with these options.
pub(crate) fn stepped(name: &str, options: &[&str]) -> PathBuf {
    let mut compiler = compiler("g++");
    // So far away that a call does not reach it: the linker has to help.
    compiler.args(options).arg("-Wl,--section-start=.distant=0x30000000");
    compiler.args(["-x", "c"]).arg(source("stepped.c"));
    compiler.args(["-x", "c++"]).arg(source("exceptions.cpp"));
    compiler.args(["-x", "assembler"]).arg(source("frames.s"));
    finish(compiler, name)
}

/// One source of `tests/aarch64`, compiled with these options to a shared library.
pub(crate) fn library(name: &str, options: &[&str]) -> PathBuf {
    let mut compiler = compiler("gcc");
    compiler.args(["-shared", "-fpic"]).args(options).arg(source(name));
    finish(compiler, &format!("{name}.so"))
}

fn compiler(name: &str) -> Command {
    Command::new(format!("aarch64-linux-gnu-{name}"))
}

fn source(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/aarch64").join(name)
}

fn finish(mut compiler: Command, name: &str) -> PathBuf {
    let output = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    let status = compiler.arg("-o").arg(&output).status();
    assert!(status.expect("packages gcc-aarch64-linux-gnu and g++-aarch64-linux-gnu are installed").success());
    output
}
