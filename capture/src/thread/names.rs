//! Names in the records of threads, which threads change when they like.
//!
//! Called from: hooks and handlers of the thread itself, the recorder's threads, the end of the process. Allocates nothing.

use super::{ThreadState, each};
use crate::{region, syscall};
use core::sync::atomic::Ordering;
use layout::{RecordId, Thread};

/// Bytes of a name, as the kernel cuts it.
const LONGEST: usize = 15;

/// The record of a thread, if there is one.
fn record(id: RecordId) -> Option<&'static Thread> {
    // SAFETY: the id is that of a thread's record.
    (!id.is_none()).then(|| unsafe { region::record(id) })
}

fn set(record: &Thread, name: &[u8]) {
    region::store_bytes(&record.name, name.get(..name.len().min(LONGEST)).unwrap_or(name));
}

/// The name in a thread's record.
pub fn recorded_name(id: RecordId) -> [u8; 16] {
    let mut name = [0; 16];
    if let Some(record) = record(id) {
        for (to, from) in name.chunks_exact_mut(8).zip(&record.name) {
            to.copy_from_slice(&from.load(Ordering::Relaxed).to_ne_bytes());
        }
    }
    name
}

/// Sets the name in a record that [`record_for`](super::record_for) made.
pub fn rename_record(id: RecordId, name: &[u8]) {
    if let Some(record) = record(id).filter(|_| !name.is_empty()) {
        set(record, name);
    }
}

/// Gives the records of all registered threads the names that these have now: most get theirs after they began.
pub fn note_names() {
    each(|state| {
        if let Some(name) = syscall::name_of_thread(state.tid()) {
            state.rename(&name);
        }
    });
}

fn words(name: &[u8; 16]) -> [u64; 2] {
    let mut words = name.chunks_exact(8).map(|word| word.try_into().map_or(0, u64::from_ne_bytes));
    [0; 2].map(|_: u64| words.next().unwrap_or(0))
}

impl ThreadState {
    /// Notes the name that the thread has when it is registered.
    pub(super) fn set_first_name(&self, name: &[u8; 16]) {
        for (to, word) in self.first_name.iter().zip(words(name)) {
            to.store(word, Ordering::Relaxed);
        }
    }

    /// Whether the thread had this name when it was registered.
    pub(super) fn began_as(&self, name: &[u8; 16]) -> bool {
        self.first_name.iter().zip(words(name)).all(|(word, of_name)| word.load(Ordering::Relaxed) == of_name)
    }

    /// Sets the name in the thread's record.
    pub fn rename(&self, name: &[u8]) {
        if let Some(record) = self.thread_record() {
            set(record, name);
        }
    }
}
