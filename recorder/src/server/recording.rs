//! Recordings on threads of their own, so that the server's thread stays free.

use std::sync::Arc;
use std::time::SystemTime;

use profile::store::Counters;
use profile::{Format, Glob, Profile};
use tokio::sync::{oneshot, watch};

use super::answer::{self, Answer};
use super::order::{Delivery, Order};
use super::problem::Problem;
use super::sessions::Session;
use super::{address_space, stacks_text, stop};
use crate::health::{self, StoreHealth};
use crate::log::log;
use crate::own;
use crate::record::{symbols, title};
use crate::session::{self, Cancel, Request, SessionError};

/// What the server asks of the recorder; tests answer in its place.
pub(super) trait Recording: Send + Sync + 'static {
    /// Samples allocations from now on, one in so many bytes; 0 for none.
    fn prepare(&self, alloc_interval_bytes: u64) -> Result<(), SessionError>;
    /// Records until the window is over or `cancel` is raised.
    fn record(&self, request: &Request, cancel: &Cancel) -> Result<Profile, SessionError>;
    /// Exact counts of the allocation functions, and live memory.
    fn counters(&self) -> Counters;
    /// What the recorder holds and lost.
    fn health(&self) -> StoreHealth;
}

/// The recorder of this process.
pub(super) struct ThisProcess;

impl Recording for ThisProcess {
    fn prepare(&self, alloc_interval_bytes: u64) -> Result<(), SessionError> {
        session::prepare(alloc_interval_bytes)
    }

    fn record(&self, request: &Request, cancel: &Cancel) -> Result<Profile, SessionError> {
        session::record(request, cancel)
    }

    fn counters(&self) -> Counters {
        session::counters()
    }

    fn health(&self) -> StoreHealth {
        health::look()
    }
}

/// Records what the order asks for and makes the answer of it.
pub(super) async fn answer(
    recording: &Arc<dyn Recording>,
    order: Order,
    session: &Session<'_>,
    mut stop: watch::Receiver<bool>,
) -> Result<Answer, Problem> {
    let (recording, flag) = (Arc::clone(recording), session.cancel.clone());
    let mut result = on_own_thread("profrec-record", move || make(&*recording, &order, &flag))?;
    tokio::select! {
        result = &mut result => return result.unwrap_or(Err(Problem::Failed("failed to collect profile"))),
        // Better a short profile than none.
        () = stop::requested(&mut stop) => session.cancel.finish(),
    }
    result.await.unwrap_or(Err(Problem::Failed("failed to collect profile")))
}

/// The names of addresses of this process, in the order given.
pub(super) async fn names(addresses: Vec<u64>) -> Result<Vec<Option<String>>, Problem> {
    let names = on_own_thread("profrec-symbol", move || address_space::names(&addresses))?;
    names.await.map_err(|_| Problem::Failed("failed to find symbols"))
}

pub(super) fn on_own_thread<T: Send + 'static>(
    name: &str,
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<oneshot::Receiver<T>, Problem> {
    let (sender, receiver) = oneshot::channel();
    let thread = own::spawn(name, move || {
        // The receiver is gone if the client is.
        let _ = sender.send(work());
    });
    match thread {
        Ok(_) => Ok(receiver),
        Err(error) => Err(Problem::Unavailable(format!("cannot start a thread: {error}"))),
    }
}

fn make(recording: &dyn Recording, order: &Order, cancel: &Cancel) -> Result<Answer, Problem> {
    let mut profile = match order.empty {
        Some(columns) => {
            let mut empty = Profile::new(columns.to_vec());
            empty.comments.push("nothing of this kind is recorded here".to_owned());
            empty
        }
        None => recording.record(&order.request, cancel).map_err(problem)?,
    };
    if cancel.is_cancelled() {
        return Err(problem(SessionError::Cancelled));
    }
    if let Some(thread) = &order.thread {
        keep_threads(&mut profile, thread);
    }
    own::step_back();
    let symbols = symbols(&mut profile, order.detail);
    if let Some(debug) = order.debug {
        let title = format!("{} profile of {}", order.request.mode, title(order.request.mode));
        return Ok(answer::text(hyper::StatusCode::OK, stacks_text::text(&profile, &symbols, &title, debug)));
    }
    let options = profile::Options { title: Some(title(order.request.mode)), ..profile::Options::default() };
    let mut encoded = Vec::new();
    order.format.encode(&profile, &symbols, &options, &mut encoded).map_err(|error| {
        log!(Error, "cannot encode a profile as {}: {error}", order.format);
        Problem::Failed("failed to encode the profile")
    })?;
    Ok(deliver(order, encoded))
}

fn problem(error: SessionError) -> Problem {
    match error {
        SessionError::Busy { retry_after } => Problem::Busy { retry_after },
        SessionError::Unavailable(reason) => Problem::Unavailable(format!("cannot record: {reason}")),
        SessionError::Cancelled => Problem::Unavailable("the recording was cut off: the server is stopping".to_owned()),
    }
}

/// Keeps what the matching threads did; what belongs to no known thread cannot be attributed and goes.
fn keep_threads(profile: &mut Profile, glob: &Glob) {
    let matches: Vec<bool> = profile.threads.iter().map(|thread| glob.matches(&thread.name)).collect();
    let is_kept = |thread: profile::ThreadId| matches.get(thread.index()).copied().unwrap_or(false);
    profile.samples.retain(|sample| sample.thread.is_some_and(is_kept));
    profile.events.retain(|event| is_kept(event.thread));
}

fn deliver(order: &Order, encoded: Vec<u8>) -> Answer {
    if order.debug.is_some() {
        return answer::text(hyper::StatusCode::OK, encoded);
    }
    let content_type = order.format.content_type();
    match &order.delivery {
        Delivery::Go { file_name } if order.format == Format::Pprof => {
            answer::attachment(content_type, file_name, encoded)
        }
        Delivery::Go { .. } => answer::body(hyper::StatusCode::OK, content_type, encoded),
        Delivery::Samples => {
            let seconds = SystemTime::UNIX_EPOCH.elapsed().unwrap_or_default().as_secs();
            let name = format!("samples-{}-{seconds}{}", std::process::id(), order.format.extension());
            answer::attachment(content_type, &name, encoded)
        }
    }
}

/// What a `HEAD` request gets: the headers of the answer, with nothing recorded.
pub(super) fn headers_only(order: &Order) -> Answer {
    deliver(order, Vec::new())
}
