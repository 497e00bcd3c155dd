//! A file for each process: outputs with `{PID}` or `{EXE}` in their names.

use super::measured::{Measured, Source};
use super::together::together;
use crate::args::Record;
use crate::error::Error;
use crate::outputs::{self, Output, OutputPath, Writer};
use crate::pending::PendingFile;
use profile::store::Decoded;
use profile::{Profile, Symbols};
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::PathBuf;

const PID: &str = "{PID}";
const EXE: &str = "{EXE}";

/// Whether this names a file for each process.
pub(super) fn is_one(output: &OutputPath) -> bool {
    let name = output.path().as_os_str().as_bytes();
    [PID, EXE].iter().any(|placeholder| find(name, placeholder.as_bytes()).is_some())
}

/// Finds out now what would keep the files from being written in the end: nobody knows their names yet.
pub(super) fn check(outputs: &[OutputPath]) -> Result<(), Error> {
    outputs.iter().try_for_each(|output| {
        let directory = output.path().parent().unwrap_or(output.path());
        let bytes = directory.as_os_str().as_bytes();
        if [PID, EXE].iter().any(|placeholder| find(bytes, placeholder.as_bytes()).is_some()) {
            return Err(Error::usage(format!(
                "'{output}' has {PID} or {EXE} in a directory's name; put them into the file's"
            )));
        }
        PendingFile::create(output.path().to_owned()).map(drop)
    })
}

/// Writes the files: processes that come to the same name, as those of one executable do with `{EXE}` alone, are together in one.
pub(super) fn write(outputs: &[OutputPath], stores: &[Decoded], record: &Record, writer: &mut Writer) {
    for output in outputs {
        let mut groups: BTreeMap<PathBuf, Vec<Decoded>> = BTreeMap::new();
        for store in stores {
            groups.entry(path_of(output, store)).or_default().push(store.clone());
        }
        for (path, stores) in groups {
            match outputs::open(&[output.at(path)], &record.modes) {
                Ok(files) => one(files, stores, record, writer),
                Err(error) => writer.fail(&error),
            }
        }
    }
}

fn one(files: Vec<Output>, mut stores: Vec<Decoded>, record: &Record, writer: &mut Writer) {
    let options = record.shown.options(stores.first().map(|store| store.process().to_owned()));
    let mut measured: Vec<Measured> = Vec::new();
    for output in files {
        for mode in output.mode.map_or(record.modes.clone(), |mode| vec![mode]) {
            let source = Source::of(mode);
            if !measured.iter().any(|m| m.source == source) {
                measured.push(Measured::take(source, &mut stores, record.symbols, record.names).0);
            }
        }
        let put = |profile: &Profile, symbols: &Symbols| {
            writer.put(output.file, output.format, (profile, symbols), &options);
        };
        match output.mode {
            None => {
                let (profile, symbols) = together(&measured);
                put(&profile, &symbols);
            }
            Some(mode) => {
                let Some(measured) = measured.iter_mut().find(|m| m.source == Source::of(mode)) else { continue };
                super::show_first(&mut measured.profile, mode);
                put(&measured.profile, &measured.symbols);
            }
        }
    }
}

fn path_of(output: &OutputPath, store: &Decoded) -> PathBuf {
    // A name cannot leave the directory.
    let exe = store.process().replace('/', "_");
    let name = replaced(output.path().as_os_str().as_bytes(), PID, &store.pid.to_string());
    PathBuf::from(OsString::from_vec(replaced(&name, EXE, &exe)))
}

fn replaced(name: &[u8], placeholder: &str, by: &str) -> Vec<u8> {
    let mut result = Vec::with_capacity(name.len());
    let mut rest = name;
    while let Some(at) = find(rest, placeholder.as_bytes()) {
        result.extend_from_slice(&rest[..at]);
        result.extend_from_slice(by.as_bytes());
        rest = &rest[at + placeholder.len()..];
    }
    result.extend_from_slice(rest);
    result
}

fn find(name: &[u8], placeholder: &[u8]) -> Option<usize> {
    name.windows(placeholder.len()).position(|window| window == placeholder)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_process_has_its_name_and_stays_in_the_directory() {
        let store = |exe: &str| Decoded { pid: 7, exe: exe.into(), ..Decoded::default() };
        let path = |name: &str, exe: &str| path_of(&OutputPath::new(name.into()).unwrap(), &store(exe));
        assert_eq!(path("a/{EXE}-{PID}-{PID}.svg", "/usr/bin/make"), PathBuf::from("a/make-7-7.svg"));
        assert_eq!(path("{EXE}.svg", ""), PathBuf::from(".svg"));
        assert!(!is_one(&OutputPath::new("PID.svg".into()).unwrap()));
    }
}
