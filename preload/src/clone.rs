//! `clone`, so that threads that are made by it are known from their first instruction to their last.

use crate::others::CLONE;
use crate::thread::next;
use core::arch::naked_asm;
use core::ffi::{c_int, c_void};
use core::sync::atomic::AtomicPtr;
use profile_recorder::preload;

type Function = unsafe extern "C-unwind" fn(*mut c_void) -> c_int;

/// What a new thread shall run; lies at the top of its stack. `begin` reads it by offsets.
#[repr(C, align(16))]
struct Begin {
    function: Function,
    argument: *mut c_void,
}

/// First function of such a thread: announces it, calls what the host asked for, and tells the end.
#[unsafe(naked)]
unsafe extern "C-unwind" fn begin(packed: *mut c_void) -> c_int {
    extern "C" fn starts() {
        preload::clone_starts();
    }
    extern "C" fn ends() {
        preload::clone_ends();
    }
    naked_asm!(
        ".cfi_startproc",
        "sub rsp, 24",
        ".cfi_def_cfa_offset 32",
        "mov qword ptr [rsp], rdi",
        "call {starts}",
        "mov rax, qword ptr [rsp]",
        "mov rdi, qword ptr [rax + 8]",
        "call qword ptr [rax]",
        "mov dword ptr [rsp], eax",
        "call {ends}",
        "mov eax, dword ptr [rsp]",
        "add rsp, 24",
        ".cfi_def_cfa_offset 8",
        "ret",
        ".cfi_endproc",
        starts = sym starts,
        ends = sym ends,
    )
}

/// `clone` of the C library. What makes a process and not a thread goes by.
///
/// # Safety
/// As the C function, whose last three arguments may be left out: then they are whatever the caller has in their places.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn clone(
    function: Option<Function>,
    stack: *mut c_void,
    flags: isize,
    argument: *mut c_void,
    parent_tid: *mut libc::pid_t,
    storage: *mut c_void,
    child_tid: *mut libc::pid_t,
) -> isize {
    if let Some(other) = CLONE.get() {
        let function = function.map_or(0, |function| function as usize as u64);
        let [stack, argument, storage] = [stack, argument, storage].map(|pointer| pointer as u64);
        // SAFETY: as the host calls it.
        return unsafe { other(function, stack, flags as u64, argument, parent_tid as u64, storage, child_tid as u64) };
    }
    static NEXT: AtomicPtr<c_void> = AtomicPtr::new(core::ptr::null_mut());
    type Clone = unsafe extern "C" fn(
        Option<Function>,
        *mut c_void,
        c_int,
        *mut c_void,
        *mut libc::pid_t,
        *mut c_void,
        *mut libc::pid_t,
    ) -> c_int;
    let next = next(&NEXT, c"clone");
    if next.is_null() {
        // SAFETY: the calling thread's own.
        unsafe { *libc::__errno_location() = libc::ENOSYS };
        return -1;
    }
    // SAFETY: the symbol of that name takes these arguments, and looks at as many as the flags ask for.
    let clone = unsafe { core::mem::transmute::<*mut c_void, Clone>(next) };
    let flags = flags as c_int;
    let is_thread = flags & libc::CLONE_THREAD != 0 && !stack.is_null();
    match function {
        Some(function) if is_thread && preload::records_threads() => {
            let end = stack as usize & !(align_of::<Begin>() - 1);
            let packed = (end - size_of::<Begin>()) as *mut Begin;
            // SAFETY: the stack is the new thread's, which begins below; the C library writes there as well.
            unsafe {
                packed.write(Begin { function, argument });
                clone(Some(begin), packed.cast(), flags, packed.cast(), parent_tid, storage, child_tid) as isize
            }
        }
        // SAFETY: as the host calls it.
        _ => unsafe { clone(function, stack, flags, argument, parent_tid, storage, child_tid) as isize },
    }
}
