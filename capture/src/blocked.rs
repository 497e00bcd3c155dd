//! All signals, blocked for as long as something is done that no handler on the same thread may come between.
//!
//! Called from: anywhere, handlers included. May: set the thread's mask of signals. May not: allocate.
//!
//! A handler of the host that comes between can end what it interrupted: by a jump (`siglongjmp`), or by ending the thread. What is done in a few instructions is made so that this does no harm; all that
//! is seldom done is done with signals blocked, which takes two system calls.
//!
//! But not those that an instruction raises. Nothing that is done so raises one by itself, but a program can have each of its instructions raise SIGTRAP (it steps through itself), or each of its system calls SIGSYS
//! (a sandbox that answers them).

use crate::syscall;

/// Signals that an instruction raises (SIGILL, SIGTRAP, SIGBUS, SIGFPE, SIGSEGV, SIGSYS), as the kernel's sets have them: where one is blocked then, the kernel ends the process.
pub const SYNCHRONOUS: u64 = 1 << 3 | 1 << 4 | 1 << 6 | 1 << 7 | 1 << 10 | 1 << 30;

/// All signals but [`SYNCHRONOUS`], blocked on the calling thread until this is dropped there.
#[derive(Debug)]
pub struct Blocked {
    /// Signals that the thread blocked before.
    before: u64,
}

impl Blocked {
    /// Blocks them.
    #[allow(clippy::new_without_default, reason = "it is an action")]
    pub fn new() -> Self {
        Self { before: syscall::set_signal_mask(!SYNCHRONOUS) }
    }
}

impl Drop for Blocked {
    fn drop(&mut self) {
        syscall::set_signal_mask(self.before);
    }
}
