//! Query strings: `seconds=30&hz=99&format=pprof`.

use std::borrow::Cow;

use percent_encoding::percent_decode_str;
use profile::{Format, Glob};
use symbolize::Detail;

use super::order::{self, Delivery, Name, Order};
use super::problem::Problem;
use super::sessions;
use super::stacks_text::Debug;
use crate::limits::{self, Allowed, DEFAULT_HZ, DEFAULT_SECONDS};
use crate::session::Request;

/// Most parameters of one request; more are an attack, not a question.
const MAX_PARAMETERS: usize = 64;

/// The parameters of a request, decoded.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Query<'a>(Vec<(Cow<'a, str>, Cow<'a, str>)>);

impl<'a> Query<'a> {
    pub(super) fn parse(query: &'a str) -> Result<Self, Problem> {
        let parameters = query.split('&').filter(|parameter| !parameter.is_empty());
        if parameters.clone().count() > MAX_PARAMETERS {
            return Err(Problem::BadRequest(format!("more than {MAX_PARAMETERS} parameters")));
        }
        parameters
            .map(|parameter| {
                let (name, value) = parameter.split_once('=').unwrap_or((parameter, ""));
                Ok((decode(name)?, decode(value)?))
            })
            .collect::<Result<_, _>>()
            .map(Self)
    }

    /// The value of a parameter; repeated ones must agree.
    pub(super) fn value(&self, name: &str) -> Result<Option<&str>, Problem> {
        let mut values = self.0.iter().filter(|(given, _)| given == name).map(|(_, value)| value.as_ref());
        let first = values.next();
        match values.find(|value| Some(*value) != first) {
            Some(_) => Err(Problem::BadRequest(format!("{name:?} is given twice with different values"))),
            None => Ok(first),
        }
    }

    fn read<T>(&self, name: &str, parse: impl FnOnce(&str) -> Result<T, Allowed>) -> Result<Option<T>, Problem> {
        self.read_or(name, |name, value| parse(value).map_err(|allowed| Problem::parameter(name, value, allowed.0)))
    }

    pub(super) fn read_or<T>(
        &self,
        name: &str,
        parse: impl FnOnce(&str, &str) -> Result<T, Problem>,
    ) -> Result<Option<T>, Problem> {
        self.value(name)?.map(|value| parse(name, value)).transpose()
    }

    /// What a path below `/debug/pprof/` asks for. `name` is its last part and what it measures unless told.
    pub(super) fn order(&self, name: Name) -> Result<Order, Problem> {
        let path = name.text;
        let mode = self.read_or("mode", order::mode)?.unwrap_or(name.mode);
        let seconds = self.read("seconds", limits::seconds)?;
        let interval = self.read("interval", limits::interval)?;
        let debug = self.read_or("debug", |name, value| match value {
            "0" => Ok(None),
            "1" => Ok(Some(Debug::Stacks)),
            "2" => Ok(Some(Debug::Samples)),
            _ => Err(Problem::parameter(name, value, "0, 1 (stacks as text) or 2 (samples as text)")),
        })?;
        let format = self.read_or("format", order::format)?;
        if debug.flatten().is_some() && format.is_some() {
            return Err(Problem::BadRequest("\"debug\" asks for text: \"format\" cannot be given as well".to_owned()));
        }
        let window = match mode {
            _ if mode.is_time() => Some(seconds.unwrap_or(DEFAULT_SECONDS)),
            _ if mode.is_memory() => seconds,
            // A moment has no length.
            _ => None,
        };
        if interval.is_some() && mode.is_memory() && window.is_none() {
            return Err(Problem::BadRequest("\"interval\" belongs to a window: \"seconds\" is needed too".to_owned()));
        }
        let base = if mode == name.mode { path } else { mode.name() };
        let delta = if mode.is_memory() && window.is_some() { "-delta" } else { "" };
        Ok(Order {
            request: Request {
                mode,
                hz: self.hz()?.unwrap_or(DEFAULT_HZ),
                seconds: window,
                interval: interval.map(|bytes| bytes.get()).filter(|_| mode.is_memory()),
            },
            empty: name.empty.filter(|_| mode == name.mode),
            format: format.unwrap_or(Format::Pprof),
            debug: debug.flatten(),
            detail: self.read_or("symbols", order::detail)?.unwrap_or(Detail::Full),
            thread: self.value("thread")?.map(Glob::new),
            delivery: Delivery::Go { file_name: format!("{base}{delta}") },
            session: self.session()?,
        })
    }

    /// The name of a recording, of one that is to begin or that is to end.
    pub(super) fn session(&self) -> Result<Option<sessions::Name>, Problem> {
        self.read_or("session", sessions::Name::of)
    }

    fn hz(&self) -> Result<Option<u32>, Problem> {
        match (self.read("hz", limits::hz)?, self.read("rate", limits::hz)?) {
            (Some(hz), Some(rate)) if hz != rate => {
                Err(Problem::BadRequest("\"hz\" and \"rate\" mean the same and differ".to_owned()))
            }
            (hz, rate) => Ok(hz.or(rate)),
        }
    }
}

fn decode(text: &str) -> Result<Cow<'_, str>, Problem> {
    let undecodable = |_| Problem::BadRequest("the query is not UTF-8".to_owned());
    if text.contains('+') {
        let spaced = text.replace('+', " ");
        return percent_decode_str(&spaced)
            .decode_utf8()
            .map(|text| Cow::Owned(text.into_owned()))
            .map_err(undecodable);
    }
    percent_decode_str(text).decode_utf8().map_err(undecodable)
}

#[cfg(test)]
mod tests;
