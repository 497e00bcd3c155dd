//! What this machine knows of a process: its names, its application and its container.

mod application;
mod container;

use application::Application;
use std::fs;
use std::path::{Path, PathBuf};

/// What runs the code of a process, by its executable.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Runtime {
    Python,
    Node,
    Java,
    Ruby,
    Php,
    Net,
    /// Machine code.
    #[default]
    Native,
}

impl Runtime {
    fn of(executable: &Path) -> Self {
        let name = executable.file_name().unwrap_or_default().to_string_lossy();
        let name = name.strip_suffix(" (deleted)").unwrap_or(&name);
        let is = |base: &str| {
            let rest = name.strip_prefix(base);
            rest.is_some_and(|rest| rest.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.'))
        };
        match () {
            () if is("python") || is("pypy") => Self::Python,
            () if is("node") || is("nodejs") => Self::Node,
            () if is("java") => Self::Java,
            () if is("ruby") => Self::Ruby,
            () if is("php") || is("php-fpm") => Self::Php,
            () if is("dotnet") => Self::Net,
            () => Self::Native,
        }
    }
}

/// A process.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Process {
    /// As this machine numbers it; 0 if it is not seen from here.
    pub(crate) pid: u32,
    /// Its name (comm); empty if unknown.
    pub(crate) comm: String,
    /// Path of its executable, in its own file system.
    pub(crate) executable: PathBuf,
    /// What runs its code.
    pub(crate) runtime: Runtime,
    /// What it is, by its command.
    pub(crate) application: Option<Application>,
    /// The container in which it runs.
    pub(crate) container: Option<String>,
}

impl Process {
    /// What can be seen of it now.
    pub(crate) fn look(pid: u32) -> Self {
        let of = |name: &str| PathBuf::from(format!("/proc/{pid}/{name}"));
        let text = |name: &str| fs::read_to_string(of(name)).unwrap_or_default();
        let executable = fs::read_link(of("exe")).unwrap_or_default();
        let arguments: Vec<String> = fs::read(of("cmdline"))
            .unwrap_or_default()
            .split(|byte| *byte == 0)
            .map(|argument| String::from_utf8_lossy(argument).into_owned())
            .collect();
        let directory = fs::read_link(of("cwd")).unwrap_or_default();
        let runtime = Runtime::of(&executable);
        let is_seen = !executable.as_os_str().is_empty();
        let comm = text("comm").trim_end_matches('\n').to_owned();
        Self {
            pid,
            application: is_seen.then(|| Application::of(runtime, &executable, &comm, &arguments, &directory)),
            comm,
            container: container::of(&text("cgroup"), &text_of_own_cgroup()),
            executable,
            runtime,
        }
    }

    /// By what engines group profiles, unless the configuration says it.
    pub(crate) fn service(&self) -> Option<&str> {
        self.application.as_ref().map(|application| application.service.as_str())
    }
}

fn text_of_own_cgroup() -> String {
    fs::read_to_string("/proc/self/cgroup").unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn interpreters_are_told_by_their_names() {
        for (path, runtime) in [
            ("/usr/bin/python3.11", Runtime::Python),
            ("/usr/local/bin/node (deleted)", Runtime::Node),
            ("/usr/lib/jvm/bin/java", Runtime::Java),
            ("/usr/bin/javac", Runtime::Native),
            ("/usr/bin/python-config", Runtime::Native),
            ("", Runtime::Native),
        ] {
            assert_eq!(Runtime::of(Path::new(path)), runtime, "{path}");
        }
    }

    #[test]
    fn one_sees_oneself_and_nobody_else_in_vain() {
        let own = Process::look(std::process::id());
        assert_eq!(own.executable, std::env::current_exe().unwrap());
        assert!(!own.comm.is_empty() && own.service().is_some() && own.container.is_none());
        let nobody = Process { pid: u32::MAX, ..Process::default() };
        assert_eq!(Process::look(u32::MAX), nobody);
    }
}
