//! The questions on a thread of their own, so that keys never wait for an answer.

use super::question::Question;
use super::snapshot::Snapshot;
use crate::error::Error;
use crate::pending::reason;
use ::agent::recorders::{Address, Failure};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread;

/// What came of asking once.
#[derive(Debug)]
pub(super) enum Told {
    /// An answer.
    Answer(Box<Snapshot>),
    /// The target answered that it will not; it is asked again.
    Refused(Error),
    /// The target does not answer; it is not asked again.
    Gone(Error),
}

/// Asks one target one question at a time, again and again.
#[derive(Debug)]
pub(super) struct Source {
    address: Arc<Address>,
    /// Number of the question in force; threads with another end when they notice, and what they are told is not listened to.
    current: Arc<AtomicU64>,
    sender: Sender<(u64, Told)>,
    receiver: Receiver<(u64, Told)>,
}

impl Source {
    /// Asks nothing yet.
    pub(super) fn new(address: Address) -> Self {
        let (sender, receiver) = mpsc::channel();
        Self { address: Arc::new(address), current: Arc::default(), sender, receiver }
    }

    /// Asks this from now on, in place of what was asked before.
    pub(super) fn ask(&self, question: Question) -> Result<(), Error> {
        self.stop();
        let (address, current, sender) = (Arc::clone(&self.address), Arc::clone(&self.current), self.sender.clone());
        let number = current.load(Ordering::Relaxed);
        let work = move || {
            while current.load(Ordering::Relaxed) == number {
                let told = match Snapshot::ask(&address, question) {
                    Ok(snapshot) => Told::Answer(Box::new(snapshot)),
                    Err(Failure::Refused { error, .. }) => Told::Refused(error),
                    Err(Failure::Unanswered(error)) => Told::Gone(error),
                };
                let wait = match told {
                    Told::Answer(_) => question.pause(),
                    Told::Refused(_) => question.length(),
                    Told::Gone(_) => return drop(sender.send((number, told))),
                };
                if sender.send((number, told)).is_err() {
                    return;
                }
                thread::sleep(wait);
            }
        };
        let thread = thread::Builder::new().name("profrec-ask".to_owned()).spawn(work);
        thread.map(drop).map_err(|e| Error::failure(format!("cannot start a thread: {}", reason(&e))))
    }

    /// Asks nothing from now on.
    pub(super) fn stop(&self) {
        self.current.fetch_add(1, Ordering::Relaxed);
    }

    /// What came of the question in force, if something did since the last call.
    pub(super) fn told(&self) -> Option<Told> {
        let current = self.current.load(Ordering::Relaxed);
        self.receiver.try_iter().find(|(number, _)| *number == current).map(|(_, told)| told)
    }
}
