//! What waits to be sent to one sink, in files, and the account of what became of everything.
//!
//! ```text
//! DIRECTORY/lock            held by the agent that uses the queue
//! DIRECTORY/account.json    what was sent and given up
//! DIRECTORY/SEQ-TIME        an item: its body; SEQ counts from 1, TIME is when it came, in nanoseconds since 1970
//! ```
//!
//! At every moment, accepted = sent + given up + kept, over restarts too. An item is settled in this order: the account is written with its
//! number, then its file is removed; what ends in between is found by that number. That an item is about to be sent is written down first, so that
//! one of which nobody knows whether it arrived (the agent was killed, the connection was cut) is counted in `repeated` when it is sent again.

mod account;

pub use account::Account;

use crate::{Error, reason};
use account::Saved;
use rustix::fs::{FlockOperation, flock};
use std::collections::VecDeque;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime};

/// How much may wait, and how long.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    pub(crate) bytes: u64,
    pub(crate) age: Duration,
}

/// Something that waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Item {
    seq: u64,
    unix_ns: u64,
    bytes: u64,
}

/// What became of an item that was sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Settled {
    /// It arrived.
    Sent,
    /// It will never be taken, for this reason.
    GivenUp(&'static str),
    /// It did not arrive, and waits.
    Kept,
    /// It waits; perhaps it arrived.
    Unknown,
}

/// A queue of one sink.
#[derive(Debug)]
pub(crate) struct Queue {
    directory: PathBuf,
    limits: Limits,
    state: Mutex<State>,
    changed: Condvar,
    /// Closed with the queue.
    _lock: File,
}

#[derive(Debug)]
struct State {
    items: VecDeque<Item>,
    saved: Saved,
    next_seq: u64,
    closed: bool,
}

impl Queue {
    /// The queue in a directory, with what was kept there.
    ///
    /// # Errors
    /// If another agent uses it, or it cannot be read.
    pub(crate) fn open(directory: &Path, limits: Limits) -> Result<Self, Error> {
        let cannot =
            |e: &io::Error| Error::failure(format!("cannot use the queue in '{}': {}", directory.display(), reason(e)));
        // What programs do is nobody else's business.
        fs::DirBuilder::new().recursive(true).mode(0o700).create(directory).map_err(|e| cannot(&e))?;
        let lock = File::create(directory.join("lock")).map_err(|e| cannot(&e))?;
        if flock(&lock, FlockOperation::NonBlockingLockExclusive).is_err() {
            return Err(Error::failure(format!("another agent uses the queue in '{}'", directory.display())));
        }
        let mut saved = Saved::read(directory)?;
        let mut items = Vec::new();
        for entry in fs::read_dir(directory).map_err(|e| cannot(&e))?.flatten() {
            let Some((seq, unix_ns)) = numbers(&entry.file_name().to_string_lossy()) else { continue };
            if saved.settled == Some(seq) {
                fs::remove_file(entry.path()).map_err(|e| cannot(&e))?;
                continue;
            }
            items.push(Item { seq, unix_ns, bytes: entry.metadata().map_err(|e| cannot(&e))?.len() });
        }
        items.sort_by_key(|item| item.seq);
        let last = items.last().map_or(0, |item| item.seq).max(saved.settled.unwrap_or(0)).max(saved.highest);
        saved.highest = last;
        let state = State { items: items.into(), saved, next_seq: last + 1, closed: false };
        Ok(Self {
            directory: directory.to_owned(),
            limits,
            state: Mutex::new(state),
            changed: Condvar::new(),
            _lock: lock,
        })
    }

    /// Takes a body over. What is oldest makes room for it.
    pub(crate) fn put(&self, body: &[u8]) {
        let mut state = self.state();
        let bytes = body.len() as u64;
        if bytes > self.limits.bytes {
            return self.count_lost(&mut state, "larger than the queue");
        }
        while !state.items.is_empty() && state.bytes() + bytes > self.limits.bytes {
            // The one that is being sent stays: it may be arriving.
            let oldest = usize::from(state.items.front().map(|item| item.seq) == state.saved.sending);
            match state.items.get(oldest).copied() {
                Some(item) => self.settle_in(&mut state, item, Some("the queue is full")),
                None => return self.count_lost(&mut state, "the queue is full"),
            }
        }
        let unix_ns = SystemTime::UNIX_EPOCH.elapsed().map_or(0, |since| u64::try_from(since.as_nanos()).unwrap_or(0));
        let item = Item { seq: state.next_seq, unix_ns, bytes };
        let (path, new) = (self.path(item), self.directory.join("new"));
        if let Err(e) = fs::write(&new, body).and_then(|()| fs::rename(&new, &path)) {
            tracing::error!(queue = %self.directory.display(), error = reason(&e), "cannot keep a profile");
            return self.count_lost(&mut state, "the disk");
        }
        state.next_seq += 1;
        state.items.push_back(item);
        self.changed.notify_all();
    }

