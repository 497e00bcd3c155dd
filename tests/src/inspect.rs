//! What the built preload library can reach: its code is decoded, and every call, jump and taken address becomes an edge of a graph.
//!
//! Built as `profrec` carries it, but with its symbols and with the places of its instructions in the source, so that a failure says where.

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
use std::process::Command;

/// Builds the library and reads it.
///
/// # Panics
/// If it cannot be built or is not what is expected.
pub fn preload_library() -> Library {
    Library::read(&build())
}

fn build() -> PathBuf {
    let target = crate::target_directory().join("inspected");
    let mut cargo = Command::new(env!("CARGO"));
    cargo
        .args(["build", "--quiet", "--profile", "preload", "--package", "profile-recorder-preload", "--target-dir"])
        .arg(&target)
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .env("CARGO_PROFILE_PRELOAD_STRIP", "none")
        .env("CARGO_PROFILE_PRELOAD_DEBUG", "line-tables-only")
        // Names that tell the instances of a generic function apart. What the tests themselves were built with is not meant for the library.
        .env("RUSTFLAGS", "-C symbol-mangling-version=v0")
        .env_remove("CARGO_ENCODED_RUSTFLAGS");
    let status = cargo.status();
    assert!(status.is_ok_and(|status| status.success()), "cannot build the preload library: {cargo:?}");
    target.join("preload/libprofrec_preload.so")
}
