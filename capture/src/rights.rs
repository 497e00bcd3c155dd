//! Changes of what one thread may do, so that another can make the same: the kernel knows credentials of threads only.
//!
//! Called from: threads of the recorder, outside of hooks and handlers. May: make the calls by raw system calls.
#![allow(unsafe_code)]

use crate::syscall::{number, syscall};

/// What a thread did to its own rights.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Change(Kind);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// capset(2).
    Capabilities { version: u32, sets: [u32; 6] },
    /// prctl(2), with one argument, a number.
    Setting { option: usize, value: usize },
    /// The system call `setuid` or one of its kin, which take up to three ids.
    Ids { number: usize, ids: [usize; 3] },
}

impl Change {
    /// Makes it for the calling thread; whether the kernel let it.
    pub fn make(self) -> bool {
        let result = match self.0 {
            Kind::Capabilities { version, sets } => {
                let header = [version, 0];
                // SAFETY: the kernel reads a header of two words, and six words at most.
                unsafe { syscall(number::CAPSET, [header.as_ptr() as usize, sets.as_ptr() as usize, 0, 0, 0, 0]) }
            }
            Kind::Setting { option, value } => {
                // SAFETY: its options take a number.
                unsafe { syscall(number::PRCTL, [option, value, 0, 0, 0, 0]) }
            }
            Kind::Ids { number, ids: [a, b, c] } => {
                // SAFETY: its calls take numbers.
                unsafe { syscall(number, [a, b, c, 0, 0, 0]) }
            }
        };
        result == 0
    }

    /// capset(2): the version in the header, and effective, permitted and inheritable sets, for the lower 32 capabilities and for the higher, as many as that version has.
    pub fn of_capabilities(version: u32, sets: [u32; 6]) -> Self {
        Self(Kind::Capabilities { version, sets })
    }

    /// prctl(2) with these arguments, if it changes what the thread keeps of its rights.
    pub fn of_setting(option: usize, value: usize) -> Option<Self> {
        const PR_SET_KEEPCAPS: usize = 8;
        const PR_SET_SECUREBITS: usize = 28;
        matches!(option, PR_SET_KEEPCAPS | PR_SET_SECUREBITS).then_some(Self(Kind::Setting { option, value }))
    }

    /// The system call of this number, if it changes ids.
    pub fn of_ids(number: usize, ids: [usize; 3]) -> Option<Self> {
        let calls =
            [number::SETUID, number::SETGID, number::SETREUID, number::SETREGID, number::SETRESUID, number::SETRESGID];
        calls.contains(&number).then_some(Self(Kind::Ids { number, ids }))
    }
}
