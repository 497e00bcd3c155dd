//! Whether the preload library can get into a command. Found out before it is run.

mod elf;
mod script;

use crate::error::Error;
use crate::pending::reason;
use rustix::fs::Access;
use std::ffi::{OsStr, OsString};
use std::fs::{File, Metadata};
use std::io::{ErrorKind, Read};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

/// The kernel follows no more.
const MOST_INTERPRETERS: u32 = 5;

/// Refuses what cannot be run or cannot be recorded. `path` is the search path.
pub(crate) fn check(program: &OsStr, path: Option<&OsStr>) -> Result<(), Error> {
    let mut file = find(program, path).map_err(|why| cannot_run(program, why))?;
    for _ in 0..MOST_INTERPRETERS {
        // Something that cannot be read can be executed all the same, and the library loaded into it.
        let Ok(opened) = File::open(&file) else { return Ok(()) };
        let refused = |why: String| refused(program, &file, &why);
        let mut start = Vec::with_capacity(script::LINE_BYTES);
        (&opened).take(script::LINE_BYTES as u64).read_to_end(&mut start).map_err(|e| refused(reason(&e)))?;
        let Some(line) = script::line(&start) else {
            elf::check(&opened, &start, &file).map_err(refused)?;
            return not_privileged(&file, &opened.metadata()).map_err(refused);
        };
        let interpreter =
            script::interpreter(line).ok_or_else(|| refused("its '#!' line names no interpreter".into()))?;
        let missing = |why: &str| cannot_run(program, &format!("its interpreter '{}': {why}", interpreter.display()));
        file = find(&interpreter, path).map_err(missing)?;
    }
    Err(cannot_run(program, "its '#!' line leads to too many interpreters"))
}

/// The error for a command that does not start.
pub(crate) fn cannot_run(program: &OsStr, why: &str) -> Error {
    Error::failure(format!("cannot run '{}': {why}", program.display()))
}

fn refused(program: &OsStr, file: &Path, why: &str) -> Error {
    let through = if Path::new(program) == file { String::new() } else { format!(" ({})", file.display()) };
    Error::failure(format!("cannot record '{}'{through}: {why}", program.display()))
}

/// The file that will be executed.
fn find(program: &OsStr, path: Option<&OsStr>) -> Result<PathBuf, &'static str> {
    if program.as_bytes().contains(&b'/') {
        let file = PathBuf::from(program);
        return executable(&file).map(|()| file).map_err(|why| match why {
            Not::There => "no such file; check the path",
            Not::AFile => "it is not a file; name a program",
            Not::Reachable => "permission denied on a directory above it",
            Not::Permitted => "permission denied; make it executable with 'chmod +x', or name its interpreter",
        });
    }
    let default = OsString::from("/bin:/usr/bin");
    let mut worst = Not::There;
    for directory in std::env::split_paths(path.unwrap_or(&default)) {
        let directory = if directory.as_os_str().is_empty() { PathBuf::from(".") } else { directory };
        let file = directory.join(program);
        match executable(&file) {
            Ok(()) => return Ok(file),
            Err(Not::Permitted) => worst = Not::Permitted,
            Err(_) => {}
        }
    }
    Err(match worst {
        Not::Permitted => "the file found in PATH is not executable; make it so with 'chmod +x'",
        _ => "not found in PATH; check the spelling or give a path",
    })
}

enum Not {
    There,
    Reachable,
    AFile,
    Permitted,
}

fn executable(file: &Path) -> Result<(), Not> {
    match std::fs::metadata(file) {
        Err(e) if e.kind() == ErrorKind::PermissionDenied => Err(Not::Reachable),
        Err(_) => Err(Not::There),
        Ok(metadata) if !metadata.is_file() => Err(Not::AFile),
        // Root may do everything but this: at least one x must be there.
        Ok(metadata) if metadata.permissions().mode() & 0o111 == 0 => Err(Not::Permitted),
        Ok(_) => rustix::fs::access(file, Access::EXEC_OK).map_err(|_| Not::Permitted),
    }
}

