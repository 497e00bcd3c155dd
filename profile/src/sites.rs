//! Where in a program something was allocated, past the layers that every allocation goes through.

use crate::{Frame, Profile, StackId, Symbols, names, top};
use std::borrow::Cow;
use std::path::Path;
use std::sync::Arc;

/// One level of a stack, as a reader of it knows the program.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Level {
    /// The function.
    pub name: String,
    /// Its source file, if known.
    pub file: Option<Arc<str>>,
    /// Line in the file; 0 if unknown.
    pub line: u32,
    /// Whether it is code of the program, not of a language's library or of the recorder.
    pub is_program: bool,
}

impl Level {
    /// The function, and where it is: files below `here` by their path from there.
    pub fn line(&self, here: &Path) -> String {
        let Some(file) = &self.file else { return self.name.clone() };
        let path = Path::new(&**file);
        let path = path.strip_prefix(here).unwrap_or(path).display();
        match self.line {
            0 => format!("{} ({path})", self.name),
            line => format!("{} ({path}:{line})", self.name),
        }
    }
}

/// The levels of an allocation's stack, innermost first, without the allocation function itself.
pub fn levels<'a>(profile: &'a Profile, symbols: &'a Symbols, stack: StackId) -> impl Iterator<Item = Level> + use<'a> {
    let frames = profile.stacks.frames_leaf_first(stack).filter(|frame| !top::is_allocation_function(frame));
    frames.flat_map(|frame| of_frame(profile, symbols, frame))
}

pub(crate) fn of_frame(profile: &Profile, symbols: &Symbols, frame: &Frame) -> Vec<Level> {
    let found = symbols.get(frame);
    let level = |(i, name): (usize, Cow<'_, str>)| {
        let (file, line) = found.get(i).map_or((None, 0), |symbol| (symbol.file.clone(), symbol.line));
        let is_program = match frame {
            // What stands for frames that are missing.
            Frame::Named(_) => true,
            Frame::Address { mapping, .. } => {
                let module = mapping.and_then(|id| profile.mapping(id)).map_or("", |mapping| mapping.file_name());
                !is_system_library(module) && is_program(&name, file.as_deref())
            }
        };
        Level { name: name.into_owned(), file, line, is_program }
    };
    names::of(frame, profile, symbols).into_iter().enumerate().map(level).collect()
}

/// Who is said to have allocated: the innermost level of the program that is not named after allocation itself (as `xmalloc` is). Where there is none,
/// the innermost of the program, or of all.
pub fn site(levels: impl Iterator<Item = Level>) -> Option<Level> {
    let mut next_best: Option<Level> = None;
    for level in levels {
        if level.is_program && !is_named_after_allocation(&level.name) {
            return Some(level);
        }
        if next_best.as_ref().is_none_or(|best| level.is_program && !best.is_program) {
            next_best = Some(level);
        }
    }
    next_best
}

/// A layer of the program's own in front of the allocator.
pub(crate) fn is_named_after_allocation(name: &str) -> bool {
    let last = name.rsplit("::").next().unwrap_or(name);
    ["alloc", "strdup"].iter().any(|word| last.to_ascii_lowercase().contains(word))
}

/// Libraries that come with the language.
pub(crate) fn is_system_library(module: &str) -> bool {
    ["libc.so", "libc-", "libstdc++.so", "libc++.so", "libm.so", "libpthread", "ld-linux", "libgcc_s.so"]
        .iter()
        .any(|name| module.starts_with(name))
}

