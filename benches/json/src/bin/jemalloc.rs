//! With jemalloc compiled in, its profiler included; `_RJEM_MALLOC_CONF` says whether that works.

#[global_allocator]
static ALLOC: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

fn main() {
    peers_json::work();
}
