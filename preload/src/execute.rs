//! Functions that are told of before they are called, and then are what they are: `execve` and its family, and what forks.
//!
//! Before another program takes this one's place, what is known of the process is noted, and no tick that the sampler sent waits for that program, which would have no handler for it.
//!
//! # Safety
//! Each function does what the C library's function of its name does: it is called with the registers and the stack as the host left them. These may be called in a child after fork or vfork, where
//! looking a function up may wait for a thread that is not there: the constructor does it.

use crate::filter::kernel;
use crate::thread::next;
use core::arch::naked_asm;
use core::ffi::{CStr, c_int, c_long, c_void};
use core::sync::atomic::AtomicPtr;
use profile_recorder::preload;

/// The C library's function of a name.
struct Real {
    name: &'static CStr,
    function: AtomicPtr<c_void>,
}

impl Real {
    fn get(&self) -> *mut c_void {
        let function = next(&self.function, self.name);
        if function.is_null() { missing as *const () as *mut c_void } else { function }
    }
}

/// In the place of one that this C library does not have.
extern "C" fn missing() -> c_int {
    // SAFETY: the address of the calling thread's errno.
    unsafe { *libc::__errno_location() = libc::ENOSYS };
    -1
}

/// Defines functions that jump to the C library's own, whatever arguments they have.
macro_rules! tell {
    ($($name:ident $place:literal $text:literal $told:expr,)*) => {
        static REAL: [Real; [$($place),*].len()] =
            [$(Real { name: $text, function: AtomicPtr::new(core::ptr::null_mut()) }),*];
        $(
            #[doc = concat!("`", stringify!($name), "` of the C library.")]
            ///
            /// # Safety
            /// As the C function.
            #[unsafe(naked)]
            #[unsafe(no_mangle)]
            pub unsafe extern "C" fn $name() -> c_int {
                extern "C" fn prepare() -> *mut c_void {
                    $told();
                    REAL[$place].get()
                }
                naked_asm!(
                    ".cfi_startproc",
                    // Six arguments in registers, and how many of a variadic function's are in vector registers.
                    "sub rsp, 56",
                    ".cfi_def_cfa_offset 64",
                    "mov qword ptr [rsp], rdi",
                    "mov qword ptr [rsp + 8], rsi",
                    "mov qword ptr [rsp + 16], rdx",
                    "mov qword ptr [rsp + 24], rcx",
                    "mov qword ptr [rsp + 32], r8",
                    "mov qword ptr [rsp + 40], r9",
                    "mov qword ptr [rsp + 48], rax",
                    "call {prepare}",
                    "mov r11, rax",
                    "mov rdi, qword ptr [rsp]",
                    "mov rsi, qword ptr [rsp + 8]",
                    "mov rdx, qword ptr [rsp + 16]",
                    "mov rcx, qword ptr [rsp + 24]",
                    "mov r8, qword ptr [rsp + 32]",
                    "mov r9, qword ptr [rsp + 40]",
                    "mov rax, qword ptr [rsp + 48]",
                    "add rsp, 56",
                    ".cfi_def_cfa_offset 8",
                    "jmp r11",
                    ".cfi_endproc",
                    prepare = sym prepare,
                )
            }
        )*
    };
}

tell! {
    execve 0 c"execve" preload::executes,
    execveat 1 c"execveat" preload::executes,
    fexecve 2 c"fexecve" preload::executes,
    execv 3 c"execv" preload::executes,
    execvp 4 c"execvp" preload::executes,
    execvpe 5 c"execvpe" preload::executes,
    execl 6 c"execl" preload::executes,
    execle 7 c"execle" preload::executes,
    execlp 8 c"execlp" preload::executes,
    fork 9 c"fork" preload::forks,
    daemon 10 c"daemon" preload::forks,
    forkpty 11 c"forkpty" preload::forks,
}

/// Looks the functions up. In the constructor.
pub(crate) fn set_up() {
    for real in &REAL {
        real.get();
    }
}

/// `execve` and `execveat` by `syscall`.
pub(crate) unsafe extern "C" fn by_number(number: c_long, a: u64, b: u64, c: u64, d: u64, e: u64, f: u64) -> c_long {
    preload::executes();
    // SAFETY: as the host calls it.
    unsafe { kernel(number, a, b, c, d, e, f) }
}
