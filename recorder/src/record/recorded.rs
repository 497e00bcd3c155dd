//! What was recorded, with its names: ready to be written.

use crate::config::pattern::exe_name;
use crate::lock::Lock;
use crate::room;
use profile::Mode;
use profile::{Format, Options, SampleType, Symbols};
use std::fs::OpenOptions;
use std::io::{self, BufWriter, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use symbolize::{Detail, Known};

/// Names that were found for earlier profiles.
static KNOWN: Lock<Option<Known>> = Lock::new(None);

/// Forgets them in a child after fork: the parent's thread may have been at them.
///
/// # Safety
/// The process has one thread, which does not use this module at the moment.
#[allow(unsafe_code)]
pub(crate) unsafe fn reset_in_child() {
    // SAFETY: the function's own contract.
    std::mem::forget(unsafe { KNOWN.take_in_child() });
}

/// A finished recording of this process, with the names of what it saw.
///
/// It holds no pointer into the process: it can be kept, sent to another thread, written later.
#[derive(Clone, Debug)]
pub struct Profile {
    profile: profile::Profile,
    symbols: Symbols,
    title: String,
}

impl Profile {
    /// Finds the names.
    pub(crate) fn named(mut profile: profile::Profile, mode: Mode, detail: Detail) -> Self {
        let symbols = symbols(&mut profile, detail);
        Self { profile, symbols, title: title(mode) }
    }

    /// Writes it in a format.
    ///
    /// # Errors
    ///
    /// Those of `out`.
    pub fn encode(&self, format: Format, out: &mut dyn Write) -> io::Result<()> {
        let options = Options { title: Some(self.title.clone()), ..Options::default() };
        format.encode(&self.profile, &self.symbols, &options, out)
    }

    /// Writes it to a file, in the format that the extension says: `.svg`, `.pb.gz`, `.html`, `.folded` and the others of [`Format::EXTENSIONS`]. The file takes its name when it is
    /// whole; one of that name that exists is replaced.
    ///
    /// # Errors
    ///
    /// If the extension is none of a format, or the file cannot be written.
    pub fn write_to(&self, path: impl AsRef<Path>) -> io::Result<()> {
        let path = path.as_ref();
        let format =
            Format::from_path(path).map_err(|error| io::Error::new(io::ErrorKind::InvalidInput, error.to_string()))?;
        let part = part_of(path);
        let mut file = BufWriter::new(create(&part)?);
        let written = self.encode(format, &mut file).and_then(|()| file.flush());
        written.and_then(|()| std::fs::rename(&part, path)).inspect_err(|_| drop(std::fs::remove_file(&part)))
    }

    /// What was measured, a column each: `cpu/nanoseconds`, `alloc_space/bytes` ...
    pub fn sample_types(&self) -> &[SampleType] {
        &self.profile.sample_types
    }

    /// The sum of the column of that kind (`cpu`, `alloc_space` ...) in its unit; `None` if there is no such column.
    pub fn total(&self, kind: &str) -> Option<i64> {
        self.profile.column(kind).map(|column| self.profile.total(column))
    }

    /// What a reader should know: what was lost first of all.
    pub fn comments(&self) -> &[String] {
        &self.profile.comments
    }

    /// The samples and the names, as the crate `profile-recorder-profile` has them: to be filtered, merged, compared.
    pub fn into_parts(self) -> (profile::Profile, Symbols) {
        (self.profile, self.symbols)
    }
}

/// The names of a profile of this process; what could not be found is told in its comments.
pub(crate) fn symbols(profile: &mut profile::Profile, detail: Detail) -> Symbols {
    let own = vec![std::process::id()];
    let (memory, address_space) = room::for_names();
    let options = symbolize::Options {
        detail,
        perf_map_pids: own.clone(),
        file_pids: own,
        memory,
        address_space,
        ..symbolize::Options::default()
    };
    // Nobody waits for who is at work: who comes meanwhile finds nothing known, and the one that knows more in the end stays.
    let mut known = KNOWN.lock().take().unwrap_or_default();
    let found = symbolize::symbolize_again(profile, &options, &mut known);
    let mut kept = KNOWN.lock();
    if kept.as_ref().is_none_or(|kept| kept.len() <= known.len()) {
        std::mem::swap(kept.get_or_insert_default(), &mut known);
    }
    drop(kept);
    profile.comments.extend(found.notes);
    found.symbols
}

/// What pictures and pages of a profile of this process are called.
pub(crate) fn title(mode: Mode) -> String {
    format!("{} {} {mode}", exe_name(), std::process::id())
}

/// The file under a name of its own, until it is whole. No two of a process have the same.
fn part_of(path: &Path) -> PathBuf {
    static PARTS: AtomicU32 = AtomicU32::new(0);
    part(path, PARTS.fetch_add(1, Ordering::Relaxed))
}

fn part(path: &Path, number: u32) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(format!(".part-{}-{number}", std::process::id()));
    PathBuf::from(name)
}

/// Never through a symbolic link, never into a file of somebody else.
fn create(part: &Path) -> io::Result<std::fs::File> {
    // A process of the same number left it that was killed while it wrote: in a container all have the same.
    let _ = std::fs::remove_file(part);
    OpenOptions::new().write(true).create_new(true).mode(0o644).open(part)
}

/// Whether a file of that name could be written now: said before there is something to lose.
pub(crate) fn try_to_create(path: &Path) -> io::Result<()> {
    let part = part_of(path);
    create(&part).and_then(|_| std::fs::remove_file(part))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::symlink;

    fn profile() -> Profile {
        let profile = profile::Profile::new(vec![SampleType::new("cpu", "nanoseconds")]);
        Profile { profile, symbols: Symbols::new(), title: String::new() }
    }

    #[test]
    fn what_a_killed_process_of_the_same_number_left_does_not_stand_in_the_way() {
        let directory = tempfile::tempdir().unwrap();
        let (path, other) = (directory.path().join("app.folded"), directory.path().join("other"));
        fs::write(&other, "other").unwrap();
        let left = 1000;
        fs::write(part(&path, 0), "half").unwrap();
        (1..left).for_each(|number| symlink(&other, part(&path, number)).unwrap());
        for _ in 0..3 {
            try_to_create(&path).unwrap();
            profile().write_to(&path).unwrap();
        }
        assert_eq!(fs::read_to_string(&other).unwrap(), "other", "nothing is written through a link");
        assert!(path.symlink_metadata().unwrap().is_file());
    }

    #[test]
    fn two_threads_that_write_the_same_file_leave_a_whole_one() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("app.json");
        std::thread::scope(|scope| {
            (0..4).for_each(|_| drop(scope.spawn(|| (0..50).for_each(|_| profile().write_to(&path).unwrap()))));
        });
        let _: serde_json::Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 1);
    }
}
