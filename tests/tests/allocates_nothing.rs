//! The capture paths allocate nothing: under a watched allocator, an allocation of the recorder's code ends the process.
//!
//! # Safety
//! Unsafe code here is what a signal handler and an allocator need: a context that the kernel hands over, and blocks that go back to where they came from.

use alloc_hook::{RecordingAllocator, record};
use capture::modules::{self, All, Found, Lookup};
use capture::region::{self, Purpose};
use capture::rules::{self, InHandler, InHook};
use capture::stack::Bounds;
use capture::syscall::{self, CpuTimer};
use capture::thread::{self, Current, Recording, ThreadState};
use capture::{clock, mapping::Mapping, tls, walk};
use layout::{Frame, Function, Root, modes};
use profile_recorder_tests::text;
use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::hint::black_box;
use std::os::unix::process::ExitStatusExt as _;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard};
use unwind::FrameAddress;
use unwind::arch::Registers;

/// The system's allocator; refuses where nothing may be allocated.
struct Watched;

thread_local! {
    /// How many calls are still allowed on this thread; `None`: any.
    static ALLOWED: Cell<Option<u32>> = const { Cell::new(None) };
}

fn note_call() {
    match ALLOWED.get() {
        None => {}
        Some(0) => {
            ALLOWED.set(None);
            eprintln!("an allocation where there must be none:\n{}", std::backtrace::Backtrace::force_capture());
            std::process::abort();
        }
        Some(calls) => ALLOWED.set(Some(calls - 1)),
    }
}

// SAFETY: everything is passed on to the system's allocator as it came.
unsafe impl GlobalAlloc for Watched {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        note_call();
        // SAFETY: as it came.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        note_call();
        // SAFETY: as it came.
        unsafe { System.dealloc(block, layout) };
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        note_call();
        // SAFETY: as it came.
        unsafe { System.realloc(block, layout, size) }
    }
}

#[global_allocator]
static ALLOC: RecordingAllocator<Watched> = RecordingAllocator::new(Watched);

/// Runs `f`, in which this thread may call the allocator so many times and no more.
fn with_calls<R>(calls: u32, f: impl FnOnce() -> R) -> R {
    let before = ALLOWED.replace(Some(calls));
    let result = f();
    ALLOWED.set(before);
    result
}

fn without_calls<R>(f: impl FnOnce() -> R) -> R {
    with_calls(0, f)
}

/// Opens the store, once; what the recorder keeps belongs to the process, so one test runs at a time. There is no builder of tables.
fn set_up() -> MutexGuard<'static, bool> {
    static OPEN: Mutex<bool> = Mutex::new(false);
    let mut open = OPEN.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    if !*open {
        let purpose = Purpose {
            modes: modes::ALLOCS | modes::HEAP | modes::CPU,
            budget_bytes: 64 << 20,
            alloc_interval_bytes: 1,
            period_ns: 1_000_000,
        };
        region::open(&purpose, None).expect("a private store");
        rules::set_up();
        modules::refresh();
        *open = true;
    }
    open
}

/// What the store holds.
fn stored() -> profile::store::Decoded {
    let mut store = vec![0; region::used_bytes()];
    let length = capture::copy::copy(&mut store);
    profile::store::decode(&store[..length]).expect("a store")
}

/// The calling thread's state.
fn this_thread() -> &'static ThreadState {
    let Current::Known(state) = thread::current() else { panic!("the thread is registered") };
    state
}

fn bounds() -> Bounds {
    let here = 0_u8;
    this_thread().stack_around(&raw const here as u64)
}

/// Registers right here, in a frame that stays.
macro_rules! here {
    () => {{
        let all: All = capture::registers_here!();
        let registers = Registers { pc: all.address.address(), sp: all.get(7).unwrap(), fp: all.get(6) };
        (all, registers)
    }};
}

/// Calls `f` below so many frames.
#[inline(never)]
fn below(frames: u32, f: &mut dyn FnMut()) {
    if frames == 0 {
        f();
    } else {
        below(black_box(frames - 1), f);
    }
    black_box(frames);
}

#[test]
fn an_allocation_under_watch_ends_the_process() {
    const ALLOCATES: &str = "ALLOCATES_UNDER_WATCH";
    if std::env::var_os(ALLOCATES).is_some() {
        without_calls(|| drop(black_box(Box::new(1))));
    }
    let own = std::env::current_exe().expect("a test has a path");
    let ended = std::process::Command::new(own)
        .args(["--exact", "an_allocation_under_watch_ends_the_process", "--nocapture"])
        .env(ALLOCATES, "1")
        .output()
        .expect("it runs again");
    assert_eq!(ended.status.signal(), Some(libc::SIGABRT));
    assert!(text(&ended.stderr).contains("an allocation where there must be none"), "{}", text(&ended.stderr));
}

