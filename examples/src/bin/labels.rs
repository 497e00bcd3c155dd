//! A worker that labels what it does, and tests of its own that count what it allocates.
//!
//! ```sh
//! PROFILE_RECORDER_SERVER_URL_PATTERN='unix:///tmp/labels-{PID}.sock' PROFILE_RECORDER_ALLOC_INTERVAL=1 \
//!     cargo run --release -p profile-recorder-examples --bin labels &
//! sleep 1
//! curl --unix-socket /tmp/labels-*.sock -o cpu.pb.gz 'http://localhost/debug/pprof/profile?seconds=5'
//! go tool pprof -tags cpu.pb.gz                             # how much CPU time each route and tenant took
//! go tool pprof -top -tagfocus route=/invoices cpu.pb.gz    # what one of them spent it on
//! curl --unix-socket /tmp/labels-*.sock -o allocs.pb.gz http://localhost/debug/pprof/allocs
//! go tool pprof -tags allocs.pb.gz
//! ```
//!
//! `cargo test -p profile-recorder-examples --bin labels` runs the tests below.

use profile_recorder::labels;
use std::fmt::Write;

#[global_allocator]
static ALLOC: profile_recorder::RecordingAllocator = profile_recorder::RecordingAllocator::system();

/// Something to do for somebody.
struct Request {
    route: &'static str,
    tenant: u32,
    lines: u32,
}

fn main() {
    let _server = profile_recorder::Server::from_env().start_or_warn(); // off unless the environment asks for it

    let workers: Vec<_> = (0..2).map(|_| std::thread::spawn(work)).collect();
    eprintln!("working until it is interrupted (pid {})", std::process::id());
    workers.into_iter().for_each(|worker| drop(worker.join()));
}

fn work() {
    for number in 0.. {
        let route = if number % 4 == 0 { "/orders" } else { "/invoices" };
        answer(&Request { route, tenant: number % 3, lines: 200 });
    }
}

/// Everything below this, on this thread, carries both labels.
fn answer(request: &Request) -> usize {
    let _route = labels::enter("route", request.route);
    labels::with("tenant", request.tenant, || {
        let mut page = String::new();
        render(request, &mut page);
        page.len()
    })
}

/// Writes the page into a buffer that the caller may use again.
fn render(request: &Request, page: &mut String) {
    page.clear();
    for line in 0..request.lines {
        // Writing to a string cannot fail.
        let _ = writeln!(page, "{} {line} of tenant {}", request.route, request.tenant);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use profile_recorder::alloc::{assert_max, measure};

    const REQUEST: Request = Request { route: "/orders", tenant: 1, lines: 200 };

    #[test]
    fn a_page_that_was_rendered_before_takes_no_memory() {
        let mut page = String::new();
        let ((), first) = measure(|| render(&REQUEST, &mut page));
        assert!(first.bytes() >= page.len() as u64, "{first}");
        assert_max!(0, { render(&REQUEST, &mut page) });
    }

    #[test]
    fn labels_take_no_memory_of_the_program() {
        answer(&REQUEST);
        let ((), rendering) = measure(|| render(&REQUEST, &mut String::new()));
        assert_max!(rendering.allocs(), bytes = rendering.bytes(), { answer(&REQUEST) });
    }
}
