//! The walks of [`fuzz::walker`] over the recorder's own memory of a stack: real memory, read without asking where it is known to be a thread's stack.
#![no_main]

#[path = "../../capture/src/stack/memory.rs"]
#[allow(dead_code, unreachable_pub, reason = "a module of another crate, of which not all is used here")]
mod memory;

/// Where else memory can be read: in all of the buffer.
mod probed {
    use std::cell::Cell;

    thread_local! {
        static READABLE: Cell<(u64, u64)> = const { Cell::new((0, 0)) };
    }

    pub(crate) fn set(from: u64, to: u64) {
        READABLE.set((from, to));
    }

    #[derive(Debug)]
    pub(crate) struct Probed;

    impl Probed {
        pub(crate) fn new() -> Self {
            Self
        }

        pub(crate) fn is_readable(&mut self, address: u64, bytes: u64) -> bool {
            let (from, to) = READABLE.get();
            from <= address && address.checked_add(bytes).is_some_and(|end| end <= to)
        }
    }
}

use fuzz::walker;
use memory::{Bounds, StackMemory};

/// Code and, at the end, the stack.
#[repr(C, align(16))]
struct Real {
    code: [u8; walker::CODE_BYTES],
    stack: [u8; walker::WORDS * 8],
}

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    let Some((choice, data)) = data.split_first() else { return };
    let mut real = Box::new(Real { code: walker::code(), stack: [0; walker::WORDS * 8] });
    let (code, base) = (real.code.as_ptr() as u64, real.stack.as_ptr() as u64);
    probed::set(code, base + real.stack.len() as u64);
    // The stack is all of the buffer, or a part of it in the middle.
    let (below, above) = (u64::from(choice & 15) * 24, u64::from(choice >> 4) * 10);
    let memory = |bytes: &[u8], _hole, sp| {
        let end = base + bytes.len() as u64;
        let bounds = Bounds { low: base + below, high: end.saturating_sub(above).max(base + below) };
        StackMemory::new(bounds, sp)
    };
    walker::check_in(data, (code, base), &mut real.stack, &memory);
});
