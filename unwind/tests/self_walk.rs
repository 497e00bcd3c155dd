//! Walks of this program's own stack against libgcc's.

#![cfg(all(target_arch = "x86_64", target_os = "linux", target_env = "gnu"))]

mod support;

use std::cell::RefCell;
use std::hint::black_box;

use profile_recorder_unwind::FrameAddress;
use support::{Frames, Process, handle, interrupted, libgcc, own_registers};

thread_local! {
    static SEEN: RefCell<Vec<Seen>> = const { RefCell::new(Vec::new()) };
}

struct Seen {
    ours: Frames,
    libgcc: Vec<u64>,
}

impl Seen {
    /// Both walks of the function that this is inlined into.
    #[inline(always)]
    fn here() -> Self {
        let ours = Process::this().walk_from(own_registers());
        let mut addresses = [0; 128];
        let len = libgcc(&mut addresses);
        Self { ours, libgcc: addresses[..len].to_vec() }
    }

    /// Both must agree from the caller of the function that made them; that function itself is at another instruction in each.
    fn assert_equal(&self, at_least: usize) {
        let ours: Vec<u64> = self.ours.addresses().skip(1).collect();
        assert_eq!(self.ours.end, Ok(()), "after {ours:x?}");
        let from = self.libgcc.iter().position(|address| Some(address) == ours.first());
        let from = from.unwrap_or_else(|| panic!("{:x?} has nothing of {ours:x?}", self.libgcc));
        assert_eq!(ours, self.libgcc[from..]);
        assert!(ours.len() >= at_least, "{} frames", ours.len());
    }
}

fn look() {
    let seen = Seen::here();
    SEEN.with_borrow_mut(|all| all.push(seen));
}

fn seen() -> Vec<Seen> {
    SEEN.take()
}

#[inline(never)]
fn nested(depth: u32, leaf: fn()) -> u32 {
    if depth == 0 {
        leaf();
        return 1;
    }
    // Not a tail call, and another amount of stack in each frame.
    let room = black_box([depth; 5]);
    nested(depth - 1, leaf) + room[2]
}

#[repr(align(128))]
struct Aligned([u8; 128]);

#[inline(never)]
fn aligned(leaf: fn()) -> u8 {
    let kept = black_box(Aligned([7; 128]));
    black_box(nested(3, leaf));
    kept.0[5]
}

#[test]
fn nested_functions_are_walked_to_the_root() {
    black_box(nested(40, look));
    seen()[0].assert_equal(45);
}

#[test]
fn a_function_that_aligns_its_stack_is_walked_through() {
    black_box(aligned(look));
    seen()[0].assert_equal(8);
}

#[test]
fn the_c_librarys_sort_is_walked_through() {
    extern "C" fn compare(a: *const libc::c_void, b: *const libc::c_void) -> libc::c_int {
        look();
        // SAFETY: `qsort` gives pointers to two elements of the array below.
        let (a, b) = unsafe { (*a.cast::<i32>(), *b.cast::<i32>()) };
        a.cmp(&b) as libc::c_int
    }
    let mut numbers = [3, 1, 2, 9, 5, 4];
    // SAFETY: the array has that many elements of that size.
    unsafe { libc::qsort(numbers.as_mut_ptr().cast(), numbers.len(), 4, Some(compare)) };
    assert!(numbers.is_sorted());
    let seen = seen();
    assert!(seen.len() >= 5);
    seen.iter().for_each(|seen| seen.assert_equal(5));
}

#[test]
fn rusts_sort_is_walked_through() {
    let mut numbers: Vec<u32> = (0..30).map(|i| i * 17 % 31).collect();
    numbers.sort_by(|a, b| {
        look();
        a.cmp(b)
    });
    let seen = seen();
    assert!(seen.len() >= 30);
    seen.iter().for_each(|seen| seen.assert_equal(5));
}

#[test]
fn a_panic_caught_halfway_is_walked_through() {
    struct LooksWhenDropped;
    impl Drop for LooksWhenDropped {
        fn drop(&mut self) {
            look();
        }
    }
    let caught = std::panic::catch_unwind(|| {
        let _looks = LooksWhenDropped;
        std::panic::resume_unwind(Box::new(black_box(1)));
    });
    assert!(caught.is_err());
    seen()[0].assert_equal(5);
}

