//! Single steps through real code, and walks from each of its instructions: prologues, epilogues, linkage tables, the
//! unwinder of exceptions itself. libgcc is the oracle.

#![cfg(all(target_arch = "x86_64", target_os = "linux", target_env = "gnu"))]

mod support;

use std::collections::HashMap;
use std::fmt::Write as _;
use std::hint::black_box;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use profile_recorder_unwind::Truncated;
use support::{Frames, Process, handle, interrupted, libgcc};

static STEPPING: AtomicBool = AtomicBool::new(false);
static INSTRUCTIONS: AtomicUsize = AtomicUsize::new(0);
static UNSUPPORTED: AtomicUsize = AtomicUsize::new(0);
static LOST: AtomicUsize = AtomicUsize::new(0);
/// libgcc knows no caller here: linkage tables by lld. They jump, so the next instruction has the same callers.
static UNDESCRIBED: AtomicUsize = AtomicUsize::new(0);
static LAST_UNDESCRIBED: Mutex<Option<Frames>> = Mutex::new(None);
static DIFFERENT: AtomicUsize = AtomicUsize::new(0);
static FIRST_DIFFERENCE: Mutex<Option<(Frames, [u64; 128])>> = Mutex::new(None);

extern "C" fn on_step(_signal: libc::c_int, _info: *mut libc::siginfo_t, context: *mut libc::ucontext_t) {
    const TRAP_FLAG: i64 = 0x100;
    // SAFETY: the kernel gives the context, for this handler alone.
    let context = unsafe { &mut *context };
    let flags = &mut context.uc_mcontext.gregs[libc::REG_EFL as usize];
    *flags = if STEPPING.load(Ordering::Relaxed) { *flags | TRAP_FLAG } else { *flags & !TRAP_FLAG };
    let registers = interrupted(context);
    let ours = Process::this().walk_from(registers);
    INSTRUCTIONS.fetch_add(1, Ordering::Relaxed);
    if !matches!(ours.end, Ok(()) | Err(Truncated::UnsupportedRule)) {
        // Where libgcc's unwinder replaces its own return address, its code is not as described. It would itself crash there.
        LOST.fetch_add(1, Ordering::Relaxed);
        return;
    }
    let mut addresses = [0; 128];
    let len = libgcc(&mut addresses);
    let from = addresses.iter().position(|address| *address == registers.pc).unwrap_or(len);
    let oracle = &addresses[from..len];
    if oracle.len() == 1 && ours.end.is_ok() {
        UNDESCRIBED.fetch_add(1, Ordering::Relaxed);
        if let Ok(mut undescribed) = LAST_UNDESCRIBED.try_lock() {
            *undescribed = Some(ours);
        }
        return;
    }
    let before = LAST_UNDESCRIBED.try_lock().ok().and_then(|mut last| last.take());
    let same_callers = before.is_none_or(|before| before.addresses().skip(1).eq(oracle.iter().copied().skip(1)));
    let equal = same_callers
        && match ours.end {
            Ok(()) => ours.addresses().eq(oracle.iter().copied()),
            Err(Truncated::UnsupportedRule) => {
                UNSUPPORTED.fetch_add(1, Ordering::Relaxed);
                ours.addresses().eq(oracle.iter().copied().take(ours.as_slice().len()))
            }
            Err(_) => false,
        };
    if !equal
        && DIFFERENT.fetch_add(1, Ordering::Relaxed) == 0
        && let Ok(mut first) = FIRST_DIFFERENCE.try_lock()
    {
        *first = Some((ours, addresses));
    }
}

/// Runs a function with a trap after each instruction.
fn stepped(run: impl FnOnce()) {
    STEPPING.store(true, Ordering::Relaxed);
    // SAFETY: the trap has a handler, which sets the flag for all further ones.
    unsafe { core::arch::asm!("int3") };
    run();
    STEPPING.store(false, Ordering::Relaxed);
}

#[inline(never)]
fn formats() {
    let mut text = String::new();
    write!(text, "{:>10.3e} {:?} {:x}", black_box(1.5e10), black_box(["a", "b\n"]), black_box(u128::MAX)).unwrap();
    black_box(text);
}

#[inline(never)]
fn hashes_and_sorts() {
    let mut numbers: Vec<u32> = (0..40).map(|i| i * 17 % 41).collect();
    numbers.sort_by(|a, b| black_box(b).cmp(a));
    let map: HashMap<u32, String> = numbers.iter().take(5).map(|n| (*n, n.to_string())).collect();
    black_box(map);
}

#[inline(never)]
fn calls_the_c_library() {
    extern "C" fn compare(a: *const libc::c_void, b: *const libc::c_void) -> libc::c_int {
        // SAFETY: `qsort` gives pointers to two elements of the array below.
        let (a, b) = unsafe { (*a.cast::<i32>(), *b.cast::<i32>()) };
        a.cmp(&b) as libc::c_int
    }
    let mut numbers = [3, 1, 2, 9, 5, 4];
    let mut text = [0_u8; 128];
    let mut time = 0;
    // SAFETY: the arrays have the sizes that are named, and the format has one argument of its type for each place.
    unsafe {
        libc::qsort(numbers.as_mut_ptr().cast(), numbers.len(), 4, Some(compare));
        libc::snprintf(text.as_mut_ptr().cast(), 128, c"%s %d %.3f %lx".as_ptr(), c"x".as_ptr(), 5, 2.5, 7_u64);
        libc::free(libc::realloc(libc::malloc(100), 100_000));
        libc::time(&mut time);
        libc::getpid();
        libc::getenv(c"PATH".as_ptr());
    }
    black_box((numbers, text, time));
}

#[inline(never)]
fn unwinds() {
    struct Dropped<'a>(&'a mut u32);
    impl Drop for Dropped<'_> {
        fn drop(&mut self) {
            *self.0 += 1;
        }
    }
    let mut dropped = 0;
    let caught = std::panic::catch_unwind(core::panic::AssertUnwindSafe(|| {
        let _dropped = Dropped(&mut dropped);
        std::panic::resume_unwind(Box::new(black_box(1)));
    }));
    assert!(caught.is_err() && dropped == 1);
}

#[test]
fn from_every_instruction_the_walk_equals_libgccs() {
    Process::this();
    handle(libc::SIGTRAP, 0, on_step);
    for run in [formats, hashes_and_sorts, calls_the_c_library, unwinds] {
        let before = INSTRUCTIONS.load(Ordering::Relaxed);
        stepped(run);
        assert!(INSTRUCTIONS.load(Ordering::Relaxed) > before + 1000);
        assert!(LOST.load(Ordering::Relaxed) == 0 || run as *const () == unwinds as *const ());
    }
    let load = |count: &AtomicUsize| count.load(Ordering::Relaxed);
    let (all, unsupported, different) = (load(&INSTRUCTIONS), load(&UNSUPPORTED), load(&DIFFERENT));
    let (undescribed, lost) = (load(&UNDESCRIBED), load(&LOST));
    eprintln!(
        "{all} instructions, {undescribed} undescribed, {lost} lost, {unsupported} unsupported, {different} different"
    );
    if let Some((ours, addresses)) = FIRST_DIFFERENCE.lock().unwrap().take() {
        let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
        panic!("{different} of {all} differ, first:\n{:x?}\n{:?}\n{addresses:x?}\n{maps}", ours.as_slice(), ours.end);
    }
    assert!(lost < all / 100, "{lost}");
    // The dynamic linker keeps the CFA in rbx while it binds a function for the first time.
    assert!(unsupported < 2000, "{unsupported} of {all}");
}
