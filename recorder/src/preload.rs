//! What the preload library calls. Not for applications.
//!
//! `profrec record` and `profrec stat` say by `PROFILE_RECORDER_STORE*` variables what to record and where the store's file goes.

use crate::labels::outside;
use crate::sampler::{action, asking, guests, signal_stacks, timers};
use crate::start::{self, Directory, OWN_HEAP, Plan};
use capture::region;
use capture::region::Purpose;
use capture::syscall::filter;
use capture::syscall::{self, File};
use capture::thread::{self, Current};
use layout::modes;
use std::sync::atomic::{AtomicBool, Ordering};

/// Whether a store of `profrec` was set up.
static RECORDED: AtomicBool = AtomicBool::new(false);

/// Variables between `profrec` and the processes that it records.
#[derive(Debug)]
pub(crate) struct Variables {
    environment: Vec<u8>,
}

impl Variables {
    /// The process's environment as it was started. The C library may not have its own yet.
    fn read() -> Self {
        let mut environment = Vec::new();
        if let Ok(file) = File::open(b"/proc/self/environ\0", File::READ) {
            let mut buffer = vec![0; 64 << 10];
            while let Ok(read) = file.read(&mut buffer)
                && read != 0
            {
                environment.extend_from_slice(&buffer[..read]);
            }
        }
        Self { environment }
    }

    /// The value of a variable; an empty one counts as unset.
    pub(crate) fn get(&self, name: &str) -> Option<&[u8]> {
        let mut all = self.environment.split(|b| *b == 0);
        all.find_map(|entry| entry.strip_prefix(name.as_bytes())?.strip_prefix(b"=")).filter(|value| !value.is_empty())
    }

    /// The same as text; `None` if it is not UTF-8.
    pub(crate) fn text(&self, name: &str) -> Option<&str> {
        str::from_utf8(self.get(name)?).ok()
    }

    fn number(&self, name: &str) -> Option<u64> {
        self.text(name)?.parse().ok()
    }
}

/// Before the first allocation of the process is recorded. The thread's own allocations are not the host's here. `heap` is where they come from, `fronts` are those that may be
/// needed, and `own_malloc` is where the exported `malloc` lies.
pub fn start(heap: &'static OwnHeap, fronts: &'static [doors::Door], own_malloc: u64) {
    let _ = OWN_HEAP.set(heap);
    // Nothing that happens in here is the host's.
    capture::tls::set(1);
    let variables = Variables::read();
    let plan = plan(&variables);
    #[cfg(feature = "server")]
    let plan = plan.or_else(|| crate::resident::plan(variables));
    if let Some(plan) = plan {
        alloc_hook::imports::bind();
        next::look_at_it();
        let recorded = start::start(plan);
        if recorded {
            doors::open(fronts, own_malloc);
        }
        RECORDED.store(recorded, Ordering::Release);
    }
    capture::tls::set(0);
}

fn plan(variables: &Variables) -> Option<Plan> {
    let directory = Directory::new(variables.get("PROFILE_RECORDER_STORE")?)?;
    let mut wanted = 0;
    let names = variables.get("PROFILE_RECORDER_STORE_MODES")?;
    for mode in names.split(|b| *b == b',') {
        wanted |= match mode {
            b"stat" => modes::STAT,
            b"allocs" => modes::ALLOCS,
            b"heap" => modes::ALLOCS | modes::HEAP,
            b"cpu" => modes::CPU,
            b"wall" | b"offcpu" => modes::WALL,
            _ => 0,
        };
    }
    let period_ns = 1_000_000_000 / variables.number("PROFILE_RECORDER_STORE_HZ").unwrap_or(99).clamp(1, 10_000);
    let budget = variables.number("PROFILE_RECORDER_STORE_BYTES").unwrap_or(64 << 20);
    let purpose = Purpose {
        modes: wanted,
        budget_bytes: usize::try_from(budget).unwrap_or(usize::MAX),
        alloc_interval_bytes: variables.number("PROFILE_RECORDER_STORE_INTERVAL").unwrap_or(1),
        period_ns,
    };
    let follow = variables.get("PROFILE_RECORDER_STORE_FOLLOW") != Some(b"0");
    #[cfg(feature = "server")]
    if wanted & (modes::WALL | modes::CPU) != 0 {
        use crate::resident::{Wall, plan_to_look};
        let has_wall = names.split(|b| *b == b',').any(|mode| mode == b"wall");
        let wall = (wanted & modes::WALL != 0).then_some(if has_wall { Wall::All } else { Wall::Blocked });
        plan_to_look(std::time::Duration::from_nanos(period_ns), wall, follow);
    }
    Some(Plan { purpose, directory, follow, own_library: true })
}

