//! One request to a recorder.

use super::address::Address;
use crate::{Error, reason};
use http_body_util::{BodyExt, Empty, Limited};
use hyper::body::{Bytes, Incoming};
use hyper::client::conn::http1;
use hyper::{Method, Request, Response, header};
use hyper_util::rt::TokioIo;
use std::io;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, UnixStream};
use tokio::task::AbortHandle;
use tokio::time::{sleep, timeout};

/// How long a connection may take.
const CONNECT: Duration = Duration::from_secs(5);
/// How long an answer may take beyond what it measures.
const ANSWER: Duration = Duration::from_secs(60);
/// Pause before a recorder is told again what it did not understand, or a flag is looked at again.
const AGAIN: Duration = Duration::from_millis(50);
/// Largest answer that [`get`] takes.
const MOST_BYTES: usize = 1 << 30;
/// Largest text of a refusal.
const MOST_TEXT: usize = 64 << 10;

/// Why there is no body.
#[derive(Debug)]
pub enum Failure {
    /// The recorder answered that it will not.
    Refused {
        /// What it said.
        error: Error,
        /// When it may be asked again, if it said so.
        retry_after: Option<Duration>,
    },
    /// Nobody answered.
    Unanswered(Error),
}

impl From<Failure> for Error {
    fn from(failure: Failure) -> Self {
        match failure {
            Failure::Refused { error, .. } | Failure::Unanswered(error) => error,
        }
    }
}

/// What is asked, and of whom.
#[derive(Clone, Copy, Debug)]
pub struct Question<'a> {
    /// Where the recorder listens.
    pub address: &'a Address,
    /// Path and query of the request.
    pub path: &'a str,
    /// The token that it wants, if it wants one.
    pub token: Option<&'a str>,
    /// How long it measures before it answers.
    pub measures: Duration,
}

/// An answer whose body was not read yet: the recorder waits with it.
#[derive(Debug)]
pub struct Answer {
    address: Address,
    response: Response<Incoming>,
    connection: Connection,
}

/// Ends when nobody is interested any more, and with it the recorder's work for us.
#[derive(Debug)]
struct Connection(AbortHandle);

impl Drop for Connection {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl Answer {
    /// The body, of at most so many bytes.
    ///
    /// # Errors
    /// If it is larger, or the recorder goes away meanwhile, or sends nothing for a minute.
    pub async fn body(self, most_bytes: usize) -> Result<Bytes, Failure> {
        let Self { address, response, connection } = self;
        let body = timeout(ANSWER, Limited::new(response.into_body(), most_bytes).collect()).await;
        drop(connection);
        let failed =
            |why: String| Failure::Unanswered(Error::failure(format!("no whole answer from {address}: {why}")));
        match body {
            Ok(Ok(body)) => Ok(body.to_bytes()),
            Ok(Err(e)) if e.is::<http_body_util::LengthLimitError>() => {
                Err(failed(format!("it has more than {most_bytes} bytes")))
            }
            Ok(Err(e)) => Err(failed(format!("{e}; did the target end?"))),
            Err(_) => Err(failed("it stopped sending".to_owned())),
        }
    }
}

impl Question<'_> {
    /// Asks, and waits until the answer begins.
    ///
    /// # Errors
    /// If nobody answers in time, or the answer is a refusal.
    pub async fn ask(&self) -> Result<Answer, Failure> {
        self.send(Method::GET, self.path).await
    }

    /// The same; once `end` completes, the recorder is told to answer with what it has. One that does not know that request measures on.
    ///
    /// # Errors
    /// As those of [`ask`](Self::ask).
    pub async fn ask_until(&self, end: impl Future<Output = ()>) -> Result<Answer, Failure> {
        if self.measures.is_zero() {
            // It is answered at once anyway.
            return self.ask().await;
        }
        let session = format!("session={:032x}", fastrand::u128(..));
        let mark = if self.path.contains('?') { '&' } else { '?' };
        let path = format!("{}{mark}{session}", self.path);
        let mut answer = pin!(self.send(Method::GET, &path));
        tokio::select! {
            answer = &mut answer => return answer,
            () = end => {}
        }
        let finish = format!("/debug/pprof/finish?{session}");
        let told = async {
            // It may not have read the question yet.
            while let Err(Failure::Refused { .. }) = self.send(Method::POST, &finish).await {
                sleep(AGAIN).await;
            }
        };
        tokio::select! {
            answer = &mut answer => answer,
            () = told => answer.await,
        }
    }

