//! What a request asks to be recorded, and in which form.

use profile::{Format, Glob};
use symbolize::Detail;

use super::problem::Problem;
use crate::mode::Mode;
use crate::session::Request;

/// A recording and what becomes of it.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Order {
    pub(super) request: Request,
    pub(super) format: Format,
    pub(super) detail: Detail,
    /// Which threads' samples are kept.
    pub(super) thread: Option<Glob>,
    pub(super) delivery: Delivery,
}

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
