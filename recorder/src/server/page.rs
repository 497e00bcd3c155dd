//! The flame graph page at `/`, and what it asks for.
//!
//! It records through the same endpoints as everybody else, in the raw format, which keeps everything. What it got stays in the browser: to draw it,
//! or to have it in another format, the page sends it back to be converted. So nothing is kept here from one request to the next, every format is one of the same recording, and
//! any readable file can be shown and compared with.

use std::sync::Arc;

use hyper::body::Bytes;
use hyper::header::{
    ACCEPT, CONTENT_SECURITY_POLICY, HeaderName, HeaderValue, REFERRER_POLICY, WWW_AUTHENTICATE, X_FRAME_OPTIONS,
};
use hyper::{Method, Request, StatusCode};
use profile::decode::{self, Limits};
use profile::encode::html;
use profile::{Format, Options};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::answer::{self, Answer};
use super::order;
use super::problem::Problem;
use super::query::Query;
use super::recording;
use profile::Mode;

/// Largest profile that is sent to be converted.
pub(super) const MAX_BODY: usize = 16 * 1024 * 1024;
/// What it may unpack to.
const LIMITS: Limits = Limits { bytes: 96 * 1024 * 1024 };

const CROSS_ORIGIN_OPENER_POLICY: HeaderName = HeaderName::from_static("cross-origin-opener-policy");

/// The page, with commands for those who ask from a terminal.
pub(super) fn start(help: &str) -> Answer {
    let mut answer = answer::html(html::page(html::Host::Recorder, help));
    let headers = answer.headers_mut();
    headers.insert(CONTENT_SECURITY_POLICY, HeaderValue::from_static(html::CONTENT_SECURITY_POLICY));
    headers.insert(REFERRER_POLICY, HeaderValue::from_static("no-referrer"));
    headers.insert(X_FRAME_OPTIONS, HeaderValue::from_static("DENY"));
    headers.insert(CROSS_ORIGIN_OPENER_POLICY, HeaderValue::from_static("same-origin"));
    answer
}

/// Whether a browser asks for the page itself.
pub(super) fn is_asked_for<B>(request: &Request<B>) -> bool {
    let accepts = request.headers().get(ACCEPT).and_then(|accept| accept.to_str().ok());
    request.method() == Method::GET
        && request.uri().path() == "/"
        && accepts.is_some_and(|accept| accept.contains("text/html"))
}

/// A refusal whose text is the page: it asks for the token and sends it with its own requests.
pub(super) fn asking_for_token() -> Answer {
    let mut answer = start("");
    *answer.status_mut() = StatusCode::UNAUTHORIZED;
    answer.headers_mut().insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
    answer
}

/// What the page can offer.
pub(super) fn info(modes: &[Mode]) -> String {
    let exe = std::env::current_exe().ok();
    let name = exe.as_deref().and_then(|path| path.file_name()).unwrap_or_default().to_string_lossy().into_owned();
    let formats = Format::ALL.map(|format| serde_json::json!({"name": format.name(), "extension": format.extension()}));
    let modes: Vec<&str> = modes.iter().map(|mode| mode.name()).collect();
    serde_json::json!({"process": format!("{name} (pid {})", std::process::id()), "modes": modes, "formats": formats})
        .to_string()
}

/// Lets conversions happen one after another.
pub(super) struct Converter(Arc<Semaphore>);

/// The right to convert; over when dropped. There always is one: nobody closes the semaphore.
pub(super) type Turn = Option<OwnedSemaphorePermit>;

impl Converter {
    pub(super) fn new() -> Self {
        Self(Arc::new(Semaphore::new(1)))
    }

    /// Waits until nobody else converts.
    pub(super) async fn turn(&self) -> Turn {
        Arc::clone(&self.0).acquire_owned().await.ok()
    }
}

/// What a profile shall become.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Wanted {
    /// `None`: what the page draws.
    format: Option<Format>,
    title: Option<String>,
}

impl Wanted {
    /// `format=svg&title=app`; the format `page` is the page's own.
    pub(super) fn of(query: &str) -> Result<Self, Problem> {
        let query = Query::parse(query)?;
        let format = query.read_or("format", |name, value| match value {
            "page" => Ok(None),
            _ => order::format(name, value).map(Some),
        })?;
        Ok(Self { format: format.flatten(), title: query.value("title")?.map(str::to_owned) })
    }
}

/// The profile in the wanted format; it has the names that it came with.
pub(super) async fn convert(bytes: Bytes, wanted: Wanted, turn: Turn) -> Result<Answer, Problem> {
    let work = move || {
        let converted = converted(&bytes, wanted);
        // Not before the work is done, whether its client waits or not.
        drop(turn);
        converted
    };
    let answer = recording::on_own_thread("profrec-convert", work)?;
    answer.await.unwrap_or(Err(Problem::Failed("failed to convert the profile")))
}

fn converted(bytes: &[u8], wanted: Wanted) -> Result<Answer, Problem> {
    if bytes.is_empty() {
        return Err(Problem::BadRequest("there is no profile in the request's body".to_owned()));
    }
    let (profile, symbols) = decode::read(bytes, LIMITS)
        .map_err(|error| Problem::BadRequest(format!("cannot read this profile: {error}")))?;
    let options = Options { title: wanted.title, ..Options::default() };
    let mut encoded = Vec::new();
    let (result, content_type) = match wanted.format {
        Some(format) => (format.encode(&profile, &symbols, &options, &mut encoded), format.content_type()),
        None => (html::data(&profile, &symbols, &options, &mut encoded), "application/json"),
    };
    result.map_err(|_| Problem::Failed("failed to encode the profile"))?;
    Ok(answer::attachment(content_type, "profile", encoded))
}
