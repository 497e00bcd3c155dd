//! Recordings that run for clients: each ends with its client, or before its time when somebody who knows its name asks for that.

use std::sync::{Mutex, PoisonError};

use super::problem::Problem;
use crate::session::Cancel;

/// Longest name of a session, in bytes.
const MAX_NAME: usize = 100;

/// The name that a client gave its recording.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Name(String);

impl Name {
    /// The value of a parameter.
    pub(super) fn of(parameter: &str, value: &str) -> Result<Self, Problem> {
        if value.is_empty() || value.len() > MAX_NAME || value.chars().any(char::is_control) {
            return Err(Problem::parameter(parameter, value, "a text of 1 to 100 bytes"));
        }
        Ok(Self(value.to_owned()))
    }
}

/// Those of one server that have a name.
#[derive(Debug, Default)]
pub(super) struct Sessions(Mutex<Vec<(Name, Cancel)>>);

impl Sessions {
    /// Begins one.
    pub(super) fn begin(&self, name: Option<Name>) -> Session<'_> {
        let session = Session { sessions: self, cancel: Cancel::new() };
        if let Some(name) = name {
            self.named(|named| named.push((name, session.cancel.clone())));
        }
        session
    }

    /// Has all of that name answer with what they have, and tells how many there are.
    pub(super) fn finish(&self, name: &Name) -> usize {
        self.named(|named| {
            let of_name = named.iter().filter(|(given, _)| given == name);
            of_name.map(|(_, cancel)| cancel.finish()).count()
        })
    }

    fn named<T>(&self, look: impl FnOnce(&mut Vec<(Name, Cancel)>) -> T) -> T {
        look(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// One that runs. Its recording is given up when this is dropped: the client went away, or the answer is complete.
pub(super) struct Session<'a> {
    sessions: &'a Sessions,
    pub(super) cancel: Cancel,
}

impl Drop for Session<'_> {
    fn drop(&mut self) {
        self.cancel.cancel();
        self.sessions.named(|named| named.retain(|(_, cancel)| !cancel.is_cancelled()));
    }
}
