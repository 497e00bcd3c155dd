//! A directory of pprof files: on a share that something else collects, for instance.

use super::Origin;
use crate::reason;
use profile::{Format, Options, Profile, Symbols};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// Writes items there.
#[derive(Debug)]
pub(super) struct Writer {
    directory: PathBuf,
}

/// The name of the file, a line break, and the file.
pub(super) fn body(profile: &Profile, symbols: &Symbols, origin: &Origin) -> io::Result<Vec<u8>> {
    let plain = |c: char| if c.is_alphanumeric() || "._-".contains(c) { c } else { '_' };
    let service: String = origin.service.chars().map(plain).take(100).collect();
    let mode = origin.mode.map_or("profile", profile::Mode::name);
    let id = &super::payload::id()?[..8];
    let mut body = format!("{service}.{mode}.{}.{id}.pb.gz\n", profile.start_unix_ns / 1_000_000).into_bytes();
    Format::Pprof.encode(profile, symbols, &Options::default(), &mut body)?;
    Ok(body)
}

impl Writer {
    pub(super) fn new(directory: &str) -> Self {
        Self { directory: PathBuf::from(directory) }
    }

    /// Puts the file into place: whole, and once, however often it is tried.
    pub(super) fn write(&self, body: &[u8]) -> Result<(), String> {
        let end = body.iter().position(|byte| *byte == b'\n').ok_or("it has no name")?;
        let (name, file) = body.split_at(end);
        let name = String::from_utf8_lossy(name);
        let name = Path::new(&*name).file_name().ok_or("it has no name")?;
        let put = || -> io::Result<()> {
            std::fs::create_dir_all(&self.directory)?;
            let mut new = tempfile::NamedTempFile::new_in(&self.directory)?;
            new.write_all(file.get(1..).unwrap_or_default())?;
            crate::files::put(new, &self.directory.join(name))
        };
        put().map_err(|e| format!("cannot write to '{}': {}", self.directory.display(), reason(&e)))
    }
}
