//! Threads that wait in every call that a signal breaks off, again and again, with time limits of some milliseconds. Each counts the waits that end with EINTR, and those that end before
//! their time; none should while it is recorded.
//!
//! Waits for the end of its standard input, then prints a line for each call: its name, the number of waits, of EINTR, of early ends, the longest wait in microseconds, and the median by
//! which waits were longer than asked.

use std::os::fd::AsRawFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

#[global_allocator]
static ALLOC: profile_recorder::RecordingAllocator = profile_recorder::RecordingAllocator::system();

static STOP: AtomicBool = AtomicBool::new(false);
/// What most waits are limited to.
const LIMIT: Duration = Duration::from_millis(5);

fn timespec(duration: Duration) -> libc::timespec {
    libc::timespec { tv_sec: duration.as_secs() as i64, tv_nsec: i64::from(duration.subsec_nanos()) }
}

fn timeval(duration: Duration) -> libc::timeval {
    libc::timeval { tv_sec: duration.as_secs() as i64, tv_usec: i64::from(duration.subsec_micros()) }
}

/// A descriptor that never has anything to read. Its other end stays open as long as the process.
fn silent() -> UnixStream {
    let (here, there) = UnixStream::pair().unwrap();
    std::mem::forget(there);
    here
}

unsafe extern "C" {
    fn semtimedop(set: i32, operations: *mut libc::sembuf, count: usize, limit: *const libc::timespec) -> i32;
}

/// The error of a call that returned a negative number; 0 of one that did not.
fn error(result: i64) -> i32 {
    if result < 0 { std::io::Error::last_os_error().raw_os_error().unwrap_or(0) } else { 0 }
}

/// What came of one kind of wait.
#[derive(Default)]
struct Seen {
    waits: u64,
    interrupted: u64,
    early: u64,
    lateness: Vec<Duration>,
    broken_errno: u64,
}

type Wait = Box<dyn FnMut() -> i32 + Send>;

fn watch(name: &'static str, limit: Option<Duration>, mut wait: Wait) -> std::thread::JoinHandle<()> {
    std::thread::Builder::new()
        .name(name.to_owned())
        .spawn(move || {
            let mut seen = Seen::default();
            while !STOP.load(Ordering::Relaxed) {
                let begun = Instant::now();
                let error = wait();
                let took = begun.elapsed();
                seen.waits += 1;
                if error == libc::EINTR {
                    seen.interrupted += 1;
                } else if let Some(limit) = limit {
                    seen.early += u64::from(took + Duration::from_micros(100) < limit);
                    seen.lateness.push(took.saturating_sub(limit));
                }
                // A moment of work, in which errno is looked at over and over: a handler that changes it is seen.
                // SAFETY: the address of this thread's errno.
                let errno = unsafe { &mut *libc::__errno_location() };
                *errno = 4711;
                let busy = Instant::now();
                while busy.elapsed() < Duration::from_micros(50) {
                    // SAFETY: reads what was written above, or what a handler left there.
                    seen.broken_errno += u64::from(unsafe { std::ptr::read_volatile(errno) } != 4711);
                }
            }
            seen.lateness.sort_unstable();
            let most = seen.lateness.last().copied().unwrap_or_default();
            let median = seen.lateness.get(seen.lateness.len() / 2).copied().unwrap_or_default();
            println!(
                "{name} {} {} {} {} {} {}",
                seen.waits,
                seen.interrupted,
                seen.early,
                seen.broken_errno,
                most.as_micros(),
                median.as_micros()
            );
        })
        .unwrap()
}

