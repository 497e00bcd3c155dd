//! Which files are compared with which: two files, or the files of equal names in two directories.

use crate::error::Error;
use crate::pending::reason;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// The case of two files whose names differ.
const SINGLE: &str = "profile";

/// What is compared under one name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Pair {
    /// The file's path in its directory without the extensions.
    pub(super) name: String,
    /// The file of the base; `None` when only thresholds are asked for.
    pub(super) base: Option<PathBuf>,
    /// The file of the head.
    pub(super) head: PathBuf,
}

/// Names of files that only one directory has.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Unpaired {
    /// In the base only.
    pub(super) base: Vec<String>,
    /// In the head only.
    pub(super) head: Vec<String>,
}

/// Every pair, by name.
pub(super) fn pairs(base: Option<&Path>, head: &Path) -> Result<Vec<Pair>, Error> {
    let of_head = is_directory(head)?;
    let Some(base) = base else {
        if !of_head {
            return Ok(vec![Pair { name: stem(head), base: None, head: head.to_owned() }]);
        }
        let pairs = files(head)?.into_iter().map(|(name, head)| Pair { name, base: None, head }).collect();
        return Ok(pairs);
    };
    match (is_directory(base)?, of_head) {
        (false, false) => {
            // `base.pb.gz` and `head.pb.gz` have no name in common.
            let name = if stem(base) == stem(head) { stem(head) } else { SINGLE.to_owned() };
            Ok(vec![Pair { name, base: Some(base.to_owned()), head: head.to_owned() }])
        }
        (true, true) => {
            let mut old = files(base)?;
            let paired = files(head)?
                .into_iter()
                .filter_map(|(name, head)| Some(Pair { base: Some(old.remove(&name)?), name, head }));
            let paired: Vec<Pair> = paired.collect();
            match paired.is_empty() {
                true => Err(Error::failure(format!(
                    "no file of '{}' has the name of one in '{}'; nothing can be compared",
                    head.display(),
                    base.display()
                ))),
                false => Ok(paired),
            }
        }
        (is_directory, _) => {
            let (directory, file) = if is_directory { (base, head) } else { (head, base) };
            Err(Error::failure(format!(
                "'{}' is a directory and '{}' is a file; name two of a kind",
                directory.display(),
                file.display()
            )))
        }
    }
}

/// What only one of two directories has.
pub(super) fn unpaired(base: Option<&Path>, head: &Path) -> Result<Unpaired, Error> {
    let Some(base) = base.filter(|base| base.is_dir() && head.is_dir()) else { return Ok(Unpaired::default()) };
    let (old, new) = (files(base)?, files(head)?);
    let without = |of: &BTreeMap<String, PathBuf>, other: &BTreeMap<String, PathBuf>| {
        of.keys().filter(|name| !other.contains_key(*name)).cloned().collect()
    };
    Ok(Unpaired { base: without(&old, &new), head: without(&new, &old) })
}

fn is_directory(path: &Path) -> Result<bool, Error> {
    let metadata = std::fs::metadata(path);
    metadata
        .map(|m| m.is_dir())
        .map_err(|e| Error::failure(format!("cannot read '{}': {}", path.display(), reason(&e))))
}

/// The files below a directory, by their paths in it without extensions. Hidden ones are left out.
fn files(directory: &Path) -> Result<BTreeMap<String, PathBuf>, Error> {
    let mut files: BTreeMap<String, PathBuf> = BTreeMap::new();
    let mut pending = vec![(String::new(), directory.to_owned())];
    while let Some((prefix, directory)) = pending.pop() {
        let cannot =
            |e: std::io::Error| Error::failure(format!("cannot read '{}': {}", directory.display(), reason(&e)));
        for entry in std::fs::read_dir(&directory).map_err(cannot)? {
            let entry = entry.map_err(cannot)?;
            let name = entry.file_name().to_string_lossy().into_owned();
            if name.starts_with('.') {
                continue;
            }
            let path = entry.path();
            if path.is_dir() {
                pending.push((format!("{prefix}{name}/"), path));
                continue;
            }
            let name = format!("{prefix}{}", stem(&path));
            if let Some(other) = files.insert(name, path.clone()) {
                return Err(Error::failure(format!(
                    "'{}' and '{}' have the same name without their extensions; keep one format of each",
                    other.display(),
                    path.display()
                )));
            }
        }
    }
    Ok(files)
}

/// The file's name up to its first dot, so that `json.pb.gz` and `json.profrec` are the same case.
fn stem(path: &Path) -> String {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    name.split('.').next().filter(|stem| !stem.is_empty()).unwrap_or(&name).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::{create_dir_all, write};

    #[test]
    fn files_of_equal_names_are_pairs_whatever_their_formats() {
        let directory = tempfile::tempdir().unwrap();
        let at = |name: &str| directory.path().join(name);
        for name in ["base/sub", "head/sub"] {
            create_dir_all(at(name)).unwrap();
        }
        for name in
            ["base/a.pb.gz", "base/sub/b.json", "base/old.json", "head/a.folded", "head/sub/b.json", "head/new.json"]
        {
            write(at(name), "").unwrap();
        }
        write(at("head/.hidden"), "").unwrap();
        let pairs = pairs(Some(&at("base")), &at("head")).unwrap();
        assert_eq!(pairs.iter().map(|pair| pair.name.as_str()).collect::<Vec<_>>(), ["a", "sub/b"]);
        let unpaired = unpaired(Some(&at("base")), &at("head")).unwrap();
        assert_eq!((unpaired.base, unpaired.head), (vec!["old".to_owned()], vec!["new".to_owned()]));
    }

    #[test]
    fn what_cannot_be_paired_is_an_error_that_says_so() {
        let directory = tempfile::tempdir().unwrap();
        let at = |name: &str| directory.path().join(name);
        create_dir_all(at("base")).unwrap();
        create_dir_all(at("head")).unwrap();
        write(at("a.json"), "").unwrap();
        let error = |base: &str, head: &str| pairs(Some(&at(base)), &at(head)).unwrap_err().line().to_owned();
        assert!(error("base", "a.json").contains("name two of a kind"));
        assert!(error("base", "head").contains("nothing can be compared"));
        assert!(error("missing", "a.json").contains("no such file"));
        write(at("base/a.json"), "").unwrap();
        write(at("base/a.folded"), "").unwrap();
        assert!(error("base", "head").contains("same name without their extensions"));
    }
}
