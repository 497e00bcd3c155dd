//! Eight threads that allocate, reallocate and free, and hand blocks to each other.

use std::sync::mpsc;

fn main() {
    let (sender, receiver) = mpsc::channel::<Vec<u8>>();
    let threads: Vec<_> = (0..8_usize)
        .map(|t| {
            let sender = sender.clone();
            std::thread::Builder::new()
                .name(format!("worker-{t}"))
                .spawn(move || {
                    for i in 0..2_000_usize {
                        let mut block = vec![t as u8; 16 + i % 700];
                        block.reserve_exact(1000 + i);
                        let _ = sender.send(block);
                    }
                })
                .expect("a thread")
        })
        .collect();
    drop(sender);
    let bytes: usize = receiver.iter().map(|block| block.len()).sum();
    threads.into_iter().for_each(|t| t.join().expect("no panic"));
    println!("{bytes}");
}
