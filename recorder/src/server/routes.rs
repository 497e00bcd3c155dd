//! Which path answers what.

use std::sync::Arc;
use std::time::Duration;

use http_body_util::{BodyExt, Limited};
use hyper::body::{Body, Bytes};
use hyper::{Method, Request, StatusCode};
use tokio::sync::watch;
use tokio::time::timeout;

use super::access::Access;
use super::answer::{self, Answer};
use super::meter::Meter;
use super::order::{Name, Order};
use super::problem::Problem;
use super::query::Query;
use super::recording::{self, Recording};
use super::route::Route;
use super::sessions::Sessions;
use super::{metrics, page, pages, sample, stats};
use crate::log::log;
use crate::own;
use crate::session;
use profile::Mode;

/// Largest body of `POST /sample`.
const MAX_BODY: usize = 64 * 1024;
/// Largest body of `POST /debug/pprof/symbol`: `go tool pprof` sends every address of a profile at once.
const MAX_SYMBOL_BODY: usize = 1024 * 1024;
/// Within this time a body must have arrived.
const BODY_TIMEOUT: Duration = Duration::from_secs(10);

const GET: &str = "GET, HEAD";
const POST: &str = "POST";
const GET_POST: &str = "GET, HEAD, POST";

/// Answers the requests of one server.
pub(super) struct Service {
    recording: Arc<dyn Recording>,
    access: Access,
    url: String,
    offer: Offer,
    stop: watch::Receiver<bool>,
    meter: Meter,
    sessions: Sessions,
    converter: page::Converter,
}

/// What a server offers.
#[derive(Clone)]
pub(super) struct Offer {
    /// Whether the command line is told with its arguments.
    pub(super) show_arguments: bool,
    pub(super) modes: Vec<Mode>,
    pub(super) routes: Vec<Route>,
}

impl Default for Offer {
    fn default() -> Self {
        Self { show_arguments: false, modes: Mode::ALL.to_vec(), routes: Vec::new() }
    }
}

impl Service {
    pub(super) fn new(
        recording: Arc<dyn Recording>,
        access: Access,
        url: String,
        offer: Offer,
        stop: watch::Receiver<bool>,
    ) -> Self {
        let (meter, sessions, converter) = (Meter::new(), Sessions::default(), page::Converter::new());
        Self { recording, access, url, offer, stop, meter, sessions, converter }
    }

    /// The wish that the server stop.
    pub(super) fn stop(&self) -> watch::Receiver<bool> {
        self.stop.clone()
    }

