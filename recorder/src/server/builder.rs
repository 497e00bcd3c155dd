//! What a server shall be, before it is one.

use std::num::NonZeroU64;
use std::sync::Arc;

use super::recording::{Recording, ThisProcess};
use super::route::{Route, RouteAnswer, RouteRequest};
use super::routes::Offer;
use super::thread::{self, Setup};
use super::{Server, StartError};
use crate::config::{Address, AllocInterval, Config, Mistake, Token};
use crate::log::{self, log};
use crate::output;
use profile::Mode;

/// Configures a [`Server`]. Mistakes are kept until it is started.
#[derive(Clone)]
#[must_use = "nothing happens before the server is started"]
pub struct ServerBuilder {
    address: Option<Address>,
    token: Option<Token>,
    offer: Offer,
    register: bool,
    alloc_interval: AllocInterval,
    /// Asks for a profile at the end of the process.
    output: Option<Config>,
    mistakes: Vec<Mistake>,
    recording: Arc<dyn Recording>,
}

impl ServerBuilder {
    pub(super) fn new() -> Self {
        Self {
            address: None,
            token: None,
            offer: Offer::default(),
            register: true,
            alloc_interval: AllocInterval::default(),
            output: None,
            mistakes: Vec::new(),
            recording: Arc::new(ThisProcess),
        }
    }

    pub(super) fn from_env() -> Self {
        let (config, mistakes) = Config::from_env();
        log::set_level(config.log);
        let output = config.output.is_some().then(|| config.clone());
        Self { output, ..Self::from_config(config, mistakes) }
    }

    pub(crate) fn from_config(config: Config, mistakes: Vec<Mistake>) -> Self {
        let Config { address, token, alloc_interval, .. } = config;
        Self { address, token, alloc_interval, mistakes, ..Self::new() }
    }

    /// Listens at this URL, as [`Server::bind`] says.
    pub fn bind(mut self, url: &str) -> Self {
        match url.parse() {
            Ok(address) => self.address = Some(address),
            Err(error) => self.mistakes.push(Mistake::new("URL", url, ToString::to_string(&error))),
        }
        self
    }

    /// Asks every request for this bearer token. An address other than loopback needs one.
    pub fn token(mut self, token: &str) -> Self {
        match Token::new(token) {
            Ok(token) => self.token = Some(token),
            Err(error) => self.mistakes.push(Mistake::without_value("token", error.to_string())),
        }
        self
    }

    /// Mean bytes between sampled allocations, from the start of the server; `None` for no sampling. The default is 512 KiB; 1 is every
    /// allocation.
    pub fn alloc_interval(mut self, bytes: Option<NonZeroU64>) -> Self {
        self.alloc_interval = bytes.map_or(AllocInterval::Off, AllocInterval::Bytes);
        self
    }

    /// Whether `/debug/pprof/cmdline` answers with the arguments, as Go does, or with the program's name alone, which is the default: arguments may hold
    /// secrets.
    pub fn show_arguments(mut self, show: bool) -> Self {
        self.offer.show_arguments = show;
        self
    }

    /// Which modes may be asked for; the others are answered with 403. The default is all.
    pub fn modes(mut self, modes: &[Mode]) -> Self {
        self.offer.modes = modes.to_vec();
        self
    }

    /// A path of the application's own, beside the server's and before them: `/status` is that path alone, `/status/` everything below it.
    ///
    /// The handler runs on a thread of the recorder for each request, under the server's rules of access, and may take its time.
    ///
    /// ```
    /// use profile_recorder::{RouteAnswer, Server};
    /// let _builder = Server::builder().route("/version", |_request| RouteAnswer::text(env!("CARGO_PKG_VERSION")));
    /// ```
    pub fn route(
        mut self,
        path: &str,
        handler: impl Fn(&RouteRequest<'_>) -> RouteAnswer + Send + Sync + 'static,
    ) -> Self {
        match Route::new(path, handler) {
            Ok(route) => self.offer.routes.push(route),
            Err(reason) => self.mistakes.push(Mistake::new("route", path, reason)),
        }
        self
    }

    /// Whether a file in the registry directory tells this user's tools of the server. The default is yes.
    pub fn register(mut self, register: bool) -> Self {
        self.register = register;
        self
    }

    #[cfg(test)]
    pub(super) fn recording(mut self, recording: Arc<dyn Recording>) -> Self {
        self.recording = recording;
        self
    }

    /// What it offers, for a server without a socket.
    #[cfg(fuzzing)]
    pub(super) fn into_offer(self) -> Offer {
        self.offer
    }

    /// Starts the server on a thread of its own.
    ///
    /// # Errors
    ///
    /// If no address was given, anything given is not understood, or the address cannot be listened on.
    pub fn start(self) -> Result<Server, StartError> {
        if !self.mistakes.is_empty() {
            return Err(StartError::mistakes(&self.mistakes));
        }
        if let Some(config) = &self.output {
            output::at_exit(config);
        }
        let address = self.address.ok_or_else(StartError::not_requested)?;
        thread::start(Setup {
            address,
            token: self.token,
            offer: self.offer,
            register: self.register,
            alloc_interval: self.alloc_interval,
            recording: self.recording,
        })
    }

    /// Starts the server if one was asked for. What is wrong is said on stderr, a line for each mistake, and the application goes on
    /// without.
    #[must_use = "the server stops when this is dropped"]
    pub fn start_or_warn(self) -> Option<Server> {
        if !self.mistakes.is_empty() {
            for mistake in &self.mistakes {
                log!(Error, "not started: {mistake}");
            }
            return None;
        }
        match self.start() {
            Ok(server) => Some(server),
            Err(error) if error.is_not_requested() => {
                log!(Debug, "{error}");
                None
            }
            Err(error) => {
                log!(Error, "not started: {error}");
                None
            }
        }
    }
}

impl std::fmt::Debug for ServerBuilder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ServerBuilder")
            .field("address", &self.address)
            .field("token", &self.token)
            .field("mistakes", &self.mistakes)
            .finish_non_exhaustive()
    }
}
