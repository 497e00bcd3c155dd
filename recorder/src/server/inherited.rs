//! Sockets of the server, which a forked child finds among its descriptors: nobody accepts there, and clients would wait for as long as it lives.
//!
//! Called from: the server's thread, and a child after fork on its only thread.
//!
//! # Safety
//!
//! In a child a descriptor is closed whose owner, a thread of the parent, does not exist there; only if it is still the socket that was listed.
#![allow(unsafe_code)]

use crate::lock::Lock;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};

/// A descriptor, and the number of its socket, which no other one has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Socket {
    descriptor: RawFd,
    inode: u64,
}

static SOCKETS: Lock<Vec<Socket>> = Lock::new(Vec::new());

/// A socket that a child shall not keep, as long as this lives. (If it is closed before, its number tells it from the next one.)
#[derive(Debug)]
pub(super) struct Listed(Socket);

impl Listed {
    /// Lists a socket. `None` if the kernel does not tell its number.
    pub(super) fn new(socket: &impl AsFd) -> Option<Self> {
        let descriptor = socket.as_fd();
        let socket = Socket { descriptor: descriptor.as_raw_fd(), inode: inode(descriptor)? };
        SOCKETS.lock().push(socket);
        Some(Self(socket))
    }
}

impl Drop for Listed {
    fn drop(&mut self) {
        SOCKETS.lock().retain(|socket| *socket != self.0);
    }
}

fn inode(socket: BorrowedFd<'_>) -> Option<u64> {
    rustix::fs::fstat(socket).ok().map(|stat| stat.st_ino)
}

/// Closes the parent's sockets, in a child after fork.
///
/// # Safety
/// The process has one thread, which does not use this module at the moment.
pub(super) unsafe fn close_in_child() {
    // SAFETY: the function's own contract.
    let sockets = unsafe { SOCKETS.take_in_child() };
    for socket in sockets.iter().flatten() {
        // SAFETY: whatever it is, it is only asked what it is.
        let found = unsafe { BorrowedFd::borrow_raw(socket.descriptor) };
        // Threads of the parent may have descriptors of their own, and this number is another file here.
        if inode(found) == Some(socket.inode) {
            // SAFETY: nobody here uses the parent's socket.
            unsafe { rustix::io::close(socket.descriptor) };
        }
    }
    std::mem::forget(sockets);
}