fn all() -> Vec<std::thread::JoinHandle<()>> {
    let mut threads = Vec::new();
    let mut add = |name, limit: Option<Duration>, wait: Wait| threads.push(watch(name, limit, wait));
    let limit = Some(LIMIT);

    let end = silent();
    add(
        "poll",
        limit,
        Box::new(move || {
            let mut fd = libc::pollfd { fd: end.as_raw_fd(), events: libc::POLLIN, revents: 0 };
            // SAFETY: one pollfd.
            error(i64::from(unsafe { libc::poll(&mut fd, 1, LIMIT.as_millis() as i32) }))
        }),
    );
    let end = silent();
    add(
        "ppoll",
        limit,
        Box::new(move || {
            let mut fd = libc::pollfd { fd: end.as_raw_fd(), events: libc::POLLIN, revents: 0 };
            // SAFETY: one pollfd, one timespec, no mask.
            error(i64::from(unsafe { libc::ppoll(&mut fd, 1, &timespec(LIMIT), std::ptr::null()) }))
        }),
    );
    // SAFETY: no memory is involved.
    let epoll = unsafe { libc::epoll_create1(0) };
    add(
        "epoll_wait",
        limit,
        Box::new(move || {
            let mut event = libc::epoll_event { events: 0, u64: 0 };
            // SAFETY: room for one event.
            error(i64::from(unsafe { libc::epoll_wait(epoll, &mut event, 1, LIMIT.as_millis() as i32) }))
        }),
    );
    let end = silent();
    add(
        "select",
        limit,
        Box::new(move || {
            // SAFETY: a zeroed set is an empty one, and the descriptor is small enough for it.
            unsafe {
                let mut set: libc::fd_set = std::mem::zeroed();
                libc::FD_SET(end.as_raw_fd(), &mut set);
                let null = std::ptr::null_mut();
                error(i64::from(libc::select(end.as_raw_fd() + 1, &mut set, null, null, &mut timeval(LIMIT))))
            }
        }),
    );
    let end = silent();
    add(
        "pselect",
        limit,
        Box::new(move || {
            // SAFETY: as above.
            unsafe {
                let mut set: libc::fd_set = std::mem::zeroed();
                libc::FD_SET(end.as_raw_fd(), &mut set);
                let null = std::ptr::null_mut();
                let fds = end.as_raw_fd() + 1;
                error(i64::from(libc::pselect(fds, &mut set, null, null, &timespec(LIMIT), std::ptr::null())))
            }
        }),
    );
    // SAFETY: one timespec; the rest is not asked for.
    add(
        "nanosleep",
        limit,
        Box::new(|| error(i64::from(unsafe { libc::nanosleep(&timespec(LIMIT), std::ptr::null_mut()) }))),
    );
    add(
        "clock_nanosleep",
        limit,
        Box::new(|| {
            // SAFETY: as above. This call returns its error.
            unsafe { libc::clock_nanosleep(libc::CLOCK_MONOTONIC, 0, &timespec(LIMIT), std::ptr::null_mut()) }
        }),
    );
    // SAFETY: no memory is involved.
    add("usleep", limit, Box::new(|| error(i64::from(unsafe { libc::usleep(LIMIT.as_micros() as u32) }))));
    // SAFETY: a private set of two semaphores.
    let semaphores = unsafe { libc::semget(libc::IPC_PRIVATE, 2, 0o600) };
    assert!(semaphores >= 0, "semget");
    add(
        "semtimedop",
        limit,
        Box::new(move || {
            // One that nobody raises: the other is for who waits for ever.
            let mut operation = libc::sembuf { sem_num: 1, sem_op: -1, sem_flg: 0 };
            // SAFETY: one operation and one timespec.
            error(i64::from(unsafe { semtimedop(semaphores, &mut operation, 1, &timespec(LIMIT)) }))
        }),
    );
    // A thread that waits for ever is woken by another.
    add(
        "semop",
        None,
        Box::new(move || {
            let mut operation = libc::sembuf { sem_num: 0, sem_op: -1, sem_flg: 0 };
            // SAFETY: one operation.
            error(i64::from(unsafe { libc::semop(semaphores, &mut operation, 1) }))
        }),
    );
    std::thread::spawn(move || {
        loop {
            std::thread::sleep(LIMIT * 20);
            let mut operation = libc::sembuf { sem_num: 0, sem_op: 1, sem_flg: 0 };
            // SAFETY: one operation.
            unsafe { libc::semop(semaphores, &mut operation, 1) };
        }
    });
    let end = silent();
    end.set_read_timeout(limit).unwrap();
    add(
        "recv",
        Some(Duration::from_millis(4)),
        Box::new(move || {
            let mut byte = 0_u8;
            // SAFETY: room for one byte.
            error(unsafe { libc::recv(end.as_raw_fd(), (&raw mut byte).cast(), 1, 0) } as i64)
        }),
    );
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("listener");
    let listener = UnixListener::bind(&path).unwrap();
    set_receive_limit(listener.as_raw_fd());
    let of_accept = directory;
    add(
        "accept",
        Some(Duration::from_millis(4)),
        Box::new(move || {
            let _keeps = &of_accept;
            // SAFETY: no address is asked for.
            error(i64::from(unsafe { libc::accept(listener.as_raw_fd(), std::ptr::null_mut(), std::ptr::null_mut()) }))
        }),
    );
    let directory = tempfile::tempdir().unwrap();
    let full = Full::new(&directory.path().join("full"));
    let of_connect = directory;
    add(
        "connect",
        Some(Duration::from_millis(4)),
        Box::new(move || {
            let _keeps = &of_connect;
            full.connect()
        }),
    );
    // SAFETY: the thread blocks the signal that it waits for; it is never sent.
    add(
        "sigtimedwait",
        limit,
        Box::new(|| unsafe {
            let mut set: libc::sigset_t = std::mem::zeroed();
            libc::sigaddset(&mut set, libc::SIGUSR2);
            libc::pthread_sigmask(libc::SIG_BLOCK, &set, std::ptr::null_mut());
            error(i64::from(libc::sigtimedwait(&set, std::ptr::null_mut(), &timespec(LIMIT))))
        }),
    );
    add("io_getevents", limit, {
        let mut context = 0_u64;
        // SAFETY: the kernel writes one word.
        let made = unsafe { libc::syscall(libc::SYS_io_setup, 4, &mut context) };
        assert_eq!(made, 0, "io_setup");
        Box::new(move || get_events(context))
    });
    let (mut reader, writer) = UnixStream::pair().unwrap();
    add(
        "read",
        None,
        Box::new(move || {
            use std::io::Read;
            let mut byte = [0_u8; 1];
            reader.read(&mut byte).map_or_else(|e| e.raw_os_error().unwrap_or(0), |_| 0)
        }),
    );
    std::thread::spawn(move || {
        use std::io::Write;
        let mut writer = writer;
        while writer.write_all(&[1]).is_ok() {
            std::thread::sleep(LIMIT * 20);
        }
    });
    // A lock that somebody holds, for so long; and a condition that never holds.
    add(
        "futex",
        limit,
        Box::new({
            let (mutex, condition) = (std::sync::Mutex::new(()), std::sync::Condvar::new());
            move || {
                let guard = mutex.lock().unwrap();
                drop(condition.wait_timeout(guard, LIMIT));
                0
            }
        }),
    );
    add(
        "sem_timedwait",
        limit,
        Box::new({
            // SAFETY: a semaphore of the thread, which moves with it before it is used.
            let mut semaphore: Box<libc::sem_t> = Box::new(unsafe { std::mem::zeroed() });
            // SAFETY: as above.
            unsafe { libc::sem_init(&mut *semaphore, 0, 0) };
            move || {
                let mut until = timespec(Duration::ZERO);
                // SAFETY: one timespec each.
                unsafe {
                    libc::clock_gettime(libc::CLOCK_REALTIME, &mut until);
                    until.tv_nsec += LIMIT.as_nanos() as i64;
                    if until.tv_nsec >= 1_000_000_000 {
                        until.tv_nsec -= 1_000_000_000;
                        until.tv_sec += 1;
                    }
                    error(i64::from(libc::sem_timedwait(&mut *semaphore, &until)))
                }
            }
        }),
    );
    // SAFETY: a private queue.
    let queue = unsafe { libc::msgget(libc::IPC_PRIVATE, 0o600) };
    assert!(queue >= 0, "msgget");
    add(
        "msgrcv",
        None,
        Box::new(move || {
            let mut message = [0_i64; 4];
            // SAFETY: room for a type and 24 bytes.
            error(unsafe { libc::msgrcv(queue, message.as_mut_ptr().cast(), 24, 0, 0) } as i64)
        }),
    );
    std::thread::spawn(move || {
        let message = [1_i64, 0];
        // SAFETY: a type and eight bytes.
        while unsafe { libc::msgsnd(queue, message.as_ptr().cast(), 8, 0) } == 0 {
            std::thread::sleep(LIMIT * 20);
        }
    });
    REMOVED.set((semaphores, queue)).unwrap();
    threads
}

