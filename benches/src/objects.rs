//! The objects that this process has loaded, as the dynamic linker lists them: independent of the recorder's own list.

use std::ffi::{CStr, CString};
use std::fs;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::process::Command;
use unwind::build::{Section, find_eh_frame};

/// A loaded object with unwind information.
#[derive(Clone, Debug)]
pub struct Object {
    /// Path of the file; empty for the executable.
    pub path: String,
    /// Address in the process minus address in the file.
    pub bias: u64,
    /// Where its segments lie in the process.
    pub range: Range<u64>,
    /// `.eh_frame_hdr`, and what follows it in its segment.
    pub eh_frame_hdr: Section<'static>,
    /// `.eh_frame`, and what follows it in its segment.
    pub eh_frame: Section<'static>,
}

/// All of them.
pub fn loaded() -> Vec<Object> {
    let mut objects = Vec::new();
    // SAFETY: the callback gets the pointer that is passed here, and only during this call.
    unsafe { libc::dl_iterate_phdr(Some(add), (&raw mut objects).cast()) };
    objects
}

extern "C" fn add(info: *mut libc::dl_phdr_info, _size: usize, objects: *mut libc::c_void) -> libc::c_int {
    // SAFETY: `dl_iterate_phdr` gives a valid description, and passes through the vector from above.
    let (info, objects) = unsafe { (&*info, &mut *objects.cast::<Vec<Object>>()) };
    objects.extend(object(info));
    0
}

fn object(info: &libc::dl_phdr_info) -> Option<Object> {
    // SAFETY: the linker keeps that many program headers there.
    let headers = unsafe { std::slice::from_raw_parts(info.dlpi_phdr, usize::from(info.dlpi_phnum)) };
    let bias = info.dlpi_addr;
    let segments = || headers.iter().filter(|h| h.p_type == libc::PT_LOAD).map(|h| h.p_vaddr..h.p_vaddr + h.p_memsz);
    let to_end_of_segment = |address: u64| {
        let segment = segments().find(|segment| segment.contains(&(address - bias)))?;
        let length = (bias + segment.end - address) as usize;
        // SAFETY: the bytes lie in a loaded read-only segment, and no benchmark unloads anything.
        Some(Section { bytes: unsafe { std::slice::from_raw_parts(address as *const u8, length) }, address })
    };
    let hdr = headers.iter().find(|header| header.p_type == libc::PT_GNU_EH_FRAME)?;
    let eh_frame_hdr = to_end_of_segment(bias + hdr.p_vaddr)?;
    let eh_frame = to_end_of_segment(find_eh_frame(eh_frame_hdr)?)?;
    let start = segments().map(|segment| segment.start).min()?;
    let end = segments().map(|segment| segment.end).max()?;
    // SAFETY: the name is a string of the linker's that lives as long as the object.
    let path = unsafe { CStr::from_ptr(info.dlpi_name) }.to_string_lossy().into_owned();
    Some(Object { path, bias, range: bias + start..bias + end, eh_frame_hdr, eh_frame })
}

/// Large libraries that may be there: Python's, the Rust compiler's and its LLVM.
pub fn large_libraries() -> Vec<PathBuf> {
    let python = "import sysconfig as s; print(s.get_config_var('LIBDIR'))";
    let python = in_directory(output(Command::new("python3").args(["-c", python])), "", "libpython3.");
    let rustc = output(Command::new("rustc").args(["--print", "sysroot"]));
    let llvm = in_directory(rustc.clone(), "lib", "libLLVM");
    python.into_iter().chain(in_directory(rustc, "lib", "librustc_driver-")).chain(llvm).collect()
}

fn output(command: &mut Command) -> Option<PathBuf> {
    let output = command.output().ok().filter(|output| output.status.success())?;
    Some(PathBuf::from(String::from_utf8(output.stdout).ok()?.trim()))
}

/// The largest shared object whose name begins so: the others are stubs of that name.
fn in_directory(directory: Option<PathBuf>, below: &str, prefix: &str) -> Option<PathBuf> {
    let entries = fs::read_dir(directory?.join(below)).ok()?;
    let names_match = |path: &PathBuf| {
        path.file_name()
            .and_then(|name| name.to_str())
            .is_some_and(|name| name.starts_with(prefix) && name.contains(".so"))
    };
    entries
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter(names_match)
        .max_by_key(|path| fs::metadata(path).map_or(0, |metadata| metadata.len()))
}

/// A library that was opened here.
#[derive(Clone, Debug)]
pub struct Opened {
    /// Of its file.
    pub bytes: u64,
    /// Addresses inside of at most two thousand of its functions.
    pub functions: Vec<u64>,
}

/// Opens a library for ever. `None` if the linker does not find what it needs.
pub fn open(path: &Path) -> Option<Opened> {
    let before = loaded().len();
    let name = CString::new(path.to_str()?).ok()?;
    // SAFETY: the name is a string; opening runs the library's constructors, which is what it is for.
    if unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_LAZY) }.is_null() {
        return None;
    }
    let objects = loaded();
    let object = objects.iter().skip(before).find(|object| Path::new(&object.path) == path)?;
    let word = |at: usize| Some(i32::from_le_bytes(object.eh_frame_hdr.bytes.get(at..)?.first_chunk().copied()?));
    // Version and encodings, `.eh_frame`'s address, the count, then pairs of which the first is a function's start.
    let count = word(8)? as usize;
    let step = count.div_ceil(2000).max(1);
    let functions = (0..count).step_by(step).filter_map(|i| {
        let start = object.eh_frame_hdr.address.wrapping_add_signed(i64::from(word(12 + 8 * i)?));
        Some(start + 1)
    });
    Some(Opened { bytes: fs::metadata(path).ok()?.len(), functions: functions.collect() })
}
