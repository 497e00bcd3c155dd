//! The recorder in front of jemalloc.

use profile_recorder::RecordingAllocator;
use tikv_jemallocator::Jemalloc;

mod body;
mod books;

#[global_allocator]
static ALLOC: books::Books<Jemalloc> = books::Books::new(RecordingAllocator::new(Jemalloc));

fn main() {
    body::main(&ALLOC);
}
