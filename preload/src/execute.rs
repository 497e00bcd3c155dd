//! Functions that are told of before they are called, and then are what they are: `execve` and its family, what spawns, and what forks.
//!
//! Before another program takes this one's place, what is known of the process is noted, and no tick that the sampler sent waits for that program, which would have no handler for it. A program into which
//! this library cannot be loaded is executed without it in its environment (`profile_recorder::preload::follow`).
//!
//! # Safety
//! Each function does what the C library's function of its name does: it is called with the registers and the stack as the host left them, or not at all, where that was done already. These may be called in
//! a child after fork or vfork, where looking a function up may wait for a thread that is not there: the constructor does it.

use crate::filter::{kernel, set_errno};
use crate::thread::next;
use core::arch::naked_asm;
use core::ffi::{CStr, c_char, c_int, c_long, c_void};
use core::sync::atomic::AtomicPtr;
use profile_recorder::preload;
use profile_recorder::preload::follow::{self, Program, own_environment, with_words};

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

    /// Calls it with these arguments, six at most; the others do not matter.
    ///
    /// # Safety
    /// As the function, which returns an `int`.
    unsafe fn call(&self, arguments: &[u64]) -> i64 {
        type Function = unsafe extern "C" fn(u64, u64, u64, u64, u64, u64) -> c_int;
        let argument = |index: usize| arguments.get(index).copied().unwrap_or_default();
        // SAFETY: all its arguments are passed like words.
        let function = unsafe { core::mem::transmute::<*mut c_void, Function>(self.get()) };
        // SAFETY: as the caller promises.
        unsafe { function(argument(0), argument(1), argument(2), argument(3), argument(4), argument(5)) }.into()
    }
}

/// In the place of one that this C library does not have.
extern "C" fn missing() -> c_int {
    set_errno(libc::ENOSYS);
    -1
}

/// The arguments that the host called with, as the functions below lay them out.
#[repr(C)]
struct Called {
    registers: [u64; 6],
    vector_registers: u64,
    return_address: u64,
    /// The first of those that are on the stack.
    stack: u64,
}

impl Called {
    /// # Safety
    /// The host passed so many.
    unsafe fn argument(&self, index: usize) -> u64 {
        match self.registers.get(index) {
            Some(argument) => *argument,
            // SAFETY: these lie one behind the other.
            None => unsafe { (&raw const self.stack).add(index - self.registers.len()).read() },
        }
    }

    /// How many arguments a list has that begins with the second and ends before a null pointer.
    ///
    /// # Safety
    /// The host passed one.
    unsafe fn list_length(&self) -> usize {
        // SAFETY: as the caller promises.
        (1..).take_while(|index| unsafe { self.argument(*index) } != 0).count()
    }

    /// Calls with that list as an array.
    ///
    /// # Safety
    /// The host passed one.
    unsafe fn with_list(&self, call: impl FnOnce(u64) -> i64) -> i64 {
        // SAFETY: as the caller promises.
        let length = unsafe { self.list_length() };
        with_words(length + 1, |room| {
            let Some(room) = room else {
                set_errno(libc::ENOMEM);
                return -1;
            };
            for index in 0..=length {
                // SAFETY: there is room for the list and the null pointer behind it.
                unsafe { room.add(index).write(self.argument(1 + index) as usize) };
            }
            call(room as u64)
        })
    }
}

/// What the assembly does behind what a function is told: jumps to a function, or, where that is a null pointer, returns.
#[repr(C)]
struct Then {
    function: *mut c_void,
    result: i64,
}

/// Defines functions that are told of, and then jump to the C library's own with the arguments that they have, unless what was asked has been done already.
macro_rules! tell {
    ($($name:ident $place:ident $text:literal $told:expr,)*) => {
        $(static $place: Real = Real { name: $text, function: AtomicPtr::new(core::ptr::null_mut()) };)*

        /// Looks the functions up. In the constructor.
        pub(crate) fn set_up() {
            $($place.get();)*
            follow::note_own_path();
        }
        $(
            #[doc = concat!("`", stringify!($name), "` of the C library.")]
            ///
            /// # Safety
            /// As the C function.
            #[unsafe(naked)]
            #[unsafe(no_mangle)]
            pub unsafe extern "C" fn $name() -> c_int {
                extern "C" fn prepare(called: &Called) -> Then {
                    let told: fn(&Called) -> Option<i64> = $told;
                    match told(called) {
                        None => Then { function: $place.get(), result: 0 },
                        Some(result) => Then { function: core::ptr::null_mut(), result },
                    }
                }
                naked_asm!(
                    ".cfi_startproc",
                    // `Called`: six arguments in registers, and how many of a variadic function's are in vector registers.
                    "sub rsp, 56",
                    ".cfi_def_cfa_offset 64",
                    "mov qword ptr [rsp], rdi",
                    "mov qword ptr [rsp + 8], rsi",
                    "mov qword ptr [rsp + 16], rdx",
                    "mov qword ptr [rsp + 24], rcx",
                    "mov qword ptr [rsp + 32], r8",
                    "mov qword ptr [rsp + 40], r9",
                    "mov qword ptr [rsp + 48], rax",
                    "mov rdi, rsp",
                    "call {prepare}",
                    "mov r11, rax",
                    "test rax, rax",
                    "je 2f",
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
                    "2:",
                    ".cfi_def_cfa_offset 64",
                    "mov rax, rdx",
                    "add rsp, 56",
                    ".cfi_def_cfa_offset 8",
                    "ret",
                    ".cfi_endproc",
                    prepare = sym prepare,
                )
            }
        )*
    };
}

