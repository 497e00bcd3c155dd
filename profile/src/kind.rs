//! Whose code a frame is, as far as module, source file and name tell: what flame graphs are coloured by.

use crate::sites::{self, Level};
use crate::{Frame, Profile, Symbols, top};
use rustc_hash::FxHashMap;

/// Whose code a function is. Of a name that several have, the one that comes first here. The page knows each by its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Kind {
    /// The program's own, or a library's that it brings along.
    Program,
    /// The language's library.
    Standard,
    /// An interpreter, a virtual machine, an executor of tasks, and what was compiled at run time.
    Interpreter,
    /// The C library, the dynamic linker, the kernel.
    System,
    /// What gives memory out.
    Allocator,
    /// Nobody's: `[lost: ...]`, an address without a file.
    Missing,
    /// The function that an allocation was asked of, as it was recorded: the caller is who allocates.
    Allocation,
}

impl Kind {
    /// Its number, as the page has it.
    pub(crate) const fn digit(self) -> char {
        (b'0' + self as u8) as char
    }

    /// Of a level of this frame.
    pub(crate) fn of(profile: &Profile, symbols: &Symbols, frame: &Frame, level: &Level) -> Self {
        let name = level.name.as_str();
        if top::is_allocation_function(frame) {
            return Self::Allocation;
        }
        let Frame::Address { mapping, .. } = frame else {
            return if name.starts_with('[') { Self::Missing } else { Self::of_name(level) };
        };
        let mapping = mapping.and_then(|id| profile.mapping(id));
        let (path, module) = mapping.map_or(("", ""), |mapping| (mapping.path.as_str(), mapping.file_name()));
        let begins = |names: &[&str]| names.iter().any(|name| module.starts_with(name));
        if path.starts_with("[vdso") || path.starts_with("[kernel") || path.ends_with(".ko") {
            Self::System
        } else if is_allocator(name) || begins(&["libjemalloc", "libtcmalloc", "libmimalloc"]) {
            Self::Allocator
        } else if !path.starts_with('/')
            || path.starts_with("//")
            || path.starts_with("/memfd:")
            || path.starts_with("/tmp/perf-")
        {
            // Names outside of all files are those that a compiler at run time left.
            if symbols.get(frame).is_empty() { Self::Missing } else { Self::Interpreter }
        } else if begins(INTERPRETERS) {
            Self::Interpreter
        } else if begins(&["libstdc++.so", "libc++.so", "libc++abi", "libgcc_s", "libstd-"]) {
            Self::Standard
        } else if sites::is_system_library(module) {
            Self::System
        } else {
            Self::of_name(level)
        }
    }

    /// As far as name and source file tell.
    fn of_name(level: &Level) -> Self {
        let name = level.name.as_str();
        if is_allocator(name) {
            Self::Allocator
        } else if name.ends_with("_[k]") {
            Self::System
        } else if INTERPRETER_NAMES.iter().any(|prefix| name.starts_with(prefix)) {
            Self::Interpreter
        } else if sites::is_program(name, level.file.as_deref()) {
            Self::Program
        } else {
            Self::Standard
        }
    }
}

/// The kind of each name in a profile.
pub(crate) fn of_names(profile: &Profile, symbols: &Symbols) -> FxHashMap<String, Kind> {
    let mut kinds: FxHashMap<String, Kind> = FxHashMap::default();
    for frame in profile.stacks.frames() {
        for level in sites::of_frame(profile, symbols, frame) {
            let kind = Kind::of(profile, symbols, frame, &level);
            let known = kinds.entry(level.name).or_insert(kind);
            *known = kind.min(*known);
        }
    }
    kinds
}

/// Beginnings of the file names of modules.
const INTERPRETERS: &[&str] = &[
    "libpython",
    "python",
    "libruby",
    "ruby",
    "libperl",
    "perl",
    "libjvm",
    "java",
    "libnode",
    "node",
    "libv8",
    "libcoreclr",
    "libclrjit",
    "libmono",
    "libphp",
    "liblua",
];
/// Beginnings of functions' names.
const INTERPRETER_NAMES: &[&str] =
    &["_Py", "Py", "v8::", "node::", "Builtins_", "tokio::runtime::", "rayon_core::", "runtime."];

