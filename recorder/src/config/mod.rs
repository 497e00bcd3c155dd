//! What the environment asks for.
//!
//! [`Config::parse`] is a pure function of its [`Surroundings`]. It never fails: what cannot be understood stays at its
//! default and is told as a [`Mistake`], so that the caller can say everything at once and let the application go on.

mod address;
mod mistake;
pub(crate) mod pattern;
mod token;

use std::ffi::OsString;
use std::io;
use std::num::NonZeroU64;
use std::path::{Path, PathBuf};

pub(crate) use address::{Address, BadAddress};
pub(crate) use mistake::Mistake;
pub(crate) use token::Token;

use crate::limits::{self, DEFAULT_HZ};
use crate::log::LogLevel;
use profile::Mode;

/// Names of the variables.
pub(crate) mod variable {
    pub(crate) const SERVER_URL: &str = "PROFILE_RECORDER_SERVER_URL";
    pub(crate) const SERVER_URL_PATTERN: &str = "PROFILE_RECORDER_SERVER_URL_PATTERN";
    pub(crate) const TOKEN: &str = "PROFILE_RECORDER_TOKEN";
    pub(crate) const TOKEN_FILE: &str = "PROFILE_RECORDER_TOKEN_FILE";
    pub(crate) const ALLOC_INTERVAL: &str = "PROFILE_RECORDER_ALLOC_INTERVAL";
    pub(crate) const OUTPUT: &str = "PROFILE_RECORDER_OUTPUT";
    pub(crate) const MODE: &str = "PROFILE_RECORDER_MODE";
    pub(crate) const HZ: &str = "PROFILE_RECORDER_HZ";
    pub(crate) const LOG: &str = "PROFILE_RECORDER_LOG";
}

/// Mean bytes between sampled allocations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AllocInterval {
    /// Allocations are not recorded.
    Off,
    /// One allocation in so many bytes; 1 is every allocation.
    Bytes(NonZeroU64),
}

impl AllocInterval {
    /// The number of bytes; 0 for none.
    pub(crate) const fn bytes(self) -> u64 {
        match self {
            Self::Off => 0,
            Self::Bytes(bytes) => bytes.get(),
        }
    }
}

impl Default for AllocInterval {
    fn default() -> Self {
        Self::Bytes(const { NonZeroU64::new(512 * 1024).unwrap() })
    }
}

/// Everything that the environment can ask for.
#[derive(Clone, Debug)]
pub(crate) struct Config {
    /// Where a server shall listen, if anywhere.
    pub(crate) address: Option<Address>,
    /// What its requests must carry.
    pub(crate) token: Option<Token>,
    pub(crate) alloc_interval: AllocInterval,
    /// File to write when the process exits, placeholders replaced. Absolute: the host may go to another directory.
    pub(crate) output: Option<PathBuf>,
    /// What that file holds.
    pub(crate) mode: Mode,
    /// Its rate in ticks per second.
    pub(crate) hz: u32,
    pub(crate) log: LogLevel,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            address: None,
            token: None,
            alloc_interval: AllocInterval::default(),
            output: None,
            mode: Mode::Cpu,
            hz: DEFAULT_HZ,
            log: LogLevel::default(),
        }
    }
}

/// What parsing depends on.
pub(crate) struct Surroundings<'a> {
    pub(crate) variable: &'a dyn Fn(&str) -> Option<OsString>,
    pub(crate) file: &'a dyn Fn(&Path) -> io::Result<String>,
    pub(crate) pid: u32,
    /// Base name of the executable.
    pub(crate) exe: &'a dyn Fn() -> String,
    pub(crate) uuid: &'a dyn Fn() -> String,
    /// Where relative paths begin; `None` if that is not known.
    pub(crate) directory: &'a dyn Fn() -> Option<PathBuf>,
}

impl Config {
    /// What this process's environment asks for.
    pub(crate) fn from_env() -> (Self, Vec<Mistake>) {
        Self::parse(&Surroundings {
            variable: &|name| std::env::var_os(name),
            file: &|path| std::fs::read_to_string(path),
            pid: std::process::id(),
            exe: &pattern::exe_name,
            uuid: &pattern::random_uuid,
            directory: &|| std::env::current_dir().ok(),
        })
    }

