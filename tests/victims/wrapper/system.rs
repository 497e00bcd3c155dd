//! The recorder in front of the C library's allocator.

use profile_recorder::{RecordingAllocator, SystemAllocator};

mod body;
mod books;

#[global_allocator]
static ALLOC: books::Books<SystemAllocator> = books::Books::new(RecordingAllocator::system());

fn main() {
    body::main(&ALLOC);
}
