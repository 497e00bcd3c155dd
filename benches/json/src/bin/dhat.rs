//! With the crate dhat.

#[global_allocator]
static ALLOC: dhat::Alloc = dhat::Alloc;

fn main() {
    let file = std::env::var("DHAT_FILE").expect("where to write");
    let _profiler = dhat::Profiler::builder().file_name(file).build();
    peers_json::work();
}
