//! Formats against each other, against the viewers that people use, and the operations of the model.

#[path = "../support/mod.rs"]
mod support;

mod firefox;
mod flamegraph;
mod heaptrack;
mod operations;
mod page;
mod raw;
mod read_back;
mod readers;
mod scripts;
mod speedscope;
mod svg;
mod valgrind;
mod variants;
