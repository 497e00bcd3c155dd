//! `pthread_create`, so that threads are known from their first instruction, and the next `dlclose`.

use core::alloc::Layout;
use core::arch::naked_asm;
use core::ffi::{CStr, c_int, c_void};
use core::sync::atomic::{AtomicPtr, Ordering};
use profile_recorder::preload;

type Start = unsafe extern "C-unwind" fn(*mut c_void) -> *mut c_void;

/// What a new thread shall run; lives in the recorder's own heap until the thread takes it. `begin` reads it by offsets.
#[repr(C)]
struct Begin {
    start: Start,
    argument: *mut c_void,
}

/// The next function of a name, looked up once.
pub(crate) fn next(slot: &AtomicPtr<c_void>, name: &CStr) -> *mut c_void {
    let mut function = slot.load(Ordering::Acquire);
    if function.is_null() {
        // SAFETY: the name is zero-terminated.
        function = unsafe { libc::dlsym(libc::RTLD_NEXT, name.as_ptr()) };
        slot.store(function, Ordering::Release);
    }
    function
}

/// `dlclose` behind ours.
pub(crate) unsafe fn next_dlclose(handle: *mut c_void) -> c_int {
    static NEXT: AtomicPtr<c_void> = AtomicPtr::new(core::ptr::null_mut());
    let function = next(&NEXT, c"dlclose");
    if function.is_null() {
        return -1;
    }
    // SAFETY: the symbol of that name has this type.
    unsafe { core::mem::transmute::<*mut c_void, unsafe extern "C" fn(*mut c_void) -> c_int>(function)(handle) }
}

/// First function of every thread: announces it, then calls what the host asked for.
///
/// Threads are unwound through it, by `pthread_exit` and by cancellation. Rust that is compiled to abort on panic would end the process there, so it is
/// assembly with plain unwind information.
#[unsafe(naked)]
unsafe extern "C-unwind" fn begin(packed: *mut c_void) -> *mut c_void {
    extern "C" fn announce(packed: *mut c_void, to: *mut Begin) {
        // SAFETY: made by `pthread_create` below for this thread alone; `to` is room in the caller's frame.
        unsafe { to.write(packed.cast::<Begin>().read()) };
        // SAFETY: made with this layout.
        unsafe { std::alloc::dealloc(packed.cast(), Layout::new::<Begin>()) };
        preload::thread_starts();
    }
    naked_asm!(
        ".cfi_startproc",
        "sub rsp, 24",
        ".cfi_def_cfa_offset 32",
        "mov rsi, rsp",
        "call {announce}",
        "mov rdi, qword ptr [rsp + 8]",
        "call qword ptr [rsp]",
        "add rsp, 24",
        ".cfi_def_cfa_offset 8",
        "ret",
        ".cfi_endproc",
        announce = sym announce,
    )
}

/// `pthread_create` of the C library.
///
/// # Safety
/// As the C function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pthread_create(
    thread: *mut libc::pthread_t,
    attributes: *const libc::pthread_attr_t,
    start: Start,
    argument: *mut c_void,
) -> c_int {
    static NEXT: AtomicPtr<c_void> = AtomicPtr::new(core::ptr::null_mut());
    type Create = unsafe extern "C" fn(*mut libc::pthread_t, *const libc::pthread_attr_t, Start, *mut c_void) -> c_int;
    let function = next(&NEXT, c"pthread_create");
    if function.is_null() {
        return libc::EAGAIN;
    }
    // SAFETY: the symbol of that name has this type.
    let create = unsafe { core::mem::transmute::<*mut c_void, Create>(function) };
    if !preload::records_threads() || preload::is_own_thread() {
        // SAFETY: as the host calls it.
        return unsafe { create(thread, attributes, start, argument) };
    }
    let layout = Layout::new::<Begin>();
    // SAFETY: the layout is not empty.
    let packed = unsafe { std::alloc::alloc(layout) }.cast::<Begin>();
    if packed.is_null() {
        // No memory: the thread starts unannounced, and is known from its first allocation.
        // SAFETY: as the host calls it.
        return unsafe { create(thread, attributes, start, argument) };
    }
    // SAFETY: just allocated for one.
    unsafe { packed.write(Begin { start, argument }) };
    // SAFETY: as the host calls it; `begin` takes the box over.
    let result = unsafe { create(thread, attributes, begin, packed.cast()) };
    if result != 0 {
        // SAFETY: no thread was made, so nobody took it.
        unsafe { std::alloc::dealloc(packed.cast(), layout) };
    }
    result
}
