//! `profrec view`: the flame graph page for files, on loopback, in the browser.

mod answers;
mod browser;
mod files;
mod server;

use crate::args::View;
use crate::ending::Ending;
use crate::error::{Error, warn};
use crate::pending::reason;
use files::Files;
use std::io::Write;
use std::net::Ipv4Addr;
use std::sync::Arc;
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};

/// Shows the files until the user ends it.
pub(crate) fn view(view: &View) -> Result<Ending, Error> {
    // The first is what is seen first: what is wrong with it is told here, not in the browser.
    let files = Arc::new(Files::new(&view.files, view.naming.clone())?);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|e| Error::failure(format!("cannot wait for the browser: {}", reason(&e))))?;
    let ending = runtime.block_on(async {
        let cannot = |e: &std::io::Error| {
            Error::failure(format!(
                "cannot listen on port {} of 127.0.0.1: {}; name another --port",
                view.port,
                reason(e)
            ))
        };
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, view.port)).await.map_err(|e| cannot(&e))?;
        let port = listener.local_addr().map_err(|e| cannot(&e))?.port();
        let secret = server::secret()?;
        let address = format!("http://127.0.0.1:{port}/{secret}/");
        tell(&address);
        let opened = match view.browser {
            true => browser::open(&address).map_err(warn).ok(),
            false => None,
        };
        let no_signals = |e: std::io::Error| Error::failure(format!("cannot receive signals: {}", reason(&e)));
        let mut interrupted = signal(SignalKind::interrupt()).map_err(no_signals)?;
        let mut terminated = signal(SignalKind::terminate()).map_err(no_signals)?;
        tokio::select! {
            () = server::serve(listener, secret, files) => {}
            _ = interrupted.recv() => {}
            _ = terminated.recv() => {}
        }
        drop(opened);
        Ok(Ending::Code(0))
    });
    // A conversion that still runs has nobody to wait for it.
    runtime.shutdown_background();
    ending
}

/// The address is what a script reads; a closed output is nobody's failure.
fn tell(address: &str) {
    let mut out = std::io::stdout().lock();
    let _ = writeln!(out, "{address}").and_then(|()| out.flush());
    let _ = writeln!(std::io::stderr(), "Ctrl-C ends it.");
}