/// What the kernel keeps until it is removed.
static REMOVED: std::sync::OnceLock<(i32, i32)> = std::sync::OnceLock::new();

fn get_events(context: u64) -> i32 {
    let mut event = [0_u64; 4];
    let result: i64;
    // The C library has no such function; a program that uses it makes the call itself.
    // SAFETY: room for one event; one timespec.
    unsafe {
        std::arch::asm!(
            "mov eax, 208",
            "syscall",
            in("rdi") context,
            in("rsi") 1_u64,
            in("rdx") 1_u64,
            in("r10") event.as_mut_ptr(),
            in("r8") &timespec(LIMIT),
            lateout("rax") result,
            lateout("rcx") _,
            lateout("r11") _,
        );
    }
    if result < 0 { -result as i32 } else { 0 }
}

fn set_receive_limit(fd: i32) {
    let limit = timeval(LIMIT);
    // SAFETY: one timeval.
    let result = unsafe {
        libc::setsockopt(
            fd,
            libc::SOL_SOCKET,
            libc::SO_RCVTIMEO,
            (&raw const limit).cast(),
            size_of::<libc::timeval>() as u32,
        )
    };
    assert_eq!(result, 0, "SO_RCVTIMEO");
}

/// A listener that accepts nobody: whoever connects waits.
struct Full {
    address: libc::sockaddr_un,
    _listener: UnixListener,
    _first: Vec<UnixStream>,
}

