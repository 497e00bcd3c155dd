//! Where a server listens, written as a URL.

use std::fmt;
use std::net::Ipv6Addr;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use percent_encoding::{AsciiSet, CONTROLS, percent_decode_str, utf8_percent_encode};

/// Longest path of a Unix socket (`sun_path` without its terminator).
const MAX_SOCKET_PATH: usize = 107;
/// Characters of a path that a URL cannot hold as they are.
const PATH: &AsciiSet = &CONTROLS.add(b' ').add(b'"').add(b'#').add(b'%').add(b'<').add(b'>').add(b'?').add(b'`');

/// An address that a server can listen on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Address {
    /// A Unix socket: `unix:///path` or `http+unix://%2Fpath`.
    Unix(PathBuf),
    /// A TCP port: `http://host:port`; port 0 (or none) is any free one.
    Tcp {
        /// A name or an IP literal without brackets.
        host: String,
        /// The port, 0 for any.
        port: u16,
    },
}

/// Why a URL is not an address to listen on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct BadAddress(String);

impl FromStr for Address {
    type Err = BadAddress;

    fn from_str(url: &str) -> Result<Self, BadAddress> {
        let forms = "use unix:///path/app.sock, http+unix://%2Fpath%2Fapp.sock or http://127.0.0.1:PORT";
        let Some((scheme, rest)) = url.split_once("://") else {
            return Err(BadAddress(format!("not a URL; {forms}")));
        };
        if rest.contains(['?', '#']) {
            return Err(BadAddress("a query or fragment means nothing here".to_owned()));
        }
        match scheme.to_ascii_lowercase().as_str() {
            "unix" => socket_path(rest),
            // A slash after the host is what URL libraries print.
            "http+unix" => socket_path(rest.strip_suffix('/').unwrap_or(rest)),
            "http" => tcp(rest),
            "https" => Err(BadAddress(format!("TLS is not offered; {forms}"))),
            _ => Err(BadAddress(format!("unknown scheme {scheme:?}; {forms}"))),
        }
    }
}

fn socket_path(encoded: &str) -> Result<Address, BadAddress> {
    let path = percent_decode_str(encoded)
        .decode_utf8()
        .map_err(|_| BadAddress("the socket path is not UTF-8".to_owned()))?
        .into_owned();
    if !path.starts_with('/') {
        return Err(BadAddress("the socket path must be absolute (three slashes: unix:///path/app.sock)".to_owned()));
    }
    if path.contains('\0') {
        return Err(BadAddress("the socket path contains a NUL".to_owned()));
    }
    if path.ends_with('/') {
        return Err(BadAddress("the socket path names a directory".to_owned()));
    }
    if path.len() > MAX_SOCKET_PATH {
        return Err(BadAddress(format!(
            "the socket path has {} bytes, the system allows {MAX_SOCKET_PATH}; use a shorter directory",
            path.len()
        )));
    }
    Ok(Address::Unix(PathBuf::from(path)))
}

fn tcp(rest: &str) -> Result<Address, BadAddress> {
    let authority = rest.strip_suffix('/').unwrap_or(rest);
    if authority.contains('/') {
        return Err(BadAddress("a path after the port means nothing here".to_owned()));
    }
    if authority.contains('@') {
        return Err(BadAddress("user names are not supported; set PROFILE_RECORDER_TOKEN".to_owned()));
    }
    let (host, port) = match authority.strip_prefix('[') {
        Some(bracketed) => {
            let (host, after) = bracketed
                .split_once(']')
                .ok_or_else(|| BadAddress("a ] is missing after the IPv6 address".to_owned()))?;
            if host.parse::<Ipv6Addr>().is_err() {
                return Err(BadAddress(format!("[{host}] is not an IPv6 address")));
            }
            match after.strip_prefix(':') {
                Some(port) => (host, port),
                None if after.is_empty() => (host, "0"),
                None => return Err(BadAddress(format!("{after:?} after the IPv6 address is not a port"))),
            }
        }
        None => authority.split_once(':').unwrap_or((authority, "0")),
    };
    let host = if host.is_empty() { "127.0.0.1" } else { host };
    if !host.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'-' | b'_' | b':')) {
        return Err(BadAddress(format!("{host:?} is not a host name")));
    }
    let port = Some(port)
        .filter(|port| port.bytes().all(|b| b.is_ascii_digit()))
        .and_then(|port| port.parse().ok())
        .ok_or_else(|| BadAddress(format!("{port:?} is not a port (0 to 65535; IPv6 addresses stand in brackets)")))?;
    Ok(Address::Tcp { host: host.to_owned(), port })
}

