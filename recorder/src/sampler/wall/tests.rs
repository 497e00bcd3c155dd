//! Threads that begin while they are looked at.

use super::super::status::Descriptors;
use super::*;
use std::collections::HashMap;
use std::sync::mpsc::channel;

/// Whether a thread of this number is blocked in a call.
fn waits(tid: u32) -> bool {
    matches!(Task::new(tid).status(&mut Descriptors::new()), Status::Blocked(at) if at.call.is_some())
}

#[test]
fn a_thread_that_is_registered_and_named_before_its_first_look_is_that_thread() {
    assert!(crate::start::in_library(0));
    let (tell, asked) = channel();
    let (begin, begun) = channel::<()>();
    let (end, ended) = channel::<()>();
    let thread = std::thread::spawn(move || {
        tell.send((capture::syscall::gettid(), RecordId::NONE)).unwrap();
        begun.recv().unwrap();
        let thread::Current::Known(state) = thread::current() else { panic!("it is registered") };
        std::fs::write("/proc/thread-self/comm", "named-then").unwrap();
        tell.send((capture::syscall::gettid(), state.record_id())).unwrap();
        let _ = ended.recv();
    });
    let (tid, _) = asked.recv().unwrap();
    let mut entering = Entering::new();
    // A tick begins: the threads are listed, and those that are registered asked for.
    entering.states = Some(HashMap::new());
    let mut watched = Watched::new(tid, None, clock::monotonic_ns());
    begin.send(()).unwrap();
    let (_, record) = asked.recv().unwrap();
    while !waits(tid) {
        std::thread::yield_now();
    }
    watched.look(tid, clock::monotonic_ns(), None, &mut entering);
    // And the next.
    entering.states = None;
    watched.look(tid, clock::monotonic_ns(), None, &mut entering);
    assert_eq!(watched.record, record);
    let name = thread::recorded_name(watched.made.unwrap());
    assert!(name.starts_with(b"named-then\0"), "{name:?}");
    drop(end);
    thread.join().unwrap();
}

#[test]
fn the_last_look_finds_threads_that_were_not_listed_before() {
    assert!(crate::start::in_library(0));
    let mut watch = Watch::start().unwrap();
    // It was listed a moment ago, which took long.
    watch.listing.pauses_ns = [u64::MAX; 2];
    let (tell, asked) = channel();
    let (end, ended) = channel::<()>();
    let thread = std::thread::spawn(move || {
        tell.send(capture::syscall::gettid()).unwrap();
        let _ = ended.recv();
    });
    let tid = asked.recv().unwrap();
    watch.tick();
    assert!(!watch.threads.contains_key(&tid));
    watch.settle();
    assert!(watch.threads.contains_key(&tid));
    // Not the whole end of a session, which takes what other tests' threads were asked for.
    handler::arm_wall(false);
    handler::expect_bare_signals(false);
    drop(end);
    thread.join().unwrap();
}

#[test]
fn time_on_the_cpu_is_not_kept_for_who_joins_later() {
    assert!(crate::start::in_library(0));
    let (tell, asked) = channel();
    let ends = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(false));
    let is_over = std::sync::Arc::clone(&ends);
    let thread = std::thread::spawn(move || {
        let _ = thread::current();
        tell.send(capture::syscall::gettid()).unwrap();
        while !is_over.load(Ordering::Relaxed) {}
    });
    let tid = asked.recv().unwrap();
    let mut entering = Entering::new();
    let mut watched = Watched::new(tid, entering.state(tid), clock::monotonic_ns());
    let before = watched.cpu_ns;
    while watched.task.cpu_ns() <= before + 1_000_000 {
        std::thread::yield_now();
    }
    watched.look(tid, clock::monotonic_ns(), None, &mut entering);
    assert!(watched.cpu_ns > before);
    assert_eq!((watched.owed.on_cpu, watched.owed.runnable), (0, 0));
    ends.store(true, Ordering::Relaxed);
    thread.join().unwrap();
}
