//! The recorder in a program that knows nothing of it: the preload library's server, the profile that it writes at the end, and elapsed time for `profrec record`.
//!
//! Called from: the library's constructor and destructor, and a child after fork. What serves lives on threads of its own, whose descriptors are their own too: the host may close all
//! of its descriptors (daemons do), and its numbers are what they would be without us. So a thread of the host never uses a descriptor here, nor wakes anything that waits on one: it
//! raises a flag, and the agent does the rest.
//!
//! # Safety
//! Thread-local state of the calling thread is put back as it was found. Locks are taken away from threads that do not exist in a child after fork.
#![allow(unsafe_code)]

use crate::config::{Config, Mistake, Surroundings, pattern, variable};
use crate::lock::Lock;
use crate::log::{self, LogLevel, log};
use crate::output::Writing;
use crate::own;
use crate::preload::Variables;
use crate::sampler::timers;
use crate::sampler::wall::{Watch, WithRunning};
use crate::server::{Server, ServerBuilder};
use crate::start::{self, Directory, Plan};
use crate::{engine, last_thread, limits, registry, rights};
use capture::region::{self, Purpose};
use capture::{syscall, tls};
use layout::modes;
use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::mpsc::channel;
use std::thread::Thread;
use std::time::{Duration, Instant};

/// A child that only lives to execute another program is gone by then, and was never seen.
const CHILD_WAITS: Duration = Duration::from_millis(100);
/// How long the end of the process waits for answers under way, and for the profile that is to be written.
const END_WAITS: Duration = Duration::from_secs(30);

/// What the agent is for.
#[derive(Debug)]
enum Duty {
    /// Server, profile or both: what the process was started with, and where.
    Serve { variables: Variables, directory: Option<PathBuf> },
    /// Into the store of `profrec`, once in a period.
    Look { period: Duration, wall: Option<Wall>, follow: bool },
}

/// Whose elapsed time is looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wall {
    /// All threads'.
    All,
    /// That of threads that are blocked, while they are.
    Blocked,
}

/// Nothing if there is nothing for an agent to do.
static DUTY: OnceLock<Duty> = OnceLock::new();
/// Process whose agent runs; 0: none.
static AGENT_OF: AtomicU32 = AtomicU32::new(0);
/// Its handle, which the standard library has in memory of the host's allocator: here it is seen by who looks for memory that nothing points to.
static AGENT: Lock<Option<Thread>> = Lock::new(None);
static STOP: AtomicBool = AtomicBool::new(false);
/// The agent's thread.
static AGENT_TID: AtomicU32 = AtomicU32::new(0);
/// Whether there was an agent before, which has entered all elapsed time up to its end.
static IS_AGAIN: AtomicBool = AtomicBool::new(false);
static DONE: AtomicBool = AtomicBool::new(false);

/// What shall be recorded so that a server can answer, if the environment asks for one, or for a profile at the end.
///
/// Runs inside the first allocation of the process.
pub(crate) fn plan(variables: Variables) -> Option<Plan> {
    let wanted = [variable::SERVER_URL, variable::SERVER_URL_PATTERN, variable::OUTPUT];
    if !wanted.iter().any(|name| variables.get(name).is_some()) {
        return None;
    }
    let interval = match variables.text(variable::ALLOC_INTERVAL) {
        Some("off") => 0,
        // The agent says what is wrong with it.
        text => text.and_then(|text| limits::interval(text).ok()).map_or(start::DEFAULT_ALLOC_INTERVAL, u64::from),
    };
    let purpose = Purpose {
        modes: modes::ALLOCS | modes::HEAP | modes::CPU | modes::WALL,
        budget_bytes: alloc_hook::counting::BUDGET_BYTES,
        alloc_interval_bytes: interval,
        period_ns: 0,
    };
    let follow = serves_children(&variables);
    let directory = working_directory();
    DUTY.set(Duty::Serve { variables, directory }).ok()?;
    Some(Plan { purpose, directory: Directory::NONE, follow, own_library: true })
}

/// Where the process is now: before it can go elsewhere, as daemons do.
fn working_directory() -> Option<PathBuf> {
    let mut path = vec![0; 4096];
    let path = syscall::read_link(b"/proc/self/cwd\0", &mut path).ok()?;
    Some(PathBuf::from(OsString::from_vec(path.to_vec())))
}

/// `profrec record` asks for time. Without elapsed time there is an agent only for threads that can have no timer.
///
/// Runs inside the first allocation of the process.
pub(crate) fn plan_to_look(period: Duration, wall: Option<Wall>, follow: bool) {
    let _ = DUTY.set(Duty::Look { period, wall, follow });
}

