//! `profrec agent` and `profrec push` on the command line.

use crate::error::Error;
use ::agent::Push;
use ::agent::settings::{Labels, LogFormat, LogLevel, Output, Settings, SinkSettings};
use clap::Args;
use profile::Mode;
use std::path::PathBuf;
use std::time::{Duration, SystemTime};

pub(super) const AGENT_EXAMPLES: &str = "\
Examples:
  profrec agent -o profiles                                         a minute of every process that listens: one .col, one page
  profrec agent -c -o profiles --rotating-output                    minute after minute, the last one kept
  profrec agent -c --sink pyroscope=http://pyroscope:4040           to Grafana Pyroscope
  profrec agent -c --sink otlp=http://collector:4318 --mode cpu,heap
  profrec agent --config /etc/profrec/agent.toml --check            what a configuration comes to

Processes are found that carry the library and were started with PROFILE_RECORDER_SERVER_URL. SIGHUP reads the configuration again. SIGTERM and Ctrl-C end it with what was recorded so far.";

pub(super) const PUSH_EXAMPLES: &str = "\
Examples:
  profrec push p.pb.gz --sink pyroscope=http://127.0.0.1:4040 --service shop
  profrec push last_profile.col --sink otlp=http://127.0.0.1:4318
  profrec push old.folded --end 2026-11-20T12:00:00Z --sink directory=archive

A profile that does not tell when it was recorded ended when its file was written, unless --start and --end say it.";

/// What `agent` was asked for. Flags win over the file.
#[derive(Clone, Debug, Args)]
pub(crate) struct Agent {
    /// Read this TOML file
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Tell what the configuration comes to, and record nothing
    #[arg(long)]
    pub(crate) check: bool,
    /// Samples a second, 1 to 10000 [default: 11]
    #[arg(short, long, visible_alias = "profiling-frequency", value_name = "N", value_parser = super::parse_hz)]
    frequency: Option<u32>,
    /// Length of a cycle [default: 60]
    #[arg(short, long, visible_alias = "profiling-duration", value_name = "SECONDS", value_parser = super::parse_duration)]
    duration: Option<Duration>,
    /// One cycle after the other, until SIGTERM
    #[arg(short, long)]
    continuous: bool,
    /// What to measure: cpu, wall, offcpu, allocs, heap; several separated by commas [default: cpu]
    #[arg(long = "mode", value_name = "MODE", value_delimiter = ',', value_parser = ::agent::settings::parse_mode)]
    modes: Vec<Mode>,
    /// Mean bytes between two sampled allocations [default: as each process was started with]
    #[arg(long, value_name = "BYTES", value_parser = ::agent::settings::parse_size)]
    alloc_interval: Option<u64>,
    /// Most of the machine's processor time that recording may take; the frequency is lowered to keep to it [default: 1]
    #[arg(long, value_name = "PERCENT")]
    max_overhead: Option<f64>,
    /// Write profile_TIME.col and .html here, and links to the last ones
    #[arg(short, long, value_name = "DIR")]
    output_dir: Option<PathBuf>,
    /// Keep only the last cycle's files
    #[arg(long)]
    rotating_output: bool,
    /// Write no flame graph pages
    #[arg(long)]
    no_flamegraph: bool,
    /// Do not tell applications apart by their commands
    #[arg(long)]
    disable_application_identifiers: bool,
    /// Send profiles there: pyroscope=URL, otlp=URL, parca=URL or directory=PATH; can be given several times
    #[arg(long = "sink", value_name = "KIND=URL")]
    sinks: Vec<SinkSettings>,
    /// What everything that is sent is called [default: each process by its application]
    #[arg(long, value_name = "NAME")]
    service_name: Option<String>,
    /// A label of everything; can be given several times
    #[arg(long = "label", value_name = "KEY=VALUE", value_parser = label)]
    labels: Vec<(String, String)>,
    /// Keep queues here [default: /var/lib/profrec for root, else ~/.local/state/profrec]
    #[arg(long, value_name = "DIR")]
    state_dir: Option<PathBuf>,
    /// Answer /health and /metrics at this address
    #[arg(long, value_name = "HOST:PORT")]
    listen: Option<String>,
    /// Messages as an object a line
    #[arg(long)]
    log_json: bool,
    /// More messages
    #[arg(short, long)]
    verbose: bool,
}

