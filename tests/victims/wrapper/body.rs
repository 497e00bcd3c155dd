//! What a program does with its allocator, one case after the other; after each nothing allocates until the books were compared.
//!
//! # Safety
//! Blocks are written within their size and go back with the layout they were made with.

use crate::books::Reports;
use profile_recorder::Server;
use std::alloc::{Layout, alloc, alloc_zeroed, dealloc, handle_alloc_error, realloc};
use std::hint::black_box;

pub(crate) fn main(books: &'static dyn Reports) {
    std::panic::set_hook(Box::new(|_| {}));
    let _server = Server::from_env().start().expect("the server starts");
    // Without any allocation there is no profile to ask for.
    drop(black_box(Box::new(1)));
    books.report("start");
    balanced::alignments();
    books.report("alignments");
    balanced::zero_sizes(books);
    books.report("zero sizes");
    balanced::threads();
    books.report("threads");
    // In a thread of its own: what a channel keeps for a thread that waits goes with that thread.
    std::thread::spawn(balanced::handed_over).join().expect("no panic");
    books.report("handed over");
    balanced::churn();
    books.report("thread churn");
    balanced::destructors();
    books.report("thread-local destructors");
    balanced::panics();
    books.report("panics");
    balanced::refused();
    books.report("refused");
    kept_small();
    kept_aligned();
    kept_grown();
    books.report("kept");
    // Until the test closes the pipe, it can ask for a profile.
    books.report("end");
}

/// A block that was asked for directly.
struct Block(*mut u8, Layout);

// SAFETY: the block has one owner, and an allocator's blocks belong to no thread.
unsafe impl Send for Block {}

impl Block {
    fn new(size: usize, align: usize, zeroed: bool) -> Self {
        let layout = Layout::from_size_align(size, align).expect("a valid layout");
        // SAFETY: the size is not zero.
        let address = unsafe { if zeroed { alloc_zeroed(layout) } else { alloc(layout) } };
        if address.is_null() {
            handle_alloc_error(layout);
        }
        let block = Self(address, layout);
        assert!((address as usize).is_multiple_of(align), "{address:?} for {layout:?}");
        assert!(!zeroed || block.bytes().iter().all(|byte| *byte == 0), "{layout:?} is zeroed");
        block
    }

    fn bytes(&self) -> &[u8] {
        // SAFETY: the block has that many bytes, and those of one that was not zeroed are written before they are read.
        unsafe { std::slice::from_raw_parts(self.0, self.1.size()) }
    }

    fn fill(&self) {
        // SAFETY: the block has that many bytes.
        unsafe { self.0.write_bytes(0xa5, self.1.size()) };
    }

    fn resize(&mut self, size: usize) {
        let kept = size.min(self.1.size());
        // SAFETY: the block has this layout, and the new size is not zero.
        let address = unsafe { realloc(self.0, self.1, size) };
        assert!(!address.is_null());
        self.0 = address;
        self.1 = Layout::from_size_align(size, self.1.align()).expect("a valid layout");
        assert!((self.0 as usize).is_multiple_of(self.1.align()), "{:?} for {:?}", self.0, self.1);
        assert!(self.bytes()[..kept].iter().all(|byte| *byte == 0xa5), "the contents moved along");
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        // SAFETY: the block has this layout, and is given back once.
        unsafe { dealloc(self.0, self.1) };
    }
}

/// Cases that keep nothing.
mod balanced {
    use super::{Block, Reports, black_box};
    use std::cell::RefCell;
    use std::collections::{BTreeMap, HashMap};
    use std::sync::mpsc;
    use std::thread;

    pub(super) fn alignments() {
        for align in (0..=22).map(|bit| 1_usize << bit) {
            for size in [1, 7, 16, 100, 4096, 70_000] {
                for zeroed in [false, true] {
                    let mut block = Block::new(size, align, zeroed);
                    block.fill();
                    for to in [size + 1, size * 3, size / 2 + 1, 1, size] {
                        block.resize(to);
                        block.fill();
                    }
                }
            }
        }
    }

    /// A layout without bytes may not reach an allocator, and none does.
    pub(super) fn zero_sizes(books: &dyn Reports) {
        let before = books.allocations();
        black_box(Box::new(()));
        black_box(vec![(); 100]);
        black_box(Vec::<u64>::with_capacity(0));
        black_box(String::new());
        // Behind a box that the compiler does not open, or it leaves the vector out.
        let mut values = black_box(vec![1_u8]);
        values.clear();
        values.shrink_to_fit();
        black_box(values);
        assert_eq!(books.allocations() - before, 1, "the vector of one byte alone");
    }