    /// The oldest item, not before `earliest`; waits for one. `None` when the queue was closed.
    pub(crate) fn next(&self, earliest: Option<Instant>) -> Option<Item> {
        let mut state = self.state();
        loop {
            if state.closed {
                return None;
            }
            self.expire(&mut state);
            let wait = earliest.map_or(Duration::ZERO, |at| at.saturating_duration_since(Instant::now()));
            match state.items.front() {
                Some(item) if wait.is_zero() => return Some(*item),
                front => {
                    // Nothing expires that is not there.
                    let wait =
                        if front.is_none() { Duration::from_secs(3600) } else { wait.min(Duration::from_secs(5)) };
                    state = self.changed.wait_timeout(state, wait).unwrap_or_else(PoisonError::into_inner).0;
                }
            }
        }
    }

    /// The body of an item that is about to be sent; `None` if it can no longer be read, which settles it.
    pub(crate) fn begin(&self, item: Item) -> Option<Vec<u8>> {
        let body = fs::read(self.path(item));
        let mut state = self.state();
        if body.is_err() {
            self.settle_in(&mut state, item, Some("unreadable"));
            return None;
        }
        if state.saved.sending.replace(item.seq) == Some(item.seq) {
            state.saved.account.repeated += 1;
        }
        self.save(&mut state);
        body.ok()
    }

    /// Says what became of it.
    pub(crate) fn settle(&self, item: Item, settled: &Settled) {
        let mut state = self.state();
        match settled {
            Settled::Sent => self.settle_in(&mut state, item, None),
            Settled::GivenUp(why) => self.settle_in(&mut state, item, Some(why)),
            Settled::Kept => {
                state.saved.sending = None;
                self.save(&mut state);
            }
            Settled::Unknown => {}
        }
    }

    /// What became of everything so far.
    pub(crate) fn account(&self) -> Account {
        let state = self.state();
        Account { kept: state.items.len() as u64, kept_bytes: state.bytes(), ..state.saved.account.clone() }
    }

    /// Nothing is taken out from now on; whoever waits is woken.
    pub(crate) fn close(&self) {
        self.state().closed = true;
        self.changed.notify_all();
    }

    fn expire(&self, state: &mut State) {
        let now = SystemTime::now();
        while let Some(item) = state.items.front().copied() {
            let came = SystemTime::UNIX_EPOCH + Duration::from_nanos(item.unix_ns);
            // A clock that was set back makes nothing old.
            if now.duration_since(came).unwrap_or_default() <= self.limits.age {
                return;
            }
            self.settle_in(state, item, Some("too old"));
        }
    }

    fn count_lost(&self, state: &mut State, why: &str) {
        state.saved.account.give_up(why);
        self.save(state);
    }

    fn settle_in(&self, state: &mut State, item: Item, given_up: Option<&str>) {
        match given_up {
            Some(why) => state.saved.account.give_up(why),
            None => {
                state.saved.account.sent += 1;
                state.saved.account.sent_bytes += item.bytes;
            }
        }
        if state.saved.sending == Some(item.seq) {
            state.saved.sending = None;
        }
        state.saved.settled = Some(item.seq);
        state.saved.highest = state.next_seq - 1;
        self.save(state);
        state.items.retain(|other| other.seq != item.seq);
        if let Err(e) = fs::remove_file(self.path(item)) {
            tracing::error!(queue = %self.directory.display(), error = reason(&e), "cannot remove what was settled");
        }
    }

    fn save(&self, state: &mut State) {
        if let Err(e) = state.saved.write(&self.directory) {
            tracing::error!(queue = %self.directory.display(), error = reason(&e), "cannot write the account");
        }
    }

    fn path(&self, item: Item) -> PathBuf {
        self.directory.join(format!("{:016}-{}", item.seq, item.unix_ns))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn bytes(&self) -> u64 {
        self.items.iter().map(|item| item.bytes).sum()
    }
}

fn numbers(name: &str) -> Option<(u64, u64)> {
    let (seq, unix_ns) = name.split_once('-').filter(|(seq, _)| seq.len() == 16)?;
    Some((seq.parse().ok()?, unix_ns.parse().ok()?))
}

#[cfg(test)]
mod tests;
