//! Stack walker: registers, a memory reader and tables in, frame addresses out.
//!
//! Called from: tick handlers, allocation functions, and the collector for threads that it looks at from outside.
//! May: read what [`Memory`] gives. May not: allocate, lock, block, call the system, panic, loop for ever; nothing here can,
//! since the crate has neither `alloc` nor unsafe code, and each step moves root-ward or uses up a fixed budget.
//! When a caller cannot be known: the walk ends with a [`Truncated`] reason. A rule that the tables cannot express is marked
//! ([`Rule::UNSUPPORTED`]), never guessed.
//!
//! The pieces, from the inside out:
//!
//! - [`Rule`]: how to get from one frame to its caller, packed into 48 bits.
//! - [`Unwind::step`]: applies one rule to registers and memory. Pure: equal inputs and equal words read give the equal caller.
//! - [`Walker`]: looks up and steps from the leaf to the root.
//! - [`kept`]: walks a stack that was walked before, by comparing what has not changed.
//! - [`cfi`]: reads call frame information: the rule at one address, on demand, without allocation.
//! - [`Table`]: sorted rows `address -> rule` of one module; `build` (feature `build`, allocates) makes them from `.eh_frame` or `.debug_frame`.
//! - [`full`]: a step with all registers, for the few frames whose rule does not fit.
//!
//! [`x86_64`] and [`aarch64`] hold what differs, in files of equal names; both are always compiled, `arch` is the host's.
#![no_std]
#![forbid(unsafe_code)]
#![cfg_attr(
    not(test),
    deny(
        clippy::unwrap_used,
        clippy::expect_used,
        clippy::panic,
        clippy::indexing_slicing,
        clippy::arithmetic_side_effects
    )
)]

#[cfg(feature = "build")]
extern crate alloc;
#[cfg(test)]
extern crate std;

pub mod aarch64;
#[cfg(feature = "build")]
pub mod build;
pub mod cfi;
#[cfg(test)]
mod fake;
mod frame_address;
pub mod full;
pub mod kept;
mod rule;
mod step;
pub mod table;
mod walker;
pub mod x86_64;

#[cfg(target_arch = "aarch64")]
pub use aarch64 as arch;
#[cfg(target_arch = "x86_64")]
pub use x86_64 as arch;

pub use frame_address::FrameAddress;
pub use rule::Rule;
pub use step::{Caller, Memory, Quick, Slot, Slots, Truncated, Unwind};
pub use table::Table;
pub use walker::{Rules, STACK_SWITCHES, Step, Walker};
