//! A plugin whose allocator is the recorder: what a program in another language opens, uses on its threads and closes.
//!
//! # Safety
//! The functions take and give numbers; no other function of the program has their names.
#![allow(unsafe_code)]

use profile_recorder::{Recorder, RecordingAllocator};
use std::hint::black_box;
use std::time::{Duration, Instant};

#[global_allocator]
static ALLOC: RecordingAllocator = RecordingAllocator::system();

/// Allocates on the calling thread, which the recorder knows from then on.
#[unsafe(no_mangle)]
pub extern "C" fn plugin_works() -> usize {
    (0..100).map(|size| black_box(vec![0_u8; size]).len()).sum()
}

/// Records the calling thread's time while it works. Whether that was possible.
#[unsafe(no_mangle)]
pub extern "C" fn plugin_records() -> bool {
    let Ok(session) = Recorder::cpu().hz(997).start() else { return false };
    let end = Instant::now() + Duration::from_millis(100);
    while Instant::now() < end {
        plugin_works();
    }
    session.stop().is_ok()
}
