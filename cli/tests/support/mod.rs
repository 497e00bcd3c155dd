//! A place of its own for one run of `profrec`, and what came out of it.
#![allow(dead_code, unreachable_pub, reason = "each test uses a part")]

use std::ffi::OsStr;
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// A directory to run in, with cache, run-time directory and temporary files inside.
pub struct Place {
    directory: tempfile::TempDir,
    before: Vec<PathBuf>,
}

/// What a run left behind.
pub struct Ran {
    pub code: Option<i32>,
    pub signal: Option<i32>,
    pub stdout: String,
    pub stderr: String,
}

impl Place {
    pub fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        for name in ["cwd", "cache", "run", "home"] {
            fs::create_dir(directory.path().join(name)).unwrap();
        }
        Self { directory, before: Vec::new() }
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join("cwd").join(name)
    }

    /// Where stores are kept while a command runs.
    pub fn stores(&self) -> PathBuf {
        self.directory.path().join("run")
    }

    pub fn add(&mut self, name: &str, content: impl AsRef<[u8]>, mode: u32) -> PathBuf {
        let path = self.path(name);
        fs::write(&path, content).unwrap();
        fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
        self.before.push(path.clone());
        path
    }

    /// A file that is there now is the test's own.
    pub fn keep(&mut self, name: &str) {
        self.before.push(self.path(name));
    }

    /// Compiles a C program.
    pub fn compile(&mut self, name: &str, source: &str, options: &[&str]) -> PathBuf {
        let file = self.add(&format!("{name}.c"), source, 0o644);
        let path = self.path(name);
        let status = Command::new("gcc").args(options).arg("-o").arg(&path).arg(file).arg("-pthread").status().unwrap();
        assert!(status.success());
        self.before.push(path.clone());
        path
    }

    pub fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_profrec"));
        let inside = |name: &str| self.directory.path().join(name);
        command.args(arguments).current_dir(inside("cwd")).stdin(Stdio::null());
        command
            .env("XDG_CACHE_HOME", inside("cache"))
            .env("HOME", inside("home"))
            .env("XDG_RUNTIME_DIR", self.stores());
        command.env_remove("LD_PRELOAD");
        command
    }

    pub fn run(&self, arguments: &[&str]) -> Ran {
        Ran::of(self.command(arguments).output().unwrap())
    }

    /// Names of files that are there now and were not put there by the test.
    pub fn new_files(&self) -> Vec<String> {
        let entries = fs::read_dir(self.path("")).unwrap().map(|entry| entry.unwrap().path());
        let mut names: Vec<_> = entries
            .filter(|path| !self.before.contains(path))
            .map(|path| path.file_name().unwrap().to_string_lossy().into_owned())
            .collect();
        names.sort();
        names
    }

    /// Asserts that nothing of a recording is left where stores are kept.
    pub fn assert_no_store_left(&self) {
        assert_eq!(fs::read_dir(self.stores()).unwrap().count(), 0);
    }
}

impl Ran {
    pub fn of(output: std::process::Output) -> Self {
        use std::os::unix::process::ExitStatusExt;
        Self {
            code: output.status.code(),
            signal: output.status.signal(),
            stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
            stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
        }
    }

    /// Asserts that the run was refused: this exit code and one line on standard error that says all of this.
    pub fn assert_refused(&self, code: i32, said: &[&str]) {
        assert_eq!((self.code, self.stdout.as_str()), (Some(code), ""), "{}", self.stderr);
        assert!(self.stderr.starts_with("error: ") && self.stderr.lines().count() == 1, "{}", self.stderr);
        for said in said {
            assert!(self.stderr.contains(said), "'{said}' is not in: {}", self.stderr);
        }
    }

    pub fn assert_code(&self, code: i32) {
        assert_eq!((self.code, self.signal), (Some(code), None), "{}", self.stderr);
    }
}

pub fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// Values of a collapsed file, by the frame names that the line holds.
pub fn collapsed_total(path: impl AsRef<Path>, frame: &str) -> i64 {
    let text = fs::read_to_string(path.as_ref()).unwrap();
    let stacks = text.lines().filter(|line| !line.starts_with('#'));
    let lines = stacks.filter_map(|line| line.rsplit_once(' '));
    lines.filter(|(stack, _)| stack.split(';').any(|f| f.contains(frame))).map(|(_, n)| n.parse::<i64>().unwrap()).sum()
}

pub fn text(path: impl AsRef<OsStr>) -> String {
    fs::read_to_string(Path::new(path.as_ref())).unwrap()
}
