//! Allocates known numbers of blocks under labels, on threads and in a child that it forks.

use profile_recorder::labels;
use std::hint::black_box;

#[inline(never)]
fn boxes(n: u64) {
    (0..n).for_each(|i| drop(black_box(Box::new(i))));
}

#[inline(never)]
fn spin(rounds: u64) {
    (0..rounds).for_each(|i| _ = black_box(i));
}

fn work() {
    for _ in 0..100 {
        boxes(1);
        labels::with("route", "/a", || {
            boxes(3);
            labels::with("tenant", 7, || boxes(5));
        });
        labels::with("route", "/b", || boxes(2));
    }
    labels::with("route", "/cpu", || spin(300_000_000));
}

fn main() {
    let threads: Vec<_> = (0..2).map(|_| std::thread::spawn(work)).collect();
    threads.into_iter().for_each(|thread| thread.join().expect("no panic"));
    let outer = labels::enter("route", "/parent");
    boxes(11);
    // SAFETY: one thread is left; the child allocates and ends.
    let child = unsafe { libc::fork() };
    if child == 0 {
        boxes(1);
        let inner = labels::enter("route", "/child");
        drop(outer);
        boxes(13);
        drop(inner);
        boxes(1);
        // SAFETY: ends the child at once.
        unsafe { libc::_exit(0) };
    }
    // SAFETY: waits for the child.
    unsafe { libc::waitpid(child, std::ptr::null_mut(), 0) };
    drop(outer);
    boxes(1);
}