    /// What those surroundings ask for. An empty variable counts as unset.
    pub(crate) fn parse(surroundings: &Surroundings<'_>) -> (Self, Vec<Mistake>) {
        let mut reader = Reader { surroundings, mistakes: Vec::new() };
        let defaults = Self::default();
        let config = Self {
            address: reader.address(),
            token: reader.token(),
            alloc_interval: reader.read(variable::ALLOC_INTERVAL, alloc_interval).unwrap_or_default(),
            output: reader.output(),
            mode: reader.read(variable::MODE, mode).unwrap_or(defaults.mode),
            hz: reader.read(variable::HZ, |text| limits::hz(text).map_err(needs)).unwrap_or(defaults.hz),
            log: reader.read(variable::LOG, log_level).unwrap_or_default(),
        };
        (config, reader.mistakes)
    }
}

struct Reader<'a> {
    surroundings: &'a Surroundings<'a>,
    mistakes: Vec<Mistake>,
}

impl Reader<'_> {
    fn text(&mut self, name: &'static str) -> Option<String> {
        let value = (self.surroundings.variable)(name).filter(|value| !value.is_empty())?;
        match value.into_string() {
            Ok(text) => Some(text),
            Err(bytes) => {
                self.mistakes.push(Mistake::new(name, &bytes.to_string_lossy(), "the value is not UTF-8"));
                None
            }
        }
    }

    fn read<T>(&mut self, name: &'static str, parse: impl FnOnce(&str) -> Result<T, String>) -> Option<T> {
        let text = self.text(name)?;
        match parse(&text) {
            Ok(value) => Some(value),
            Err(reason) => {
                self.mistakes.push(Mistake::new(name, &text, reason));
                None
            }
        }
    }

    fn address(&mut self) -> Option<Address> {
        if (self.surroundings.variable)(variable::SERVER_URL).is_some_and(|value| !value.is_empty()) {
            return self.read(variable::SERVER_URL, |url| {
                pattern::refuse_placeholders(url, variable::SERVER_URL_PATTERN)?;
                url.parse().map_err(|error: BadAddress| error.to_string())
            });
        }
        let surroundings = self.surroundings;
        self.read(variable::SERVER_URL_PATTERN, |text| {
            let url = pattern::expand(
                text,
                &[("PID", &|| surroundings.pid.to_string()), ("UUID", &|| (surroundings.uuid)())],
            )?;
            url.parse().map_err(|error: BadAddress| error.to_string())
        })
    }

    fn token(&mut self) -> Option<Token> {
        let text = self.text(variable::TOKEN);
        let file = self.text(variable::TOKEN_FILE);
        match (text, file) {
            (Some(_), Some(_)) => {
                self.mistakes.push(Mistake::without_value(
                    variable::TOKEN,
                    format!("set either this or {}, not both", variable::TOKEN_FILE),
                ));
                None
            }
            (Some(text), None) => self.accept_token(variable::TOKEN, &text),
            (None, Some(path)) => match (self.surroundings.file)(Path::new(&path)) {
                Ok(text) => self.accept_token(variable::TOKEN_FILE, text.trim_end_matches(['\n', '\r'])),
                Err(error) => {
                    self.mistakes.push(Mistake::new(variable::TOKEN_FILE, &path, error.to_string()));
                    None
                }
            },
            (None, None) => None,
        }
    }

    /// The token's text stays out of the message.
    fn accept_token(&mut self, name: &'static str, text: &str) -> Option<Token> {
        Token::new(text).map_err(|error| self.mistakes.push(Mistake::without_value(name, error.to_string()))).ok()
    }

    fn output(&mut self) -> Option<PathBuf> {
        let surroundings = self.surroundings;
        self.read(variable::OUTPUT, |text| {
            let path = PathBuf::from(pattern::expand(
                text,
                &[("PID", &|| surroundings.pid.to_string()), ("EXE", &|| (surroundings.exe)())],
            )?);
            profile::Format::from_path(&path).map_err(|error| error.to_string())?;
            // Joined to a directory, an absolute path stays what it is.
            Ok((surroundings.directory)().unwrap_or_default().join(path))
        })
    }
}

fn needs(allowed: limits::Allowed) -> String {
    format!("{} is needed", allowed.0)
}

fn alloc_interval(text: &str) -> Result<AllocInterval, String> {
    if text == "off" {
        return Ok(AllocInterval::Off);
    }
    limits::interval(text).map(AllocInterval::Bytes).map_err(|allowed| format!("{}, or \"off\", is needed", allowed.0))
}

fn mode(text: &str) -> Result<Mode, String> {
    Mode::from_name(text).ok_or_else(|| format!("one of {} is needed", Mode::ALL.map(Mode::name).join(", ")))
}

fn log_level(text: &str) -> Result<LogLevel, String> {
    LogLevel::from_name(text)
        .ok_or_else(|| format!("one of {} is needed", LogLevel::ALL.map(LogLevel::name).join(", ")))
}

#[cfg(test)]
mod tests;
