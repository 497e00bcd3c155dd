//! The recorder in front of mimalloc.

use mimalloc::MiMalloc;
use profile_recorder::RecordingAllocator;

mod body;
mod books;

#[global_allocator]
static ALLOC: books::Books<MiMalloc> = books::Books::new(RecordingAllocator::new(MiMalloc));

fn main() {
    body::main(&ALLOC);
}