/// Programs that cannot be recorded, executed without the library.
pub mod follow {
    pub use crate::follow::{Program, Strings, execute, note_own_path, own_environment, shell, with_words};
}

pub use action::{Sigaction, Sigactions};

/// The library's constructor: the C library is set up, the program's own constructors have not run yet. `behind` is what is behind the exported `sigaction`.
pub fn constructor(behind: Option<Sigactions>) {
    if let Some(behind) = behind {
        action::set_sigactions(&behind);
    }
    if !RECORDED.load(Ordering::Acquire) {
        return;
    }
    doors::program_starts();
    start::watch_forks();
    timers::set_up_exit_hook();
    if let Some(header) = region::header()
        && header.modes.load(Ordering::Relaxed) & modes::CPU != 0
        && header.period_ns.load(Ordering::Relaxed) != 0
    {
        timers::start_from_the_beginning(header.period_ns.load(Ordering::Relaxed));
    }
    if let thread::Current::Known(thread) = thread::current() {
        // The first thread was registered before there was a hook for its end.
        timers::thread_registered(thread);
    }
    #[cfg(feature = "server")]
    crate::resident::begin();
}

/// The library's destructor: the program ends by `exit` or by returning from `main`.
pub fn destructor() {
    #[cfg(feature = "server")]
    crate::resident::end();
    process_ends();
}

/// Whether the calling thread is the recorder's own.
pub fn is_own_thread() -> bool {
    thread::is_ignored()
}

/// The process ends.
pub fn process_ends() {
    if is_recorded() {
        timers::process_ends();
        // Those that end with the process do not tell it themselves.
        thread::note_names();
        region::note_sign();
    }
}

/// The process ends at once, by `_exit`: nothing is finished or waited for, but its files go with it.
pub fn exits() {
    process_ends();
    #[cfg(feature = "server")]
    if is_recorded() {
        crate::own_file::remove_all();
    }
}

/// The calling thread ends by the system call alone. Whether the process ends with it, but for threads of the recorder's: then it is to end at once.
pub fn thread_exits() -> bool {
    #[cfg(feature = "server")]
    if is_recorded() && crate::own::has_threads() && crate::last_thread::is_only() {
        exits();
        return true;
    }
    false
}

/// The calling thread is about to execute another program, which takes this one's place unless the kernel refuses.
pub fn executes() {
    if is_recorded() {
        process_ends();
        asking::be_quiet();
    }
}

/// The calling thread is about to fork.
pub fn forks() {
    #[cfg(feature = "server")]
    if is_recorded() {
        crate::start::forks();
    }
}

/// Whether the process is recorded: not a child that shares its parent's memory (vfork), which goes on.
fn is_recorded() -> bool {
    let is_own = || region::header().is_some_and(|header| header.pid.load(Ordering::Relaxed) == syscall::getpid());
    RECORDED.load(Ordering::Relaxed) && is_own()
}

/// Whether threads shall be announced.
pub fn records_threads() -> bool {
    RECORDED.load(Ordering::Relaxed)
}

/// The calling thread begins: `pthread_create` just started it.
pub fn thread_starts() {
    if RECORDED.load(Ordering::Relaxed) {
        let _ = thread::current();
        #[cfg(feature = "server")]
        crate::resident::thread_starts();
    }
}

/// The calling thread begins: `clone` just started it. Its thread-local storage may be its creator's.
pub fn clone_starts() {
    if RECORDED.load(Ordering::Relaxed) {
        guests::begins();
    }
}

/// The calling thread, which `clone` started, ends.
pub fn clone_ends() {
    if RECORDED.load(Ordering::Relaxed) {
        guests::ends();
    }
}

/// An object was closed.
pub fn object_closed() {
    capture::modules::mark_stale();
}

/// Memory was given back.
pub fn memory_unmapped(start: u64, end: u64) {
    if RECORDED.load(Ordering::Relaxed) {
        capture::modules::unmapped(start, end);
    }
}

/// The application puts the calling thread under a label, through its own copy of this library; what was in force before.
///
/// # Safety
/// The pointers are valid for their lengths.
#[allow(unsafe_code)]
pub unsafe fn label_enter(key: *const u8, key_length: usize, value: *const u8, value_length: usize) -> u64 {
    // SAFETY: as the caller promises.
    let (key, value) =
        unsafe { (std::slice::from_raw_parts(key, key_length), std::slice::from_raw_parts(value, value_length)) };
    outside::enter_here(key, value)
}

/// Ends a label: `before` was in force before it.
pub fn label_leave(before: u64) {
    outside::leave_here(before);
}

