//! Setting the capture side up, in this process and again in its children.
//!
//! Called from: the first allocation of a preloaded process (so nothing here may allocate through the host), a library's first session, and
//! a child after fork.

use crate::lock::Lock;
use crate::{sampler, tables};
use alloc_hook::counting;
use alloc_hook::own_heap::OwnHeap;
use alloc_hook::{doors, record, thread_end};
use capture::region::{self, PATH_BYTES, Purpose};
use capture::{clock, live, modules, rules, syscall, thread};
use layout::{Live, modes};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

/// What a store is for and where it lies.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Plan {
    pub(crate) purpose: Purpose,
    /// Directory of the store's file, without a terminating zero; empty: private memory.
    pub(crate) directory: Directory,
    /// Whether children that are forked get a store too.
    pub(crate) follow: bool,
    /// Whether this code is a library of its own, whose frames do not belong in stacks.
    pub(crate) own_library: bool,
}

/// Whether threads are registered before they do anything: the preload library stands in front of the functions that start them.
#[cfg(feature = "server")]
pub(crate) fn registers_threads_at_once() -> bool {
    PLAN.get().is_some_and(|plan| plan.own_library)
}

/// A short path, kept without allocation.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Directory {
    bytes: [u8; PATH_BYTES],
    length: usize,
}

impl Directory {
    /// No directory: the store is private memory.
    pub(crate) const NONE: Self = Self { bytes: [0; PATH_BYTES], length: 0 };

    /// The directory with this path; `None` if the path of a file in it might be too long.
    pub(crate) fn new(path: &[u8]) -> Option<Self> {
        let mut bytes = [0; PATH_BYTES];
        bytes.get_mut(..path.len())?.copy_from_slice(path);
        (path.len() + 64 < PATH_BYTES).then_some(Self { bytes, length: path.len() })
    }

    /// Path of a new store in it, with its terminating zero.
    fn store(&self) -> Option<([u8; PATH_BYTES], usize)> {
        use std::io::Write as _;
        let mut path = self.bytes;
        let mut rest = path.get_mut(self.length..)?;
        let room = rest.len();
        write!(rest, "/{}-{}.store\0", syscall::getpid(), clock::monotonic_ns()).ok()?;
        let left = rest.len();
        Some((path, self.length + room - left))
    }
}

/// Mean bytes between sampled allocations unless told.
#[cfg(feature = "server")]
pub(crate) const DEFAULT_ALLOC_INTERVAL: u64 = 512 << 10;

/// The recorder's own heap, if it has one.
pub(crate) static OWN_HEAP: OnceLock<&'static OwnHeap> = OnceLock::new();

/// Written once: a lock that waits would have thread-locals of its own, and this runs inside the first allocation.
static PLAN: OnceLock<Plan> = OnceLock::new();

/// Opens the store and arms what the plan asks for. False if the store could not be made; then nothing is recorded.
pub(crate) fn start(plan: Plan) -> bool {
    if !open(&plan) {
        return false;
    }
    let _ = PLAN.set(plan);
    thread::set_on_child(in_child);
    thread::set_on_register(sampler::thread_registered);
    tables::install();
    if plan.own_library {
        modules::set_own_library();
        thread_end::stays();
    }
    let wanted = plan.purpose.modes;
    if wanted & (modes::ALLOCS | modes::HEAP | modes::CPU | modes::WALL) != 0 {
        rules::set_up();
        modules::refresh();
    }
    record::follow_frees(wanted & modes::HEAP != 0);
    if wanted & (modes::ALLOCS | modes::HEAP) != 0 {
        record::prepare_for_losses();
    }
    if plan.own_library {
        let is_server = plan.directory.length == 0;
        let kind = match wanted {
            // The account begins with the first allocation or not at all, and takes as long as counting does: a server that samples, or records nothing unless asked, goes without.
            _ if is_server && plan.purpose.alloc_interval_bytes != 1 => Live::Unknown,
            _ if is_server => Live::Allocated,
            _ if wanted & modes::HEAP != 0 => Live::Requested,
            _ if wanted & (modes::STAT | modes::ALLOCS) != 0 => Live::Allocated,
            _ => Live::Unknown,
        };
        record::account_live(kind);
    }
    if wanted & (modes::ALLOCS | modes::HEAP) != 0 {
        record::set_interval(plan.purpose.alloc_interval_bytes);
    }
    true
}

/// Whether [`in_library`] has made a store.
static STARTED: Lock<bool> = Lock::new(false);

/// Whether there is a store, with the interval that somebody named for it, be it none.
#[cfg(feature = "server")]
pub(crate) fn is_in_library() -> bool {
    *STARTED.lock()
}

/// In a program that carries the recorder as a library: a private store, once. True if there is one.
///
/// Allocations are sampled from the first call on that names an interval; 0 names none.
pub(crate) fn in_library(interval_bytes: u64) -> bool {
    // The preload library's own store is there from the first allocation on.
    #[cfg(feature = "server")]
    if crate::resident::serves() {
        return region::header().is_some();
    }
    static SAMPLES: AtomicBool = AtomicBool::new(false);
    let mut started = STARTED.lock();
    if !*started {
        // The same store that the allocator counts in, if there is one.
        counting::begin();
        let purpose = Purpose {
            modes: modes::ALLOCS | modes::HEAP | modes::CPU | modes::WALL,
            budget_bytes: counting::BUDGET_BYTES,
            alloc_interval_bytes: interval_bytes,
            period_ns: 0,
        };
        let plan = Plan { purpose, directory: Directory::NONE, follow: true, own_library: false };
        watch_forks();
        sampler::timers::set_up_exit_hook();
        if !start(plan) {
            return false;
        }
        #[cfg(feature = "server")]
        crate::objects::keep_own();
        *started = true;
    }
    if interval_bytes != 0 && !SAMPLES.swap(true, Ordering::Relaxed) {
        #[cfg(feature = "server")]
        crate::engine::configure(interval_bytes);
        #[cfg(not(feature = "server"))]
        record::set_interval(interval_bytes);
        if let Some(header) = region::header() {
            header.alloc_interval_bytes.store(interval_bytes, Ordering::Relaxed);
        }
    }
    true
}

