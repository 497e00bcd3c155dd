//! What the recorder tells of itself: what it holds, and what it lost.

use capture::region;
use layout::{Lost, TimeValuesFields, View};
use std::sync::atomic::Ordering;

/// The state of the store.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct StoreHealth {
    /// Memory in use for what was recorded, and the most that it may be.
    pub(crate) used_bytes: u64,
    pub(crate) budget_bytes: u64,
    /// Samples of time entered since the start.
    pub(crate) time_samples: u64,
    /// CPU time of the handlers that entered them, in nanoseconds.
    pub(crate) handler_ns: u64,
    /// What could not be recorded: why, how many events, and what they stood for in bytes or nanoseconds.
    pub(crate) lost: Vec<(Lost, u64, u64)>,
}

/// Looks at the store of this process; all zero if there is none.
pub(crate) fn look() -> StoreHealth {
    let Some(header) = region::header() else { return StoreHealth::default() };
    let lost = Lost::ALL.into_iter().map(|reason| {
        let of = |cells: &[std::sync::atomic::AtomicU64]| {
            cells.get(reason as usize).map_or(0, |cell| cell.load(Ordering::Relaxed))
        };
        (reason, of(&header.lost), of(&header.lost_weight))
    });
    StoreHealth {
        used_bytes: region::used_bytes() as u64,
        budget_bytes: u64::from(header.capacity_chunks.load(Ordering::Relaxed)) * layout::CHUNK as u64,
        time_samples: crate::snapshot::part(layout::ChunkKind::TimeValues)
            .map_or(0, |mut part| time_samples(part.bytes_mut())),
        handler_ns: crate::sampler::effort::nanos(),
        lost: lost.collect(),
    }
}

fn time_samples(store: &[u8]) -> u64 {
    let Ok(view) = View::new(store) else { return 0 };
    view.records::<TimeValuesFields>().fold(0, |sum, (_, _, values)| sum.saturating_add(values.samples))
}
