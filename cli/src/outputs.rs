//! The files that a recording ends in: checked and opened before the command runs, renamed into place when they are whole.

use crate::error::{Error, warn};
use crate::pending::PendingFile;
use crate::summary;
use profile::Mode;
use profile::{Format, Options, Profile, Symbols, UnknownFormat};
use std::ffi::OsString;
use std::fmt;
use std::path::{Component, Path, PathBuf};

/// A file to write, as the user named it, in the format that its name asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct OutputPath {
    path: PathBuf,
    format: Format,
}

impl OutputPath {
    /// The format follows the extension.
    pub(crate) fn new(path: OsString) -> Result<Self, UnknownFormat> {
        let path = PathBuf::from(path);
        Ok(Self { format: Format::from_path(&path)?, path })
    }

    /// The file, as it was named.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Another file in the same format.
    pub(crate) fn at(&self, path: PathBuf) -> Self {
        Self { path, format: self.format }
    }

    /// The first that names the same file as one before it.
    pub(crate) fn first_repeated(all: &[Self]) -> Option<&Self> {
        let plain = |path: &Path| path.components().filter(|c| *c != Component::CurDir).collect::<PathBuf>();
        (1..all.len()).map(|i| (&all[i], &all[..i])).find_map(|(output, before)| {
            before.iter().any(|earlier| plain(&earlier.path) == plain(&output.path)).then_some(output)
        })
    }

    /// `a.pb.gz` becomes `a.cpu.pb.gz`.
    fn with_mode(&self, mode: Mode) -> PathBuf {
        let name = self.path.file_name().unwrap_or_default().to_string_lossy();
        let known = Format::EXTENSIONS.iter().filter(|extension| name.ends_with(**extension));
        let extension = known.max_by_key(|extension| extension.len()).copied().unwrap_or_default();
        // The rest of the name need not be UTF-8: take it as it is.
        let bytes = self.path.file_name().unwrap_or_default().as_encoded_bytes();
        let stem = &bytes[..bytes.len() - extension.len()];
        let mut with_mode = stem.to_vec();
        with_mode.extend_from_slice(format!(".{}{extension}", mode.name()).as_bytes());
        self.path.with_file_name(<OsString as std::os::unix::ffi::OsStringExt>::from_vec(with_mode))
    }
}

impl fmt::Display for OutputPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.path.display().fmt(f)
    }
}

/// One file to be written.
#[derive(Debug)]
pub(crate) struct Output {
    /// What it shows; `None`: all modes.
    pub(crate) mode: Option<Mode>,
    /// How.
    pub(crate) format: Format,
    /// Where.
    pub(crate) file: PendingFile,
}

/// Opens a file for each output. Where a format cannot hold several modes side by side, each mode has a file.
pub(crate) fn open(paths: &[OutputPath], modes: &[Mode]) -> Result<Vec<Output>, Error> {
    let each = paths.iter().flat_map(|output| {
        let shown: Vec<(Option<Mode>, PathBuf)> = match modes {
            [mode] => vec![(Some(*mode), output.path.clone())],
            _ if holds_several(output.format) => vec![(None, output.path.clone())],
            _ => modes.iter().map(|mode| (Some(*mode), output.with_mode(*mode))).collect(),
        };
        shown.into_iter().map(|(mode, path)| (mode, output.format, path))
    });
    each.map(|(mode, format, path)| Ok(Output { mode, format, file: PendingFile::create(path)? })).collect()
}

/// Whether readers of the format choose among its sample types. A flame graph shows one; text formats hold one; the Firefox Profiler has one table for allocations.
const fn holds_several(format: Format) -> bool {
    matches!(format, Format::Pprof | Format::Raw | Format::Json | Format::Speedscope | Format::Html)
}

/// Opens a file for each output, with its format.
pub(crate) fn open_each(paths: &[OutputPath]) -> Result<Vec<(Format, PendingFile)>, Error> {
    paths.iter().map(|output| Ok((output.format, PendingFile::create(output.path.clone())?))).collect()
}

/// Writes every file that can be written, and tells of the others.
#[derive(Debug, Default)]
pub(crate) struct Writer {
    quiet: bool,
    written: Vec<PathBuf>,
    failed: bool,
}

impl Writer {
    /// One that, if quiet, says nothing but errors.
    pub(crate) fn new(quiet: bool) -> Self {
        Self { quiet, ..Self::default() }
    }

    /// Writes one file.
    pub(crate) fn put(
        &mut self,
        file: PendingFile,
        format: Format,
        (profile, symbols): (&Profile, &Symbols),
        options: &Options,
    ) {
        match file.finish(|out| format.encode(profile, symbols, options, out)) {
            Ok(path) => {
                if let (false, Some(line)) = (self.quiet, summary::large_file(&path, format)) {
                    warn(line);
                }
                self.written.push(path);
            }
            Err(error) => self.fail(&error),
        }
    }

    /// A file that cannot be written.
    pub(crate) fn fail(&mut self, error: &Error) {
        crate::error::print(error);
        self.failed = true;
    }

    /// The files that were written.
    pub(crate) fn written(&self) -> &[PathBuf] {
        &self.written
    }

    /// Whether any was not.
    pub(crate) fn has_failed(&self) -> bool {
        self.failed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn output(path: &str) -> OutputPath {
        OutputPath::new(path.into()).unwrap()
    }

    #[test]
    fn the_mode_stands_before_the_whole_extension() {
        for (path, expected) in [
            ("a.svg", "a.cpu.svg"),
            ("/x.y/a.b.pb.gz", "/x.y/a.b.cpu.pb.gz"),
            ("./profile.folded", "./profile.cpu.folded"),
            (".svg", ".cpu.svg"),
            ("a.speedscope.json", "a.cpu.speedscope.json"),
        ] {
            assert_eq!(output(path).with_mode(Mode::Cpu), Path::new(expected));
        }
    }

    #[test]
    fn the_same_file_by_another_spelling_is_a_repetition() {
        let all = [output("a.svg"), output("b/a.svg"), output("./a.svg")];
        assert_eq!(OutputPath::first_repeated(&all), Some(&all[2]));
        assert_eq!(OutputPath::first_repeated(&all[..2]), None);
    }
}
