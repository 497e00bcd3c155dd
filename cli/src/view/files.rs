//! The files to show, each read when it is first asked for.

use crate::convert::{self, Naming, input};
use crate::error::{Error, warn};
use profile::decode::Limits;
use profile::encode::html;
use profile::{Format, Options, Profile, Symbols};
use std::path::PathBuf;
use std::sync::OnceLock;

/// What a file holds, or why it cannot be read.
type Content = Result<(Profile, Symbols), String>;

/// Several profiles, by their numbers.
#[derive(Debug)]
pub(super) struct Files {
    files: Vec<(PathBuf, OnceLock<Content>)>,
    naming: Naming,
}

impl Files {
    /// Reads the first; the others must be there.
    pub(super) fn new(paths: &[PathBuf], naming: Naming) -> Result<Self, Error> {
        let files = Self { files: paths.iter().map(|path| (path.clone(), OnceLock::new())).collect(), naming };
        for path in paths.iter().skip(1) {
            let opened = std::fs::File::open(path);
            opened.map_err(|e| {
                Error::failure(format!("cannot read '{}': {}", path.display(), crate::pending::reason(&e)))
            })?;
        }
        match files.get(0) {
            Some(Err(why)) => Err(Error::failure(why.clone())),
            _ => Ok(files),
        }
    }

    /// Their names.
    pub(super) fn names(&self) -> Vec<String> {
        self.files.iter().map(|(path, _)| path.display().to_string()).collect()
    }

    /// The file of this number; `None` if there are not so many.
    pub(super) fn get(&self, index: usize) -> Option<&Content> {
        let (path, content) = self.files.get(index)?;
        Some(content.get_or_init(|| {
            let read = input::read(path).map_err(|error| error.line().to_owned())?;
            let (profile, symbols, note) = convert::named(read, &self.naming);
            note.into_iter().for_each(warn);
            Ok((profile, symbols))
        }))
    }

    /// The file in a format, as [`encoded`] says.
    pub(super) fn in_format(&self, index: usize, format: Option<Format>) -> Result<Vec<u8>, String> {
        let content = self.get(index).ok_or("there is no such file")?;
        let (profile, symbols) = content.as_ref().map_err(Clone::clone)?;
        let name = self.files.get(index).and_then(|(path, _)| path.file_name()).unwrap_or_default();
        encoded(profile, symbols, format, Some(name.to_string_lossy().into_owned()))
    }

    /// A profile that the browser was given, in a format.
    pub(super) fn convert(
        &self,
        bytes: &[u8],
        format: Option<Format>,
        title: Option<String>,
    ) -> Result<Vec<u8>, String> {
        let read = input::decode(bytes, Limits::default())?;
        let (profile, symbols, _) = convert::named(read, &self.naming);
        encoded(&profile, &symbols, format, title)
    }
}

/// `None` is what the page draws.
fn encoded(
    profile: &Profile,
    symbols: &Symbols,
    format: Option<Format>,
    title: Option<String>,
) -> Result<Vec<u8>, String> {
    let options = Options { title, ..Options::default() };
    let mut out = Vec::new();
    match format {
        Some(format) => format.encode(profile, symbols, &options, &mut out),
        None => html::data(profile, symbols, &options, &mut out),
    }
    .map_err(|e| format!("cannot encode the profile: {e}"))?;
    Ok(out)
}

/// `page` is no file format: `None`.
pub(super) fn format(name: &str) -> Result<Option<Format>, String> {
    match name {
        "page" => Ok(None),
        name => Format::from_name(name).map(Some).map_err(|e| e.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_read_once_and_a_broken_one_says_why_each_time() {
        let directory = tempfile::tempdir().unwrap();
        let path = |name: &str, content: &str| {
            let path = directory.path().join(name);
            std::fs::write(&path, content).unwrap();
            path
        };
        let naming =
            Naming { symbol_dirs: Vec::new(), detail: symbolize::Detail::None, style: symbolize::NameStyle::Full };
        let paths = [path("a.folded", "main;f 3\n"), path("b.folded", "no stack at all")];
        let files = Files::new(&paths, naming.clone()).unwrap();
        std::fs::remove_file(&paths[0]).unwrap();
        assert_eq!(files.in_format(0, Some(Format::Collapsed)).unwrap(), b"main;f 3\n");
        let why = files.in_format(1, None).unwrap_err();
        assert!(why.contains("b.folded") && why == files.in_format(1, None).unwrap_err(), "{why}");
        assert!(files.in_format(2, None).is_err());
        assert!(Files::new(&paths[1..], naming).is_err(), "the first is told of at once");
    }
}