/// Entry points of allocators and what glibc, Rust and C++ call them inside.
fn is_allocator(name: &str) -> bool {
    let plain = name.trim_start_matches("__libc_").trim_start_matches("__GI_");
    matches!(
        plain,
        "malloc"
            | "calloc"
            | "realloc"
            | "free"
            | "cfree"
            | "reallocarray"
            | "memalign"
            | "aligned_alloc"
            | "posix_memalign"
            | "valloc"
            | "pvalloc"
            | "mallocx"
            | "rallocx"
            | "xallocx"
            | "dallocx"
            | "sdallocx"
            | "free_sized"
            | "free_aligned_sized"
            | "_int_malloc"
            | "_int_free"
            | "_int_realloc"
            | "_int_memalign"
            | "sysmalloc"
            | "systrim"
            | "malloc_consolidate"
            | "unlink_chunk"
            | "tcache_init"
            | "ptmalloc_init"
    ) || [
        "operator new",
        "operator delete",
        "__rust_alloc",
        "__rust_dealloc",
        "__rust_realloc",
        "__rdl_",
        "__rg_",
        "__rustc::__r",
        "alloc::alloc::",
        "je_",
        "_rjem_",
        "mi_",
        "_mi_",
        "tc_",
    ]
    .iter()
    .any(|prefix| plain.starts_with(prefix))
        || name.contains("profile_recorder_alloc_hook")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{AddressKind, Mapping, MappingId, Svma, SymbolFrame};

    #[test]
    fn module_file_and_name_tell_whose_code_it_is() {
        let mut profile = Profile::default();
        let mut symbols = Symbols::new();
        let modules = [
            "/bin/app",
            "/lib/libc.so.6",
            "/usr/lib/libpython3.11.so.1.0",
            "//anon",
            "/usr/lib/libstdc++.so.6",
            "[vdso]",
            "/usr/lib/libz.so.1",
        ];
        profile.mappings = modules.map(|path| Mapping { path: path.into(), ..Mapping::default() }).to_vec();
        let cases = [
            (0, "app::main", None, Kind::Program),
            (0, "core::ops::Call::call", None, Kind::Standard),
            (0, "push", Some("/rustc/abc/library/alloc/src/vec/mod.rs"), Kind::Standard),
            (0, "__rustc::__rust_alloc", None, Kind::Allocator),
            (0, "xmalloc", None, Kind::Program),
            (1, "memcpy", None, Kind::System),
            (1, "_int_malloc", None, Kind::Allocator),
            (1, "__libc_malloc", None, Kind::Allocator),
            (2, "_PyEval_EvalFrameDefault", None, Kind::Interpreter),
            (3, "py::main:/app/a.py", None, Kind::Interpreter),
            (4, "std::string::append(char const*)", None, Kind::Standard),
            (4, "operator new(unsigned long)", None, Kind::Allocator),
            (5, "clock_gettime", None, Kind::System),
            (6, "deflate", None, Kind::Program),
            (0, "tokio::runtime::park", None, Kind::Interpreter),
            (0, "malloc_stats_of_mine", None, Kind::Program),
            (1, "__libc_calloc", None, Kind::Allocator),
        ];
        for (i, (mapping, name, file, _)) in cases.iter().enumerate() {
            let frame = Frame::Address {
                mapping: Some(MappingId(*mapping)),
                svma: Svma(i as u64),
                kind: AddressKind::Instruction,
            };
            let symbol = SymbolFrame { file: file.map(Into::into), ..SymbolFrame::named(*name) };
            symbols.insert(frame.address().unwrap(), vec![symbol]);
            profile.stacks.frame_id(frame);
        }
        for (name, svma) in [("[lost: store full]", None), ("malloc", None), ("", Some(77))] {
            profile.stacks.frame_id(match svma {
                Some(svma) => Frame::Address { mapping: None, svma: Svma(svma), kind: AddressKind::Instruction },
                None => Frame::named(name),
            });
        }
        let kinds = of_names(&profile, &symbols);
        for (_, name, _, kind) in cases {
            assert_eq!(kinds[name], kind, "{name}");
        }
        assert_eq!(kinds["[lost: store full]"], Kind::Missing);
        assert_eq!(kinds["[unknown]+0x4d"], Kind::Missing);
        assert_eq!(kinds["malloc"], Kind::Allocation);
    }

    #[test]
    fn names_without_addresses_are_told_as_well() {
        let kind = |name: &'static str| {
            let mut profile = Profile::default();
            profile.stacks.frame_id(Frame::named(name));
            of_names(&profile, &Symbols::new())[name]
        };
        assert_eq!(kind("<core::option::Option<T>>::map"), Kind::Standard);
        assert_eq!(kind("do_syscall_64_[k]"), Kind::System);
        assert_eq!(kind("_int_malloc"), Kind::Allocator);
        assert_eq!(kind("main"), Kind::Program);
    }

    #[test]
    fn the_page_knows_kinds_by_their_numbers() {
        assert_eq!([Kind::Program, Kind::Missing, Kind::Allocation].map(Kind::digit), ['0', '5', '6']);
    }

    #[test]
    fn a_name_that_several_have_is_the_programs() {
        let mut profile = Profile::default();
        let mut symbols = Symbols::new();
        profile.mappings =
            ["/lib/libc.so.6", "/bin/app"].map(|path| Mapping { path: path.into(), ..Mapping::default() }).to_vec();
        for mapping in 0..2 {
            let frame =
                Frame::Address { mapping: Some(MappingId(mapping)), svma: Svma(5), kind: AddressKind::Instruction };
            symbols.insert(frame.address().unwrap(), vec![SymbolFrame::named("parse")]);
            profile.stacks.frame_id(frame);
        }
        assert_eq!(of_names(&profile, &symbols)["parse"], Kind::Program);
    }
}
