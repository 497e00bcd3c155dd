//! Whose code a function is, as far as its name, its source file and its module tell: what the page colours frames by.

use crate::sites::Level;
use crate::{Frame, top};

/// Whose code it is. The digit of each is its number here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// The program's own, or not known.
    Own,
    /// A library that comes with the language.
    Library,
    /// An interpreter, a virtual machine, an executor of tasks.
    Runtime,
    /// The C library, the dynamic linker, the kernel.
    System,
    /// An allocator.
    Allocator,
    /// No code: what was lost, or where a stack ends early.
    Note,
    /// The function that an allocation was asked of, as it was recorded: the caller is who allocates.
    Allocation,
}

impl Kind {
    pub(super) const fn digit(self) -> char {
        match self {
            Self::Own => '0',
            Self::Library => '1',
            Self::Runtime => '2',
            Self::System => '3',
            Self::Allocator => '4',
            Self::Note => '5',
            Self::Allocation => '6',
        }
    }

    /// Of a level of this frame; `module` is the file name of its mapping, or nothing.
    pub(super) fn of(frame: &Frame, module: &str, level: &Level) -> Self {
        let name = level.name.as_str();
        if matches!(frame, Frame::Named(_)) && name.starts_with('[') {
            return Self::Note;
        }
        if top::is_allocation_function(frame) {
            return Self::Allocation;
        }
        let module_begins = |all: &[&str]| all.iter().any(|prefix| module.starts_with(prefix));
        let name_begins = |all: &[&str]| all.iter().any(|prefix| name.starts_with(prefix));
        if module_begins(&["libjemalloc", "libtcmalloc", "libmimalloc"]) || name_begins(ALLOCATORS) || is_malloc(name) {
            Self::Allocator
        } else if module_begins(SYSTEM) || name.ends_with("_[k]") {
            Self::System
        } else if module_begins(RUNTIMES) || name_begins(RUNTIME_NAMES) {
            Self::Runtime
        } else if module_begins(&["libstdc++", "libc++", "libgcc_s"]) || is_of_language(frame, level) {
            Self::Library
        } else {
            Self::Own
        }
    }
}

/// Names without a module say less than [`Level::is_program`] knows of addresses.
fn is_of_language(frame: &Frame, level: &Level) -> bool {
    match frame {
        Frame::Address { .. } => !level.is_program,
        Frame::Named(_) => {
            let name = level.name.trim_start_matches(['<', '&', '*', '(', '[']).trim_start_matches("mut ");
            ["std::", "core::", "alloc::", "__gnu_cxx::"].iter().any(|prefix| name.starts_with(prefix))
        }
    }
}

fn is_malloc(name: &str) -> bool {
    [
        "malloc",
        "calloc",
        "realloc",
        "free",
        "cfree",
        "_int_malloc",
        "_int_free",
        "_int_realloc",
        "sysmalloc",
        "malloc_consolidate",
    ]
    .contains(&name.trim_start_matches("__libc_"))
}

const ALLOCATORS: &[&str] = &[
    "__rust_alloc",
    "__rust_dealloc",
    "__rust_realloc",
    "__rustc::__rust_",
    "operator new",
    "operator delete",
    "je_",
    "_rjem_",
    "mi_",
    "_mi_",
    "tc_",
];
const SYSTEM: &[&str] =
    &["libc.so", "libc-", "ld-linux", "ld-musl", "libm.so", "libpthread", "libdl", "[vdso]", "[kernel", "[vsyscall"];
const RUNTIMES: &[&str] = &[
    "python3",
    "libpython",
    "node",
    "libnode",
    "libv8",
    "libjvm",
    "java",
    "ruby",
    "libruby",
    "perl",
    "libperl",
    "libcoreclr",
];
const RUNTIME_NAMES: &[&str] =
    &["_Py", "Py", "v8::", "node::", "Builtins_", "tokio::runtime::", "rayon_core::", "runtime."];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{AddressKind, MappingId, Svma};

    fn kind(frame: &Frame, module: &str, name: &str, is_program: bool) -> Kind {
        Kind::of(frame, module, &Level { name: name.into(), file: None, line: 0, is_program })
    }

    #[test]
    fn code_is_told_by_module_and_name() {
        let code = Frame::Address { mapping: Some(MappingId(0)), svma: Svma(1), kind: AddressKind::Instruction };
        for (module, name, is_program, expected) in [
            ("app", "app::main", true, Kind::Own),
            ("app", "core::ops::call", false, Kind::Library),
            ("libstdc++.so.6", "std::string::assign", false, Kind::Library),
            ("app", "tokio::runtime::park", true, Kind::Runtime),
            ("python3.11", "_PyEval_EvalFrameDefault", true, Kind::Runtime),
            ("libc.so.6", "memcpy", false, Kind::System),
            ("libc.so.6", "__libc_malloc", false, Kind::Allocator),
            ("app", "malloc_stats_of_mine", true, Kind::Own),
            ("[vdso]", "clock_gettime", true, Kind::System),
            ("libjemalloc.so.2", "arena_bin", true, Kind::Allocator),
        ] {
            assert_eq!(kind(&code, module, name, is_program), expected, "{module} {name}");
        }
    }

    #[test]
    fn names_without_addresses_are_told_as_well() {
        for (name, expected) in [
            ("[lost: store full]", Kind::Note),
            ("malloc", Kind::Allocation),
            ("<core::option::Option<T>>::map", Kind::Library),
            ("do_syscall_64_[k]", Kind::System),
            ("main", Kind::Own),
        ] {
            assert_eq!(kind(&Frame::Named(name.into()), "", name, true), expected, "{name}");
        }
    }
}
