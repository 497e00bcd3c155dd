//! The `profrec` executable.

fn main() {}
