//! Signals that were here before: whoever one is passed on to may have found our handler there, and pass it on to us. That is where it ends.
//!
//! Called from: the tick handler, before and after it passes a signal on. May: write into the kernel's account of the signal, where it says nothing.
//!
//! # Safety
//! What the kernel tells of a signal takes less than half of the structure, and the handler may write to all of it.
#![allow(unsafe_code)]

/// Words of the structure that the kernel clears, and never uses.
const UNUSED: core::ops::Range<usize> = 8..16;

static OF_THIS_COPY: u8 = 0;

/// What tells this copy of the recorder from others in the process.
pub(super) fn own() -> usize {
    (&raw const OF_THIS_COPY).addr()
}

/// Marks a signal. False if it has our mark already.
///
/// # Safety
/// `info` is what a handler was called with.
pub(super) unsafe fn mark(info: *mut libc::siginfo_t) -> bool {
    for place in UNUSED {
        // SAFETY: one of the structure's sixteen words.
        let word = unsafe { &mut *info.cast::<usize>().add(place) };
        match *word {
            0 => *word = own(),
            marked if marked != own() => continue,
            _ => return false,
        }
        return true;
    }
    // An old kernel does not clear them.
    true
}

/// Takes our mark away: an old kernel does not clear the place for the next signal.
///
/// # Safety
/// As for [`mark`].
pub(super) unsafe fn unmark(info: *mut libc::siginfo_t) {
    for place in UNUSED {
        // SAFETY: as above.
        let word = unsafe { &mut *info.cast::<usize>().add(place) };
        if *word == own() {
            *word = 0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_signal_is_passed_on_once() {
        // SAFETY: zeroed is a valid siginfo, which lives through the calls.
        unsafe {
            let mut info: libc::siginfo_t = core::mem::zeroed();
            // That of another copy.
            (&raw mut info).cast::<usize>().add(UNUSED.start).write(1);
            assert!(mark(&mut info));
            assert!(!mark(&mut info));
            unmark(&mut info);
            assert!(mark(&mut info));
        }
    }

    #[test]
    fn a_place_that_nobody_cleared_stops_no_signal() {
        let mut words = [usize::MAX; 16];
        // SAFETY: as large as the structure.
        unsafe {
            assert_eq!(size_of::<libc::siginfo_t>(), size_of_val(&words));
            assert!(mark(words.as_mut_ptr().cast()) && mark(words.as_mut_ptr().cast()));
        }
    }
}
