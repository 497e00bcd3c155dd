//! One request to an engine, and what its answer means for the queue.

use crate::Error;
use crate::queue::Settled;
use crate::settings::{Secret, SinkSettings};
use std::time::{Duration, SystemTime};
use ureq::http::{Response, header};
use ureq::tls::{Certificate, RootCerts, TlsConfig};
use ureq::{Agent, Body, Proxy};

/// Longest wait that an engine can ask for.
const LONGEST_WAIT: Duration = Duration::from_secs(3600);
/// Most of an answer that is read.
const MOST_ANSWER: u64 = 64 << 10;

/// How an engine wants to be spoken to.
#[derive(Debug)]
pub(super) struct Protocol {
    /// Where it listens, below the sink's URL.
    pub(super) path: &'static str,
    /// Of a request's body.
    pub(super) media_type: &'static str,
    /// Of a request's body.
    pub(super) encoding: Option<&'static str>,
    /// The engine's own words in an answer that is no success.
    pub(super) message: fn(&[u8]) -> Option<String>,
    /// Why an engine took nothing though it answers that it did.
    pub(super) rejected: fn(&[u8]) -> Option<String>,
}

/// What came of one request.
#[derive(Debug)]
pub(super) struct Outcome {
    /// What becomes of the item.
    pub(super) settled: Settled,
    /// What to tell a person; nothing of a success.
    pub(super) why: String,
    /// How long the engine asks to wait.
    pub(super) wait: Option<Duration>,
}

/// A way to one engine. It holds the secrets, so nothing prints it.
pub(super) struct Client {
    protocol: &'static Protocol,
    agent: Agent,
    url: String,
    headers: Vec<(&'static str, String)>,
}

impl std::fmt::Debug for Client {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Client").field("url", &self.url).finish_non_exhaustive()
    }
}

impl Client {
    /// A way to the engine at the sink's URL.
    pub(super) fn new(settings: &SinkSettings, protocol: &'static Protocol) -> Result<Self, Error> {
        let wrong = |what: String| Error::failure(format!("sink '{}': {what}", settings.name));
        let mut config = Agent::config_builder()
            .http_status_as_error(false)
            // A token goes to the address that was configured and to no other.
            .max_redirects(0)
            .timeout_global(Some(settings.timeout))
            .user_agent(concat!("profile-recorder/", env!("CARGO_PKG_VERSION")));
        if settings.url.starts_with("https://") {
            config = config.tls_config(TlsConfig::builder().root_certs(authorities(settings)?).build());
        }
        if let Some(proxy) = &settings.proxy {
            // It can hold a password.
            let proxy = Proxy::new(proxy).map_err(|_| wrong("the proxy is no URL of one".to_owned()))?;
            config = config.proxy(Some(proxy));
        }
        let mut headers = Vec::new();
        if let Some(tenant) = &settings.tenant {
            headers.push(("X-Scope-OrgID", tenant.clone()));
        }
        if let Some(token) = &settings.token {
            headers.push(("Authorization", format!("Bearer {}", token.reveal())));
        }
        if let Some((user, password)) = settings.username.as_ref().zip(settings.password.as_ref()) {
            headers.push(("Authorization", basic(user, password)));
        }
        if headers.iter().any(|(_, value)| header::HeaderValue::from_str(value).is_err()) {
            return Err(wrong("tenant, user name or token cannot be part of a header".to_owned()));
        }
        let url = format!("{}{}", settings.url.trim_end_matches('/'), protocol.path);
        Ok(Self { protocol, agent: config.build().into(), url, headers })
    }

    /// Sends a body, and waits for the answer.
    pub(super) fn send(&self, body: &[u8]) -> Outcome {
        let mut request = self.agent.post(&self.url).header("Content-Type", self.protocol.media_type);
        if let Some(encoding) = self.protocol.encoding {
            request = request.header("Content-Encoding", encoding);
        }
        for (name, value) in &self.headers {
            request = request.header(*name, value);
        }
        match request.send(body) {
            Ok(mut response) => {
                let text = response.body_mut().with_config().limit(MOST_ANSWER).read_to_vec().unwrap_or_default();
                outcome(self.protocol, &response, &text)
            }
            Err(e) => Outcome { settled: unanswered(&e), why: e.to_string(), wait: None },
        }
    }
}