impl Full {
    fn new(path: &std::path::Path) -> Self {
        use std::os::unix::ffi::OsStrExt;
        let listener = UnixListener::bind(path).unwrap();
        // SAFETY: no memory is involved.
        unsafe { libc::listen(listener.as_raw_fd(), 0) };
        let first = vec![UnixStream::connect(path).unwrap()];
        // SAFETY: a zeroed address is an unnamed one.
        let mut address: libc::sockaddr_un = unsafe { std::mem::zeroed() };
        address.sun_family = libc::AF_UNIX as u16;
        for (to, from) in address.sun_path.iter_mut().zip(path.as_os_str().as_bytes()) {
            *to = *from as i8;
        }
        Self { address, _listener: listener, _first: first }
    }

    fn connect(&self) -> i32 {
        let limit = timeval(LIMIT);
        // SAFETY: one address, one timeval; the socket is closed again.
        unsafe {
            let socket = libc::socket(libc::AF_UNIX, libc::SOCK_STREAM, 0);
            let size = size_of::<libc::timeval>() as u32;
            libc::setsockopt(socket, libc::SOL_SOCKET, libc::SO_SNDTIMEO, (&raw const limit).cast(), size);
            let size = size_of::<libc::sockaddr_un>() as u32;
            let error = error(i64::from(libc::connect(socket, (&raw const self.address).cast(), size)));
            libc::close(socket);
            error
        }
    }
}

fn main() {
    let _server = profile_recorder::Server::from_env().start_or_warn();
    let threads = all();
    println!("ready");
    let _ = std::io::copy(&mut std::io::stdin(), &mut std::io::sink());
    STOP.store(true, Ordering::Relaxed);
    threads.into_iter().for_each(|thread| thread.join().unwrap());
    if let Some((semaphores, queue)) = REMOVED.get() {
        // SAFETY: no memory is involved.
        unsafe {
            libc::semctl(*semaphores, 0, libc::IPC_RMID);
            libc::msgctl(*queue, libc::IPC_RMID, std::ptr::null_mut());
        }
    }
}
