//! The loopback server: who may ask, and for how long.

use super::answers::{self, Answer};
use super::files::Files;
use crate::error::Error;
use hyper::header::HOST;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use rustix::rand::{GetRandomFlags, getrandom};
use std::convert::Infallible;
use std::hint::black_box;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::sync::Semaphore;

/// Connections that are served at a time; a browser makes six.
const MOST_CONNECTIONS: usize = 32;
/// Within this time a request's head must have arrived.
const HEAD_TIMEOUT: Duration = Duration::from_secs(30);

/// A part of the address that nobody can guess.
pub(super) fn secret() -> Result<String, Error> {
    let mut bytes = [0_u8; 16];
    let given = getrandom(&mut bytes, GetRandomFlags::empty());
    if !given.is_ok_and(|length| length == bytes.len()) {
        return Err(Error::failure("the kernel gives no random numbers for the address; is /dev/urandom there?"));
    }
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}

/// Answers for ever.
pub(super) async fn serve(listener: TcpListener, secret: String, files: Arc<Files>) {
    let (secret, places) = (Arc::new(secret), Arc::new(Semaphore::new(MOST_CONNECTIONS)));
    loop {
        let Ok(place) = Arc::clone(&places).acquire_owned().await else { return };
        let Ok((stream, _)) = listener.accept().await else {
            // Without descriptors it would fail again at once.
            tokio::time::sleep(Duration::from_millis(100)).await;
            continue;
        };
        let (secret, files) = (Arc::clone(&secret), Arc::clone(&files));
        tokio::spawn(async move {
            let answer = service_fn(move |request| answer(request, Arc::clone(&secret), Arc::clone(&files)));
            let connection = http1::Builder::new()
                .timer(TokioTimer::new())
                .header_read_timeout(HEAD_TIMEOUT)
                .serve_connection(TokioIo::new(stream), answer);
            // A browser that hangs up is nobody's failure.
            let _ = connection.await;
            drop(place);
        });
    }
}

async fn answer<B>(request: Request<B>, secret: Arc<String>, files: Arc<Files>) -> Result<Answer, Infallible>
where
    B: hyper::body::Body + Send + 'static,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    let path = request.uri().path().to_owned();
    let inside = path.strip_prefix('/').and_then(|rest| rest.split_once('/'));
    Ok(match inside {
        Some((given, rest)) if same(given, &secret) && is_here(&request) => answers::answer(request, rest, files).await,
        _ => answers::text(StatusCode::NOT_FOUND, "not found: the whole address that 'profrec view' printed is needed"),
    })
}

/// In a time that depends on the length of what was given alone.
fn same(given: &str, secret: &str) -> bool {
    let mut difference = u8::from(given.len() != secret.len());
    for (a, b) in given.bytes().zip(secret.bytes().cycle()) {
        difference = black_box(difference | (a ^ b));
    }
    black_box(difference) == 0
}

/// A name of somebody else's that leads here is how a page of theirs would ask.
fn is_here<B>(request: &Request<B>) -> bool {
    let host = request.headers().get(HOST).and_then(|host| host.to_str().ok()).unwrap_or_default();
    // Through a tunnel the port is another.
    let name = host.rsplit_once(':').map_or(host, |(name, _)| name);
    matches!(name, "127.0.0.1" | "localhost" | "[::1]")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_whole_secret_is_the_secret() {
        let secret = secret().unwrap();
        assert_eq!(secret.len(), 32);
        assert!(same(&secret, &secret));
        for given in ["", &secret[..31], &format!("{secret}0"), &format!("{secret}{secret}"), &"0".repeat(32)] {
            assert!(!same(given, &secret), "{given}");
        }
    }

    #[test]
    fn names_of_others_are_not_answered() {
        for (host, answered) in
            [("127.0.0.1:80", true), ("localhost", true), ("evil.example:80", false), ("localhost.evil.example", false)]
        {
            let request = Request::builder().header(HOST, host).body(()).unwrap();
            assert_eq!(is_here(&request), answered, "{host}");
        }
        assert!(!is_here(&Request::new(())));
    }
}
