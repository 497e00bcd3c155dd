//! Symboliser of Profile Recorder: mapping and address to frames.
//!
//! [`symbolize`] names every address of a [`Profile`]. It runs on any ordinary thread, of the recorded process or of
//! another one, and keeps nothing: what it has read is released before it returns. Who names one profile after another has
//! the names kept ([`Known`]). It never fails. What cannot be named stays unnamed, and [`Symbolized::notes`] says why.
//!
//! Names come from the symbol tables of the mapped files, which costs about a microsecond an address. Inlined functions
//! and lines come from DWARF and cost about 40 microseconds an address and tens of megabytes while it works. A file is
//! used only if its build id is the mapped one's: after an upgrade, another file lies at the same path.
//!
//! Separate debug files are found by build id and by debug link. Code that was generated at run time is named from perf
//! maps, the vDSO from our own process's copy.
#![forbid(unsafe_code)]

mod adopt;
mod demangle;
mod elf;
mod functions;
mod image;
mod known;
mod lines;
mod locate;
mod module;
mod packed;
mod perf_map;
mod processes;
mod short;
mod strings;
mod vdso;

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use profile::{AddressKey, Frame, Mapping, Profile, SymbolFrame, Symbols};

pub use crate::adopt::adopt;
use crate::functions::Function;
use crate::known::Asked;
pub use crate::known::Known;
pub use crate::short::{NameStyle, short};

/// How much to find out about an address.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
pub enum Detail {
    /// Nothing: every address stays one.
    None,
    /// The function.
    Names,
    /// The function, the functions inlined into it, and source file and line of each.
    #[default]
    Full,
}

/// What to look for and where.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Options {
    /// How much to find out.
    pub detail: Detail,
    /// Where separate debug files lie, and copies of files that are gone from their own path: `DIR/.build-id/ab/cdef.debug`,
    /// `DIR/PATH`, `DIR/NAME`, and packages of split debug information: `DIR/.build-id/ab/cdef.dwp`, `DIR/NAME.dwp`. The first
    /// that has something wins. The default is `/usr/lib/debug`.
    pub debug_dirs: Vec<PathBuf>,
    /// Processes whose perf maps (`/tmp/perf-PID.map`, also of their own file system) name the code outside all files; the
    /// first that knows an address names it. The default is none.
    pub perf_map_pids: Vec<u32>,
    /// Processes that are asked for files that are not found otherwise, as long as they run: a container's files, and deleted
    /// ones that they still map. The default is none.
    pub file_pids: Vec<u32>,
    /// Most bytes of memory to use for the lines and inlined functions of one file, beside the pages of the file itself. A file
    /// that may take more gets names alone, and a note. The default is no limit.
    pub memory: usize,
    /// The same of what is mapped, the file too.
    pub address_space: usize,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            detail: Detail::default(),
            debug_dirs: vec![PathBuf::from("/usr/lib/debug")],
            perf_map_pids: Vec::new(),
            file_pids: Vec::new(),
            memory: usize::MAX,
            address_space: usize::MAX,
        }
    }
}

/// What was found.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Symbolized {
    /// The names.
    pub symbols: Symbols,
    /// One line for each file that was not used or not wholly used, in a fixed order.
    pub notes: Vec<String>,
}

/// Names the addresses of `profile`.
pub fn symbolize(profile: &Profile, options: &Options) -> Symbolized {
    complete(profile, Symbols::new(), options)
}

/// The same, with what was found for profiles before it; what is found is kept there.
pub fn symbolize_again(profile: &Profile, options: &Options, known: &mut Known) -> Symbolized {
    complete_with(profile, Symbols::new(), options, Some(known))
}

/// Names the addresses of `profile` that `symbols` does not name yet, and returns both together.
pub fn complete(profile: &Profile, symbols: Symbols, options: &Options) -> Symbolized {
    complete_with(profile, symbols, options, None)
}

