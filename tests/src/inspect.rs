//! What the built preload library can reach: its code is decoded, and every call, jump and taken address becomes an edge of a graph.
//!
//! It is the one that `profrec` carries, but with its symbols and with the places of its instructions in the source, so that a failure says where.

mod claim;
mod code;
mod edges;
mod graph;
mod library;
mod origin;
mod places;
mod stack;

pub use claim::{Allowed, Reasons, assert_allowed, assert_stack};
pub use graph::{Edge, Graph, Mark, Node, Reached, Via};
pub use library::{Function, Library, Relocation};
pub use places::{Place, Places};
pub use stack::Need;

use std::path::PathBuf;

/// Reads the library that `profrec` carries, as it was before its symbols were taken out.
///
/// # Panics
/// If it cannot be built or is not what is expected.
pub fn preload_library() -> Library {
    Library::read(&whole())
}

/// The library with its symbols, and (by [`carried`]) what `profrec` carries.
fn whole() -> PathBuf {
    let directory = carried().with_file_name("");
    let entries = std::fs::read_dir(&directory).expect("profrec was built here").flatten();
    let built = entries.map(|entry| entry.path().join("preload/libprofrec_preload.so"));
    let all: Vec<PathBuf> = built.filter(|path| path.exists()).collect();
    let [whole] = all.as_slice() else { panic!("one library in {}: {all:?}", directory.display()) };
    whole.clone()
}

/// The library as `profrec` carries it.
///
/// # Panics
/// If it cannot be built.
pub fn carried() -> PathBuf {
    crate::profrec();
    crate::target_directory().join("preload-library/libprofrec_preload.so")
}