    /// Answers one request; dropping the future ends what it started.
    pub(super) async fn answer<B>(&self, request: Request<B>) -> Answer
    where
        B: Body + Send + 'static,
        B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        let (method, path) = (request.method().clone(), request.uri().path().to_owned());
        let answer = match self.access.check(&request) {
            Ok(()) => self.route(request).await,
            // A browser cannot send the token before it has the page that asks for it; there is nothing in the page but that.
            Err(Problem::Unauthorized) if page::is_asked_for(&request) => Ok(page::asking_for_token()),
            Err(problem) => Err(problem),
        };
        let answer = answer.unwrap_or_else(Problem::into_answer);
        self.meter.answered(answer.status().as_u16());
        log!(Debug, "{method} {path:?}: {}", answer.status().as_u16());
        answer
    }

    async fn route<B>(&self, request: Request<B>) -> Result<Answer, Problem>
    where
        B: Body + Send + 'static,
        B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        let method = request.method().clone();
        let path = request.uri().path().to_owned();
        let query = request.uri().query().unwrap_or_default().to_owned();
        if let Some(route) = self.offer.routes.iter().find(|route| route.matches(&path)) {
            let body = body(request, MAX_BODY).await?;
            return route.answer(method.as_str(), &path, &query, body).await;
        }
        match path.as_str() {
            "/" if method == Method::POST => self.sample(request).await,
            "/" => allow(&method, GET_POST).map(|()| page::start(&pages::help(&self.url))),
            "/page/info" => allow(&method, GET).map(|()| answer::json(page::info(&self.offer.modes))),
            "/page/convert" => {
                allow(&method, POST)?;
                let wanted = page::Wanted::of(&query)?;
                // One at a time, its body included: what this takes of the application's memory is bounded.
                let turn = self.converter.turn().await;
                let body = body(request, page::MAX_BODY).await?;
                page::convert(body, wanted, turn).await
            }
            "/sample" | "/samples" => {
                allow(&method, POST)?;
                self.sample(request).await
            }
            "/health" => allow(&method, GET).map(|()| answer::text(StatusCode::OK, "OK")),
            "/alloc/stats" => {
                allow(&method, GET)?;
                Ok(answer::json(stats::json(&self.recording.counters())))
            }
            "/metrics" => {
                allow(&method, GET)?;
                let (counters, health) = (self.recording.counters(), self.recording.health());
                let page = metrics::text(&self.meter, &counters, &health, own::spent_ns() as f64 / 1e9);
                Ok(answer::body(StatusCode::OK, metrics::CONTENT_TYPE, page))
            }
            "/debug/pprof" => {
                allow(&method, GET)?;
                let mark = if query.is_empty() { "" } else { "?" };
                Ok(answer::redirect(&format!("/debug/pprof/{mark}{query}")))
            }
            "/debug/pprof/" => {
                allow(&method, GET)?;
                Ok(answer::html(pages::index(&self.recording.counters().counts)))
            }
            "/debug/pprof/cmdline" => {
                allow(&method, GET)?;
                Ok(answer::text(StatusCode::OK, self.command_line()))
            }
            "/debug/pprof/symbol" => {
                allow(&method, GET_POST)?;
                let addresses = match method {
                    Method::POST => body(request, MAX_SYMBOL_BODY).await?,
                    _ => Bytes::from(query),
                };
                symbol(&addresses).await
            }
            "/debug/pprof/finish" => {
                allow(&method, POST)?;
                self.finish(&Query::parse(&query)?)
            }
            _ => match path.strip_prefix("/debug/pprof/").map(Name::find) {
                Some(Some(name)) => {
                    allow(&method, GET)?;
                    let order = Query::parse(&query)?.order(name)?;
                    if method == Method::HEAD { Ok(recording::headers_only(&order)) } else { self.record(order).await }
                }
                Some(None) => Err(Problem::NotFound(format!("Unknown profile\n\n{}", pages::help(&self.url)))),
                None => Err(Problem::NotFound(format!("404 page not found\n\n{}", pages::help(&self.url)))),
            },
        }
    }

    async fn sample<B>(&self, request: Request<B>) -> Result<Answer, Problem>
    where
        B: Body + Send + 'static,
        B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        let body = body(request, MAX_BODY).await?;
        self.record(sample::order(&body)?).await
    }

    async fn record(&self, order: Order) -> Result<Answer, Problem> {
        let session::Request { mode, hz, seconds, .. } = order.request;
        if order.empty.is_none() && !self.offer.modes.contains(&mode) {
            return Err(Problem::Forbidden("this server does not offer that mode"));
        }
        let running = self.meter.begin(mode).map_err(|retry_after| Problem::TooMany { retry_after })?;
        match seconds {
            Some(seconds) if mode.is_time() => log!(Info, "recording {mode} for {seconds} s at {hz} Hz"),
            Some(seconds) => log!(Info, "recording {mode} for {seconds} s"),
            None => log!(Info, "recording {mode}"),
        }
        let session = self.sessions.begin(order.session.clone());
        let answer = recording::answer(&self.recording, order, &session, self.stop()).await;
        drop(running);
        answer
    }

    /// Has recordings answer before their time.
    fn finish(&self, query: &Query<'_>) -> Result<Answer, Problem> {
        let name = query.session()?.ok_or_else(|| {
            Problem::BadRequest("\"session\" is missing: the name that the request of a recording gave".to_owned())
        })?;
        match self.sessions.finish(&name) {
            0 => Err(Problem::NotFound("no recording of that name runs".to_owned())),
            count => Ok(answer::text(StatusCode::OK, format!("{count} finished\n"))),
        }
    }

    /// The arguments joined by NUL, as Go answers.
    fn command_line(&self) -> Vec<u8> {
        let mut line = std::fs::read("/proc/self/cmdline").unwrap_or_default();
        if !self.offer.show_arguments {
            line.truncate(line.iter().position(|byte| *byte == 0).unwrap_or(line.len()));
        }
        while line.last() == Some(&0) {
            line.pop();
        }
        line
    }
}

fn allow(method: &Method, allow: &'static str) -> Result<(), Problem> {
    if allow.split(", ").any(|allowed| allowed == method.as_str()) {
        Ok(())
    } else {
        Err(Problem::MethodNotAllowed { allow })
    }
}

async fn body<B>(request: Request<B>, limit: usize) -> Result<Bytes, Problem>
where
    B: Body + Send + 'static,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    let too_large = Problem::TooLarge { limit };
    if request.body().size_hint().lower() > limit as u64 {
        return Err(too_large);
    }
    let body = timeout(BODY_TIMEOUT, Limited::new(request.into_body(), limit).collect()).await;
    match body.map_err(|_| Problem::BodyTimeout)? {
        Ok(body) => Ok(body.to_bytes()),
        Err(error) if error.is::<http_body_util::LengthLimitError>() => Err(too_large),
        Err(_) => Err(Problem::BadRequest("the request body is cut off or malformed".to_owned())),
    }
}

/// `0xA+0xB` to lines `0xA name`, as Go answers; what is not an address or has no name is left out.
async fn symbol(addresses: &[u8]) -> Result<Answer, Problem> {
    let addresses: Vec<u64> = addresses.split(|byte| *byte == b'+').filter_map(address).collect();
    let mut text = "num_symbols: 1\n".to_owned();
    if !addresses.is_empty() {
        let names = recording::names(addresses.clone()).await?;
        for (address, name) in addresses.iter().zip(names) {
            if let Some(name) = name {
                text.push_str(&format!("{address:#x} {name}\n"));
            }
        }
    }
    Ok(answer::text(StatusCode::OK, text))
}

fn address(text: &[u8]) -> Option<u64> {
    let text = std::str::from_utf8(text.trim_ascii()).ok()?;
    u64::from_str_radix(text.strip_prefix("0x").or_else(|| text.strip_prefix("0X"))?, 16).ok()
}