#[test]
fn stacks_are_walked_and_entered_with_unknown_rules() {
    let _open = set_up();
    let mut recording = Box::new(Recording::new());
    let stack = bounds();
    let mut seen = (0, 0);
    for frames in [1, 10, 100, 1000] {
        let mut depths = [0; 2];
        below(frames, &mut || {
            let (all, registers) = here!();
            let at = FrameAddress::Instruction(registers.pc);
            without_calls(|| {
                rules::clear();
                walk::capture::<InHook>(&mut recording, stack, at, registers, Some(&all));
                depths[0] = recording.depth;
                assert!(walk::intern(&mut recording, Root::Allocs, this_thread().record_id()).is_some());
                rules::clear();
                walk::capture::<InHandler>(&mut recording, stack, at, registers, Some(&all));
                depths[1] = recording.depth;
                let place = walk::intern(&mut recording, Root::Cpu, this_thread().record_id()).unwrap();
                assert!(recording.tree.add_time(place.node(), 1, 5));
                assert!(recording.log.allocate(this_thread().record_id()).is_some());
            });
        });
        assert!(depths.iter().all(|depth| *depth > frames as usize), "{depths:?} frames below {frames}");
        let last = Frame::from_bits(recording.frames[recording.depth - 1]);
        assert!(!last.is_pseudo(), "walked to the root: {:?}", last.as_pseudo());
        assert!(seen < (depths[0], depths[1]));
        seen = (depths[0], depths[1]);
    }
}

#[test]
fn code_addresses_are_looked_up_in_place() {
    let _open = set_up();
    let code = [
        code_addresses_are_looked_up_in_place as *const () as u64,
        libc::qsort as *const () as u64,
        std::thread::sleep as *const () as u64,
    ];
    let (mut rules_found, mut starts) = (0, 0);
    without_calls(|| {
        for around in code {
            for address in (around - 20_000..around + 20_000).step_by(7) {
                let Found::Module(module) = modules::find(address) else { continue };
                let in_handler = modules::lookup::<InHandler>(module, address);
                assert_eq!(in_handler, modules::lookup::<InHook>(module, address));
                rules_found += u32::from(matches!(in_handler, Lookup::Rule(_)));
                starts += u32::from(modules::function_start(module, address).is_some());
                black_box(rules::resolve::<InHandler>(FrameAddress::ReturnAddress(address)));
                black_box(rules::resolve::<InHook>(FrameAddress::Instruction(address)));
            }
        }
        // In no mapping: the list is read again.
        black_box(rules::resolve::<InHook>(FrameAddress::Instruction(0x1234_5678)));
        modules::request_refresh();
        modules::refresh_on_request();
        modules::mark_stale();
        modules::refresh();
    });
    assert!(rules_found > 10_000 && starts > 10_000, "{rules_found} rules, {starts} functions");
}

#[test]
fn what_a_handler_asks_for_is_done_by_the_next_allocation_whatever_is_freed_before() {
    let _open = set_up();
    let before = record::interval();
    for interval in [0, 512 << 10, 1] {
        record::set_interval(interval);
        let block = black_box(Box::new(1_u64));
        drop(black_box(Box::new(2_u64)));
        modules::request_refresh();
        drop(block);
        drop(black_box(Box::new(3_u64)));
        assert!(!modules::is_refresh_requested(), "interval {interval}");
    }
    record::set_interval(before);
}

#[test]
fn a_tree_grows_and_its_store_hands_out_chunks() {
    let _open = set_up();
    let mut recording = Box::new(Recording::new());
    let before = region::used_bytes();
    let nodes = without_calls(|| {
        let root = recording.tree.root(Root::Allocs, this_thread().record_id()).unwrap();
        let mut nodes = 0_u32;
        let mut parent = root;
        for number in 1..50_000 {
            let frame = Frame::return_address(layout::ModuleIndex::NONE, number * 16);
            let node = recording.tree.child(parent, frame).unwrap();
            assert_eq!(recording.tree.child(parent, frame), Some(node));
            parent = if number % 100 == 0 { root } else { node };
            let values = recording.tree.site(node, Function::Calloc);
            assert!(recording.tree.site(parent, Function::Malloc).is_some());
            assert_eq!(recording.tree.site(node, Function::Calloc), values);
            nodes += u32::from(values.is_some());
        }
        drop(Mapping::new(1 << 20));
        nodes
    });
    assert_eq!(nodes, 49_999);
    assert!(region::used_bytes() > before + 49_999 * 16, "{} bytes", region::used_bytes() - before);
}

#[test]
fn threads_are_registered_and_retired() {
    let _open = set_up();
    for _ in 0..20 {
        let ended = std::thread::spawn(|| {
            without_calls(|| {
                let before = std::ptr::from_ref(this_thread());
                thread::retire_current();
                assert!(matches!(thread::current(), Current::Unregistered));
                // As a thread that was never seen.
                tls::set(0);
                let state = this_thread();
                let here = 0_u8;
                assert_eq!(state.tid(), syscall::gettid());
                assert_eq!(state.stack(), Bounds::default(), "found when it is asked for");
                assert!(state.stack_around(&raw const here as u64).contains(&raw const here as u64));
                assert!(state.thread_record().is_some());
                let mut live = 0;
                thread::each(|_| live += 1);
                assert!(live > 0);
                black_box(before);
            });
        });
        ended.join().expect("registered");
    }
}

static TICKS: AtomicU64 = AtomicU64::new(0);