/// Whether a child's server, or its profile, has a name of its own.
fn serves_children(variables: &Variables) -> bool {
    let has = |name, placeholder| variables.text(name).is_some_and(|text: &str| text.contains(placeholder));
    let url = variables.text(variable::SERVER_URL);
    let server = match url {
        Some(url) => url.starts_with("http://") && url.trim_end_matches('/').ends_with(":0"),
        None => has(variable::SERVER_URL_PATTERN, "{PID}") || has(variable::SERVER_URL_PATTERN, "{UUID}"),
    };
    server || has(variable::OUTPUT, "{PID}")
}

/// Whether a server or a profile was asked for.
pub(crate) fn serves() -> bool {
    matches!(DUTY.get(), Some(Duty::Serve { .. }))
}

/// Whether there is an agent, or will be.
pub(crate) fn is_wanted() -> bool {
    match DUTY.get() {
        Some(Duty::Look { wall: None, .. }) => timers::has_refused(),
        duty => duty.is_some(),
    }
}

/// Starts the agent of this process. The C library is set up.
#[inline(never)]
pub(crate) fn begin() {
    if is_wanted() {
        start_agent(Duration::ZERO);
    }
}

/// A thread of the host just began, and may be the first without a timer.
pub(crate) fn thread_starts() {
    if timers::has_refused() && AGENT_OF.load(Ordering::Acquire) == 0 && !STOP.load(Ordering::Acquire) {
        begin();
    }
}

/// In a child after fork, on its only thread: there is no agent.
#[inline(never)]
pub(crate) fn forget_parents() {
    AGENT_OF.store(0, Ordering::Relaxed);
    IS_AGAIN.store(false, Ordering::Relaxed);
    last_thread::reset_in_child();
    // SAFETY: the process has one thread, which forked outside of this module.
    std::mem::forget(unsafe { AGENT.take_in_child() });
}

/// Then, when locks that the C library and others hold meanwhile are free again: what the child has of its own.
#[inline(never)]
pub(crate) fn in_child() {
    let Some(duty) = DUTY.get() else { return };
    match duty {
        Duty::Serve { variables, .. } if serves_children(variables) => start_agent(CHILD_WAITS),
        // Without a store nobody wants to know any more.
        Duty::Look { follow: true, .. } if region::header().is_some() => begin(),
        _ => {}
    }
}

fn start_agent(wait: Duration) {
    if AGENT_OF.compare_exchange(0, syscall::getpid(), Ordering::AcqRel, Ordering::Relaxed).is_err() {
        return;
    }
    STOP.store(false, Ordering::Relaxed);
    DONE.store(false, Ordering::Relaxed);
    let before = tls::get();
    // The C library allocates for a new thread, and that is not the host's.
    tls::set(own::IGNORED);
    let started = own::spawn("profrec-server", move || agent(wait));
    match started {
        Ok(handle) => {
            *AGENT.lock() = Some(handle.thread().clone());
            timers::are_asked();
        }
        Err(error) => {
            AGENT_OF.store(0, Ordering::Release);
            // A process can have no further thread once it has entered some namespaces (`unshare`), and knows that.
            let level = if IS_AGAIN.load(Ordering::Relaxed) { LogLevel::Info } else { LogLevel::Error };
            log::say(level, format_args!("not started: cannot start a thread: {error}"));
        }
    }
    tls::set(before);
}

/// What [`end`] ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ended {
    /// Nothing: all had ended before.
    Nothing,
    /// Nobody: there is no agent yet.
    Nobody,
    /// The agent, if it was there in time.
    Agent,
}

/// The process ends, or confines itself: what is being recorded is finished and written, clients get what there is. Waits for it.
#[inline(never)]
pub(crate) fn end() -> Ended {
    match AGENT_OF.load(Ordering::Acquire) {
        // None begins any more.
        0 if !STOP.swap(true, Ordering::AcqRel) => Ended::Nobody,
        agent_of if agent_of == syscall::getpid() && !STOP.swap(true, Ordering::AcqRel) => {
            wait_for_agent();
            Ended::Agent
        }
        _ => Ended::Nothing,
    }
}

/// The process is not confined: all goes on. A profile for the end is begun anew, and takes the place of the one that was written.
#[inline(never)]
pub(crate) fn go_on(ended: Ended) {
    match ended {
        Ended::Nobody => STOP.store(false, Ordering::Release),
        Ended::Agent if DONE.load(Ordering::Acquire) => {
            IS_AGAIN.store(true, Ordering::Relaxed);
            start_agent(Duration::ZERO);
        }
        _ => {}
    }
}

/// Wakes the agent, if there is one: it has something to do.
pub(crate) fn wake() {
    if let Some(agent) = AGENT.try_lock().as_deref().and_then(Option::as_ref) {
        agent.unpark();
    }
}

fn wait_for_agent() {
    AGENT_OF.store(0, Ordering::Release);
    // Whoever interrupts its start, in a handler that ends the process, does not wait for itself.
    wake();
    let begun = Instant::now();
    while !DONE.load(Ordering::Acquire) && begun.elapsed() < END_WAITS {
        std::thread::sleep(Duration::from_micros(100));
    }
}

