//! Pages and texts for people.

use profile::store::Counts;

use super::{sample, stats};
use profile::Mode;

const STYLE: &str = "<style>\
:root{color-scheme:light dark}\
body{font:15px/1.5 system-ui,sans-serif;max-width:46rem;margin:2rem auto;padding:0 1rem}\
h1{font-size:1.4rem}td{padding:.15rem 1.2rem .15rem 0;vertical-align:top}\
pre{padding:.7rem;overflow:auto;border:1px solid #8888;border-radius:4px}\
</style>";

/// What can be asked, and what it gives.
const LINKS: [(&str, &str); 9] = [
    ("profile?seconds=5", "CPU time, 5 seconds"),
    ("wall?seconds=5", "elapsed time of every thread, running or not, 5 seconds"),
    ("allocs", "allocations since the start, freed or not"),
    ("allocs?seconds=5", "allocations made in 5 seconds"),
    ("heap", "allocations that are live now"),
    ("heap?seconds=5", "what the live allocations changed by in 5 seconds"),
    ("threads?debug=1", "the stack of every thread, now (goroutine is the same)"),
    ("cmdline", "the name of this program"),
    ("symbol", "names of addresses, for go tool pprof"),
];

fn page(title: &str, body: &str) -> String {
    format!(
        "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><title>{title}</title>{STYLE}</head>\n\
         <body><h1>{title}</h1>\n{body}</body></html>\n"
    )
}

/// `/debug/pprof/`.
pub(super) fn index(counts: &Counts) -> String {
    let (allocations, bytes) = stats::totals(counts);
    let rows: String = LINKS
        .iter()
        .map(|(path, what)| {
            let graph = match path.split_once('?') {
                Some((mode, query)) => format!("<a href=\"{mode}?{query}&amp;format=svg\">flame graph</a>"),
                None if matches!(*path, "allocs" | "heap") => format!("<a href=\"{path}?format=svg\">flame graph</a>"),
                None => String::new(),
            };
            format!("<tr><td><a href=\"{path}\">{path}</a></td><td>{graph}</td><td>{what}</td></tr>\n")
        })
        .collect();
    page(
        "/debug/pprof/",
        &format!(
            "<p>Process {}: {allocations} allocations, {bytes} bytes asked (<a href=\"/alloc/stats\">by function</a>).</p>\n\
             <table>\n{rows}</table>\n\
             <p>Parameters: <code>seconds</code>, <code>hz</code>, <code>mode</code> ({}), \
             <code>format</code> ({}), <code>interval</code> (bytes), <code>thread</code> (name, * and ? match), \
             <code>symbols</code> (full, names, none), <code>debug</code> (1, 2: text).</p>\n\
             <p><a href=\"/\">Flame graphs</a>, <a href=\"/metrics\">counters of the recorder</a>.</p>\n",
            std::process::id(),
            Mode::ALL.map(Mode::name).join(", "),
            profile::Format::ALL.map(profile::Format::name).join(", "),
        ),
    )
}

/// How to ask this server.
pub(super) fn help(url: &str) -> String {
    let (curl, base) = match url.strip_prefix("unix://") {
        Some(path) => (format!("curl --unix-socket '{path}'"), "http://localhost"),
        None => ("curl".to_owned(), url),
    };
    let pprof =
        if base == url { format!("go tool pprof '{url}/debug/pprof/profile?seconds=5'\n") } else { String::new() };
    format!(
        "Welcome to Profile Recorder. Ask for example:\n\n\
         {curl} -X POST -d '{}' {base}/sample\n\
         {curl} -o cpu.pb.gz '{base}/debug/pprof/profile?seconds=5'\n\
         {curl} -o heap.svg '{base}/debug/pprof/heap?format=svg'\n\
         {curl} {base}/alloc/stats\n\
         {pprof}",
        sample::EXAMPLE,
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_help_shows_commands_for_this_address() {
        let unix = help("unix:///tmp/a.sock");
        assert!(unix.contains("curl --unix-socket '/tmp/a.sock' -X POST -d '{\"numberOfSamples\":100"), "{unix}");
        assert!(unix.contains("http://localhost/sample") && !unix.contains("go tool"), "{unix}");
        let tcp = help("http://127.0.0.1:7000");
        assert!(tcp.contains("go tool pprof 'http://127.0.0.1:7000/debug/pprof/profile"), "{tcp}");
    }
}
