//! A child after fork: what it has of its parent's recorder, and shall not keep.
//!
//! Called from: the C library's fork hook, on the child's only thread. May not: take a lock that a thread of the parent may have held.
//!
//! # Safety
//!
//! Locks are begun anew that threads may hold which do not exist here.
#![allow(unsafe_code)]

use crate::{engine, output, own, own_file, record, registry, rights, server};

/// Forgets the parent's sessions, threads, files and sockets. The child's own server and recordings begin from nothing.
///
/// # Safety
/// The process has one thread, which uses none of these modules at the moment.
pub(crate) unsafe fn reset() {
    registry::reset_in_child();
    own_file::reset_in_child();
    // SAFETY: the function's own contract.
    unsafe {
        engine::reset_in_child();
        own::reset_in_child();
        output::reset_in_child();
        record::reset_in_child();
        rights::reset_in_child();
        server::reset_in_child();
    }
}
