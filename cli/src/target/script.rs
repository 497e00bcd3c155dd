//! The first line of a script.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;

/// The kernel reads no more of it.
pub(super) const LINE_BYTES: usize = 256;

/// What follows `#!`, if the file begins so.
pub(super) fn line(start: &[u8]) -> Option<&[u8]> {
    let rest = start.strip_prefix(b"#!")?;
    Some(rest.split(|b| *b == b'\n').next().unwrap_or_default())
}

/// The program that runs the script: what `env` finds, if `env` is asked.
pub(super) fn interpreter(line: &[u8]) -> Option<OsString> {
    let mut words = line.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty());
    let first = words.next()?;
    let is_env = first == b"env" || first.ends_with(b"/env");
    // Options of env, and variables that it sets.
    let named = words.find(|word| !word.starts_with(b"-") && !word.contains(&b'='));
    let program = if is_env { named.unwrap_or(first) } else { first };
    Some(OsStr::from_bytes(program).to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_interpreter_is_found_as_the_kernel_and_env_find_it() {
        for (start, expected) in [
            ("#!/bin/sh", "/bin/sh"),
            ("#! /bin/sh -e\nexec x\n", "/bin/sh"),
            ("#!/usr/bin/env python3\n", "python3"),
            ("#!/usr/bin/env -S A=1 -i node --x\n", "node"),
            ("#!/usr/bin/env\n", "/usr/bin/env"),
        ] {
            assert_eq!(interpreter(line(start.as_bytes()).unwrap()).unwrap(), expected);
        }
        assert_eq!(line(b"echo"), None);
        assert_eq!(interpreter(line(b"#!  \n/bin/sh").unwrap()), None);
    }
}
