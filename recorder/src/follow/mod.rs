//! Programs that a recorded process executes: one into which the preload library cannot be loaded is executed without it in `LD_PRELOAD`. Otherwise the dynamic loader of another C library, or of an
//! older one, would refuse to start the program, and others would complain of it on the program's standard error.
//!
//! Called from: the host, in front of the functions that execute, in a child after fork or vfork and in handlers too. May: read files, with the calls that a dynamic loader makes itself, so that no
//! filter of system calls has more to say against them than against the program. May not: allocate, lock, call the C library, use much of the stack.
#![allow(unsafe_code)]

mod program;

use capture::region;
use capture::syscall::{self, Errno, File, mm};
use core::ffi::{CStr, c_char, c_int, c_void};
use core::sync::atomic::{AtomicPtr, Ordering};
use layout::Unfollowed;

/// What the host asks to be executed.
#[derive(Clone, Copy, Debug)]
pub enum Program {
    /// What lies at a path.
    Path(*const c_char),
    /// A name that is looked for in `PATH`, unless it has a slash.
    Name(*const c_char),
    /// A path from a directory that the host has open, or, if it is empty, what the host has open itself.
    From(c_int, *const c_char),
}

/// Strings, one after the other, and a null pointer.
pub type Strings = *const *const c_char;

/// Whatever is executed, nothing is waited for: it may be a pipe.
const READ: usize = File::READ_AT_ONCE;
const VARIABLE: &[u8] = b"LD_PRELOAD=";
/// As the dynamic loader separates them.
const SEPARATORS: &[u8] = b": ";

/// The library's own path, as the dynamic loader has it.
static OWN_PATH: AtomicPtr<c_char> = AtomicPtr::new(core::ptr::null_mut());

/// In the constructor.
pub fn note_own_path() {
    let inside = note_own_path as *const c_void;
    // SAFETY: zeros are a value of a structure of pointers.
    let mut info: libc::Dl_info = unsafe { core::mem::zeroed() };
    // SAFETY: the structure is written; the name stays for as long as the library does.
    if unsafe { libc::dladdr(inside, &raw mut info) } != 0 {
        OWN_PATH.store(info.dli_fname.cast_mut(), Ordering::Release);
    }
}

/// The library's file name: what it is known by in `LD_PRELOAD`, with whatever path.
fn own_name() -> Option<&'static [u8]> {
    let path = OWN_PATH.load(Ordering::Acquire);
    // SAFETY: stored as a string that stays.
    (!path.is_null()).then(|| file_name(unsafe { CStr::from_ptr(path) }.to_bytes()))
}

fn file_name(path: &[u8]) -> &[u8] {
    path.rsplit(|byte| *byte == b'/').next().unwrap_or(path)
}

/// Where `program` will not be recorded, has `call` execute it with the environment that is good for it: the host's, or a copy without this library. Returns what `call` does, which is 0 if it did not fail.
/// `None`: the host's environment is as it should be, and nothing was done.
///
/// # Safety
/// As for `execve`, whose arguments they are; those that lead nowhere are the kernel's to refuse.
pub unsafe fn execute(program: Program, environment: Strings, call: impl FnOnce(Strings) -> i64) -> Option<i64> {
    // SAFETY: as the caller promises.
    let entry = unsafe { Entry::find(environment) }?;
    let reason = entry.examine(program).err()?;
    note(reason, 1);
    // SAFETY: found there.
    let result = if stays(reason) { call(environment) } else { unsafe { entry.without(environment, call) } };
    if result != 0 {
        note(reason, 1_u32.wrapping_neg());
    }
    Some(result)
}

/// The host is about to have the C library execute a shell with its environment. If the library cannot be loaded into that, it is taken out of the environment for good: nothing here can tell the C library of
/// another.
pub fn shell() {
    let environment = own_environment();
    // SAFETY: the host's own.
    let Some(entry) = (unsafe { Entry::find(environment) }) else { return };
    let Err(reason) = entry.examine(Program::Path(c"/bin/sh".as_ptr())) else { return };
    note(reason, 1);
    if !stays(reason) {
        // SAFETY: the text is the host's to write, and gets shorter.
        unsafe { entry.take_out() };
    }
}

/// Whether the library is left in the environment: it does not hurt them, and they may execute others.
fn stays(reason: Unfollowed) -> bool {
    matches!(reason, Unfollowed::Static | Unfollowed::Privileged)
}