/// What the recorder's own handler does with a tick, by the same public functions.
extern "C" fn tick(_signal: i32, _info: *mut libc::siginfo_t, context: *mut libc::c_void) {
    without_calls(|| {
        // SAFETY: the kernel's context of a signal is a ucontext.
        let interrupted = unsafe { &(*context.cast::<libc::ucontext_t>()).uc_mcontext.gregs };
        let of = |index: i32| interrupted[index as usize] as u64;
        let registers = Registers { pc: of(libc::REG_RIP), sp: of(libc::REG_RSP), fp: Some(of(libc::REG_RBP)) };
        let at = FrameAddress::Instruction(registers.pc);
        let mut all = All::at(at);
        for (number, index) in [(3, libc::REG_RBX), (6, libc::REG_RBP), (7, libc::REG_RSP), (12, libc::REG_R12)] {
            all.set(number, Some(of(index)));
        }
        let Current::Known(thread) = thread::current() else { return };
        // SAFETY: in the handler, whose signal is masked.
        let (recording, kept) = unsafe { thread.handler() };
        let place = (thread.stack_around(registers.sp), thread.record_id(), Root::Cpu);
        let place =
            kept.capture::<InHandler>(recording, place, (at, registers, Some(&all)), None).expect("there is room");
        assert!(recording.tree.add_time(place.node(), 1, clock::thread_cpu_ns()));
        if let Some(sample) = recording.log.allocate(thread.record_id()) {
            sample.monotonic_ns.store(clock::monotonic_ns(), Ordering::Relaxed);
        }
        TICKS.fetch_add(1, Ordering::Relaxed);
    });
}

#[test]
fn ticks_interrupt_allocating_code_and_calls_of_every_depth() {
    let _open = set_up();
    record::set_interval(1);
    record::follow_frees(true);
    // On the thread's own stack: code that is not optimised takes more than an alternate one has.
    // SAFETY: zeroed is a valid `sigaction`; the handler has the type that SA_SIGINFO asks for.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = tick as *const () as usize;
        action.sa_flags = libc::SA_SIGINFO | libc::SA_RESTART;
        assert_eq!(libc::sigaction(libc::SIGPROF, &action, std::ptr::null_mut()), 0);
    }
    let before = TICKS.load(Ordering::Relaxed);
    for frames in (0..400).step_by(3) {
        // SAFETY: sends a signal whose handler is installed to this thread.
        below(frames, &mut || assert_eq!(unsafe { libc::raise(libc::SIGPROF) }, 0));
    }
    assert_eq!(TICKS.load(Ordering::Relaxed), before + 134);
    let cpu = stored().cpu.expect("time samples");
    let depths = cpu.samples.iter().map(|sample| cpu.stacks.frames_leaf_first(sample.stack).count());
    assert!(depths.max() > Some(399), "the deepest call was walked to its root");
    assert!(cpu.total(0) >= 134);
    // A timer interrupts anything, the allocator and the recorder's hooks among it.
    let timer = CpuTimer::start(syscall::gettid(), libc::SIGPROF, 0, 200_000, 200_000).expect("a timer");
    let raised = TICKS.load(Ordering::Relaxed);
    while TICKS.load(Ordering::Relaxed) < raised + 200 {
        let blocks: Vec<Vec<u8>> = (0..100).map(|size| vec![0; size * 37]).collect();
        below(40, &mut || drop(black_box(blocks.clone())));
    }
    timer.delete();
    record::set_interval(0);
    record::follow_frees(false);
}

/// Calls of this thread that its record counts.
fn counted(function: Function) -> u64 {
    this_thread().thread_record().expect("a record").functions[function as usize].calls.load(Ordering::Relaxed)
}

#[test]
fn a_recorded_allocation_makes_one_call_of_the_allocator_behind() {
    const ROUNDS: u64 = 3000;
    let _open = set_up();
    for interval in [1, 64, 4096] {
        record::set_interval(interval);
        record::follow_frees(true);
        let functions = [Function::RustAlloc, Function::RustRealloc, Function::RustDealloc];
        let before = functions.map(counted);
        let used = region::used_bytes();
        for round in 0..ROUNDS {
            below((round % 50) as u32, &mut || {
                // Under the flag from the call on, so while the hooks work too.
                let mut block = with_calls(1, || black_box(Vec::<u8>::with_capacity(16 + (round % 900) as usize)));
                with_calls(1, || block.reserve_exact(2000));
                with_calls(1, || drop(black_box(block)));
            });
            if round % 500 == 0 {
                // All rules are unknown again.
                rules::clear();
            }
        }
        record::set_interval(0);
        record::follow_frees(false);
        let after = functions.map(counted);
        let made: Vec<u64> = after.iter().zip(before).map(|(after, before)| after - before).collect();
        assert_eq!(made, [ROUNDS; 3], "interval {interval}");
        if interval == 1 {
            assert!(region::used_bytes() > used, "stacks were entered");
        }
    }
    let allocations = stored().allocs.expect("allocations");
    assert!(allocations.total(0) >= 2 * ROUNDS as i64, "every allocation of the first interval");
}
