//! Inlined functions, files and lines from DWARF, by blazesym.
//!
//! blazesym's symboliser stays on the thread that made it, maps the file, and holds tens of megabytes of parsed units:
//! it lives for one batch of one file.

use std::collections::HashMap;
use std::os::unix::fs::symlink;
use std::panic::{self, AssertUnwindSafe};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::{fs, io};

use blazesym::symbolize::source::{self, Source};
use blazesym::symbolize::{CodeInfo, Input, Sym, Symbolized, Symbolizer};
use profile::{Svma, SymbolFrame};
use tempfile::TempDir;

use crate::demangle::Name;
use crate::elf::Elf;
use crate::image::Image;
use crate::locate::{self, Binary};

/// One function at an address, as DWARF tells it.
#[derive(Clone, Debug)]
pub(crate) struct Line {
    name: Arc<Name>,
    file: Option<Arc<str>>,
    line: u32,
    start: Option<u64>,
    inlined: bool,
    label: bool,
}

impl Line {
    /// Whether it is only known to start somewhere before the address, and not to be there.
    pub(crate) fn is_label(&self) -> bool {
        self.label
    }

    /// The frame of this function.
    pub(crate) fn into_frame(self) -> SymbolFrame {
        SymbolFrame {
            name: Arc::clone(&self.name.shown),
            system_name: self.name.system.clone(),
            file: self.file,
            line: self.line,
            function_start: self.start.map(Svma),
            inlined: self.inlined,
        }
    }
}

/// Bytes of memory that a file and the package of its split debug information may take, and bytes that are mapped for them besides. Measured where nearly every function is asked for: 47 MiB for 33 MiB
/// of DWARF, 71 for 74.
pub(crate) fn memory(binary: &Binary, package: Option<&Path>) -> (u64, u64) {
    const AT_LEAST: u64 = 12 << 20;
    let package = package.map_or_else(|| locate::package_beside(&binary.path), Path::to_owned);
    let package = Image::open(&package).ok().and_then(|image| Elf::parse(image).ok());
    let of_both = |of: &dyn Fn(&Elf) -> u64| of(&binary.elf).saturating_add(package.as_ref().map_or(0, of));
    let dwarf = of_both(&Elf::dwarf_bytes);
    (AT_LEAST.saturating_add(dwarf).saturating_add(dwarf / 2), of_both(&|elf| elf.image.len()))
}

/// The functions at each address, innermost first. The error says why the file's debug information was not used.
///
/// `package` is that of its split debug information if it does not lie next to the file, the only place where blazesym looks.
pub(crate) fn find(
    path: &Path,
    package: Option<&Path>,
    addresses: &[u64],
    debug_dirs: &[PathBuf],
) -> Result<Vec<Vec<Line>>, String> {
    let together = package.map(|package| together(path, package)).transpose();
    let together = together.map_err(|error| format!("its split debug information cannot be read: {error}"))?;
    let path = together.as_ref().map_or_else(|| path.to_owned(), |folder| folder.path().join(TOGETHER));
    let path = path.as_path();
    // Debug information is as diverse as compilers. A panic over it must not end whoever asked for names.
    panic::catch_unwind(AssertUnwindSafe(|| look_up(path, addresses, debug_dirs)))
        .unwrap_or_else(|_| Err("its debug information cannot be read: names only".to_owned()))
}

/// What a file and its package are called next to each other.
const TOGETHER: &str = "file";

/// A folder with links to both.
fn together(path: &Path, package: &Path) -> io::Result<TempDir> {
    let folder = tempfile::Builder::new().prefix("profile-recorder-").tempdir()?;
    symlink(fs::canonicalize(path)?, folder.path().join(TOGETHER))?;
    symlink(fs::canonicalize(package)?, folder.path().join(TOGETHER).with_extension("dwp"))?;
    Ok(folder)
}

fn look_up(path: &Path, addresses: &[u64], debug_dirs: &[PathBuf]) -> Result<Vec<Vec<Line>>, String> {
    let symbolizer = Symbolizer::builder()
        .enable_auto_reload(false)
        .enable_code_info(true)
        .enable_inlined_fns(true)
        .enable_demangling(false)
        .set_debug_dirs(Some(debug_dirs))
        .build();
    let source = Source::Elf(source::Elf::new(path));
    let symbols = symbolizer
        .symbolize(&source, Input::VirtOffset(addresses))
        .map_err(|error| format!("its debug information cannot be read: {error}: names only"))?;
    let mut interned = Interned::default();
    Ok(symbols.iter().map(|symbol| interned.lines(symbol)).collect())
}

/// The names and files met so far: a few hundred of them stand for thousands of addresses.
#[derive(Default)]
struct Interned {
    names: HashMap<String, Arc<Name>>,
    files: HashMap<PathBuf, Arc<str>>,
}

impl Interned {
    fn lines(&mut self, symbol: &Symbolized<'_>) -> Vec<Line> {
        match symbol {
            Symbolized::Sym(symbol) => self.lines_of(symbol),
            _ => Vec::new(),
        }
    }

    fn lines_of(&mut self, symbol: &Sym<'_>) -> Vec<Line> {
        let mut lines = Vec::with_capacity(symbol.inlined.len() + 1);
        for inlined in symbol.inlined.iter().rev() {
            lines.push(Line { inlined: true, ..self.line(&inlined.name, inlined.code_info.as_ref()) });
        }
        // DWARF functions of several parts have neither size nor start here; a start without size is that of a label in
        // the symbol table.
        let start = symbol.size.map(|_| symbol.addr);
        let label = symbol.size.is_none() && symbol.addr != 0;
        lines.push(Line { start, label, ..self.line(&symbol.name, symbol.code_info.as_deref()) });
        lines
    }

    fn line(&mut self, name: &str, place: Option<&CodeInfo<'_>>) -> Line {
        let name = match self.names.get(name) {
            Some(name) => Arc::clone(name),
            None => {
                let new = Arc::new(Name::new(if name.is_empty() { "[unnamed]" } else { name }));
                self.names.insert(name.to_owned(), Arc::clone(&new));
                new
            }
        };
        let file =
            place.map(|place| place.to_path()).filter(|path| !path.as_os_str().is_empty()).map(|path| {
                match self.files.get(&*path) {
                    Some(file) => Arc::clone(file),
                    None => {
                        let file: Arc<str> = path.to_string_lossy().into();
                        self.files.insert(path.into_owned(), Arc::clone(&file));
                        file
                    }
                }
            });
        Line {
            name,
            file,
            line: place.and_then(|place| place.line).unwrap_or(0),
            start: None,
            inlined: false,
            label: false,
        }
    }
}