/// Counts a program that is not followed, or takes that back.
fn note(reason: Unfollowed, by: u32) {
    if let Some(header) = region::header() {
        header.unfollowed[reason as usize].fetch_add(by, Ordering::Relaxed);
    }
}

fn open(program: Program) -> Option<File> {
    match program {
        Program::Path(path) => File::open_of_host(File::HERE, path, READ).ok(),
        Program::From(directory, path) if !is_empty(path) => File::open_of_host(directory, path, READ).ok(),
        Program::From(file, _) => {
            let mut path = Path::new();
            path.push(b"/proc/self/fd/")?.push_number(file.cast_unsigned())?;
            path.open()
        }
        Program::Name(name) if !syscall::is_readable(name as u64) => None,
        // SAFETY: a name, which the C library reads as well.
        Program::Name(name) => search(unsafe { CStr::from_ptr(name) }),
    }
}

fn is_empty(path: *const c_char) -> bool {
    // SAFETY: it can be read.
    path.is_null() || (syscall::is_readable(path as u64) && unsafe { path.read() } == 0)
}

/// As the C library looks for it: in the folders of the process's own `PATH`.
fn search(name: &CStr) -> Option<File> {
    const USUAL: &[u8] = b"/bin:/usr/bin";
    const ANY_MAY_EXECUTE: u32 = 0o111;
    if name.to_bytes().contains(&b'/') {
        return File::open_of_host(File::HERE, name.as_ptr(), READ).ok();
    }
    // SAFETY: the host's own environment.
    let folders = unsafe { variable(own_environment(), b"PATH=") }.map_or(USUAL, |(_, folders)| folders);
    folders.split(|byte| *byte == b':').find_map(|folder| {
        let mut path = Path::new();
        path.push(folder)?;
        if !folder.is_empty() {
            path.push(b"/")?;
        }
        path.push(name.to_bytes())?;
        path.open()
            .filter(|file| file.status().is_ok_and(|status| status.is_regular && status.mode & ANY_MAY_EXECUTE != 0))
    })
}

/// A path that is put together here.
struct Path {
    /// Zeros behind it.
    room: [u8; 512],
    length: usize,
}

impl Path {
    const fn new() -> Self {
        Self { room: [0; 512], length: 0 }
    }

    /// `None` if there is no room for it and a zero byte.
    fn push(&mut self, bytes: &[u8]) -> Option<&mut Self> {
        let end = self.length.checked_add(bytes.len()).filter(|end| *end < self.room.len())?;
        self.room.get_mut(self.length..end)?.copy_from_slice(bytes);
        self.length = end;
        Some(self)
    }

    fn push_number(&mut self, number: u32) -> Option<&mut Self> {
        if number >= 10 {
            self.push_number(number / 10)?;
        }
        self.push(&[b'0' + (number % 10) as u8])
    }

    /// With a zero byte at its end.
    fn bytes(&self) -> &[u8] {
        self.room.get(..=self.length).unwrap_or_default()
    }

    fn open(&self) -> Option<File> {
        File::open(self.bytes(), READ).ok()
    }
}

/// The environment of the process, as the C library has it.
pub fn own_environment() -> Strings {
    unsafe extern "C" {
        static environ: Strings;
    }
    // SAFETY: a word that whoever changes it writes as a whole.
    unsafe { (&raw const environ).read_volatile() }
}

/// What can be read of a host's arrays and strings. Whoever passes some that lead nowhere has the kernel say so, not a crash: each page is asked about before it is read.
struct Pages {
    last: u64,
}

impl Pages {
    const fn new() -> Self {
        Self { last: 0 }
    }

    fn is_readable(&mut self, address: u64) -> bool {
        const PAGE: u64 = 4096;
        let page = address & !(PAGE - 1);
        if page != self.last {
            if !syscall::is_readable(address) {
                return false;
            }
            self.last = page;
        }
        page != 0
    }
}

/// The strings of an environment.
fn each(environment: Strings) -> impl Iterator<Item = *const c_char> {
    let mut pages = Pages::new();
    (0..).map(move |index| environment.wrapping_add(index)).map_while(move |at| {
        // SAFETY: it can be read.
        let string = if pages.is_readable(at as u64) { unsafe { at.read() } } else { core::ptr::null() };
        (!string.is_null()).then_some(string)
    })
}