/// Raises the flag that [`end`] waits for, however the agent ends.
struct Done;

impl Drop for Done {
    fn drop(&mut self) {
        DONE.store(true, Ordering::Release);
    }
}

fn agent(wait: Duration) {
    let _done = Done;
    AGENT_TID.store(syscall::gettid(), Ordering::Relaxed);
    end_threads_that_panic();
    let begun = Instant::now();
    while begun.elapsed() < wait && !STOP.load(Ordering::Acquire) {
        std::thread::park_timeout(wait.saturating_sub(begun.elapsed()));
        rights::repeat();
    }
    descriptors::make_private();
    match DUTY.get() {
        Some(Duty::Serve { variables, directory }) => attend(variables, directory.as_ref()),
        Some(Duty::Look { period, wall: Some(wall), .. }) => watch(*period, *wall),
        Some(Duty::Look { period, wall: None, .. }) => engine::ask_for_cpu(*period, &STOP),
        None => {}
    }
}

/// Looks until the process ends, and a last time then.
fn watch(period: Duration, wall: Wall) {
    let _running_threads = (wall == Wall::All).then(WithRunning::new);
    let Some(header) = region::header() else { return };
    let (begun, cpu) = (&header.start_monotonic_ns, &header.start_thread_cpu_ns);
    let (begun_ns, cpu_ns) = (begun.load(Ordering::Relaxed), cpu.load(Ordering::Relaxed));
    match Watch::start() {
        Some(watch) => {
            let watch = if IS_AGAIN.load(Ordering::Relaxed) { watch } else { watch.since(begun_ns, cpu_ns) };
            engine::sample_wall(watch, period, &STOP, &channel().1);
        }
        None => log!(Error, "elapsed time is not recorded: the signal handler cannot be installed"),
    }
}

/// Serves, and records what is to be written, until the process ends. One that ended before its agent had its turn has a profile all the same: its allocations were recorded from the first on.
fn attend(variables: &Variables, directory: Option<&PathBuf>) {
    let (config, mistakes) = Config::parse(&Surroundings {
        variable: &|name| Some(OsString::from_vec(variables.get(name)?.to_vec())),
        file: &|path| std::fs::read_to_string(path),
        pid: std::process::id(),
        exe: &pattern::exe_name,
        uuid: &pattern::random_uuid,
        directory: &|| directory.cloned(),
    });
    log::set_level(config.log);
    registry::set_runtime_dir(variables.text("XDG_RUNTIME_DIR").map(PathBuf::from));
    let writing = config.output.as_ref().filter(|_| mistakes.is_empty()).and_then(|_| Writing::begin(&config));
    let server = (!STOP.load(Ordering::Acquire)).then(|| serve(config, &mistakes)).flatten();
    while !STOP.load(Ordering::Acquire) && (server.is_some() || writing.is_some()) {
        std::thread::park_timeout(last_thread::LOOKS_EVERY);
        last_thread::end_if_alone();
        if rights::repeat()
            && let Some(server) = &server
        {
            server.repeat_rights();
        }
    }
    drop(server);
    if let Some(writing) = writing {
        writing.finish();
    }
}

fn serve(config: Config, mistakes: &[Mistake]) -> Option<Server> {
    if mistakes.is_empty() && config.address.is_none() {
        return None;
    }
    ServerBuilder::from_config(config, mistakes.to_vec()).start_or_warn()
}

/// The library is built to abort where it panics, and that would be the host's end. A thread of ours ends alone: it is the only one that can panic, since no code that the host calls
/// does.
fn end_threads_that_panic() {
    std::panic::set_hook(Box::new(|info| {
        if !own::is_own(syscall::gettid()) {
            return;
        }
        log!(Error, "a thread of the recorder ended by a bug: {info}");
        // The others' ends are the agent's to notice: it has more to finish.
        if AGENT_TID.load(Ordering::Relaxed) == syscall::gettid() {
            DONE.store(true, Ordering::Release);
        }
        // SAFETY: ends the calling thread, whose stack holds nothing that others wait for but the flag above.
        unsafe { libc::syscall(libc::SYS_exit, 0) };
    }));
}

mod descriptors {
    //! The agent's threads have a table of descriptors of their own.

    use crate::log;

    /// Gives the calling thread, and those that it starts, an empty table of descriptors. Where the kernel refuses (before 5.9, or a strict filter), the host's table is used.
    pub(super) fn make_private() {
        const UNSHARE: libc::c_uint = 1 << 1;
        // SAFETY: changes the calling thread's table alone: nothing of ours is open yet.
        let result = unsafe { libc::syscall(libc::SYS_close_range, 0_u32, u32::MAX, UNSHARE) };
        if result == 0 {
            log::set_foreign_descriptors();
        }
    }
}