impl Agent {
    /// What the file says, and the flags over it. The file is read each time.
    pub(crate) fn settings(&self) -> Result<Settings, Error> {
        let mut settings = self.config.as_deref().map(Settings::read).transpose()?.unwrap_or_default();
        let flags = self.clone();
        settings.frequency = flags.frequency.unwrap_or(settings.frequency);
        settings.duration = flags.duration.unwrap_or(settings.duration);
        settings.continuous |= flags.continuous;
        settings.appids &= !flags.disable_application_identifiers;
        settings.alloc_interval = flags.alloc_interval.or(settings.alloc_interval);
        settings.max_overhead = flags.max_overhead.unwrap_or(settings.max_overhead);
        settings.state_dir = flags.state_dir.or(settings.state_dir);
        settings.listen = flags.listen.or(settings.listen);
        if !flags.modes.is_empty() {
            settings.modes = flags.modes;
        }
        if let Some(directory) = flags.output_dir {
            settings.output.get_or_insert_default().directory = directory;
        }
        match &mut settings.output {
            Some(output) => {
                output.rotating |= flags.rotating_output;
                output.flamegraph &= !flags.no_flamegraph;
            }
            None if flags.rotating_output || flags.no_flamegraph => settings.output = Some(Output::default()),
            None => {}
        }
        settings.sinks.extend(flags.sinks);
        settings.labels.extend(flags.labels);
        settings.labels.extend(flags.service_name.map(|name| ("service_name".to_owned(), name)));
        if flags.log_json {
            settings.log.format = LogFormat::Json;
        }
        if flags.verbose {
            settings.log.level = LogLevel::Debug;
        }
        Ok(settings)
    }
}

/// What `push` was asked for.
#[derive(Clone, Debug)]
pub(crate) struct PushFiles {
    /// The profiles.
    pub(crate) files: Vec<PathBuf>,
    /// When they begin and end, in place of what they say.
    pub(crate) window: (Option<SystemTime>, Option<SystemTime>),
    /// Where they go.
    pub(crate) push: Push,
    /// Say nothing unless something goes wrong.
    pub(crate) quiet: bool,
}

#[derive(Debug, Args)]
pub(super) struct TypedPush {
    /// The profiles: .profrec, pprof, perf script, collapsed stacks, .col, DHAT, gzipped or not
    #[arg(value_name = "FILE", required = true)]
    files: Vec<PathBuf>,
    /// Send them there: pyroscope=URL, otlp=URL, parca=URL or directory=PATH; can be given several times
    #[arg(long = "sink", value_name = "KIND=URL")]
    sinks: Vec<SinkSettings>,
    /// Send them to the sinks of this TOML file too, with its tokens and certificates
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// What they are profiles of [default: the process, or the name of the file]
    #[arg(long, value_name = "NAME")]
    service: Option<String>,
    /// A label of all; can be given several times
    #[arg(long = "label", value_name = "KEY=VALUE", value_parser = label)]
    labels: Vec<(String, String)>,
    /// When the profiles begin, like 2026-11-20T12:00:00Z [default: as they say]
    #[arg(long, value_name = "TIME", value_parser = time)]
    start: Option<SystemTime>,
    /// When the profiles end [default: as they say, or when the file was written]
    #[arg(long, value_name = "TIME", value_parser = time)]
    end: Option<SystemTime>,
    /// How long to try
    #[arg(long, value_name = "SECONDS", default_value = "60", value_parser = super::parse_duration)]
    wait: Duration,
    /// Print nothing but errors
    #[arg(short, long)]
    quiet: bool,
}

impl TypedPush {
    pub(super) fn understand(self) -> Result<PushFiles, Error> {
        let mut sinks = self.sinks;
        sinks.extend(self.config.as_deref().map(Settings::read).transpose()?.unwrap_or_default().sinks);
        if sinks.is_empty() {
            return Err(Error::usage("nothing says where to; name --sink KIND=URL, or --config FILE with sinks"));
        }
        if self.start.zip(self.end).is_some_and(|(start, end)| end < start) {
            return Err(Error::usage("--end is before --start"));
        }
        let labels: Labels = self.labels.into_iter().collect();
        let push = Push { sinks, service: self.service, labels, wait: self.wait };
        Ok(PushFiles { files: self.files, window: (self.start, self.end), push, quiet: self.quiet })
    }
}

fn label(text: &str) -> Result<(String, String), String> {
    let parts = text.split_once('=').filter(|(key, _)| !key.is_empty());
    parts.map(|(key, value)| (key.to_owned(), value.to_owned())).ok_or_else(|| "write KEY=VALUE".to_owned())
}

fn time(text: &str) -> Result<SystemTime, String> {
    humantime::parse_rfc3339_weak(text).map_err(|e| format!("{e}; write it like 2026-11-20T12:00:00Z"))
}
