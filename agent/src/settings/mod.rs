//! What the agent was told to do: a TOML file, and flags that win over it.

mod secret;
mod sink;
mod values;

pub use values::{parse_mode, parse_size};

pub use secret::Secret;
pub use sink::{Kind, SinkSettings};

use crate::{Error, reason};
use profile::{Glob, Mode};
use serde::Deserialize;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Labels of a process, or of everything that a sink is sent.
pub type Labels = BTreeMap<String, String>;

/// Everything that can be set. The fields are the keys of the file, with `-` for `_`.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub struct Settings {
    /// Samples a second of the time modes.
    pub frequency: u32,
    /// Length of a cycle.
    #[serde(deserialize_with = "values::duration")]
    pub duration: Duration,
    /// Whether a cycle follows the other; else there is one.
    pub continuous: bool,
    /// What is measured of processes for which no target says anything else.
    #[serde(deserialize_with = "values::modes")]
    pub modes: Vec<Mode>,
    /// Mean bytes between two sampled allocations; `None`: as each process was started with.
    #[serde(deserialize_with = "values::some_bytes")]
    pub alloc_interval: Option<u64>,
    /// How much is asked about addresses: `full`, `names` or `none`.
    pub symbols: Symbols,
    /// Part of a cycle, 0 to 1, by which the lengths of cycles differ, so that many machines do not send at one time; the first begins at any time within a cycle's length times this.
    pub jitter: f64,
    /// Most of the machine's processor time that all recorders and the agent may take, in percent; the frequency is lowered to keep to it.
    pub max_overhead: f64,
    /// Most processes that are recorded at one time.
    pub max_processes: usize,
    /// Largest profile that is taken from a process, in bytes.
    #[serde(deserialize_with = "values::bytes")]
    pub max_profile: u64,
    /// Whether processes are found by the registry directory.
    pub registry: bool,
    /// Further registry directories, of containers for instance.
    pub registries: Vec<PathBuf>,
    /// How often new processes are looked for.
    #[serde(deserialize_with = "values::duration")]
    pub scan: Duration,
    /// Whether stacks begin with the application that the command tells.
    pub appids: bool,
    /// Where queues are kept; `None`: the user's directory for states.
    pub state_dir: Option<PathBuf>,
    /// Address of the health and metrics endpoint, `127.0.0.1:9180` for instance.
    pub listen: Option<String>,
    /// How long recorders may take to answer, and queues to empty, before the agent ends.
    #[serde(deserialize_with = "values::duration")]
    pub drain: Duration,
    /// Messages of the agent.
    pub log: Log,
    /// Files on this machine.
    pub output: Option<Output>,
    /// Labels of every process.
    pub labels: Labels,
    /// What is known of certain processes.
    pub targets: Vec<Target>,
    /// Where profiles are sent.
    pub sinks: Vec<SinkSettings>,
}

/// How much is asked about addresses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Symbols {
    /// Functions, inlined ones, files and lines.
    Full,
    /// Functions.
    #[default]
    Names,
    /// Nothing: the engine names addresses by build id.
    None,
}

impl Symbols {
    /// Its name in requests.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Full => "full",
            Self::Names => "names",
            Self::None => "none",
        }
    }
}

/// Messages of the agent, on standard error.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub struct Log {
    /// Lines of text, or of JSON.
    pub format: LogFormat,
    /// The least important messages that are shown.
    pub level: LogLevel,
}

/// Form of messages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LogFormat {
    /// For people.
    #[default]
    Text,
    /// An object a line.
    Json,
}

/// Importance of messages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[allow(missing_docs, reason = "the names say it")]
pub enum LogLevel {
    Error,
    Warn,
    #[default]
    Info,
    Debug,
}

/// Files on this machine.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub struct Output {
    /// Where they are written.
    pub directory: PathBuf,
    /// Whether only the last cycle's files are kept.
    pub rotating: bool,
    /// Whether a flame graph page is written beside the collapsed stacks.
    pub flamegraph: bool,
    /// Files older than this are removed.
    #[serde(deserialize_with = "values::some_duration")]
    pub max_age: Option<Duration>,
    /// The oldest files are removed while all have more bytes than this.
    #[serde(deserialize_with = "values::some_bytes")]
    pub max_size: Option<u64>,
}

impl Default for Output {
    fn default() -> Self {
        Self { directory: PathBuf::new(), rotating: false, flamegraph: true, max_age: None, max_size: None }
    }
}

/// Processes that something is known about: found by the registry and matched by name, or found here.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub struct Target {
    /// Names of executables, `*` for anything: processes of the registry to which this applies.
    pub names: Vec<String>,
    /// Unix sockets, with `*` in the last component: processes that listen there.
    pub sockets: Vec<PathBuf>,
    /// `HOST:PORT` or `HOST:FIRST-LAST`: processes that listen there.
    pub ports: Vec<String>,
    /// The token that these want.
    pub token: Option<Secret>,
    /// A file that holds it.
    pub token_file: Option<PathBuf>,
    /// What is measured; nothing if empty.
    #[serde(deserialize_with = "values::some_modes")]
    pub modes: Option<Vec<Mode>>,
    /// Samples a second, in place of the agent's.
    pub frequency: Option<u32>,
    /// Labels of these.
    pub labels: Labels,
}

