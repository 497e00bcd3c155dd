//! Files on this machine, as gProfiler's users know them: `profile_TIME.col` and `.html`, and links to the last ones.
//!
//! TIME is the end of the cycle, in UTC. With several modes the files of the first have these names, and those of the others the mode before the
//! extension: `profile_TIME.heap.col`.

use crate::settings::Output;
use profile::encode::col::{About, encode_about};
use profile::{Format, Options, Profile, Symbols};
use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

/// What is written of one mode.
#[derive(Debug)]
pub(crate) struct Written<'a> {
    /// All processes, by names.
    pub(crate) profile: &'a Profile,
    /// Part of the file names; `None` for the first mode.
    pub(crate) mode: Option<&'static str>,
    /// What is said beside the profile.
    pub(crate) about: &'a About<'a>,
    /// Title of the flame graph.
    pub(crate) title: String,
}

impl Output {
    /// Writes the files of a cycle that ended then, and points the links at them.
    pub(crate) fn write(&self, end: SystemTime, written: &Written<'_>) -> io::Result<Vec<PathBuf>> {
        fs::create_dir_all(&self.directory)?;
        let time = humantime::format_rfc3339_seconds(end).to_string();
        let time = time.trim_end_matches('Z');
        let mode = written.mode.map(|mode| format!(".{mode}")).unwrap_or_default();
        let options = Options { title: Some(written.title.clone()), ..Options::default() };
        let col = format!("profile_{time}{mode}.col");
        self.put(&col, |out| encode_about(written.profile, &Symbols::new(), &options, written.about, out))?;
        self.point(&format!("last_profile{mode}.col"), &col)?;
        let mut paths = vec![self.directory.join(col)];
        if self.flamegraph {
            let html = format!("profile_{time}{mode}.html");
            self.put(&html, |out| Format::Html.encode(written.profile, &Symbols::new(), &options, out))?;
            self.point(&format!("last_flamegraph{mode}.html"), &html)?;
            paths.push(self.directory.join(html));
        }
        Ok(paths)
    }

