//! Everything that may run in a signal handler or under malloc: the store's region, threads and their call trees, the loaded
//! modules, the rule cache and the stack capture.
//!
//! Called from: allocation hooks, the tick handler, and ordinary threads of the recorder. May: read and write its own mappings,
//! make raw system calls. May not: allocate from the host's heap, take a lock in a handler, call libc, panic, touch errno. The crate has no
//! `alloc`, links no libc and has no thread-locals that the dynamic linker would resolve, so most of this cannot be written here.
#![no_std]
#![cfg_attr(not(test), deny(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing))]

#[cfg(not(all(target_os = "linux", target_arch = "x86_64")))]
compile_error!("Profile Recorder records Linux programs on x86_64; other targets have no capture code yet");

pub mod blocked;
pub mod clock;
pub mod copy;
pub mod images;
pub mod kept;
pub mod labels;
pub mod live;
pub mod mapping;
pub mod maps;
pub mod modules;
pub mod probed;
pub mod region;
pub mod rights;
pub mod rules;
pub mod stack;
pub mod stacks;
pub mod syscall;
pub mod thread;
pub mod tls;
pub mod tree;
pub mod wait;
pub mod walk;

pub mod elf;

mod recover;
pub mod spin;
