//! What came of a run, with names.

use super::tally::{Chain, Counts, Finding};
use std::ffi::{CStr, c_int, c_void};
use std::fmt;
use std::path::Path;

/// What came of one run.
#[derive(Debug)]
pub(crate) struct Report {
    counts: Counts,
    /// What was found where.
    pub(crate) found: Vec<Found>,
    /// Of each wrong place the first walk, with the truth.
    pub(crate) differences: Vec<String>,
}

impl Report {
    pub(crate) fn new(counts: Counts, mut places: Vec<(u64, Finding, u64)>, differences: &[[Chain; 2]]) -> Self {
        places.sort_unstable_by_key(|(at, finding, _)| (*finding, *at));
        let mut found: Vec<Found> = Vec::new();
        for (at, finding, count) in places {
            let place = Place::of(at);
            if let Some(last) = found.last_mut()
                && last.finding == finding
                && last.place.takes_in(&place)
            {
                last.count += count;
            } else {
                found.push(Found { finding, place, count });
            }
        }
        let differences =
            differences.iter().map(|[walk, truth]| format!("walk:\n{}truth:\n{}", lines(walk), lines(truth))).collect();
        Self { counts, found, differences }
    }

    /// Instructions that ran.
    pub(crate) fn instructions(&self) -> u64 {
        self.counts.instructions
    }

    /// Calls that were seen.
    pub(crate) fn calls(&self) -> u64 {
        self.counts.calls
    }

    /// Handlers that were seen to start.
    pub(crate) fn signals(&self) -> u64 {
        self.counts.signals
    }

    /// Instructions of the watched range.
    pub(crate) fn watched(&self) -> u64 {
        self.counts.watched
    }

    /// Functions that went elsewhere than to their caller.
    pub(crate) fn left(&self) -> u64 {
        self.counts.left
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Counts { instructions, calls, signals, left, deepest, .. } = self.counts;
        write!(f, "{instructions} instructions, {calls} calls, depth {deepest}, {signals} signals, {left} left")?;
        for Found { finding, place, count } in &self.found {
            write!(f, "\n  {count:>8} {finding} in {place}")?;
        }
        Ok(())
    }
}

/// How often something was found in one place.
#[derive(Debug)]
pub(crate) struct Found {
    /// What.
    pub(crate) finding: Finding,
    /// Where.
    pub(crate) place: Place,
    /// How often.
    pub(crate) count: u64,
}

/// A function, or what lies between those that have names.
#[derive(Debug)]
pub(crate) struct Place {
    /// Name of the object's file.
    pub(crate) object: String,
    /// The function, as the dynamic linker knows it.
    pub(crate) function: Option<String>,
    /// Addresses in the object.
    pub(crate) from: u64,
    to: u64,
}

impl Place {
    /// Where an address lies.
    fn of(address: u64) -> Self {
        unsafe extern "C" {
            fn dladdr1(
                address: *const c_void,
                info: *mut libc::Dl_info,
                extra: *mut *mut c_void,
                flags: c_int,
            ) -> c_int;
        }
        const RTLD_DL_SYMENT: c_int = 1;
        // SAFETY: zeroed is valid.
        let mut info: libc::Dl_info = unsafe { core::mem::zeroed() };
        let mut symbol = core::ptr::null_mut();
        // SAFETY: both are valid for writes.
        if unsafe { dladdr1(address as *const c_void, &mut info, &mut symbol, RTLD_DL_SYMENT) } == 0 {
            return Self { object: "nowhere".to_owned(), function: None, from: address, to: address };
        }
        // SAFETY: names that the dynamic linker gives are strings.
        let text = |name| unsafe { CStr::from_ptr(name) }.to_string_lossy().into_owned();
        let path = text(info.dli_fname);
        let object = Path::new(&path).file_name().map_or(path.clone(), |name| name.to_string_lossy().into_owned());
        let function = (!info.dli_sname.is_null()).then(|| {
            // SAFETY: with the flag, what comes back for a named symbol is its entry in the symbol table.
            let size = unsafe { (*symbol.cast::<libc::Elf64_Sym>()).st_size };
            (address - info.dli_saddr as u64 <= size).then(|| text(info.dli_sname))
        });
        let from = address - info.dli_fbase as u64;
        Self { object, function: function.flatten(), from, to: from }
    }

    /// Whether it lies in the function, or in the object.
    pub(crate) fn is(&self, function_or_object: &str) -> bool {
        self.function.as_deref() == Some(function_or_object) || self.object == function_or_object
    }

    /// Makes one of two places if they are one function, as far as can be told. The other one lies behind.
    fn takes_in(&mut self, other: &Self) -> bool {
        const NEAR: u64 = 256;
        let near = self.function.is_some() || other.from.wrapping_sub(self.to) < NEAR;
        let one = self.object == other.object && self.function == other.function && near;
        self.to = if one { other.to } else { self.to };
        one
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {:#x}", self.object, self.from)?;
        if self.to != self.from {
            write!(f, "..{:#x}", self.to)?;
        }
        self.function.iter().try_for_each(|function| write!(f, " {function}"))
    }
}

fn lines(chain: &Chain) -> String {
    let lines = chain.frames().map(|frame| match frame.as_pseudo() {
        Some(pseudo) => format!("  {pseudo:?}\n"),
        None => format!("  {:#x} {}\n", frame.avma(), Place::of(frame.avma())),
    });
    lines.collect()
}