    fn put(&self, name: &str, encode: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> io::Result<()> {
        let mut new = tempfile::Builder::new().prefix(".profile_").tempfile_in(&self.directory)?;
        encode(&mut new)?;
        crate::files::put(new, &self.directory.join(name))
    }

    /// Lets a link name a file, in one step; with rotation, what it named before goes.
    fn point(&self, link: &str, name: &str) -> io::Result<()> {
        let (path, new) = (self.directory.join(link), self.directory.join(format!(".{link}.new")));
        let before = fs::read_link(&path).ok();
        let _ = fs::remove_file(&new);
        std::os::unix::fs::symlink(name, &new)?;
        fs::rename(&new, &path)?;
        if let Some(before) = before.filter(|before| self.rotating && before != Path::new(name) && is_ours(before)) {
            fs::remove_file(self.directory.join(before)).or_else(not_there)?;
        }
        Ok(())
    }

    /// Removes files that are too old, and the oldest while there is too much. What a link names stays.
    pub(crate) fn retain(&self) -> io::Result<()> {
        let mut kept = Vec::new();
        let directory = match fs::read_dir(&self.directory) {
            // The first profile makes it.
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(()),
            directory => directory?,
        };
        let entries: Vec<fs::DirEntry> = directory.collect::<io::Result<_>>()?;
        let linked: Vec<PathBuf> = entries.iter().filter_map(|entry| fs::read_link(entry.path()).ok()).collect();
        for entry in entries {
            let name = PathBuf::from(entry.file_name());
            let metadata = entry.metadata()?;
            if !metadata.is_file() || !is_ours(&name) || linked.contains(&name) {
                continue;
            }
            let age = SystemTime::now().duration_since(metadata.modified()?).unwrap_or(Duration::ZERO);
            kept.push((age, metadata.len(), entry.path()));
        }
        kept.sort();
        let mut size = 0_u64;
        for (age, bytes, path) in kept {
            size = size.saturating_add(bytes);
            if self.max_age.is_some_and(|most| age > most) || self.max_size.is_some_and(|most| size > most) {
                fs::remove_file(path).or_else(not_there)?;
            }
        }
        Ok(())
    }
}

/// Whether a name in the directory is one that we give.
fn is_ours(name: &Path) -> bool {
    let name = name.to_string_lossy();
    name.starts_with("profile_") && (name.ends_with(".col") || name.ends_with(".html")) && !name.contains('/')
}

fn not_there(error: io::Error) -> io::Result<()> {
    if error.kind() == io::ErrorKind::NotFound { Ok(()) } else { Err(error) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use profile::{Frame, Sample, SampleType, Thread, ThreadId};

    fn written(output: &Output, second: u64, mode: Option<&'static str>) -> Vec<PathBuf> {
        let mut profile = Profile::new(vec![SampleType::new("samples", "count")]);
        profile.threads.push(Thread { process: "app".into(), ..Thread::default() });
        let stack = profile.stacks.intern([Frame::named("main")]);
        profile.samples.push(Sample {
            stack,
            thread: Some(ThreadId(0)),
            labels: profile::Labels::new(),
            values: profile::values![3],
        });
        let written = Written { profile: &profile, mode, about: &About::default(), title: "x".to_owned() };
        output.write(SystemTime::UNIX_EPOCH + Duration::from_secs(second), &written).unwrap()
    }

    fn names(output: &Output) -> Vec<String> {
        let entries = fs::read_dir(&output.directory).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap());
        let mut names: Vec<String> = entries.collect();
        names.sort();
        names
    }

    #[test]
    fn links_name_the_last_files() {
        let directory = tempfile::tempdir().unwrap();
        let output = Output { directory: directory.path().join("out"), ..Output::default() };
        written(&output, 0, None);
        written(&output, 60, None);
        written(&output, 60, Some("heap"));
        let all = ["last_flamegraph.heap.html", "last_flamegraph.html", "last_profile.col", "last_profile.heap.col"];
        assert_eq!(names(&output)[..4], all);
        assert_eq!(names(&output).len(), 10);
        let last = output.directory.join("last_profile.col");
        assert_eq!(fs::read_link(&last).unwrap(), Path::new("profile_1970-01-01T00:01:00.col"));
        assert!(fs::read_to_string(last).unwrap().ends_with("\n0;;app;main 3\n"));
    }

    #[test]
    fn rotation_keeps_the_last_cycle_and_what_is_not_ours() {
        let directory = tempfile::tempdir().unwrap();
        let output =
            Output { directory: directory.path().into(), rotating: true, flamegraph: false, ..Output::default() };
        fs::write(directory.path().join("mine"), "").unwrap();
        std::os::unix::fs::symlink("mine", directory.path().join("last_profile.col")).unwrap();
        written(&output, 0, None);
        written(&output, 0, None);
        written(&output, 60, None);
        assert_eq!(names(&output), ["last_profile.col", "mine", "profile_1970-01-01T00:01:00.col"]);
    }

    #[test]
    fn old_files_go_by_age_and_by_size_and_the_last_ones_stay() {
        let directory = tempfile::tempdir().unwrap();
        let of = |max_age, max_size| Output {
            directory: directory.path().into(),
            flamegraph: false,
            max_age,
            max_size,
            ..Output::default()
        };
        let output = of(Some(Duration::from_secs(3600)), None);
        for (second, hours) in [(0, 3), (60, 2), (120, 0), (180, 5)] {
            let file = fs::File::options().append(true).open(&written(&output, second, None)[0]).unwrap();
            file.set_modified(SystemTime::now() - Duration::from_secs(hours * 3600)).unwrap();
        }
        output.retain().unwrap();
        let kept = ["last_profile.col", "profile_1970-01-01T00:02:00.col", "profile_1970-01-01T00:03:00.col"];
        assert_eq!(names(&output), kept);
        of(None, Some(1)).retain().unwrap();
        assert_eq!(names(&output), [kept[0], kept[2]]);
    }
}
