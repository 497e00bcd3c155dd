//! What a request asks to be recorded, and in which form.

use profile::{Format, Glob, SampleType};
use symbolize::Detail;

use super::problem::Problem;
use super::sessions;
use super::stacks_text::Debug;
use crate::session::Request;
use profile::Mode;

/// A recording and what becomes of it.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Order {
    pub(super) request: Request,
    /// For what is not recorded here: the columns of the empty profile that answers in its place.
    pub(super) empty: Option<&'static [SampleType]>,
    pub(super) format: Format,
    /// A text for people in place of the format.
    pub(super) debug: Option<Debug>,
    pub(super) detail: Detail,
    /// Which threads' samples are kept.
    pub(super) thread: Option<Glob>,
    pub(super) delivery: Delivery,
    /// By which it can be ended before its time.
    pub(super) session: Option<sessions::Name>,
}

/// The last part of a path below `/debug/pprof/`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Name {
    pub(super) text: &'static str,
    pub(super) mode: Mode,
    pub(super) empty: Option<&'static [SampleType]>,
}

impl Name {
    /// What Go's handlers are called beside our modes.
    const OF_GO: [Self; 5] = [
        Self { text: "profile", mode: Mode::Cpu, empty: None },
        Self { text: "goroutine", mode: Mode::Threads, empty: None },
        Self { text: "threadcreate", mode: Mode::Threads, empty: Some(&THREAD_CREATE) },
        Self { text: "block", mode: Mode::Wall, empty: Some(&CONTENTION) },
        Self { text: "mutex", mode: Mode::Wall, empty: Some(&CONTENTION) },
    ];

    /// The endpoint of that name.
    pub(super) fn find(text: &str) -> Option<Self> {
        let of_mode = |mode: Mode| Self { text: mode.name(), mode, empty: None };
        let of_go = Self::OF_GO.into_iter().find(|name| name.text == text);
        of_go.or_else(|| Mode::from_name(text).map(of_mode))
    }
}

/// Columns of Go's profile of thread creations.
static THREAD_CREATE: [SampleType; 1] = [SampleType::new("threadcreate", "count")];
/// Columns of Go's profiles of waiting.
static CONTENTION: [SampleType; 2] = [SampleType::new("contentions", "count"), SampleType::new("delay", "nanoseconds")];

/// How the result is sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Delivery {
    /// As Go's handlers: a download of that name for pprof, shown in place for all other formats.
    Go { file_name: String },
    /// As Swift Profile Recorder: a download named after process and time.
    Samples,
}

pub(super) fn mode(name: &str, value: &str) -> Result<Mode, Problem> {
    Mode::from_name(value)
        .ok_or_else(|| Problem::parameter(name, value, &format!("one of {}", Mode::ALL.map(Mode::name).join(", "))))
}

pub(super) fn format(name: &str, value: &str) -> Result<Format, Problem> {
    Format::from_name(value)
        .map_err(|_| Problem::parameter(name, value, &format!("one of {}", Format::NAMES.join(", "))))
}

pub(super) fn detail(name: &str, value: &str) -> Result<Detail, Problem> {
    match value {
        "full" => Ok(Detail::Full),
        "names" => Ok(Detail::Names),
        "none" => Ok(Detail::None),
        _ => Err(Problem::parameter(name, value, "one of full, names, none")),
    }
}
