//! What a user calls a recorder, and where it listens.

use super::registry::{self, Recorder};
use crate::Error;
use percent_encoding::percent_decode_str;
use std::fmt;
use std::path::PathBuf;

/// Where a recorder listens.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Address {
    /// A Unix socket.
    Unix(PathBuf),
    /// Host and port.
    Tcp(String),
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unix(path) => path.display().fmt(f),
            Self::Tcp(host) => write!(f, "http://{host}"),
        }
    }
}

impl Address {
    /// The address of a target: a URL, a path, a pid or a name.
    ///
    /// # Errors
    /// If there is no such recorder, or several, or the URL is none.
    pub fn of(target: &str) -> Result<Self, Error> {
        if target.contains("://") {
            return Self::of_url(target);
        }
        if target.contains('/') {
            return Ok(Self::Unix(PathBuf::from(target)));
        }
        let recorders = registry::recorders();
        let found = match target.parse::<u32>() {
            Ok(pid) => recorders.iter().filter(|recorder| recorder.pid == pid).collect::<Vec<_>>(),
            Err(_) => recorders.iter().filter(|recorder| recorder.name() == target).collect(),
        };
        Self::only(target, &found, &recorders)
    }

    fn only(target: &str, found: &[&Recorder], all: &[Recorder]) -> Result<Self, Error> {
        match found {
            [one] => Self::of_url(&one.url),
            // A process with several servers answers at each of them.
            [first, others @ ..] if others.iter().all(|other| other.pid == first.pid) => Self::of_url(&first.url),
            [] if all.is_empty() => Err(Error::failure(format!(
                "no recorder '{target}' listens here, nor any other; start the program with PROFILE_RECORDER_SERVER_URL_PATTERN='unix:///tmp/app-{{PID}}.sock', or record it with 'profrec record -- COMMAND'"
            ))),
            [] => {
                let known: Vec<String> = all.iter().map(|r| format!("{} ({})", r.name(), r.pid)).collect();
                Err(Error::failure(format!("no recorder '{target}' listens here; there are {}", known.join(", "))))
            }
            several => {
                let pids: Vec<String> = several.iter().map(|recorder| recorder.pid.to_string()).collect();
                Err(Error::failure(format!(
                    "{} recorders are named '{target}'; name one by its pid: {}",
                    several.len(),
                    pids.join(", ")
                )))
            }
        }
    }

    /// The address that a URL names.
    pub(crate) fn of_url(url: &str) -> Result<Self, Error> {
        let wrong = |why: &str| {
            Error::usage(format!(
                "'{url}' is no address of a recorder: {why}; use unix:///path, http+unix://%2Fpath or http://HOST:PORT"
            ))
        };
        let (scheme, rest) = url.split_once("://").ok_or_else(|| wrong("it is no URL"))?;
        match scheme {
            "unix" | "http+unix" => {
                let rest = if scheme == "unix" { rest } else { rest.trim_end_matches('/') };
                let path = percent_decode_str(rest).decode_utf8().map_err(|_| wrong("the path is not UTF-8"))?;
                if !path.starts_with('/') {
                    return Err(wrong("the path of a socket begins with '/'"));
                }
                Ok(Self::Unix(PathBuf::from(path.into_owned())))
            }
            "http" => {
                let host = rest.trim_end_matches('/');
                if host.is_empty() || host.contains(['/', '?', '#', '@']) || host.contains(char::is_whitespace) {
                    return Err(wrong("name host and port alone"));
                }
                let has_port = host.rsplit_once(':').is_some_and(|(_, port)| port.parse::<u16>().is_ok());
                Ok(Self::Tcp(if has_port { host.to_owned() } else { format!("{host}:80") }))
            }
            _ => Err(wrong("the scheme is unknown")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_and_paths_are_addresses() {
        for (target, expected) in [
            ("unix:///run/a%20b.sock", Address::Unix("/run/a b.sock".into())),
            ("http+unix://%2Frun%2Fa.sock", Address::Unix("/run/a.sock".into())),
            ("/run/a.sock", Address::Unix("/run/a.sock".into())),
            ("./a.sock", Address::Unix("./a.sock".into())),
            ("http://127.0.0.1:6060/", Address::Tcp("127.0.0.1:6060".into())),
            ("http://[::1]:6060", Address::Tcp("[::1]:6060".into())),
            ("http://app", Address::Tcp("app:80".into())),
        ] {
            assert_eq!(Address::of(target).unwrap(), expected, "{target}");
        }
        for target in ["https://a", "unix://a.sock", "http://", "http://a/debug/pprof", "http://a b"] {
            let error = Address::of(target).unwrap_err();
            assert!(error.exit_code() == 2 && error.line().contains("http://HOST:PORT"), "{}", error.line());
        }
    }
}