fn complete_with(profile: &Profile, symbols: Symbols, options: &Options, mut known: Option<&mut Known>) -> Symbolized {
    let mut found = Symbolized { symbols, notes: Vec::new() };
    if options.detail == Detail::None {
        return found;
    }
    let mut files: BTreeMap<(&str, &[u8]), Batch> = BTreeMap::new();
    let mut generated = Batch::default();
    let mut named = BTreeSet::new();
    for key in profile.addresses() {
        let (mapping, svma, kind) = key;
        if !found.symbols.get(&Frame::Address { mapping, svma, kind }).is_empty() {
            named.extend(mapping);
            continue;
        }
        let address = kind.for_lookup(svma);
        match mapping.map(|id| profile.mapping(id)) {
            None => generated.push(key, address.0),
            Some(Some(mapping)) if !names_file(mapping) => generated.push(key, mapping.to_avma(address)),
            Some(Some(mapping)) => {
                files.entry((&mapping.path, &mapping.build_id)).or_default().push(key, address.0);
            }
            Some(None) => {}
        }
    }
    let named: BTreeSet<(&str, &[u8])> = named
        .into_iter()
        .filter_map(|id| profile.mapping(id).map(|mapping| (mapping.path.as_str(), mapping.build_id.as_slice())))
        .collect();
    if let Some(known) = &mut known {
        known.begin();
    }
    for ((path, build_id), batch) in files {
        let addresses = batch.addresses();
        let asked = Asked { path, build_id, detail: options.detail };
        let mut find = |addresses: &[u64], has_known| {
            let (has_named, notes) = (has_known || named.contains(&(path, build_id)), found.notes.len());
            let file = (build_id, profile.start_unix_ns, has_named);
            let frames = module::frames(path, file, addresses, options, &mut found.notes);
            (frames, found.notes.len() == notes)
        };
        let frames = match &mut known {
            Some(known) => known.frames(asked, &addresses, find),
            None => find(&addresses, false).0,
        };
        batch.insert(&addresses, &frames, &mut found.symbols);
    }
    let addresses = generated.addresses();
    let frames = generated_frames(&addresses, options, &mut found.notes);
    generated.insert(&addresses, &frames, &mut found.symbols);
    found
}

/// Whether the mapping's code lies in an ELF file, or in the vDSO, and not in anonymous memory of whatever name.
fn names_file(mapping: &Mapping) -> bool {
    let file = mapping.path.starts_with('/') && !mapping.path.starts_with("//");
    (file && !mapping.path.starts_with("/memfd:")) || mapping.path == vdso::PATH
}

fn generated_frames(addresses: &[u64], options: &Options, notes: &mut Vec<String>) -> Vec<Vec<SymbolFrame>> {
    let mut functions: Vec<Option<Function>> = vec![None; addresses.len()];
    if !addresses.is_empty() {
        for &pid in &options.perf_map_pids {
            // A process that ended has no file system of its own any more; what it left in ours is still there.
            let own = processes::perf_map(pid).filter(|own| own.exists());
            let result = perf_map::find(&own.unwrap_or_else(|| perf_map::path(pid)), pid, addresses, &mut functions);
            notes.extend(result.err());
        }
    }
    // Their start is an address of the process, while a symbol's start is one of a file.
    let frame = |function: Function| SymbolFrame { function_start: None, ..module::frame(&function) };
    functions.into_iter().map(|function| function.map(frame).into_iter().collect()).collect()
}

/// The addresses of one file, each with the keys that ask for it.
#[derive(Debug, Default)]
struct Batch(Vec<(u64, AddressKey)>);

impl Batch {
    fn push(&mut self, key: AddressKey, address: u64) {
        self.0.push((address, key));
    }

    /// The distinct addresses in order.
    fn addresses(&self) -> Vec<u64> {
        let mut addresses: Vec<u64> = self.0.iter().map(|(address, _)| *address).collect();
        addresses.sort_unstable();
        addresses.dedup();
        addresses
    }

    fn insert(self, addresses: &[u64], frames: &[Vec<SymbolFrame>], symbols: &mut Symbols) {
        for (address, key) in self.0 {
            let frames = addresses.binary_search(&address).ok().and_then(|at| frames.get(at));
            if let Some(frames) = frames.filter(|frames| !frames.is_empty()) {
                symbols.insert(key, frames.clone());
            }
        }
    }
}