tell! {
    execve EXECVE c"execve" |called| {
        let [path, list, environment, ..] = called.registers;
        executes(at(path), environment, |environment| call(&EXECVE, &[path, list, environment]))
    },
    execveat EXECVEAT c"execveat" |called| {
        let [directory, path, list, environment, flags, _] = called.registers;
        let program = Program::From(directory as c_int, path as *const c_char);
        executes(program, environment, |environment| call(&EXECVEAT, &[directory, path, list, environment, flags]))
    },
    fexecve FEXECVE c"fexecve" |called| {
        let [file, list, environment, ..] = called.registers;
        let program = Program::From(file as c_int, core::ptr::null());
        executes(program, environment, |environment| call(&FEXECVE, &[file, list, environment]))
    },
    execv EXECV c"execv" |called| {
        let [path, list, ..] = called.registers;
        executes(at(path), own(), |environment| call(&EXECVE, &[path, list, environment]))
    },
    execvp EXECVP c"execvp" |called| {
        let [name, list, ..] = called.registers;
        executes(named(name), own(), |environment| call(&EXECVPE, &[name, list, environment]))
    },
    execvpe EXECVPE c"execvpe" |called| {
        let [name, list, environment, ..] = called.registers;
        executes(named(name), environment, |environment| call(&EXECVPE, &[name, list, environment]))
    },
    execl EXECL c"execl" |called| {
        let [path, ..] = called.registers;
        // SAFETY: the host passed a list.
        executes(at(path), own(), |environment| unsafe { called.with_list(|list| call(&EXECVE, &[path, list, environment])) })
    },
    execle EXECLE c"execle" |called| {
        let [path, ..] = called.registers;
        // SAFETY: the host passed a list, and an environment behind its null pointer.
        let environment = unsafe { called.argument(1 + called.list_length() + 1) };
        // SAFETY: as above.
        executes(at(path), environment, |environment| unsafe { called.with_list(|list| call(&EXECVE, &[path, list, environment])) })
    },
    execlp EXECLP c"execlp" |called| {
        let [name, ..] = called.registers;
        // SAFETY: the host passed a list.
        executes(named(name), own(), |environment| unsafe { called.with_list(|list| call(&EXECVPE, &[name, list, environment])) })
    },
    posix_spawn POSIX_SPAWN c"posix_spawn" |called| {
        let [pid, path, actions, attributes, list, environment] = called.registers;
        follows(at(path), environment, |environment| call(&POSIX_SPAWN, &[pid, path, actions, attributes, list, environment]))
    },
    posix_spawnp POSIX_SPAWNP c"posix_spawnp" |called| {
        let [pid, name, actions, attributes, list, environment] = called.registers;
        follows(named(name), environment, |environment| call(&POSIX_SPAWNP, &[pid, name, actions, attributes, list, environment]))
    },
    system SYSTEM c"system" |_| shell(),
    popen POPEN c"popen" |_| shell(),
    fork FORK c"fork" |_| forks(),
    daemon DAEMON c"daemon" |_| forks(),
    forkpty FORKPTY c"forkpty" |_| forks(),
}

fn at(path: u64) -> Program {
    Program::Path(path as *const c_char)
}

fn named(name: u64) -> Program {
    Program::Name(name as *const c_char)
}

fn own() -> u64 {
    own_environment() as u64
}

fn call(real: &Real, arguments: &[u64]) -> i64 {
    // SAFETY: the host's arguments of this function or of one that does the same, but for the environment.
    unsafe { real.call(arguments) }
}

fn executes(program: Program, environment: u64, call: impl FnOnce(u64) -> i64) -> Option<i64> {
    preload::executes();
    follows(program, environment, call)
}

fn follows(program: Program, environment: u64, call: impl FnOnce(u64) -> i64) -> Option<i64> {
    // SAFETY: as the host asks for it.
    unsafe { follow::execute(program, environment as follow::Strings, |environment| call(environment as u64)) }
}

fn shell() -> Option<i64> {
    follow::shell();
    None
}

fn forks() -> Option<i64> {
    preload::forks();
    None
}

/// `execve` and `execveat` by `syscall`.
pub(crate) unsafe extern "C" fn by_number(number: c_long, a: u64, b: u64, c: u64, d: u64, e: u64, f: u64) -> c_long {
    let executed = if number == libc::SYS_execve {
        // SAFETY: as the host calls it.
        executes(at(a), c, |environment| unsafe { kernel(number, a, b, environment, d, e, f) })
    } else {
        let program = Program::From(a as c_int, b as *const c_char);
        // SAFETY: as the host calls it.
        executes(program, d, |environment| unsafe { kernel(number, a, b, c, environment, e, f) })
    };
    // SAFETY: as the host calls it.
    executed.unwrap_or_else(|| unsafe { kernel(number, a, b, c, d, e, f) })
}