/// The variable whose name ends with `=` here: which of the strings it is, and its value.
///
/// # Safety
/// Strings, where they can be read at all, end with a zero byte.
unsafe fn variable(environment: Strings, name: &[u8]) -> Option<(usize, &'static [u8])> {
    let mut pages = Pages::new();
    each(environment).enumerate().find_map(|(index, string)| {
        // SAFETY: the first byte can be read, and the bytes before each other one are no zero byte.
        let begins = |(at, byte): (usize, &u8)| unsafe { string.cast::<u8>().add(at).read() } == *byte;
        if !pages.is_readable(string as u64) || !name.iter().enumerate().all(begins) {
            return None;
        }
        // SAFETY: the string goes on behind the name.
        Some((index, unsafe { CStr::from_ptr(string.add(name.len())) }.to_bytes()))
    })
}

/// Calls with room for so many words, on the stack if they are few; with `None` if there is no memory.
///
/// After a vfork the memory that was mapped for many stays with the parent if the call executes.
pub fn with_words<R>(words: usize, call: impl FnOnce(Option<*mut usize>) -> R) -> R {
    /// As many as most environments need.
    const FEW: usize = 256;
    if words <= FEW {
        return call(Some([0_usize; FEW].as_mut_ptr()));
    }
    let bytes = words.saturating_mul(size_of::<usize>());
    let Ok(memory) = syscall::map(bytes, mm::READ_WRITE, mm::ANONYMOUS, None) else { return call(None) };
    let result = call(Some(memory.cast()));
    // SAFETY: mapped above; the call is over.
    unsafe { syscall::unmap(memory, bytes) };
    result
}

/// The library in an environment.
#[derive(Clone, Copy)]
struct Entry {
    /// Which of the strings it is in.
    index: usize,
    /// What is preloaded: before it, the library with its path, and behind it.
    before: &'static [u8],
    path: &'static [u8],
    behind: &'static [u8],
}

impl Entry {
    /// # Safety
    /// As [`variable`].
    unsafe fn find(environment: Strings) -> Option<Self> {
        let own = own_name()?;
        // SAFETY: as the caller promises.
        let (index, value) = unsafe { variable(environment, VARIABLE) }?;
        let mut start = 0;
        for path in value.split(|byte| SEPARATORS.contains(byte)) {
            if file_name(path) == own {
                let (before, rest) = value.split_at_checked(start)?;
                return Some(Self { index, before, path, behind: rest.get(path.len()..)? });
            }
            start += path.len() + 1;
        }
        None
    }

    /// Whether the library will be in `program`.
    fn examine(&self, program: Program) -> Result<(), Unfollowed> {
        if !self.is_reachable() {
            return Err(Unfollowed::Unreachable);
        }
        open(program).map_or(Ok(()), program::examine)
    }

    /// Whether the library's file is there for whom the caller will be. One without a path is looked for by the dynamic loader.
    fn is_reachable(&self) -> bool {
        if !self.path.contains(&b'/') || self.path.contains(&b'$') {
            return true;
        }
        let mut whole = Path::new();
        let may_read = whole.push(self.path).map(|path| syscall::may_read(path.bytes()));
        !matches!(may_read, Some(Err(Errno::NOENT | Errno::ACCES | Errno::NOTDIR)))
    }

    /// What is preloaded beside it: what stands before and behind it.
    fn others(&self) -> (&'static [u8], &'static [u8]) {
        // One of the two separators around it goes with it.
        match self.before.split_last() {
            Some((_, before)) => (before, self.behind),
            None => (self.before, self.behind.get(1..).unwrap_or_default()),
        }
    }

    /// Calls with a copy of the environment that does not have it.
    ///
    /// # Safety
    /// It was found in this environment.
    unsafe fn without(&self, environment: Strings, call: impl FnOnce(Strings) -> i64) -> i64 {
        let (before, behind) = self.others();
        let strings = each(environment).count();
        let text = VARIABLE.len() + before.len() + behind.len() + 1;
        let words = strings + 1 + text.div_ceil(size_of::<usize>());
        let with_copy = |room: *mut usize| {
            let mut next = room.cast::<*const c_char>();
            // SAFETY: there is room for as many pointers, a null pointer, and the text.
            unsafe {
                let text = room.add(strings + 1).cast::<u8>();
                let mut end = text;
                for part in [VARIABLE, before, behind, b"\0"] {
                    end.copy_from_nonoverlapping(part.as_ptr(), part.len());
                    end = end.add(part.len());
                }
                for (index, string) in each(environment).take(strings).enumerate() {
                    let is_it = index == self.index;
                    if !(is_it && before.is_empty() && behind.is_empty()) {
                        next.write(if is_it { text.cast() } else { string });
                        next = next.add(1);
                    }
                }
                next.write(core::ptr::null());
            }
            room.cast_const().cast()
        };
        with_words(words, |room| call(room.map_or(environment, with_copy)))
    }

