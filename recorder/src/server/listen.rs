//! From an address to a listening socket.

use std::io;
use std::net::{SocketAddr, ToSocketAddrs};

use tokio::net::{TcpListener, UnixListener};

use super::StartError;
use super::socket_file::listen_at;
use crate::config::Address;
use crate::own_file::OwnFile;

/// A listening socket and the URL that reaches it.
#[derive(Debug)]
pub(super) struct Listening {
    pub(super) listener: Listener,
    pub(super) url: String,
    pub(super) tcp_host: Option<String>,
}

#[derive(Debug)]
pub(super) enum Listener {
    Unix { listener: UnixListener, _file: OwnFile },
    Tcp(TcpListener),
}

/// Binds the address; without a token only where no other machine can reach it.
pub(super) async fn listen(address: &Address, has_token: bool) -> Result<Listening, StartError> {
    let failed = |error: io::Error| StartError::listen(address, &error);
    match address {
        Address::Unix(path) => {
            let (listener, file) = listen_at(path).await.map_err(failed)?;
            let listener = Listener::Unix { listener: UnixListener::from_std(listener).map_err(failed)?, _file: file };
            Ok(Listening { listener, url: address.to_string(), tcp_host: None })
        }
        Address::Tcp { host, port } => {
            let addresses = resolve(host, *port).map_err(failed)?;
            if !has_token && let Some(open) = addresses.iter().find(|address| !address.ip().is_loopback()) {
                return Err(StartError::needs_token(address, *open));
            }
            let listener = TcpListener::bind(&addresses[..]).await.map_err(failed)?;
            let bound = listener.local_addr().map_err(failed)?;
            Ok(Listening { listener: Listener::Tcp(listener), url: url(bound), tcp_host: Some(host.clone()) })
        }
    }
}

fn resolve(host: &str, port: u16) -> io::Result<Vec<SocketAddr>> {
    // Both loopback addresses answer to this name, in an order that differs between machines.
    let host = if host.eq_ignore_ascii_case("localhost") { "127.0.0.1" } else { host };
    Ok((host, port).to_socket_addrs()?.collect())
}

/// A URL that works on this machine: the wildcard addresses are shown as loopback.
fn url(bound: SocketAddr) -> String {
    match bound {
        SocketAddr::V4(v4) if v4.ip().is_unspecified() => format!("http://127.0.0.1:{}", v4.port()),
        SocketAddr::V6(v6) if v6.ip().is_unspecified() => format!("http://[::1]:{}", v6.port()),
        other => format!("http://{other}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn listen_on(url: &str, has_token: bool) -> Result<Listening, StartError> {
        listen(&url.parse().unwrap(), has_token).await
    }

    #[tokio::test]
    async fn without_a_token_only_loopback_is_bound() {
        for url in ["http://127.0.0.1:0", "http://localhost:0", "http://127.1.2.3:0"] {
            assert!(listen_on(url, false).await.is_ok(), "{url}");
        }
        for url in ["http://0.0.0.0:0", "http://[::]:0"] {
            let error = listen_on(url, false).await.unwrap_err().to_string();
            assert!(error.contains("PROFILE_RECORDER_TOKEN"), "{error}");
        }
        assert!(listen_on("http://0.0.0.0:0", true).await.unwrap().url.starts_with("http://127.0.0.1:"));
    }

    #[tokio::test]
    async fn the_url_names_the_port_that_was_chosen() {
        let url = listen_on("http://127.0.0.1:0", false).await.unwrap().url;
        let port: u16 = url.strip_prefix("http://127.0.0.1:").unwrap().parse().unwrap();
        assert_ne!(port, 0);
    }
}