    async fn send(&self, method: Method, path: &str) -> Result<Answer, Failure> {
        let address = self.address;
        let refused = |e: &io::Error| Failure::Unanswered(cannot_connect(address, e));
        match address {
            Address::Unix(socket) => {
                let stream = within(CONNECT, UnixStream::connect(socket)).await.map_err(|e| refused(&e))?;
                self.exchange(stream, method, path).await
            }
            Address::Tcp(host) => {
                let stream = within(CONNECT, TcpStream::connect(host)).await.map_err(|e| refused(&e))?;
                self.exchange(stream, method, path).await
            }
        }
    }

    async fn exchange<S>(&self, stream: S, method: Method, path: &str) -> Result<Answer, Failure>
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let address = self.address;
        let failed = |e: &dyn std::error::Error| {
            Failure::Unanswered(Error::failure(format!("no answer from {address}: {e}; did the target end?")))
        };
        let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await.map_err(|e| failed(&e))?;
        let connection = Connection(tokio::spawn(connection).abort_handle());
        let host = match address {
            Address::Unix(_) => "localhost",
            Address::Tcp(host) => host,
        };
        let mut request = Request::builder().method(method).uri(path).header(header::HOST, host);
        if let Some(token) = self.token {
            request = request.header(header::AUTHORIZATION, format!("Bearer {token}"));
        }
        let request = request.body(Empty::<Bytes>::new()).map_err(|e| failed(&e))?;
        let answered = timeout(self.measures + ANSWER, sender.send_request(request)).await;
        let response = answered.map_err(|_| {
            Failure::Unanswered(Error::failure(format!("no answer from {address} in time; is the target stopped?")))
        })?;
        let response = response.map_err(|e| failed(&e))?;
        let status = response.status();
        let seconds = response.headers().get(header::RETRY_AFTER).and_then(|value| value.to_str().ok()?.parse().ok());
        let answer = Answer { address: address.clone(), response, connection };
        if status.is_success() {
            return Ok(answer);
        }
        let body = answer.body(MOST_TEXT).await.unwrap_or_default();
        let text = String::from_utf8_lossy(&body);
        let line = text.lines().map(str::trim).find(|line| !line.is_empty()).unwrap_or("no reason given");
        let error = Error::failure(format!("{address} answers {status}: {line}"));
        Err(Failure::Refused { error, retry_after: seconds.map(Duration::from_secs) })
    }
}

/// What the recorder answers to a GET of `path`, with the environment's token; `measures` is how long it measures before it answers. Once `end` is true, it is told to answer with what it has.
///
/// # Errors
/// If nobody answers in time, or the answer is a refusal.
pub fn get(address: &Address, path: &str, measures: Duration, end: Option<&AtomicBool>) -> Result<Bytes, Failure> {
    let refused = |error| Failure::Refused { error, retry_after: None };
    let token = environment_token().map_err(refused)?;
    let failed =
        |e: io::Error| Failure::Unanswered(Error::failure(format!("cannot wait for an answer: {}", reason(&e))));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(failed)?;
    let question = Question { address, path, token: token.as_deref(), measures };
    runtime.block_on(async {
        let Some(end) = end else { return question.ask().await?.body(MOST_BYTES).await };
        let ended = async {
            while !end.load(Ordering::Relaxed) {
                sleep(AGAIN).await;
            }
        };
        question.ask_until(ended).await?.body(MOST_BYTES).await
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

/// The token that the environment holds, as for the server.
///
/// # Errors
/// If the file that it names cannot be read.
pub fn environment_token() -> Result<Option<String>, Error> {
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
