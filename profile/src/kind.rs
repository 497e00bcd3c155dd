//! Whose code a frame is, as far as module, source file and name tell: what flame graphs are coloured by.

use crate::{Frame, Profile, Symbols, names, sites, top};
use rustc_hash::FxHashMap;

/// Whose code a function is. Of a name that several have, the one that comes first here.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Kind {
    /// The program's own, or a library's that it brings along.
    Program,
    /// The language's library.
    Standard,
    /// The C library, the dynamic linker, the kernel.
    System,
    /// What gives memory out.
    Allocator,
    /// An interpreter, and what was compiled at run time.
    Interpreter,
    /// Nobody's: `[lost: ...]`, an address without a file.
    Missing,
}

impl Kind {
    /// Every kind, in the order of a legend.
    pub(crate) const ALL: [Self; 6] =
        [Self::Program, Self::Standard, Self::System, Self::Allocator, Self::Interpreter, Self::Missing];

    /// What a reader calls it.
    pub(crate) const fn caption(self) -> &'static str {
        match self {
            Self::Program => "program",
            Self::Standard => "standard library",
            Self::System => "libc and kernel",
            Self::Allocator => "allocator",
            Self::Interpreter => "interpreter or JIT",
            Self::Missing => "other",
        }
    }
}

/// The kind of each name in a profile.
pub(crate) fn of_names<'a>(profile: &'a Profile, symbols: &'a Symbols) -> FxHashMap<String, Kind> {
    let mut kinds: FxHashMap<String, Kind> = FxHashMap::default();
    for frame in profile.stacks.frames() {
        let found = symbols.get(frame);
        for (i, name) in names::of(frame, profile, symbols).into_iter().enumerate() {
            let kind =
                of(profile, frame, &name, found.get(i).and_then(|symbol| symbol.file.as_deref()), found.is_empty());
            let known = kinds.entry(name.into_owned()).or_insert(kind);
            *known = kind.min(*known);
        }
    }
    kinds
}

fn of(profile: &Profile, frame: &Frame, name: &str, file: Option<&str>, is_nameless: bool) -> Kind {
    if top::is_allocation_function(frame) || is_allocator(name) {
        return Kind::Allocator;
    }
    let Frame::Address { mapping, .. } = frame else {
        return if name.starts_with('[') { Kind::Missing } else { of_name(name, file) };
    };
    let mapping = mapping.and_then(|id| profile.mapping(id));
    let (path, module) = mapping.map_or(("", ""), |mapping| (mapping.path.as_str(), mapping.file_name()));
    let begins = |names: &[&str]| names.iter().any(|name| module.starts_with(name));
    if path.starts_with("[vdso") || path.starts_with("[kernel") || path.ends_with(".ko") {
        Kind::System
    } else if !path.starts_with('/')
        || path.starts_with("//")
        || path.starts_with("/memfd:")
        || path.starts_with("/tmp/perf-")
    {
        // Names outside of all files are those that a compiler at run time left.
        if is_nameless { Kind::Missing } else { Kind::Interpreter }
    } else if begins(&["libjemalloc", "libtcmalloc", "libmimalloc"]) {
        Kind::Allocator
    } else if begins(&[
        "libpython",
        "python",
        "libruby",
        "ruby",
        "libperl",
        "perl",
        "libjvm",
        "libnode",
        "node",
        "libv8",
        "libcoreclr",
        "libclrjit",
        "libmono",
        "libphp",
        "liblua",
    ]) {
        Kind::Interpreter
    } else if begins(&["libstdc++.so", "libc++.so", "libc++abi", "libgcc_s", "libstd-"]) {
        Kind::Standard
    } else if sites::is_system_library(module) {
        Kind::System
    } else {
        of_name(name, file)
    }
}

fn of_name(name: &str, file: Option<&str>) -> Kind {
    if sites::is_program(name, file) { Kind::Program } else { Kind::Standard }
}

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
        assert_eq!(kinds["malloc"], Kind::Allocator);
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
