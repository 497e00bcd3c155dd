//! With the C library's allocator.

fn main() {
    peers_json::work();
}
