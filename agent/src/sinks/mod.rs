//! Places where profiles are sent: each with its queue, and a thread of its own that empties it.

mod directory;
mod http;
mod otlp;
mod otlp_messages;
mod parca;
mod payload;
mod pyroscope;
mod worker;

pub(crate) use payload::Origin;

use crate::queue::{Account, Limits, Queue};
use crate::settings::{Kind, SinkSettings};
use crate::{Error, reason};
use http::Client;
use payload::reduced;
use profile::{Profile, Symbols};
use std::path::Path;
use std::sync::Arc;
use std::thread::JoinHandle;
use worker::Worker;

/// One sink at work.
#[derive(Debug)]
pub(crate) struct Sink {
    settings: SinkSettings,
    queue: Arc<Queue>,
    worker: Option<JoinHandle<()>>,
}

/// How an item reaches its place.
#[derive(Debug)]
enum Way {
    Http(Client),
    Directory(directory::Writer),
}

impl Sink {
    /// Opens the queue of a sink below `states`, and begins to send what is in it.
    ///
    /// # Errors
    /// If the queue cannot be used, or certificates cannot be read.
    pub(crate) fn start(settings: &SinkSettings, states: &Path) -> Result<Self, Error> {
        let limits = Limits { bytes: settings.max_queue, age: settings.max_age };
        let queue = Arc::new(Queue::open(&states.join("queues").join(&settings.name), limits)?);
        let way = Self::way(settings)?;
        let work = Worker { name: settings.name.clone(), queue: Arc::clone(&queue), way };
        let thread = std::thread::Builder::new().name("profrec-send".to_owned()).spawn(move || work.run());
        let worker = thread.map_err(|e| Error::failure(format!("cannot start a thread: {}", reason(&e))))?;
        Ok(Self { settings: settings.clone(), queue, worker: Some(worker) })
    }

    /// Checks what can be checked without sending anything.
    ///
    /// # Errors
    /// If certificates cannot be read, or the proxy is none.
    pub(crate) fn check(settings: &SinkSettings) -> Result<(), Error> {
        Self::way(settings).map(drop)
    }

    fn way(settings: &SinkSettings) -> Result<Way, Error> {
        Ok(match settings.kind {
            Kind::Directory => Way::Directory(directory::Writer::new(&settings.url)),
            Kind::Pyroscope => Way::Http(Client::new(settings, &pyroscope::PROTOCOL)?),
            Kind::Otlp => Way::Http(Client::new(settings, &otlp::PROTOCOL)?),
            Kind::Parca => Way::Http(Client::new(settings, &parca::PROTOCOL)?),
        })
    }

    /// Its name.
    pub(crate) fn name(&self) -> &str {
        &self.settings.name
    }

    /// What became of everything it was given.
    pub(crate) fn account(&self) -> Account {
        self.queue.account()
    }

    /// Takes a profile over.
    pub(crate) fn accept(&self, profile: &Profile, symbols: &Symbols, origin: &Origin) {
        let origin = origin.with_labels(&self.settings.labels);
        let profile = reduced(profile, self.settings.max_samples, self.settings.threads);
        let body = match self.settings.kind {
            Kind::Pyroscope => pyroscope::body(&profile, symbols, &origin),
            Kind::Otlp => Ok(otlp::body(&profile, symbols, &origin)),
            Kind::Parca => parca::body(profile, symbols, &origin),
            Kind::Directory => directory::body(&profile, symbols, &origin),
        };
        match body {
            Ok(body) => self.queue.put(&body),
            Err(e) => tracing::error!(sink = self.name(), error = reason(&e), "cannot encode a profile"),
        }
    }
}

impl Drop for Sink {
    fn drop(&mut self) {
        self.queue.close();
        // A request that is on its way ends by its time limit.
        if let Some(worker) = self.worker.take() {
            drop(worker.join());
        }
    }
}
