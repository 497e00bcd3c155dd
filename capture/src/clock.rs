//! Time, by raw system calls.

use crate::syscall::clock_ns;

/// CLOCK_REALTIME in nanoseconds.
pub fn realtime_ns() -> u64 {
    clock_ns(0)
}

/// CLOCK_MONOTONIC in nanoseconds.
pub fn monotonic_ns() -> u64 {
    clock_ns(1)
}

/// CPU time of the calling thread in nanoseconds.
pub fn thread_cpu_ns() -> u64 {
    clock_ns(3)
}

/// CPU time of the process in nanoseconds.
pub fn process_cpu_ns() -> u64 {
    clock_ns(2)
}