/// `sigaction`, as the application means it; `behind` is what is behind the exported one. `by_number` it is the system call that the application makes.
///
/// # Safety
/// As the C function.
#[allow(unsafe_code)]
pub unsafe fn sigaction(
    signal: i32,
    new: *const libc::sigaction,
    old: *mut libc::sigaction,
    behind: &Sigactions,
    by_number: bool,
) -> i32 {
    // A constructor that runs before ours may call this.
    action::set_sigactions(behind);
    // SAFETY: as the caller promises.
    let result = unsafe { action::foreign_sigaction(signal, new, old, by_number) };
    // SAFETY: as the caller promises.
    if let Some(new) = unsafe { new.as_ref() }.filter(|_| result == 0) {
        note_action(signal, new.sa_sigaction, new.sa_flags);
    }
    result
}

/// The application's action for a signal is another now.
pub fn note_action(signal: i32, handler: usize, flags: i32) {
    // After vfork it is the parent's memory, and the action is not the parent's.
    if is_recorded() {
        signal_stacks::note_action(signal, handler, flags);
    }
}

/// `sigaltstack`, which `kernel` makes: it returns what the C function does.
///
/// # Safety
/// As the C function.
#[allow(unsafe_code)]
pub unsafe fn sigaltstack(
    new: *const libc::stack_t,
    old: *mut libc::stack_t,
    kernel: impl Fn(*const libc::stack_t, *mut libc::stack_t) -> i32,
) -> i32 {
    // SAFETY: as the caller promises.
    unsafe { signal_stacks::set(new, old, is_recorded(), kernel) }
}

/// Makes a call that the kernel refuses to a process of several threads: without the recorder's, if they are what it minds. The recorder's agent ends for that, and begins anew.
///
/// `call` returns the number of the error, zero for none; it is made again where it is refused.
pub fn alone(mut call: impl FnMut() -> i32) -> i32 {
    let error = call();
    #[cfg(feature = "server")]
    if minds_threads(error) && is_recorded() && crate::own::has_threads() && crate::last_thread::is_only() {
        return without_threads(call);
    }
    error
}

/// Whether a thread of the host may have other rights than the recorder's have.
#[cfg(feature = "server")]
static DIFFERS: AtomicBool = AtomicBool::new(false);

pub use capture::rights::Change;

/// The calling thread has changed what it alone may do; `None`: by a call that cannot be repeated. If it is the host's only one, the recorder's repeat that, or begin anew as it is now.
pub fn rights_changed(change: Option<Change>) {
    #[cfg(feature = "server")]
    if is_recorded() && crate::own::has_threads() && crate::last_thread::is_only() {
        if !change.is_some_and(crate::rights::repeat_everywhere) {
            without_threads(|| ());
        }
    } else {
        DIFFERS.store(true, Ordering::Release);
    }
    #[cfg(not(feature = "server"))]
    let _ = change;
}

/// Has the C library change the credentials of all its threads. It aborts where results differ, which may depend on what a thread was allowed before: the recorder's agent ends before that, if
/// the calling thread may differ from it, and begins anew as that is then.
pub fn as_one<T>(call: impl FnOnce() -> T) -> T {
    #[cfg(feature = "server")]
    if DIFFERS.load(Ordering::Acquire) && is_recorded() && crate::own::has_threads() {
        return without_threads(call);
    }
    call()
}

/// Makes a call beside no thread of the recorder's. The agent ends for that, and begins anew.
#[cfg(feature = "server")]
fn without_threads<T>(call: impl FnOnce() -> T) -> T {
    /// The agent says that it is done before it is gone.
    const GONE_WITHIN_NS: u64 = 100_000_000;
    let threads = crate::own::Threads::now();
    let ended = crate::resident::end();
    capture::wait::wait_at_most(GONE_WITHIN_NS, || !crate::own::has_threads() && threads.are_gone());
    let result = call();
    DIFFERS.store(false, Ordering::Release);
    crate::resident::go_on(ended);
    result
}

/// Whether the kernel may have refused a call for a second thread.
#[cfg(feature = "server")]
fn minds_threads(error: i32) -> bool {
    error == libc::EINVAL || error == libc::EUSERS
}

/// Whether there is an agent that may send ticks at any time.
fn has_agent() -> bool {
    #[cfg(feature = "server")]
    return crate::resident::is_wanted();
    #[cfg(not(feature = "server"))]
    false
}

/// Signals that ticks come by, or may come by, and that the application does not handle itself: one bit each, as in the kernel's sets.
pub fn own_signals() -> u64 {
    let ticks = timers::is_self_arming() || has_agent();
    if ticks { action::ours_alone() } else { 0 }
}

/// Whether the application's action for a signal goes through [`sigaction`].
pub fn is_own_signal(signal: i32) -> bool {
    action::is_ours(signal)
}

