//! One request to a recorder.

use super::address::Address;
use crate::error::Error;
use crate::pending::reason;
use http_body_util::{BodyExt, Empty, Limited};
use hyper::body::Bytes;
use hyper::client::conn::http1;
use hyper::{Request, Response, header};
use hyper_util::rt::TokioIo;
use std::io;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, UnixStream};
use tokio::time::timeout;

/// How long a connection may take.
const CONNECT: Duration = Duration::from_secs(5);
/// How long an answer may take beyond what it measures.
const ANSWER: Duration = Duration::from_secs(60);
/// Largest answer.
const MOST_BYTES: usize = 1 << 30;

/// Why there is no body.
#[derive(Debug)]
pub(crate) enum Failure {
    /// The recorder answered that it will not.
    Refused(Error),
    /// Nobody answered.
    Unanswered(Error),
}

impl From<Failure> for Error {
    fn from(failure: Failure) -> Self {
        match failure {
            Failure::Refused(error) | Failure::Unanswered(error) => error,
        }
    }
}

/// What the recorder answers to a GET of `path`; `measures` is how long it measures before it answers.
pub(crate) fn get(address: &Address, path: &str, measures: Duration) -> Result<Bytes, Failure> {
    let failed =
        |e: io::Error| Failure::Unanswered(Error::failure(format!("cannot wait for an answer: {}", reason(&e))));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(failed)?;
    runtime.block_on(async {
        let refused = |e: &io::Error| Failure::Unanswered(cannot_connect(address, e));
        match address {
            Address::Unix(socket) => {
                let stream = within(CONNECT, UnixStream::connect(socket)).await.map_err(|e| refused(&e))?;
                exchange(address, stream, path, measures).await
            }
            Address::Tcp(host) => {
                let stream = within(CONNECT, TcpStream::connect(host)).await.map_err(|e| refused(&e))?;
                exchange(address, stream, path, measures).await
            }
        }
    })
}

async fn within<T>(most: Duration, work: impl Future<Output = io::Result<T>>) -> io::Result<T> {
    timeout(most, work).await.unwrap_or_else(|_| Err(io::Error::new(io::ErrorKind::TimedOut, "no answer in time")))
}

fn cannot_connect(address: &Address, error: &io::Error) -> Error {
    let remedy = match error.kind() {
        io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused => {
            "does the target run, with PROFILE_RECORDER_SERVER_URL? 'profrec list' shows those that do"
        }
        io::ErrorKind::PermissionDenied => "a socket answers its owner and root alone; run as that user",
        _ => "is the address right?",
    };
    Error::failure(format!("cannot connect to {address}: {}; {remedy}", reason(error)))
}

async fn exchange<S>(address: &Address, stream: S, path: &str, measures: Duration) -> Result<Bytes, Failure>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let failed = |e: &dyn std::error::Error| {
        Failure::Unanswered(Error::failure(format!("no answer from {address}: {e}; did the target end?")))
    };
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await.map_err(|e| failed(&e))?;
    let connection = tokio::spawn(connection);
    let host = match address {
        Address::Unix(_) => "localhost",
        Address::Tcp(host) => host,
    };
    let mut request = Request::get(path).header(header::HOST, host);
    if let Some(token) = token().map_err(Failure::Refused)? {
        request = request.header(header::AUTHORIZATION, format!("Bearer {token}"));
    }
    let request = request.body(Empty::<Bytes>::new()).map_err(|e| failed(&e))?;
    let answer = async {
        let response: Response<_> = sender.send_request(request).await.map_err(|e| failed(&e))?;
        let status = response.status();
        let body = Limited::new(response.into_body(), MOST_BYTES).collect().await.map_err(|e| failed(&*e))?.to_bytes();
        if status.is_success() {
            return Ok(body);
        }
        let text = String::from_utf8_lossy(&body);
        let line = text.lines().map(str::trim).find(|line| !line.is_empty()).unwrap_or("no reason given");
        Err(Failure::Refused(Error::failure(format!("{address} answers {status}: {line}"))))
    };
    let answered = timeout(measures + ANSWER, answer).await;
    connection.abort();
    answered.unwrap_or_else(|_| {
        let late = format!("no answer from {address} in time; is the target stopped?");
        Err(Failure::Unanswered(Error::failure(late)))
    })
}

/// The token that the environment holds, as for the server.
fn token() -> Result<Option<String>, Error> {
    if let Some(token) = std::env::var_os("PROFILE_RECORDER_TOKEN").filter(|token| !token.is_empty()) {
        return Ok(Some(token.to_string_lossy().trim().to_owned()));
    }
    let Some(path) = std::env::var_os("PROFILE_RECORDER_TOKEN_FILE").filter(|path| !path.is_empty()) else {
        return Ok(None);
    };
    let path = std::path::PathBuf::from(path);
    let text = std::fs::read_to_string(&path)
        .map_err(|e| Error::failure(format!("cannot read the token in '{}': {}", path.display(), reason(&e))))?;
    Ok(Some(text.trim().to_owned()))
}
