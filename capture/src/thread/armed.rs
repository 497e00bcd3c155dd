//! Leave to count a thread's calls in a few instructions, which anybody can withdraw.
//!
//! Called from: hooks and handlers of the thread, which arms; any thread, which disarms.
//!
//! # Orderings
//!
//! A thread says that it is arming, then (`SeqCst` fence) looks what it can be armed for, and is armed if nobody disarmed it meanwhile. Whoever changes what it looked
//! at does so first, then (`SeqCst` fence) disarms. So either the thread sees the change, or it is disarmed after it said so.
#![allow(unsafe_code)]

use super::states;
use core::sync::atomic::{AtomicU64, Ordering, fence};
use layout::Thread;

/// Whether calls of one kind may be counted in a few instructions: then the address of the thread's record, and in bits of [`Armed::BITS`], which no record's address has, what those
/// instructions are to do besides. A thread that is not armed has no larger number than [`Armed::ARMING`] there, and none of these bits.
#[derive(Debug)]
#[repr(transparent)]
pub struct Armed(AtomicU64);

const NO: u64 = 0;

impl Armed {
    /// What the word of a thread is that is about to be armed.
    pub const ARMING: u64 = 1;
    /// Bits that say what else is to be done.
    pub const BITS: u64 = 63 & !Self::ARMING;

    /// Whether it is armed.
    #[inline(always)]
    pub fn is_armed(&self) -> bool {
        self.0.load(Ordering::Relaxed) > Self::ARMING
    }

    /// Arms the calling thread, whose record this is, with what `look` returns of [`Self::BITS`], if it returns any: what they are for it looks up afresh. What the thread's calls are to
    /// find then has to be stored by `look`.
    pub fn arm(&self, record: &Thread, look: impl FnOnce() -> Option<u64>) {
        let address = record as *const Thread as u64;
        // Records lie at multiples of their size.
        if address & (Self::BITS | Self::ARMING) != 0 {
            return;
        }
        self.0.store(Self::ARMING, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        let armed = look().map_or(NO, |bits| address | bits & Self::BITS);
        // A signal handler that allocates in between can have armed, too: then this changes nothing.
        let _ = self.0.compare_exchange(Self::ARMING, armed, Ordering::Release, Ordering::Relaxed);
    }

    /// Its next call goes the whole way.
    #[inline]
    pub(super) fn disarm(&self) {
        if self.0.load(Ordering::Relaxed) != NO {
            self.0.store(NO, Ordering::Relaxed);
        }
    }
}

/// Disarms every thread: what they are armed for has changed before.
pub fn disarm_all() {
    fence(Ordering::SeqCst);
    states::each_state(|state| state.disarm());
}

#[cfg(test)]
mod tests {
    extern crate std;
    use super::*;
    use core::sync::atomic::AtomicBool;

    /// The lowest of the bits.
    const LOWEST: u64 = 1 << Armed::BITS.trailing_zeros();

    /// A record where they lie in a store.
    fn record() -> &'static Thread {
        #[repr(align(512))]
        struct Aligned(Thread);
        // SAFETY: a record is made of words of which any are valid.
        &std::boxed::Box::leak(std::boxed::Box::new(unsafe { core::mem::zeroed::<Aligned>() })).0
    }

    /// One thread arms itself with what it finds, another changes that: from when it has disarmed the first, that one is not armed with anything older.
    #[test]
    fn nobody_stays_armed_for_what_has_changed() {
        let record = record();
        let armed = Armed(AtomicU64::new(NO));
        let [now, disarmed, seen] = [const { AtomicU64::new(0) }; 3];
        let (ends, was_armed, older) = (AtomicBool::new(false), AtomicU64::new(0), AtomicU64::new(0));
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !ends.load(Ordering::Relaxed) {
                    let at_least = disarmed.load(Ordering::SeqCst);
                    let word = armed.0.load(Ordering::SeqCst);
                    if word > Armed::ARMING {
                        // Eight values are told apart, and the other thread is no more than four ahead.
                        let is_older = (word / LOWEST).wrapping_sub(at_least) % 8 > 4;
                        older.fetch_add(is_older.into(), Ordering::Relaxed);
                        was_armed.fetch_add(1, Ordering::Relaxed);
                    } else {
                        armed.arm(record, || Some(now.load(Ordering::Relaxed) % 8 * LOWEST));
                    }
                    seen.store(at_least, Ordering::SeqCst);
                }
            });
            for change in 1..=300_000 {
                now.store(change, Ordering::Relaxed);
                fence(Ordering::SeqCst);
                armed.disarm();
                disarmed.store(change, Ordering::SeqCst);
                // Not always as soon as the other looked.
                (0..change % 61).for_each(|_| core::hint::spin_loop());
                while seen.load(Ordering::SeqCst) + 3 < change {
                    std::thread::yield_now();
                }
            }
            ends.store(true, Ordering::Relaxed);
        });
        assert!(was_armed.into_inner() > 1000);
        assert_eq!(older.into_inner(), 0);
    }

    #[test]
    fn what_is_found_to_be_nothing_arms_nobody() {
        let record = record();
        let armed = Armed(AtomicU64::new(NO));
        armed.arm(record, || None);
        assert!(!armed.is_armed());
        armed.arm(record, || {
            // Somebody changes it meanwhile.
            armed.disarm();
            Some(0)
        });
        assert!(!armed.is_armed());
        armed.arm(record, || Some(0));
        assert!(armed.is_armed());
        armed.disarm();
        assert!(!armed.is_armed());
    }
}