/// By its source file or, where that is not known, by its name.
pub(crate) fn is_program(name: &str, file: Option<&str>) -> bool {
    // The allocator's entry points have the line of `#[global_allocator]`.
    if name.contains("profile_recorder_alloc_hook")
        || ["profile_recorder::", "__rust", "__rg_"].iter().any(|prefix| name.starts_with(prefix))
    {
        return false;
    }
    match file {
        // Inlined into the program, where debug information may tell names without their modules.
        Some(file) if ["/alloc-hook/src/", "/profile-recorder-alloc-hook-"].iter().any(|own| file.contains(own)) => {
            false
        }
        Some(file) => {
            let rust = file.starts_with("/rustc/") || file.contains("/lib/rustlib/src/rust/library/");
            !rust && !file.contains("/include/c++/")
        }
        None => {
            let name = name.trim_start_matches(['<', '&', '*', '(', '[']).trim_start_matches("mut ");
            let library = ["std::", "core::", "alloc::", "operator new", "__gnu_cxx::"];
            !library.iter().any(|prefix| name.starts_with(prefix))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{AddressKind, Mapping, MappingId, Svma, SymbolFrame};

    #[test]
    fn the_layers_that_every_allocation_goes_through_are_not_the_program() {
        for name in [
            "__rustc::__rust_alloc",
            "__rust_alloc",
            "alloc::vec::Vec<T>::with_capacity",
            "<alloc::string::String as core::clone::Clone>::clone",
            "<&mut std::vec::Vec<T>>::push",
            "operator new(unsigned long)",
            "<profile_recorder_alloc_hook::rust::RecordingAllocator<A> as core::alloc::global::GlobalAlloc>::alloc",
        ] {
            assert!(!is_program(name, None), "{name}");
        }
        assert!(is_program("orders::parse", None) && is_program("<orders::Order as core::fmt::Display>::fmt", None));
        assert!(!is_program("my_closure", Some("/rustc/abc/library/alloc/src/vec/mod.rs")));
        assert!(is_program("<alloc::vec::Vec<T> as mine::Extension>::grow", Some("/home/me/src/main.rs")));
        assert!(
            is_system_library("libc.so.6") && is_system_library("libc-2.31.so") && !is_system_library("libcurl.so.4")
        );
    }

    #[test]
    fn the_site_is_the_innermost_function_of_the_program_inlined_ones_included() {
        let mut profile = Profile::default();
        for path in ["/bin/app", "/lib/libc.so.6"] {
            profile.mappings.push(Mapping { path: path.into(), ..Mapping::default() });
        }
        let frame = |module, svma| Frame::Address {
            mapping: Some(MappingId(module)),
            svma: Svma(svma),
            kind: AddressKind::ReturnAddress,
        };
        let (main, make, strdup, xmalloc) = (frame(0, 16), frame(0, 32), frame(1, 16), frame(0, 48));
        let mut symbols = Symbols::new();
        let mut inlined = SymbolFrame::named("inlined");
        (inlined.file, inlined.line) = (Some("/src/app/make.c".into()), 12);
        symbols.insert(make.address().unwrap(), vec![inlined, SymbolFrame::named("make")]);
        symbols.insert(strdup.address().unwrap(), vec![SymbolFrame::named("strdup")]);
        symbols.insert(xmalloc.address().unwrap(), vec![SymbolFrame::named("_PyObject_Malloc")]);
        let of = |stack: Vec<Frame>| {
            let mut profile = profile.clone();
            let stack = profile.stacks.intern(stack);
            site(levels(&profile, &symbols, stack)).map(|level| level.line(Path::new("/src")))
        };
        let malloc = Frame::named("malloc");
        assert_eq!(of(vec![main.clone(), make, strdup.clone(), malloc.clone()]).unwrap(), "inlined (app/make.c:12)");
        assert_eq!(of(vec![main.clone(), xmalloc.clone(), malloc.clone()]).unwrap(), "app+0xf", "not the layer");
        assert_eq!(of(vec![xmalloc, strdup.clone(), malloc.clone()]).unwrap(), "_PyObject_Malloc", "all there is");
        assert_eq!(of(vec![main, malloc.clone()]).unwrap(), "app+0xf");
        assert_eq!(of(vec![strdup, malloc.clone()]).unwrap(), "strdup", "nothing of the program");
        assert_eq!(of(vec![malloc]), None);
        assert_eq!(of(vec![Frame::named("[lost: store full]")]).unwrap(), "[lost: store full]");
    }
}