fn open(plan: &Plan) -> bool {
    if plan.directory.length == 0 {
        return region::open(&plan.purpose, None).is_ok();
    }
    let Some((path, length)) = plan.directory.store() else { return false };
    path.get(..length).is_some_and(|path| region::open(&plan.purpose, Some(path)).is_ok())
}

/// In a child after fork, once: a store of its own or none, and nothing of its parent's.
pub(crate) fn in_child() {
    let pid = syscall::getpid();
    if region::header().is_none_or(|h| h.pid.load(Ordering::Relaxed) == pid) {
        return;
    }
    if let Some(heap) = OWN_HEAP.get() {
        heap.reset_in_child();
    }
    // If the thread that was writing it does not exist here, the child goes unrecorded.
    let plan = PLAN.get().copied();
    let (kind, inherited) = (live::kind(), live::bytes());
    record::reset_in_child();
    region::abandon();
    thread::reset_all();
    sampler::handler::reset_in_child();
    sampler::signal_stacks::reset_in_child();
    let reopened = plan.is_some_and(|plan| plan.follow && open(&plan));
    if reopened {
        if plan.is_some_and(|plan| plan.purpose.modes & (modes::ALLOCS | modes::HEAP) != 0) {
            record::prepare_for_losses();
        }
        live::set_kind(kind);
        // What the parent had the child has too, except where it is known by followed frees alone, which begin anew.
        let by_frees = kind == Live::Requested && plan.is_some_and(|plan| plan.own_library);
        live::begin_with(if by_frees { 0 } else { inherited });
    }
    if !reopened {
        record::set_interval(0);
        record::follow_frees(false);
        sampler::forget();
        return;
    }
    if let (Some(header), Some(true)) = (region::header(), plan.map(|plan| !plan.own_library)) {
        header.alloc_interval_bytes.store(record::interval(), Ordering::Relaxed);
    }
    modules::rewrite_records();
    doors::reset_in_child();
    sampler::restart_in_child();
}

/// Notices forks by the C library's own hooks. (A child made otherwise is noticed by its wiped thread states, at its first allocation.)
pub(crate) fn watch_forks() {
    fork::watch(|| {
        reset_started();
        in_child();
        #[cfg(feature = "server")]
        {
            reset_control_plane();
            crate::resident::forget_parents();
            if !fork::watches_late() {
                crate::resident::in_child();
            }
        }
    });
}

/// The host is about to call a function that forks.
///
/// A child gets its agent when all fork hooks have run: the C library allocates for a thread, and the host's allocator, whose own hook comes after ours if it was registered later, still holds its
/// locks before. So this is registered when the host forks for the first time, and does it for a child that was forked otherwise too.
#[cfg(feature = "server")]
pub(crate) fn forks() {
    if crate::resident::is_wanted() {
        fork::watch_late();
    }
}

#[allow(unsafe_code)]
fn reset_started() {
    // What it is if a thread of the parent was at it: there is a store, or there will be none.
    let there_is = region::header().is_some();
    // SAFETY: the fork hook runs on the child's only thread, which came from the host's call of fork.
    if let Some(started) = unsafe { STARTED.begin_anew(there_is) } {
        // SAFETY: as above.
        unsafe { STARTED.begin_anew(started) };
    }
}

#[cfg(feature = "server")]
#[allow(unsafe_code)]
#[inline(never)]
fn reset_control_plane() {
    // SAFETY: the fork hook runs on the child's only thread, which came from the host's call of fork.
    unsafe { crate::forked::reset() };
}

mod fork {
    //! The C library's fork hooks, which run in the order in which they were registered.
    //!
    //! # Safety
    //! The registered functions run in the child, on its only thread; they take no lock that another thread of the parent may have held.
    #![allow(unsafe_code)]

    use std::sync::OnceLock;
    #[cfg(feature = "server")]
    use std::sync::atomic::{AtomicBool, Ordering};

    static CHILD: OnceLock<fn()> = OnceLock::new();
    #[cfg(feature = "server")]
    static LATE: AtomicBool = AtomicBool::new(false);

    unsafe extern "C" fn child() {
        if let Some(function) = CHILD.get() {
            function();
        }
    }

    pub(super) fn watch(function: fn()) {
        if CHILD.set(function).is_ok() {
            // SAFETY: the function has the type that the C library calls.
            unsafe { libc::pthread_atfork(None, None, Some(child)) };
        }
    }

    #[cfg(feature = "server")]
    unsafe extern "C" fn late() {
        crate::resident::in_child();
    }

    /// Has a child get its agent after the hooks of all who registered theirs before this.
    #[cfg(feature = "server")]
    pub(super) fn watch_late() {
        if !watches_late() {
            // SAFETY: the function has the type that the C library calls. Registered twice, it finds an agent the second time.
            unsafe { libc::pthread_atfork(None, None, Some(late)) };
            LATE.store(true, Ordering::Release);
        }
    }

    #[cfg(feature = "server")]
    pub(super) fn watches_late() -> bool {
        LATE.load(Ordering::Acquire)
    }
}
