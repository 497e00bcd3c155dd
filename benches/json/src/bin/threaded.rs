//! With the C library's allocator and a second thread, which only waits: from then on that allocator takes its locks.

fn main() {
    std::thread::spawn(|| {
        loop {
            std::thread::park();
        }
    });
    peers_json::work();
}
