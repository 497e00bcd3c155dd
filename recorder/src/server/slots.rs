//! Places for connections, so that no client can use up the process's descriptors.
//!
//! A connection is busy while a request of it is being answered. When all places are taken, the connection that has been
//! waiting longest for its client makes room: idle or slow clients cannot keep others out.

use std::cell::{RefCell, RefMut};
use std::collections::HashMap;
use std::rc::Rc;
use std::time::Instant;

use tokio::task::AbortHandle;

/// The places of one server.
#[derive(Clone, Debug)]
pub(super) struct Slots(Rc<RefCell<Places>>);

#[derive(Debug)]
struct Places {
    limit: usize,
    next_id: u64,
    taken: HashMap<u64, Place>,
}

#[derive(Debug)]
struct Place {
    /// `None` while a request is being answered.
    waiting_since: Option<Instant>,
    /// Whether a request ever came.
    used: bool,
    connection: Option<AbortHandle>,
}

/// One connection's place; given back on drop.
#[derive(Debug)]
pub(super) struct Slot {
    slots: Slots,
    id: u64,
}

/// A request being answered.
#[derive(Debug)]
pub(super) struct BusySlot<'a>(&'a Slot);

impl Slots {
    pub(super) fn new(limit: usize) -> Self {
        Self(Rc::new(RefCell::new(Places { limit, next_id: 0, taken: HashMap::new() })))
    }

    /// A place, if need be of the connection that has waited longest. `None` if all are busy.
    pub(super) fn take(&self) -> Option<Slot> {
        let mut places = self.places();
        if places.taken.len() >= places.limit {
            let waiting = places.taken.iter().filter_map(|(id, place)| Some((place.waiting_since?, *id)));
            let (_, longest) = waiting.min()?;
            let evicted = places.taken.remove(&longest).and_then(|place| place.connection);
            // Its task is dropped later, by the runtime, and gives back a place that is no longer its own.
            evicted.inspect(AbortHandle::abort);
        }
        let id = places.next_id;
        places.next_id += 1;
        places.taken.insert(id, Place { waiting_since: Some(Instant::now()), used: false, connection: None });
        Some(Slot { slots: self.clone(), id })
    }

    /// Tells which task serves the connection.
    pub(super) fn set_connection(&self, id: u64, connection: AbortHandle) {
        if let Some(place) = self.places().taken.get_mut(&id) {
            place.connection = Some(connection);
        }
    }

    /// Ends the connections on which no request ever came: nobody waits for an answer there.
    pub(super) fn end_unused(&self) {
        for place in self.places().taken.values().filter(|place| !place.used) {
            place.connection.as_ref().inspect(|connection| connection.abort());
        }
    }

    /// Number of connections.
    #[cfg(test)]
    pub(super) fn taken(&self) -> usize {
        self.places().taken.len()
    }

    fn places(&self) -> RefMut<'_, Places> {
        self.0.borrow_mut()
    }
}

impl Slot {
    pub(super) fn id(&self) -> u64 {
        self.id
    }

    /// Keeps the place until the guard is dropped.
    pub(super) fn busy(&self) -> BusySlot<'_> {
        if let Some(place) = self.slots.places().taken.get_mut(&self.id) {
            place.waiting_since = None;
            place.used = true;
        }
        BusySlot(self)
    }
}

impl Drop for BusySlot<'_> {
    fn drop(&mut self) {
        if let Some(place) = self.0.slots.places().taken.get_mut(&self.0.id) {
            place.waiting_since = Some(Instant::now());
        }
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        self.slots.places().taken.remove(&self.id);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_waiting_connection_makes_room() {
        let slots = Slots::new(2);
        let (first, second) = (slots.take().unwrap(), slots.take().unwrap());
        let third = slots.take().unwrap();
        assert_eq!(slots.taken(), 2);
        // The evicted connection's own end takes nothing away from the others.
        drop(first);
        assert_eq!(slots.taken(), 2);
        drop((second, third));
        assert_eq!(slots.taken(), 0);
    }

    #[test]
    fn a_busy_connection_keeps_its_place() {
        let slots = Slots::new(1);
        let only = slots.take().unwrap();
        let busy = only.busy();
        assert!(slots.take().is_none());
        drop(busy);
        assert!(slots.take().is_some());
    }
}
