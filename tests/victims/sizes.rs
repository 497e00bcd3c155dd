//! Four threads that allocate and free at full speed, each function one size, until standard input ends.

use profile_recorder::{RecordingAllocator, Server};
use std::hint::black_box;
use std::io::Read as _;
use std::sync::atomic::{AtomicBool, Ordering};

#[global_allocator]
static ALLOC: RecordingAllocator = RecordingAllocator::system();

macro_rules! sites {
    ($($name:ident $size:literal)*) => {
        $(
            #[inline(never)]
            fn $name() -> Box<[u8]> {
                black_box(vec![0_u8; $size].into_boxed_slice())
            }
        )*
        const SITES: &[fn() -> Box<[u8]>] = &[$($name),*];
    };
}

// The number in a name is the size that a reader of the profile expects.
sites! { size_16 16 size_24 24 size_56 56 size_100 100 size_333 333 size_1024 1024 size_4000 4000 size_70001 70001 }

fn main() {
    let _server = Server::from_env().start().expect("the server starts");
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for seed in 0..4_usize {
            let stop = &stop;
            scope.spawn(move || {
                let mut kept: [Option<Box<[u8]>>; 16] = Default::default();
                let mut at = seed;
                while !stop.load(Ordering::Relaxed) {
                    at = at.wrapping_mul(1_103_515_245).wrapping_add(12_345);
                    let slot = &mut kept[at >> 9 & 15];
                    *slot = if at >> 20 & 3 == 0 { None } else { Some(SITES[at >> 13 & 7]()) };
                }
            });
        }
        println!("ready");
        let _ = std::io::stdin().read(&mut [0]);
        stop.store(true, Ordering::Relaxed);
    });
}