/// Whether the kernel calls our handler for a signal.
pub fn is_taken(signal: i32) -> bool {
    action::is_taken(signal)
}

/// What was done before the host confines itself.
#[derive(Debug)]
pub struct Confining {
    forbidden: filter::Before,
    /// Threads whose timers were ended.
    stopped: u64,
    #[cfg(feature = "server")]
    agent: crate::resident::Ended,
}

/// Before the host confines itself by a filter of system calls at this address (`struct sock_fprog`), or by the strict mode: what will be needed is made ready, and
/// what the filter would punish is not done any more. The result is for [`after_filter`]; `None` if nothing was done, as where the kernel is certain to refuse.
///
/// Programs ask in this way what the kernel can do, and go on. `refuses` makes the host's call with another program, which it cannot read: whether it refuses for another reason.
pub fn before_filter(program: Option<u64>, refuses: impl Fn(u64) -> bool) -> Option<Confining> {
    /// Eight megabytes of the store.
    const CHUNKS_AHEAD: u32 = 2048;
    /// The kernel's own half of addresses.
    const UNREADABLE: u64 = u64::MAX - 0xffff;
    let header = region::header()?;
    // After vfork this is the parent's memory, and the filter is not for the parent.
    if header.pid.load(Ordering::Relaxed) != syscall::getpid() {
        return None;
    }
    // A filter that cannot be read by us may be any.
    let bytes = match program {
        Some(program) => instructions(program)?,
        None => None,
    };
    if program.is_some() {
        let length = bytes.as_ref().map_or(1, |bytes| bytes.len() / 8);
        let unreadable = [length as u64, UNREADABLE];
        if refuses((&raw const unreadable) as u64) {
            return None;
        }
    }
    // What a server does is too much to be foreseen.
    #[cfg(feature = "server")]
    let agent = crate::resident::end();
    if let Current::Known(thread) = thread::current() {
        // Its stack is found by the kernel's list of mappings, once.
        thread.stack_around(&raw const bytes as u64);
    }
    let foreseen = filter::foresee(bytes.as_ref().map(|bytes| bytes.as_chunks().0));
    if foreseen.stops_growth() {
        region::commit_ahead(CHUNKS_AHEAD);
    }
    let stopped = if foreseen.stops_ticks() { timers::stop() } else { 0 };
    Some(Confining {
        forbidden: filter::forbid(&foreseen),
        stopped,
        #[cfg(feature = "server")]
        agent,
    })
}

/// The kernel took the filter, or did not: then all goes on as before.
pub fn after_filter(confining: Confining, is_taken: bool) {
    if is_taken {
        return timers::are_stopped(confining.stopped);
    }
    filter::restore(&confining.forbidden);
    if confining.stopped != 0 {
        timers::go_on();
    }
    #[cfg(feature = "server")]
    crate::resident::go_on(confining.agent);
}

/// The instructions of a `struct sock_fprog`: their number, and behind six bytes their address. `None` if the kernel cannot read them, or takes none of so many; nothing inside if we
/// cannot.
fn instructions(program: u64) -> Option<Option<Vec<u8>>> {
    let read = |from: u64, buffer: &mut [u8]| match syscall::copy_memory(from, buffer) {
        Ok(length) if length == buffer.len() => Some(true),
        Ok(_) => None,
        Err(_) => Some(false),
    };
    let mut head = [0; 16];
    if !read(program, &mut head)? {
        return Some(None);
    }
    let (length, address) = head.split_at(8);
    let length = usize::from(u16::from_ne_bytes(length.first_chunk().copied()?));
    let address = u64::from_ne_bytes(address.try_into().ok()?);
    if !(1..=filter::MAX_INSTRUCTIONS).contains(&length) {
        return None;
    }
    let Some(mut bytes) = room(length) else { return Some(None) };
    Some(read(address, &mut bytes)?.then_some(bytes))
}

/// Room for so many instructions, if there is memory. By itself, so that the compiler sees that there is as much as is filled: growing could panic.
#[inline(never)]
fn room(instructions: usize) -> Option<Vec<u8>> {
    let mut bytes = Vec::new();
    bytes.try_reserve_exact(instructions.min(filter::MAX_INSTRUCTIONS) * 8).ok()?;
    bytes.resize(instructions.min(filter::MAX_INSTRUCTIONS) * 8, 0);
    Some(bytes)
}

pub use alloc_hook::doors;
pub use alloc_hook::family;
pub use alloc_hook::linked::is_in_libc;
pub use alloc_hook::own_heap::OwnHeap;
pub use alloc_hook::{fast, near, next};
pub use capture::live::GRAIN;
pub use capture::thread::{Armed, offsets};