    fn work(seed: u64) -> u64 {
        let mut random = seed;
        let mut next = move || {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            random >> 40
        };
        let (mut map, mut tree, mut list) = (HashMap::new(), BTreeMap::new(), Vec::new());
        for _ in 0..2_000 {
            let key = next() % 500;
            map.insert(key, format!("value {key}"));
            tree.entry(key % 97).or_insert_with(Vec::new).push(key);
            list.push(vec![0_u8; 1 + (next() % 3_000) as usize].into_boxed_slice());
            if list.len() > 50 {
                list.swap_remove((next() % 50) as usize);
            }
        }
        map.len() as u64 + tree.len() as u64 + list.len() as u64
    }

    pub(super) fn threads() {
        let threads: Vec<_> = (0..8).map(|seed| thread::spawn(move || work(seed))).collect();
        assert!(threads.into_iter().all(|thread| thread.join().is_ok_and(|sum| sum > 0)));
    }

    pub(super) fn handed_over() {
        let (send, receive) = mpsc::channel::<(usize, Block)>();
        let senders: Vec<_> = (0..4_usize)
            .map(|number| {
                let send = send.clone();
                thread::spawn(move || {
                    for i in 0..2_000 {
                        let block = Block::new(1 + i % 900, 1 << (i % 8), number % 2 == 0);
                        block.fill();
                        send.send((i, block)).expect("the receiver lives");
                    }
                })
            })
            .collect();
        drop(send);
        for (i, mut block) in receive {
            if i % 3 == 0 {
                block.resize(2_000);
            }
        }
        senders.into_iter().for_each(|sender| sender.join().expect("no panic"));
    }

    pub(super) fn churn() {
        for _ in 0..50 {
            let threads: Vec<_> = (0..20_usize)
                .map(|i| thread::spawn(move || (0..10).map(|n| vec![i as u8; n * 100 + i].len()).sum::<usize>()))
                .collect();
            assert!(threads.into_iter().all(|thread| thread.join().is_ok()));
        }
    }

    /// Allocates while its thread ends.
    struct Late(Vec<String>);

    impl Drop for Late {
        fn drop(&mut self) {
            self.0.extend((0..100).map(|i| format!("the thread ends {i}")));
            LATER.with_borrow_mut(|later| later.push(black_box(self.0.concat())));
        }
    }

    thread_local! {
        static LATE: RefCell<Late> = const { RefCell::new(Late(Vec::new())) };
        static LATER: RefCell<Vec<String>> = const { RefCell::new(Vec::new()) };
    }

    pub(super) fn destructors() {
        for _ in 0..50 {
            let thread = thread::spawn(|| LATE.with_borrow_mut(|late| late.0.push("it begins".to_owned())));
            thread.join().expect("no panic");
        }
    }

    pub(super) fn panics() {
        for i in 0..200 {
            let caught = std::panic::catch_unwind(|| {
                let kept = vec![i; 100];
                assert!(kept.len() != 100, "{}", format!("round {i} of {}", kept.len()));
            });
            let payload = caught.expect_err("it panics");
            assert!(payload.downcast_ref::<String>().is_some_and(|text| text.starts_with("round")));
        }
        for _ in 0..20 {
            let ended = thread::spawn(|| -> () { std::panic::panic_any(vec![7_u8; 777]) }).join();
            assert_eq!(ended.expect_err("it panics").downcast_ref::<Vec<u8>>().map(Vec::len), Some(777));
        }
    }

    /// Calls that no allocator can satisfy: counted as calls, and nothing else changes.
    pub(super) fn refused() {
        const TOO_MUCH: usize = 1 << 60;
        let mut values = vec![0xa5_u8; 100];
        assert!(values.try_reserve_exact(TOO_MUCH).is_err(), "refused to grow");
        assert!(values.iter().all(|byte| *byte == 0xa5) && values.capacity() == 100, "the old block is as it was");
        assert!(Vec::<u8>::new().try_reserve_exact(TOO_MUCH).is_err(), "refused");
    }
}

#[inline(never)]
fn kept_small() {
    for _ in 0..1_000 {
        std::mem::forget(black_box(Block::new(48, 8, false)));
    }
}

#[inline(never)]
fn kept_aligned() {
    for _ in 0..50 {
        std::mem::forget(black_box(Block::new(5_000, 4_096, true)));
    }
}

/// Each grew twice: one live block each, of the last size.
#[inline(never)]
fn kept_grown() {
    for _ in 0..300 {
        let mut block = Block::new(30, 16, false);
        block.fill();
        block.resize(600);
        block.fill();
        block.resize(20_000);
        std::mem::forget(black_box(block));
    }
}
