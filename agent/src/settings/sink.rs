//! One place where profiles are sent.

use super::{Labels, Secret, secret, values};
use crate::Error;
use serde::Deserialize;
use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

/// What understands the profiles.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// Grafana Pyroscope, by `push.v1`.
    Pyroscope,
    /// Whoever speaks OTLP over HTTP: the OpenTelemetry collector.
    Otlp,
    /// Parca, by `WriteRaw`.
    Parca,
    /// A directory of pprof files.
    Directory,
}

impl Kind {
    /// Every kind.
    pub const ALL: [Self; 4] = [Self::Pyroscope, Self::Otlp, Self::Parca, Self::Directory];

    /// Its name in the configuration.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Pyroscope => "pyroscope",
            Self::Otlp => "otlp",
            Self::Parca => "parca",
            Self::Directory => "directory",
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// One place where profiles are sent. The fields are the keys of the file, with `-` for `_`.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct SinkSettings {
    /// What it is.
    pub kind: Kind,
    /// The engine's base URL (`http://pyroscope:4040`), or the directory.
    pub url: String,
    /// What its queue and its metrics are called; its kind unless told.
    #[serde(default)]
    pub name: String,
    /// Labels of all that is sent there.
    #[serde(default)]
    pub labels: Labels,
    /// The tenant (`X-Scope-OrgID`).
    pub tenant: Option<String>,
    /// Bearer token.
    pub token: Option<Secret>,
    /// A file that holds it.
    pub token_file: Option<PathBuf>,
    /// User of basic authentication.
    pub username: Option<String>,
    /// Password of basic authentication.
    pub password: Option<Secret>,
    /// A file that holds it.
    pub password_file: Option<PathBuf>,
    /// Certificate authorities (PEM) beside the system's.
    pub ca_file: Option<PathBuf>,
    /// Proxy (`http://`, `https://` or `socks5://`); unless told the environment's (`HTTPS_PROXY`, `NO_PROXY`, ...).
    pub proxy: Option<String>,
    /// How long one request may take.
    #[serde(default = "ten_seconds", deserialize_with = "values::duration")]
    pub timeout: Duration,
    /// Most bytes of the queue; what is oldest is given up for what is new.
    #[serde(default = "queue_bytes", deserialize_with = "values::bytes")]
    pub max_queue: u64,
    /// What has waited longer is given up: engines refuse what is old.
    #[serde(default = "an_hour", deserialize_with = "values::duration")]
    pub max_age: Duration,
    /// Most samples of one profile; the smallest are added up beyond.
    #[serde(default = "sixteen_thousand")]
    pub max_samples: usize,
    /// Whether threads are kept apart (as labels `thread` and `tid`).
    #[serde(default)]
    pub threads: bool,
}

fn ten_seconds() -> Duration {
    Duration::from_secs(10)
}

fn an_hour() -> Duration {
    Duration::from_secs(3600)
}

const fn queue_bytes() -> u64 {
    256 << 20
}

const fn sixteen_thousand() -> usize {
    16_000
}

impl FromStr for SinkSettings {
    type Err = String;

    /// `KIND=URL`, everything else as it is unless told.
    fn from_str(text: &str) -> Result<Self, String> {
        let parts = text.split_once('=').filter(|(_, url)| !url.is_empty());
        let (kind, url) = parts.ok_or("write KIND=URL, like pyroscope=http://127.0.0.1:4040")?;
        let kind = Kind::ALL.into_iter().find(|known| known.name() == kind);
        let kinds = Kind::ALL.map(Kind::name).join(", ");
        Ok(Self {
            kind: kind.ok_or_else(|| format!("no such kind of sink; there are {kinds}"))?,
            url: url.to_owned(),
            name: String::new(),
            labels: Labels::new(),
            tenant: None,
            token: None,
            token_file: None,
            username: None,
            password: None,
            password_file: None,
            ca_file: None,
            proxy: None,
            timeout: ten_seconds(),
            max_queue: queue_bytes(),
            max_age: an_hour(),
            max_samples: sixteen_thousand(),
            threads: false,
        })
    }
}

impl SinkSettings {
    /// Reads secrets, and checks what one value does not show.
    ///
    /// # Errors
    /// If something does not fit together.
    pub fn complete(&mut self) -> Result<(), Error> {
        if self.name.is_empty() {
            self.kind.name().clone_into(&mut self.name);
        }
        let name = &self.name;
        let wrong = |what: &str| Err(Error::usage(format!("sink '{name}': {what}")));
        // It is the name of a directory, and a label of metrics.
        if name.starts_with('.') || name.contains(|c: char| !c.is_ascii_alphanumeric() && !"._-".contains(c)) {
            return wrong("its name may have letters, digits, '.', '_' and '-'");
        }
        if self.kind == Kind::Directory {
            if self.url.contains("://") {
                return wrong("the url of a directory is its path");
            }
        } else {
            let rest = self.url.strip_prefix("http://").or_else(|| self.url.strip_prefix("https://"));
            // A password in a URL would be in messages.
            if rest.is_none_or(|rest| rest.is_empty() || rest.contains(['@', '?', '#'])) {
                return wrong("its url must be http://HOST or https://HOST, without user, query and fragment");
            }
        }
        self.token = secret::read(self.token.take(), self.token_file.take().as_deref())?;
        self.password = secret::read(self.password.take(), self.password_file.take().as_deref())?;
        if self.token.is_some() && self.username.is_some() {
            return wrong("give a token or a user name, not both");
        }
        if self.username.is_some() != self.password.is_some() {
            return wrong("basic authentication needs a username and a password");
        }
        if self.max_samples == 0 || self.timeout.is_zero() {
            return wrong("max-samples and timeout must be more than 0");
        }
        Ok(())
    }
}