/// The URL of a Unix socket, in the form that this crate reads and prints.
pub(crate) fn unix_url(path: &Path) -> String {
    format!("unix://{}", utf8_percent_encode(&path.to_string_lossy(), PATH))
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unix(path) => f.write_str(&unix_url(path)),
            Self::Tcp { host, port } if host.contains(':') => write!(f, "http://[{host}]:{port}"),
            Self::Tcp { host, port } => write!(f, "http://{host}:{port}"),
        }
    }
}

impl fmt::Display for BadAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for BadAddress {}

#[cfg(test)]
mod tests {
    use super::*;

    fn unix(path: &str) -> Address {
        Address::Unix(path.into())
    }

    fn tcp(host: &str, port: u16) -> Address {
        Address::Tcp { host: host.to_owned(), port }
    }

    #[test]
    fn every_form_of_url_is_read() {
        let cases = [
            ("unix:///tmp/app.sock", unix("/tmp/app.sock")),
            ("UNIX:///tmp/app.sock", unix("/tmp/app.sock")),
            ("unix:///tmp/a%20b.sock", unix("/tmp/a b.sock")),
            ("http+unix://%2Ftmp%2Fapp.sock", unix("/tmp/app.sock")),
            ("http+unix://%2Ftmp%2Fapp.sock/", unix("/tmp/app.sock")),
            ("http://127.0.0.1:0", tcp("127.0.0.1", 0)),
            ("http://127.0.0.1:7000/", tcp("127.0.0.1", 7000)),
            ("http://127.0.0.1", tcp("127.0.0.1", 0)),
            ("http://:7000", tcp("127.0.0.1", 7000)),
            ("http://localhost:65535", tcp("localhost", 65535)),
            ("http://[::1]:7000", tcp("::1", 7000)),
            ("http://[::1]", tcp("::1", 0)),
        ];
        for (url, expected) in cases {
            assert_eq!(url.parse(), Ok(expected), "{url}");
        }
    }

    #[test]
    fn bad_urls_are_refused_with_a_reason() {
        let long = format!("unix:///{}", "x".repeat(MAX_SOCKET_PATH));
        let cases = [
            ("", "not a URL"),
            ("/tmp/app.sock", "not a URL"),
            ("127.0.0.1:7000", "not a URL"),
            ("unix:/tmp/app.sock", "not a URL"),
            ("unix://tmp/app.sock", "absolute"),
            ("unix://", "absolute"),
            ("unix:///", "directory"),
            ("unix:///tmp/", "directory"),
            ("unix:///tmp/a%00b", "NUL"),
            ("unix:///tmp/%ff", "UTF-8"),
            ("unix:///tmp/x?mode=0666", "query"),
            ("http+unix://tmp", "absolute"),
            (&long, "shorter"),
            ("https://127.0.0.1:1", "TLS"),
            ("ftp://127.0.0.1:1", "unknown scheme"),
            ("http://127.0.0.1:65536", "not a port"),
            ("http://127.0.0.1:-1", "not a port"),
            ("http://127.0.0.1:+1", "not a port"),
            ("http://127.0.0.1:", "not a port"),
            ("http://::1:80", "brackets"),
            ("http://[::1", "missing"),
            ("http://[::1]80", "not a port"),
            ("http://[banana]:80", "IPv6"),
            ("http://127.0.0.1:80/profile", "path"),
            ("http://me:secret@127.0.0.1:80", "PROFILE_RECORDER_TOKEN"),
            ("http://a b:80", "host name"),
        ];
        for (url, reason) in cases {
            let error = url.parse::<Address>().unwrap_err().to_string();
            assert!(error.contains(reason), "{url}: {error}");
        }
    }

    #[test]
    fn an_address_is_printed_as_a_url_that_reads_back() {
        for url in ["unix:///tmp/app.sock", "unix:///tmp/a%20%25b.sock", "http://127.0.0.1:7000", "http://[::1]:7000"] {
            let address: Address = url.parse().unwrap();
            assert_eq!(address.to_string(), url);
        }
    }
}