/// The dynamic loader ignores LD_PRELOAD in a program that gains rights by being run: one that is set to become who runs it does not.
fn not_privileged(file: &Path, metadata: &std::io::Result<Metadata>) -> Result<(), String> {
    const ADVICE: &str = "run what it would run yourself, with the rights that it needs";
    let (user, group) = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
    let id = metadata.as_ref().map_or("", |metadata| match metadata.mode() {
        mode if mode & 0o4000 != 0 && metadata.uid() != user => "set-user-ID",
        mode if mode & 0o2010 == 0o2010 && metadata.gid() != group => "set-group-ID",
        _ => "",
    });
    if !id.is_empty() {
        return Err(format!("it is {id}, so the preload library is not loaded into it; {ADVICE}"));
    }
    let mut capabilities = [0_u8; 64];
    let has_capabilities = rustix::fs::getxattr(file, "security.capability", &mut capabilities[..]).is_ok();
    if has_capabilities && !rustix::process::geteuid().is_root() {
        return Err(format!("it has file capabilities, so the preload library is not loaded into it; {ADVICE}"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::Permissions;

    struct Files(tempfile::TempDir);

    impl Files {
        fn new() -> Self {
            Self(tempfile::tempdir().unwrap())
        }

        fn add(&self, name: &str, content: &[u8], mode: u32) -> PathBuf {
            let path = self.0.path().join(name);
            std::fs::write(&path, content).unwrap();
            std::fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
            path
        }

        fn check(&self, program: impl AsRef<OsStr>) -> Result<(), String> {
            let path = std::env::join_paths([self.0.path(), Path::new("/usr/bin"), Path::new("/bin")]).unwrap();
            check(program.as_ref(), Some(&path)).map_err(|e| e.line().to_owned())
        }
    }

    #[test]
    fn programs_and_scripts_of_this_machine_are_accepted() {
        let files = Files::new();
        let script = files.add("script", b"#!/bin/sh -e\necho\n", 0o755);
        let by_env = files.add("by_env", b"#! /usr/bin/env sh\n", 0o755);
        let by_script = files.add("by_script", format!("#!{} x\n", script.display()).as_bytes(), 0o755);
        for program in [OsStr::new("sh"), "/bin/sh".as_ref(), script.as_ref(), by_env.as_ref(), by_script.as_ref()] {
            assert_eq!(files.check(program), Ok(()));
        }
        assert_eq!(files.check("script"), Ok(()));
        assert_eq!(files.check(std::env::current_exe().unwrap()), Ok(()));
    }

    #[test]
    fn what_cannot_be_run_is_said_as_such() {
        let files = Files::new();
        files.add("plain", b"echo\n", 0o644);
        for (program, said) in [
            ("no-such-program", "cannot run 'no-such-program': not found in PATH"),
            ("plain", "cannot run 'plain': the file found in PATH is not executable"),
            ("/no/such/program", "cannot run '/no/such/program': no such file"),
            ("/usr", "cannot run '/usr': it is not a file"),
        ] {
            let error = files.check(program).unwrap_err();
            assert!(error.starts_with(said), "{error}");
        }
    }

    #[test]
    fn what_cannot_be_recorded_says_why_and_what_to_do() {
        let files = Files::new();
        let itself = format!("#!{}/itself\n", files.0.path().display());
        for (name, content, mode, said) in [
            ("itself", itself.as_bytes(), 0o755, "too many interpreters"),
            ("lost", b"#!/usr/bin/env no-such-python\n", 0o755, "its interpreter 'no-such-python': not found in PATH"),
            ("nobody", b"#!\n", 0o755, "names no interpreter"),
            ("text", b"echo hello\n", 0o755, "name its interpreter"),
            ("empty", b"", 0o755, "it is empty"),
            ("cut", b"\x7fELF\x02\x01\x01", 0o755, "damaged"),
        ] {
            files.add(name, content, mode);
            let error = files.check(name).unwrap_err();
            assert!(error.contains(said), "{error}");
        }
    }

    #[test]
    fn what_gains_rights_by_being_run_is_refused() {
        let files = Files::new();
        let dynamic = std::fs::read("/bin/sh").unwrap();
        for (name, mode, said) in [("suid", 0o4755, "it is set-user-ID"), ("sgid", 0o2755, "it is set-group-ID")] {
            let path = files.add(name, &dynamic, mode);
            assert_eq!(files.check(name), Ok(()), "it becomes who runs it");
            // Only root gives files away.
            if std::os::unix::fs::chown(&path, Some(12345), Some(12345)).is_ok() {
                std::fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
                assert!(files.check(name).unwrap_err().contains(said));
            }
        }
    }

    #[test]
    fn another_architecture_is_named() {
        let files = Files::new();
        let mut program = std::fs::read("/bin/sh").unwrap();
        program.truncate(4096);
        for (machine, class, said) in [(183_u16, 2, "it is built for aarch64"), (3, 1, "it is built for x86")] {
            program[4] = class;
            program[18..20].copy_from_slice(&machine.to_le_bytes());
            files.add("foreign", &program, 0o755);
            let error = files.check("foreign").unwrap_err();
            let native = cfg!(target_arch = "aarch64") && machine == 183;
            assert!(native || error.contains(said), "{error}");
        }
    }
}