    /// Writes the others over it.
    ///
    /// # Safety
    /// The text can be written.
    unsafe fn take_out(&self) {
        let (before, behind) = self.others();
        // SAFETY: within the text, and before its zero byte, which is written anew.
        unsafe {
            let to = self.before.as_ptr().cast_mut().add(before.len());
            to.copy_from(behind.as_ptr(), behind.len());
            to.add(behind.len()).write(0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ffi::CString;

    /// What is left of these variables; an empty list if nothing had to be taken out.
    fn left(variables: &[&str]) -> Vec<String> {
        note_own_path_as(c"/lib/libprofrec_preload.so");
        let texts: Vec<CString> = variables.iter().map(|text| CString::new(*text).unwrap()).collect();
        let mut strings: Vec<*const c_char> = texts.iter().map(|text| text.as_ptr()).collect();
        strings.push(core::ptr::null());
        // SAFETY: strings, and a null pointer behind them.
        let Some(entry) = (unsafe { Entry::find(strings.as_ptr()) }) else { return Vec::new() };
        let mut seen = Vec::new();
        let call = |environment: Strings| {
            // SAFETY: such an array, too.
            seen.extend(each(environment).map(|text| unsafe { CStr::from_ptr(text) }.to_str().unwrap().to_owned()));
            0
        };
        // SAFETY: it was found there.
        assert_eq!(unsafe { entry.without(strings.as_ptr(), call) }, 0);
        // SAFETY: the strings are ours to write.
        unsafe { entry.take_out() };
        let written = texts[entry.index].to_str().unwrap().split('\0').next().unwrap().to_owned();
        let kept = seen.iter().find(|text| text.starts_with("LD_PRELOAD=")).cloned();
        assert_eq!(written, kept.unwrap_or_else(|| "LD_PRELOAD=".to_owned()), "written over");
        seen
    }

    fn note_own_path_as(path: &'static CStr) {
        OWN_PATH.store(path.as_ptr().cast_mut(), Ordering::Release);
    }

    #[test]
    fn the_library_alone_is_taken_out_of_what_is_preloaded() {
        assert_eq!(left(&["A=1", "LD_PRELOAD=/x/libprofrec_preload.so", "B=2"]), ["A=1", "B=2"]);
        for (value, rest) in [
            ("libprofrec_preload.so:/y/b.so", "/y/b.so"),
            ("/y/b.so:/x/libprofrec_preload.so", "/y/b.so"),
            ("a.so /x/libprofrec_preload.so b.so", "a.so b.so"),
            ("a.so:/x/libprofrec_preload.so:b.so", "a.so:b.so"),
        ] {
            let variable = format!("LD_PRELOAD={value}");
            assert_eq!(left(&[&variable, "B=2"]), [format!("LD_PRELOAD={rest}"), "B=2".to_owned()], "{value}");
        }
        for value in ["", "a.so", "/x/libprofrec_preload.so.1", "/libprofrec_preload.so/other"] {
            assert!(left(&["A=1", &format!("LD_PRELOAD={value}")]).is_empty(), "{value}");
        }
        assert!(left(&["XLD_PRELOAD=libprofrec_preload.so", "LD_PRELOADS=libprofrec_preload.so", "LD"]).is_empty());
        let many: Vec<String> = (0..1000).map(|i| format!("VARIABLE_{i}=x")).collect();
        let mut all: Vec<&str> = many.iter().map(String::as_str).collect();
        all.push("LD_PRELOAD=libprofrec_preload.so");
        assert_eq!(left(&all), many);
    }

    #[test]
    fn environments_that_lead_nowhere_are_left_to_the_kernel() {
        note_own_path_as(c"/lib/libprofrec_preload.so");
        for environment in [core::ptr::null(), 8 as Strings, usize::MAX as Strings] {
            // SAFETY: what cannot be read is not.
            assert!(unsafe { Entry::find(environment) }.is_none());
        }
        let strings: [*const c_char; 4] =
            [8 as *const c_char, c"A=1".as_ptr(), c"LD_PRELOAD=libprofrec_preload.so".as_ptr(), core::ptr::null()];
        // SAFETY: such an array.
        assert_eq!(unsafe { Entry::find(strings.as_ptr()) }.unwrap().index, 2);
    }
}
