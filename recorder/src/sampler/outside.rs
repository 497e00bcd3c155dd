//! Walking a blocked thread's stack from outside, without a signal.
//!
//! Called from: the wall-clock sampler. The kernel tells stack and instruction pointer of a thread that blocks in a system call; its stack is copied in one call, so it may wake
//! or end meanwhile. The frame pointer is not known; where a frame needs it, it is derived from the stack pointer and the function's first
//! instructions, or else the stack ends with that reason.

use super::prologue;
use super::status::Blocked;
use capture::modules::{self, Found};
use capture::syscall::copy_memory;
use capture::thread::Recording;
use capture::walk;
use unwind::Memory;
use unwind::arch::Registers;

/// Bytes of stack that are copied at a time.
const WINDOW: usize = 16 << 10;

/// Another thread's stack, copied as it is read.
struct Copied {
    start: u64,
    bytes: Vec<u8>,
    /// Copies that may still be made: a bound for corrupt chains.
    left: u32,
}

impl Memory for Copied {
    fn read(&mut self, address: u64) -> Option<u64> {
        if let Some(word) = self.word(address) {
            return Some(word);
        }
        self.left = self.left.checked_sub(1)?;
        self.bytes.resize(WINDOW, 0);
        // The end of the stack may come before the end of the window.
        let read = copy_memory(address, &mut self.bytes).unwrap_or(0);
        self.bytes.truncate(read);
        self.start = address;
        self.word(address)
    }
}

impl Copied {
    fn word(&self, address: u64) -> Option<u64> {
        let at = usize::try_from(address.checked_sub(self.start)?).ok()?;
        Some(u64::from_le_bytes(self.bytes.get(at..at.checked_add(8)?)?.try_into().ok()?))
    }
}

/// Captures the stack of the thread that blocks at `at`.
pub(crate) fn capture(recording: &mut Recording, at: Blocked) {
    let memory = Copied { start: 0, bytes: Vec::new(), left: 64 };
    let registers = Registers { pc: at.pc, sp: at.sp, fp: None };
    walk::capture_deriving(recording, memory, registers, derive);
}

/// The frame pointer of a frame at a call, if its function set one up in the known way and it leads to a return address behind a call.
fn derive(frame: &Registers, memory: &mut Copied) -> Option<u64> {
    let call = frame.pc.checked_sub(1)?;
    let Found::Module(module) = modules::find(call) else { return None };
    let start = modules::function_start(module, call)?;
    let mut code = [0; prologue::LOOKED_AT];
    let read = copy_memory(start, &mut code).unwrap_or(0);
    let fp = frame.sp.checked_add(prologue::below_frame_pointer(code.get(..read)?)?)?;
    let return_address = memory.read(fp.checked_add(8)?)?;
    let mut before = [0; 7];
    let is_call = copy_memory(return_address.checked_sub(7)?, &mut before) == Ok(before.len())
        && prologue::ends_with_call(&before);
    (is_call && matches!(modules::find(return_address), Found::Module(_))).then_some(fp)
}
