//! What a client may send to the recorder's server: a byte for its rules of access, then one connection.
//!
//! The connection ends when its client has said everything. What came back are whole answers, each with a status that the server may give; without the token there is none but a refusal; no answer is
//! shared with other origins, and no header is one that the server does not know. Memory is bounded. (A panic of a recording's thread ends the process too.)

use crate::allocated::at_most;
use crate::input::Input;
use profile_recorder::fuzzed::{Rules, TOKEN, serve};
use std::cell::LazyCell;
use tokio::io::{AsyncReadExt, AsyncWriteExt, duplex};
use tokio::runtime::{Builder, Runtime};
use tokio::task::LocalSet;

/// What one connection may make the server allocate at any time, beside what it says in return: bodies of a mebibyte, the names of an address space.
const MEMORY: usize = 64 << 20;
/// The statuses of all that the server says.
const STATUSES: [u16; 15] = [200, 201, 307, 400, 401, 403, 404, 405, 408, 409, 413, 414, 429, 431, 503];

thread_local! {
    static RUNTIME: LazyCell<Runtime> =
        LazyCell::new(|| Builder::new_current_thread().enable_time().build().expect("a runtime"));
}

/// One connection.
pub fn connection(data: &[u8]) {
    let mut input = Input::new(data);
    let rules = [Rules::Everybody, Rules::Local, Rules::Token][usize::from(input.u8()) % 3];
    let sent = input.rest();
    let answered =
        RUNTIME.with(|runtime| at_most(MEMORY, || runtime.block_on(LocalSet::new().run_until(exchange(sent, rules)))));
    let mut rest = &answered[..];
    while !rest.is_empty() {
        rest = check(rest, sent, rules);
    }
}

/// What comes back for these bytes.
async fn exchange(sent: &[u8], rules: Rules) -> Vec<u8> {
    let (client, server) = duplex(1 << 16);
    let (mut from, mut to) = tokio::io::split(client);
    let served = tokio::task::spawn_local(serve(server, rules));
    let mut answered = Vec::new();
    let write = async {
        // A server that has heard enough closes.
        let _ = to.write_all(sent).await;
        let _ = to.shutdown().await;
    };
    let (read, ()) = tokio::join!(from.read_to_end(&mut answered), write);
    read.expect("memory can be read");
    served.await.expect("a connection ends");
    answered
}

/// Checks the first of the answers; those that follow.
fn check<'a>(answers: &'a [u8], sent: &[u8], rules: Rules) -> &'a [u8] {
    let end = answers.windows(4).position(|bytes| bytes == b"\r\n\r\n").expect("a whole head");
    let head = std::str::from_utf8(&answers[..end]).expect("heads are ASCII");
    let mut lines = head.split("\r\n");
    let status: u16 =
        lines.next().and_then(|line| line.strip_prefix("HTTP/1.")?.get(2..5)?.parse().ok()).expect("a status");
    assert!(STATUSES.contains(&status), "{status}");
    let knows = sent.windows(TOKEN.len()).any(|bytes| bytes == TOKEN.as_bytes());
    assert!(rules != Rules::Token || knows || matches!(status, 400 | 401 | 414 | 431), "{status} without the token");
    let headers: Vec<(&str, &str)> = lines.map(|line| line.split_once(": ").expect("a header")).collect();
    let header =
        |wanted: &str| headers.iter().find(|(name, _)| name.eq_ignore_ascii_case(wanted)).map(|(_, value)| *value);
    const KNOWN: [&str; 17] = [
        "allow",
        "cache-control",
        "connection",
        "content-disposition",
        "content-length",
        "content-security-policy",
        "content-type",
        "cross-origin-opener-policy",
        "date",
        "location",
        "referrer-policy",
        "retry-after",
        "transfer-encoding",
        "www-authenticate",
        "x-content-type-options",
        "x-frame-options",
        "x-go-pprof",
    ];
    for (name, _) in &headers {
        assert!(KNOWN.contains(&name.to_ascii_lowercase().as_str()), "{name}");
    }
    assert!(header("transfer-encoding").is_none(), "answers are in memory");
    let body = &answers[end + 4..];
    // What the parser refuses is answered without a body, and the connection ends.
    let Some(length) = header("content-length") else { return &[] };
    let length: usize = length.parse().expect("a length");
    assert!(length == 0 || header("content-type").is_none() || header("x-content-type-options") == Some("nosniff"));
    // An answer to HEAD has a length and no body: another answer or nothing follows.
    if body.is_empty() || body.starts_with(b"HTTP/1.") {
        return body;
    }
    body.get(length..).expect("a whole body")
}