impl Target {
    /// Whether it applies to a process of the registry with this name.
    pub(crate) fn matches(&self, name: &str) -> bool {
        self.names.iter().any(|pattern| Glob::new(pattern).matches(name))
    }
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            frequency: 11,
            duration: Duration::from_secs(60),
            continuous: false,
            modes: vec![Mode::Cpu],
            alloc_interval: None,
            symbols: Symbols::default(),
            jitter: 0.05,
            max_overhead: 1.0,
            max_processes: 1000,
            max_profile: 16 << 20,
            registry: true,
            registries: Vec::new(),
            scan: Duration::from_secs(5),
            appids: true,
            state_dir: None,
            listen: None,
            drain: Duration::from_secs(10),
            log: Log::default(),
            output: None,
            labels: Labels::new(),
            targets: Vec::new(),
            sinks: Vec::new(),
        }
    }
}

impl Settings {
    /// What a file says.
    ///
    /// # Errors
    /// If it cannot be read, or says what there is not; the error names the line.
    pub fn read(path: &Path) -> Result<Self, Error> {
        let text = std::fs::read_to_string(path)
            .map_err(|e| Error::failure(format!("cannot read '{}': {}", path.display(), reason(&e))))?;
        toml::from_str(&text).map_err(|e| {
            let line = e.span().map_or(1, |span| 1 + text.bytes().take(span.start).filter(|b| *b == b'\n').count());
            // What stands on the line may be a token: only the message is shown.
            Error::usage(format!("{}:{line}: {}", path.display(), e.message().replace('\n', " ")))
        })
    }

    /// Checks what no single value shows, and reads the files that hold tokens.
    ///
    /// # Errors
    /// If something does not fit together; the error says which.
    pub fn complete(mut self) -> Result<Self, Error> {
        let wrong = |what: String| Err(Error::usage(what));
        let frequencies = self.targets.iter().filter_map(|target| target.frequency).chain([self.frequency]);
        if let Some(wrong_one) = frequencies.into_iter().find(|hz| !(1..=10_000).contains(hz)) {
            return wrong(format!("frequency {wrong_one} is not from 1 to 10000"));
        }
        if !(1.0..=3600.0).contains(&self.duration.as_secs_f64()) {
            return wrong("duration must be from 1 second to an hour".to_owned());
        }
        if !(0.0..=1.0).contains(&self.jitter) {
            return wrong(format!("jitter {} is not from 0 to 1", self.jitter));
        }
        if !(self.max_overhead > 0.0 && self.max_overhead <= 100.0) {
            return wrong(format!("max-overhead {} is not a percentage above 0", self.max_overhead));
        }
        if self.max_processes == 0 || self.scan.is_zero() {
            return wrong("max-processes and scan must be more than 0".to_owned());
        }
        if self.output.as_ref().is_some_and(|output| output.directory.as_os_str().is_empty()) {
            return wrong("[output] needs a directory".to_owned());
        }
        if self.output.is_none() && self.sinks.is_empty() {
            return wrong("profiles would go nowhere; name --output-dir DIR or --sink KIND=URL, or both".to_owned());
        }
        for target in &mut self.targets {
            target.token = secret::read(target.token.take(), target.token_file.as_deref())?;
            for port in &target.ports {
                crate::discover::ports(port).map_err(Error::usage)?;
            }
            for socket in &target.sockets {
                if !socket.is_absolute() {
                    return wrong(format!("the socket '{}' is not an absolute path", socket.display()));
                }
            }
        }
        let modes = self.targets.iter_mut().filter_map(|target| target.modes.as_mut()).chain([&mut self.modes]);
        for modes in modes {
            let mut seen = BTreeSet::new();
            modes.retain(|mode| seen.insert(*mode));
        }
        let mut names = BTreeSet::new();
        for sink in &mut self.sinks {
            sink.complete()?;
            if !names.insert(sink.name.clone()) {
                return wrong(format!("two sinks are named '{}'; give each a name of its own", sink.name));
            }
        }
        Ok(self)
    }

    /// Where queues are kept.
    ///
    /// # Errors
    /// If nothing is set, and the user has no home.
    pub fn state_dir(&self) -> Result<PathBuf, Error> {
        if let Some(directory) = &self.state_dir {
            return Ok(directory.clone());
        }
        if rustix::process::geteuid().is_root() {
            return Ok(PathBuf::from("/var/lib/profrec"));
        }
        let absolute = |name: &str| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
        let states = absolute("XDG_STATE_HOME").or_else(|| absolute("HOME").map(|home| home.join(".local/state")));
        let states = states.map(|states| states.join("profrec"));
        states.ok_or_else(|| Error::usage("there is no home directory for the queues; name one with --state-dir"))
    }
}

#[cfg(test)]
mod tests;
