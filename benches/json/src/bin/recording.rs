//! With the recorder compiled in. The environment says what it does: `RECORDING` is `off` (no server), `sampled`, `allocs` or `heap`, and `RECORDING_SOCKET` where the server listens.

use profile_recorder::{RecordingAllocator, Server};
use std::num::NonZeroU64;

#[global_allocator]
static ALLOC: RecordingAllocator = RecordingAllocator::system();

fn main() {
    let recording = std::env::var("RECORDING").expect("what to record");
    let server = (recording != "off").then(|| {
        let socket = std::env::var("RECORDING_SOCKET").expect("where to listen");
        let interval = if recording == "sampled" { 512 << 10 } else { 1 };
        Server::bind(&format!("unix://{socket}")).alloc_interval(NonZeroU64::new(interval)).start().expect("a server")
    });
    if recording == "allocs" {
        // Frees are followed by every server. Not so in this comparison.
        alloc_hook::record::follow_frees(false);
    }
    peers_json::work();
    drop(server);
}
