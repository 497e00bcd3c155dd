//! The server's thread: its runtime, the loop that accepts, the orderly end.

use std::io;
use std::os::fd::AsFd;
use std::pin::pin;
use std::sync::{Arc, mpsc};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::net::UnixStream;
use tokio::sync::{Notify, watch};
use tokio::task::{JoinSet, LocalSet};
use tokio::time::{sleep, timeout};

use super::access::Access;
use super::connection::{self, Admission};
use super::inherited::Listed;
use super::listen::{Listener, Listening, listen};
use super::problem::Problem;
use super::recording::Recording;
use super::routes::{Offer, Service};
use super::slots::Slots;
use super::{Running, Server, ServerInfo, StartError, stop};
use crate::config::{Address, AllocInterval, Token};
use crate::log::{self, log};
use crate::own;
use crate::registry::{self, Registered};
use crate::rights;
use crate::session::SessionError;

/// Most connections at a time.
pub(super) const MAX_CONNECTIONS: usize = 64;
/// Most connections that are being told that they are not served; more are just closed.
const MAX_REFUSALS: usize = 64;
/// How long a stop waits for the answers that are under way: finding the names of a large program takes seconds.
const STOP_WAITS: Duration = Duration::from_secs(5);
/// Pause after a failed accept: without descriptors it would fail again at once, for ever.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Everything that a server is started with.
pub(super) struct Setup {
    pub(super) address: Address,
    pub(super) token: Option<Token>,
    pub(super) offer: Offer,
    pub(super) register: bool,
    pub(super) alloc_interval: AllocInterval,
    pub(super) recording: Arc<dyn Recording>,
}

/// Starts the thread and waits until it listens.
pub(super) fn start(setup: Setup) -> Result<Server, StartError> {
    let (stop, stop_requested) = watch::channel(false);
    let (started, outcome) = mpsc::sync_channel(1);
    let wake = Arc::new(Notify::new());
    let woken = Arc::clone(&wake);
    let thread = own::spawn("profrec-server", move || run(setup, stop_requested, &woken, &started));
    let thread = thread.map_err(StartError::thread)?;
    match outcome.recv() {
        Ok(Ok(info)) => Ok(Server { info, running: Some(Running { stop, wake, thread }) }),
        Ok(Err(error)) => {
            let _ = thread.join();
            Err(error)
        }
        Err(mpsc::RecvError) => Err(StartError::thread(io::Error::other("the thread ended"))),
    }
}

fn run(
    setup: Setup,
    stop: watch::Receiver<bool>,
    wake: &Notify,
    started: &mpsc::SyncSender<Result<ServerInfo, StartError>>,
) {
    let runtime = match tokio::runtime::Builder::new_current_thread().enable_io().enable_time().build() {
        Ok(runtime) => runtime,
        Err(error) => return drop(started.send(Err(StartError::thread(error)))),
    };
    LocalSet::new().block_on(&runtime, async {
        let listening = match listen(&setup.address, setup.token.is_some()).await {
            Ok(listening) => listening,
            Err(error) => return drop(started.send(Err(error))),
        };
        if let Err(SessionError::Unavailable(reason)) = setup.recording.prepare(setup.alloc_interval.bytes()) {
            log!(Warn, "allocations are not recorded: {reason}");
        }
        let registered = if setup.register { register(&listening.url) } else { None };
        log!(Info, "listening on {}", listening.url);
        let info = ServerInfo { url: listening.url.clone(), pid: std::process::id() };
        let _ = started.send(Ok(info));
        serve(setup, listening, stop, wake).await;
        drop(registered);
    });
}

fn register(url: &str) -> Option<Registered> {
    match Registered::new(url) {
        Ok(registered) => {
            log!(Debug, "registered as {}", registered.path().display());
            Some(registered)
        }
        Err(error) => {
            log::say(registry::level_of_failure(), format_args!("the server is not listed: {error}"));
            None
        }
    }
}

enum Stream {
    Unix(UnixStream),
    Tcp(TcpStream),
}

impl Listener {
    async fn accept(&self) -> io::Result<Stream> {
        match self {
            Self::Unix { listener, .. } => listener.accept().await.map(|(stream, _)| Stream::Unix(stream)),
            Self::Tcp(listener) => listener.accept().await.map(|(stream, _)| Stream::Tcp(stream)),
        }
    }
}

impl Stream {
    /// Whether the peer runs as our user or root; the mode of the socket's file keeps others out already.
    fn is_trusted(&self) -> bool {
        match self {
            Self::Unix(stream) => {
                let own = rustix::process::geteuid().as_raw();
                stream.peer_cred().is_ok_and(|peer| peer.uid() == own || peer.uid() == 0)
            }
            Self::Tcp(_) => true,
        }
    }
}

async fn serve(setup: Setup, listening: Listening, mut stop: watch::Receiver<bool>, wake: &Notify) {
    let Listening { listener, url, tcp_host } = listening;
    let listed = match &listener {
        Listener::Unix { listener, .. } => Listed::new(listener),
        Listener::Tcp(listener) => Listed::new(listener),
    };
    let access = Access { token: setup.token, tcp_host };
    let slots = Slots::new(MAX_CONNECTIONS);
    let service = Arc::new(Service::new(setup.recording, access, url, setup.offer, stop.clone()));
    let mut connections = JoinSet::new();
    let mut refusals = JoinSet::new();
    {
        let mut stopped = pin!(stop::requested(&mut stop));
        loop {
            let stream = tokio::select! {
                () = &mut stopped => break,
                Some(_) = connections.join_next() => continue,
                Some(_) = refusals.join_next() => continue,
                () = wake.notified() => {
                    rights::repeat();
                    continue;
                }
                stream = listener.accept() => stream,
            };
            let stream = match stream {
                Ok(stream) => stream,
                Err(error) => {
                    log!(Debug, "cannot accept a connection: {error}");
                    sleep(ACCEPT_PAUSE).await;
                    continue;
                }
            };
            let refusal = if !stream.is_trusted() {
                Problem::Forbidden("this socket answers its owner and root alone")
            } else if let Some(slot) = slots.take() {
                let id = slot.id();
                let admission = Admission::Served { service: Arc::clone(&service), slot };
                slots.set_connection(id, spawn(&mut connections, stream, admission, service.stop()));
                continue;
            } else {
                Problem::Unavailable(format!("{MAX_CONNECTIONS} connections are busy"))
            };
            if refusals.len() < MAX_REFUSALS {
                spawn(&mut refusals, stream, Admission::Refused(refusal), service.stop());
            }
        }
    }
    // The socket's file goes first: a client that comes now finds no server rather than one that does not answer.
    drop((listed, listener));
    slots.end_unused();
    let _ = timeout(STOP_WAITS, async { while connections.join_next().await.is_some() {} }).await;
}

fn spawn(
    tasks: &mut JoinSet<()>,
    stream: Stream,
    admission: Admission,
    stop: watch::Receiver<bool>,
) -> tokio::task::AbortHandle {
    match stream {
        Stream::Unix(stream) => tasks.spawn_local(run_listed(stream, admission, stop)),
        Stream::Tcp(stream) => tasks.spawn_local(run_listed(stream, admission, stop)),
    }
}

async fn run_listed<S>(stream: S, admission: Admission, stop: watch::Receiver<bool>)
where
    S: AsyncRead + AsyncWrite + AsFd + Unpin + 'static,
{
    let _listed = Listed::new(&stream);
    connection::run(stream, admission, stop).await;
}