/// Set for the process in which the main thread looks.
const MAIN_THREAD: &str = "PROFILE_RECORDER_TEST_MAIN_THREAD";

/// Runs on the main thread of every process of this program, before the test harness does.
#[used]
#[unsafe(link_section = ".init_array")]
static BEFORE_MAIN: extern "C" fn() = {
    extern "C" fn before_main() {
        if std::env::var_os(MAIN_THREAD).is_some() {
            black_box(nested(5, look));
            seen()[0].assert_equal(8);
            std::process::exit(0);
        }
    }
    before_main
};

#[test]
fn the_main_thread_is_walked_to_its_start() {
    let program = std::env::current_exe().unwrap();
    let output = std::process::Command::new(program).env(MAIN_THREAD, "1").output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(output.stdout.is_empty(), "the harness did not run");
}

/// What the handler saw: the interrupted stack from its registers, and its own stack.
static SIGNALLED: std::sync::Mutex<Option<(Frames, Frames, [u64; 128])>> = std::sync::Mutex::new(None);

extern "C" fn on_signal(_signal: libc::c_int, _info: *mut libc::siginfo_t, context: *mut libc::ucontext_t) {
    let process = Process::this();
    // SAFETY: the kernel gives the context.
    let below = process.walk_from(interrupted(unsafe { &*context }));
    let own = process.walk_from(own_registers());
    let mut addresses = [0; 128];
    libgcc(&mut addresses);
    *SIGNALLED.try_lock().expect("the test waits outside the lock") = Some((below, own, addresses));
}

/// Raises a signal deep in nested functions, and compares the three walks from its handler.
fn walk_from_handler(signal: libc::c_int) {
    // One at a time: the handler's result is global.
    static ONE: std::sync::Mutex<()> = std::sync::Mutex::new(());
    let _one = ONE.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    Process::this();
    let raise: fn() = if signal == libc::SIGUSR1 {
        // SAFETY: the signal has a handler.
        || assert_eq!(unsafe { libc::raise(libc::SIGUSR1) }, 0)
    } else {
        // SAFETY: as above.
        || assert_eq!(unsafe { libc::raise(libc::SIGUSR2) }, 0)
    };
    black_box(nested(10, raise));
    let (below, own, libgcc) = SIGNALLED.lock().unwrap().take().expect("the handler ran");
    assert_eq!((below.end, own.end), (Ok(()), Ok(())));

    let interrupted = below.as_slice()[0];
    assert!(matches!(interrupted, FrameAddress::Instruction(_)));
    let from = own.as_slice().iter().position(|frame| *frame == interrupted);
    let from = from.unwrap_or_else(|| panic!("{:x?} has no {interrupted:x?}", own.as_slice()));
    assert!(from >= 2, "the handler and the frame that the signal made lie in front");
    assert_eq!(own.as_slice()[from..], *below.as_slice());
    assert!(below.as_slice().len() >= 14);

    let below: Vec<u64> = below.addresses().collect();
    let from = libgcc.iter().position(|address| *address == below[0]).expect("libgcc sees what was interrupted");
    assert_eq!(libgcc[from..][..below.len()], below);
    assert_eq!(libgcc[from + below.len()], 0, "both end at the same root");
}

#[test]
fn a_handler_sees_the_interrupted_stack_and_its_own_through_the_signal_frame() {
    handle(libc::SIGUSR1, 0, on_signal);
    walk_from_handler(libc::SIGUSR1);
}

#[test]
fn a_handler_on_a_stack_of_its_own_sees_the_interrupted_one() {
    // Above the thread's stack or below it: the walk goes over either way.
    let mut stack = vec![0_u8; 256 * 1024];
    let alternate = libc::stack_t { ss_sp: stack.as_mut_ptr().cast(), ss_flags: 0, ss_size: stack.len() };
    // SAFETY: the memory outlives its use as a stack, which ends below.
    assert_eq!(unsafe { libc::sigaltstack(&alternate, core::ptr::null_mut()) }, 0);
    handle(libc::SIGUSR2, libc::SA_ONSTACK, on_signal);
    walk_from_handler(libc::SIGUSR2);
    let none = libc::stack_t { ss_flags: libc::SS_DISABLE, ..alternate };
    // SAFETY: no handler runs on it now.
    assert_eq!(unsafe { libc::sigaltstack(&none, core::ptr::null_mut()) }, 0);
}
