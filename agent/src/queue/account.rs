//! What became of everything that a sink was given.

use crate::{Error, reason};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::Path;
use std::{fs, io};

/// Numbers of profiles; accepted = sent + given up + kept.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Account {
    /// Arrived.
    pub sent: u64,
    /// Their bytes.
    pub sent_bytes: u64,
    /// Sent again without anybody knowing whether it had arrived: so many may have arrived twice, with the same id.
    pub repeated: u64,
    /// Not sent and not kept, by reason.
    pub given_up: BTreeMap<String, u64>,
    /// Waiting.
    #[serde(skip)]
    pub kept: u64,
    /// Their bytes.
    #[serde(skip)]
    pub kept_bytes: u64,
}

impl Account {
    /// Everything that was ever taken over.
    pub fn accepted(&self) -> u64 {
        self.sent + self.given_up.values().sum::<u64>() + self.kept
    }

    pub(super) fn give_up(&mut self, why: &str) {
        *self.given_up.entry(why.to_owned()).or_default() += 1;
    }
}

/// What is on disk beside the items.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Saved {
    pub(super) account: Account,
    /// Number of the last item that the account counts as sent or given up; its file may be there still.
    pub(super) settled: Option<u64>,
    /// Number of the item that is being sent, or of which nobody knows whether it arrived.
    pub(super) sending: Option<u64>,
    /// Highest number that is known to be in use.
    pub(super) highest: u64,
}

impl Saved {
    /// As it was left; nothing if there is none. One that cannot be understood, after a power cut for instance, is put aside: what waits is sent all the same.
    pub(super) fn read(directory: &Path) -> Result<Self, Error> {
        let path = directory.join("account.json");
        let cannot = |why: String| Error::failure(format!("cannot read the account in '{}': {why}", path.display()));
        match fs::read(&path) {
            Ok(bytes) => serde_json::from_slice(&bytes).or_else(|e| {
                let aside = directory.join("account.damaged");
                fs::rename(&path, &aside).map_err(|e| cannot(reason(&e)))?;
                tracing::error!(error = %e, kept = %aside.display(), "the account of a queue is damaged, and begins anew");
                Ok(Self::default())
            }),
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(Self::default()),
            Err(e) => Err(cannot(reason(&e))),
        }
    }

    /// All of it, or what was there before.
    pub(super) fn write(&self, directory: &Path) -> io::Result<()> {
        let new = directory.join("account.new");
        fs::write(&new, serde_json::to_vec(self)?)?;
        fs::rename(new, directory.join("account.json"))
    }
}