/// The system's authorities, and those of a file.
fn authorities(settings: &SinkSettings) -> Result<RootCerts, Error> {
    let wrong = |what: String| Error::failure(format!("sink '{}': {what}", settings.name));
    // Some of a system's files may be unreadable; what is missing is missed when a connection is made.
    let found = rustls_native_certs::load_native_certs().certs;
    let mut all: Vec<Certificate<'static>> = found.iter().map(|der| Certificate::from_der(der).to_owned()).collect();
    if let Some(path) = &settings.ca_file {
        let cannot = |why: String| wrong(format!("cannot read the certificates in '{}': {why}", path.display()));
        let pem = std::fs::read(path).map_err(|e| cannot(crate::reason(&e)))?;
        let before = all.len();
        for item in ureq::tls::parse_pem(&pem) {
            if let ureq::tls::PemItem::Certificate(certificate) = item.map_err(|e| cannot(e.to_string()))? {
                all.push(certificate);
            }
        }
        if all.len() == before {
            return Err(cannot("there is none".to_owned()));
        }
    }
    Ok(RootCerts::from(all))
}

fn basic(user: &str, password: &Secret) -> String {
    use base64::Engine;
    let text = format!("{user}:{}", password.reveal());
    format!("Basic {}", base64::engine::general_purpose::STANDARD.encode(text))
}

/// Without an answer only a connection that never came about is sure to have brought nothing.
fn unanswered(error: &ureq::Error) -> Settled {
    use std::io::ErrorKind;
    match error {
        ureq::Error::HostNotFound
        | ureq::Error::ConnectionFailed
        | ureq::Error::ConnectProxyFailed(_)
        | ureq::Error::Tls(_)
        | ureq::Error::Rustls(_)
        | ureq::Error::Timeout(ureq::Timeout::Connect | ureq::Timeout::Resolve) => Settled::Kept,
        ureq::Error::Io(e) if matches!(e.kind(), ErrorKind::ConnectionRefused | ErrorKind::NotFound) => Settled::Kept,
        // So it is told that nobody vouches for the engine.
        ureq::Error::Io(e) if e.to_string().starts_with("invalid peer certificate") => Settled::Kept,
        _ => Settled::Unknown,
    }
}

fn outcome(protocol: &Protocol, response: &Response<Body>, body: &[u8]) -> Outcome {
    let status = response.status();
    let wait = response.headers().get(header::RETRY_AFTER).and_then(|value| wait(value.to_str().ok()?));
    if status.is_success()
        && let Some(why) = (protocol.rejected)(body)
    {
        return Outcome { settled: Settled::GivenUp("refused by the engine"), why, wait: None };
    }
    let settled = match status.as_u16() {
        200..=299 => Settled::Sent,
        // It would be refused again, however often.
        400 | 405 | 406 | 411 | 413..=415 | 422 | 431 => Settled::GivenUp("refused by the engine"),
        // Whoever sets it right (a token, an address, a limit) finds the profiles waiting.
        _ => Settled::Kept,
    };
    let why = if settled == Settled::Sent { String::new() } else { format!("{status}: {}", said(protocol, body)) };
    Outcome { settled, why, wait }
}

/// The first line of an engine's own words.
fn said(protocol: &Protocol, body: &[u8]) -> String {
    let text = (protocol.message)(body).unwrap_or_else(|| String::from_utf8_lossy(body).into_owned());
    let line = text.lines().map(str::trim).find(|line| !line.is_empty()).unwrap_or("no reason given");
    line.chars().filter(|c| !c.is_control()).take(300).collect()
}

/// Seconds, or a date.
fn wait(text: &str) -> Option<Duration> {
    let seconds = text.trim().parse().ok().map(Duration::from_secs);
    let until = || httpdate::parse_http_date(text.trim()).ok()?.duration_since(SystemTime::now()).ok();
    Some(seconds.or_else(until)?.min(LONGEST_WAIT))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_engine_says_when_to_come_again() {
        assert_eq!(wait(" 7 "), Some(Duration::from_secs(7)));
        assert_eq!(wait("99999999"), Some(LONGEST_WAIT));
        let soon = httpdate::fmt_http_date(SystemTime::now() + Duration::from_secs(90));
        assert!((80..=90).contains(&wait(&soon).unwrap().as_secs()));
        for text in ["", "soon", "-1", "Wed, 21 Oct 2015 07:28:00 GMT"] {
            assert_eq!(wait(text), None, "{text}");
        }
    }

    #[test]
    fn nothing_prints_a_secret() {
        let mut settings: SinkSettings = "pyroscope=http://127.0.0.1:1".parse().unwrap();
        settings.token = Some(Secret::from("hunter2".to_owned()));
        let client = Client::new(&settings, &crate::sinks::pyroscope::PROTOCOL).unwrap();
        assert!(!format!("{client:?} {settings:?}").contains("hunter2"));
        assert_eq!(client.headers, [("Authorization", "Bearer hunter2".to_owned())]);
    }
}
