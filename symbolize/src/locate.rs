//! Where the file of a mapping, or its debug information, lies now.
//!
//! A path says little: files are upgraded, deleted, and looked for on other machines. Whatever is found has to have the
//! build id that was mapped. Only where no build id is known does the path decide, unless the file changed since.

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use crate::elf::Elf;
use crate::image::Image;
use crate::{Options, processes};

/// What the kernel appends to the path of a file that is gone.
pub(crate) const DELETED: &str = " (deleted)";
/// What the package of a file's split debug information is called after the file's own name.
const PACKAGE: &str = ".dwp";
/// Shorter build ids are hand-made and not unique.
const BUILD_ID: usize = 4;

/// An ELF file that holds what was mapped.
#[derive(Debug)]
pub(crate) struct Binary {
    pub(crate) path: PathBuf,
    pub(crate) elf: Elf,
}

/// The file that was mapped from `path`, or why there is none. `recorded` is when that was, in nanoseconds since 1970; 0 if not known.
pub(crate) fn binary(path: &str, build_id: &[u8], recorded: i64, options: &Options) -> Result<Binary, String> {
    if build_id.is_empty() && changed_since(Path::new(path), recorded) {
        return Err("changed since it was recorded: not used (it has no build id)".to_owned());
    }
    let reason = match open(Path::new(path), build_id) {
        Ok(binary) => return Ok(binary),
        Err(reason) => reason,
    };
    if build_id.is_empty() {
        return Err(reason);
    }
    let plain = path.strip_suffix(DELETED).unwrap_or(path);
    let here = [PathBuf::from(plain), PathBuf::from("/proc/self/exe")];
    let elsewhere = options.debug_dirs.iter().flat_map(|directory| copies(directory, path, build_id));
    let seen = options.file_pids.iter().flat_map(|pid| processes::paths(*pid, Path::new(plain)));
    here.into_iter().chain(elsewhere).chain(seen).find_map(|path| open(&path, build_id).ok()).ok_or(reason)
}

/// Whether a file was written, replaced or renamed after a time. (A file that was replaced may have any time of modification; that of its last change is the kernel's.)
fn changed_since(path: &Path, unix_ns: i64) -> bool {
    let changed = fs::metadata(path)
        .map_or(0, |file| file.ctime().saturating_mul(1_000_000_000).saturating_add(file.ctime_nsec()));
    unix_ns != 0 && changed > unix_ns
}

/// The separate debug file of a file mapped from `path`, of which `main` is what was found: by build id, also a whole copy that was not
/// stripped, else by debug link.
pub(crate) fn debug_file(main: Option<&Binary>, path: &str, build_id: &[u8], options: &Options) -> Option<Binary> {
    let debug_dirs = &options.debug_dirs;
    let own = main.and_then(|main| main.elf.build_id());
    let build_id = if build_id.is_empty() { own.as_deref().unwrap_or_default() } else { build_id };
    if !build_id.is_empty() {
        let debug = debug_dirs.iter().filter_map(|directory| by_build_id(directory, build_id, ".debug"));
        let copies = debug_dirs.iter().flat_map(|directory| copies(directory, path, build_id));
        let is_other = |binary: &Binary| main.is_none_or(|main| main.path != binary.path);
        let found = debug
            .chain(copies)
            .filter_map(|path| open(&path, build_id).ok())
            .find(|binary| is_other(binary) && (binary.elf.has_symtab() || binary.elf.has_dwarf()));
        if found.is_some() {
            return found;
        }
    }
    linked(main?, build_id, debug_dirs)
}

/// Where a directory of copies may hold a file.
fn copies(directory: &Path, path: &str, build_id: &[u8]) -> impl Iterator<Item = PathBuf> {
    let relative = path.strip_suffix(DELETED).unwrap_or(path).trim_start_matches('/');
    let named = (!relative.is_empty()).then(|| [directory.join(relative), directory.join(file_name(relative))]);
    by_build_id(directory, build_id, "").into_iter().chain(named.into_iter().flatten())
}

/// Where the package of a file's split debug information lies, if it lies next to the file.
pub(crate) fn package_beside(path: &Path) -> PathBuf {
    let mut path = path.as_os_str().to_owned();
    path.push(PACKAGE);
    PathBuf::from(path)
}

/// The package of split debug information that belongs to `binary`, mapped from `path`, unless it lies next to the binary.
pub(crate) fn package(binary: &Binary, path: &str, build_id: &[u8], options: &Options) -> Option<PathBuf> {
    if package_beside(&binary.path).exists() {
        return None;
    }
    let plain = path.strip_suffix(DELETED).unwrap_or(path);
    let far = options.debug_dirs.iter().flat_map(|directory| {
        let copies = copies(directory, path, &[]).map(|copy| package_beside(&copy));
        by_build_id(directory, build_id, PACKAGE).into_iter().chain(copies)
    });
    [package_beside(Path::new(plain))].into_iter().chain(far).find(|path| path.is_file())
}

fn linked(main: &Binary, build_id: &[u8], debug_dirs: &[PathBuf]) -> Option<Binary> {
    let (name, crc) = main.elf.debug_link()?;
    let path = fs::canonicalize(&main.path).ok()?;
    let folder = path.parent()?;
    let relative = folder.strip_prefix("/").ok()?;
    let near = [folder.join(&name), folder.join(".debug").join(&name)];
    let far = debug_dirs.iter().flat_map(|directory| [directory.join(relative).join(&name), directory.join(&name)]);
    near.into_iter().chain(far).filter(|candidate| *candidate != path).find_map(|candidate| {
        let binary = open(&candidate, &[]).ok()?;
        let matches = match binary.elf.build_id() {
            Some(found) if !build_id.is_empty() => found == build_id,
            _ => crc_of(&binary.elf.image) == Some(crc),
        };
        matches.then_some(binary)
    })
}

fn open(path: &Path, build_id: &[u8]) -> Result<Binary, String> {
    let image = Image::open(path).map_err(|error| {
        let text = error.to_string().to_lowercase();
        format!("cannot be read: {}", text.split(" (os error").next().unwrap_or(&text))
    })?;
    let elf = Elf::parse(image)?;
    let found = elf.build_id();
    if !build_id.is_empty() && found.as_deref() != Some(build_id) {
        let found = found.map_or("none".to_owned(), |found| hexadecimal(&found));
        let mapped = hexadecimal(build_id);
        return Err(format!("replaced since it was recorded: not used (build id {found}, recorded {mapped})"));
    }
    Ok(Binary { path: path.to_owned(), elf })
}

fn by_build_id(directory: &Path, build_id: &[u8], extension: &str) -> Option<PathBuf> {
    let (first, rest) = build_id.split_first()?;
    (build_id.len() >= BUILD_ID).then(|| {
        directory.join(".build-id").join(format!("{first:02x}")).join(format!("{}{extension}", hexadecimal(rest)))
    })
}

fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn file_name(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}

fn crc_of(image: &Image) -> Option<u32> {
    let mut hasher = crc32fast::Hasher::new();
    let mut buffer = vec![0; 256 << 10];
    let mut offset = 0;
    while offset < image.len() {
        let length = (image.len() - offset).min(buffer.len() as u64);
        let chunk = buffer.get_mut(..usize::try_from(length).ok()?)?;
        image.fill(offset, chunk)?;
        hasher.update(chunk);
        offset += length;
    }
    Some(hasher.finalize())
}
