//! Programs that a recorded one executes: those that can be recorded are, and the others run as they would without the recorder, which says that it does not have them.

use profile_recorder_tests::{folded, inspect, profrec, programs, scratch, text};
use std::collections::BTreeMap;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

const FUNCTIONS: [&str; 16] = [
    "execve",
    "execveat",
    "execveat-fd",
    "execveat-folder",
    "fexecve",
    "execv",
    "execvp",
    "execvpe",
    "execl",
    "execlp",
    "execle",
    "syscall",
    "syscall-at",
    "posix_spawn",
    "posix_spawnp",
    "no-environment",
];
const NOT_RECORDED: &str = "warning: programs that were executed and not recorded: ";

/// A folder with what is executed, and the variables that all runs have.
struct Stage {
    directory: tempfile::TempDir,
    variables: BTreeMap<&'static str, String>,
}

impl Stage {
    fn new() -> Self {
        let directory = scratch();
        let folder = directory.path();
        programs::compile_c("executes", folder);
        let shows = Path::new(env!("CARGO_MANIFEST_DIR")).join("victims/shows.c");
        let compile = |compiler: &str, arguments: &[&str], to: &str| {
            let status = Command::new(compiler).args(arguments).arg("-o").arg(folder.join(to)).arg(&shows).status();
            assert!(status.is_ok_and(|status| status.success()), "{compiler} makes {to}");
        };
        compile("gcc", &[], "shows-glibc");
        compile("gcc", &["-static", "-DPRELOADED"], "shows-static");
        compile("gcc", &["-static-pie", "-fPIE", "-DPRELOADED"], "shows-static-pie");
        compile("musl-gcc", &["-DPRELOADED"], "shows-musl");
        let script = folder.join("shows-script");
        std::fs::write(&script, format!("#! {}/shows-musl  with blanks\n", folder.display())).unwrap();
        std::fs::set_permissions(&script, std::fs::Permissions::from_mode(0o755)).unwrap();
        std::fs::write(folder.join("no-program"), "text").unwrap();
        let variables = [
            ("PATH", format!("/nowhere:{}:/usr/bin:/bin", folder.display())),
            ("XDG_CACHE_HOME", folder.join("cache").display().to_string()),
        ];
        Self { variables: variables.into(), directory }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn run(&self, command: &mut Command) -> (String, String, Option<i32>) {
        let Output { stdout, stderr, status } = command.env_clear().envs(&self.variables).output().unwrap();
        (text(&stdout), text(&stderr), status.code())
    }

    /// Runs `executes` with these arguments alone and recorded, which must say of the programs that it does not have what is expected.
    fn compare(&self, arguments: &[&str], not_recorded: Option<&str>) -> String {
        let executes = self.path("executes");
        let alone = self.run(Command::new(&executes).args(arguments));
        assert_eq!((alone.1.as_str(), alone.2), ("", Some(3)), "{arguments:?}, alone: {alone:?}");
        let profile = self.path("p.folded");
        let mut record = Command::new("timeout");
        record.args(["--kill-after=5", "60"]).arg(profrec()).args(["record", "--mode", "allocs", "-o"]).arg(&profile);
        let (out, told, code) = self.run(record.arg("--").arg(&executes).args(arguments));
        assert_eq!((out.as_str(), code), (alone.0.as_str(), alone.2), "{arguments:?}: {told}");
        // The shell has no symbols.
        let about_others = |line: &&str| line.starts_with("profrec: ") || line.starts_with("warning: /");
        let told: Vec<&str> = told.lines().filter(|line| !about_others(line)).collect();
        let expected =
            not_recorded.filter(|_| !alone.0.starts_with("error")).map(|what| format!("{NOT_RECORDED}1 ({what})"));
        assert_eq!(told, expected.iter().collect::<Vec<_>>(), "{arguments:?}");
        assert!(folded::sum(&profile, ";main;strdup") >= 1, "{arguments:?}: recorded itself");
        alone.0
    }
}

const ANOTHER_LIBRARY: &str = "for another C library, or an older one";

#[test]
fn what_cannot_load_the_library_is_executed_without_it_by_every_function() {
    let mut stage = Stage::new();
    let cases = [
        ("shows-glibc", None),
        ("shows-musl", Some(ANOTHER_LIBRARY)),
        ("shows-script", Some(ANOTHER_LIBRARY)),
        ("shows-static", Some("statically linked")),
        ("shows-static-pie", Some("statically linked")),
    ];
    for (name, not_recorded) in cases {
        // Static programs see what is preloaded.
        let shows_it = name.contains("static");
        for function in FUNCTIONS {
            let path = stage.path(name);
            let path = path.to_str().unwrap();
            if shows_it && function != "no-environment" {
                continue;
            }
            // Without an environment nothing can be preloaded.
            let not_recorded = not_recorded.filter(|_| function != "no-environment");
            let said = stage.compare(&[function, path], not_recorded);
            // The kernel refuses to execute a script that is opened, and closed by that.
            let is_refused =
                name.contains("script") && ["execveat-fd", "execveat-folder", "fexecve"].contains(&function);
            assert!(
                said.ends_with(if is_refused { "error 2\nexit 9\n" } else { "exit 7\n" }),
                "{function} {name}: {said}"
            );
            stage.compare(&[function, path, "vfork"], not_recorded);
        }
        for function in ["execvp", "execlp", "execvpe", "posix_spawnp"].iter().filter(|_| !shows_it) {
            stage.compare(&[function, name], not_recorded);
        }
    }
    // As many variables as do not fit on the stack, and others' libraries: one of them is taken out.
    let library = stage.path("none.so");
    let source = stage.path("none.c");
    std::fs::write(&source, "int none;").unwrap();
    programs::gcc(None, &["-shared", "-nostdlib", source.to_str().unwrap()], &library);
    let library = library.to_str().unwrap().to_owned();
    let names: Vec<&'static str> = (0..400).map(|i| &*format!("VARIABLE_{i}").leak()).collect();
    for preloaded in [library.clone(), format!("{library}:{library}")] {
        stage.variables.insert("LD_PRELOAD", preloaded.clone());
        for name in [&[][..], &names] {
            stage.variables.extend(name.iter().map(|name| (*name, "value".repeat(9))));
            let said = stage.compare(&["execve", stage.path("shows-musl").to_str().unwrap()], Some(ANOTHER_LIBRARY));
            assert!(said.contains(&format!("LD_PRELOAD={preloaded} ")), "{said}");
            stage.compare(&["execl", stage.path("shows-musl").to_str().unwrap(), "vfork"], Some(ANOTHER_LIBRARY));
        }
        names.iter().for_each(|name| drop(stage.variables.remove(name)));
    }
}

#[test]
fn static_programs_are_executed_with_it_and_said_not_to_be_recorded() {
    let stage = Stage::new();
    let profile = stage.path("p.folded");
    let run = format!(
        "{0}/shows-static | tr ' ' '\\n' | grep -c profrec_preload; {0}/shows-static-pie >/dev/null",
        stage.directory.path().display()
    );
    let mut record = Command::new(profrec());
    record.args(["record", "--mode", "allocs", "-o"]).arg(profile).args(["--", "sh", "-c", &run]);
    let (out, told, code) = stage.run(&mut record);
    // What it executes itself can be recorded again.
    assert_eq!((out.as_str(), code), ("1\n", Some(7)), "{told}");
    assert!(told.contains(&format!("{NOT_RECORDED}2 (statically linked)\n")), "{told}");
}

#[test]
fn what_is_refused_is_refused_as_before() {
    let stage = Stage::new();
    let folder = stage.directory.path().display().to_string();
    let musl = stage.path("shows-musl");
    let musl = musl.to_str().unwrap();
    let unreadable = stage.path("unreadable");
    std::fs::copy(musl, &unreadable).unwrap();
    std::fs::set_permissions(&unreadable, std::fs::Permissions::from_mode(0o600)).unwrap();
    let itself = stage.path("itself");
    symlink(&itself, &itself).unwrap();
    // Whoever opened that would wait.
    let pipe = stage.path("pipe");
    assert!(Command::new("mkfifo").args(["-m", "755"]).arg(&pipe).status().unwrap().success());
    for function in FUNCTIONS {
        for program in [
            &folder,
            "/nowhere/program",
            unreadable.to_str().unwrap(),
            itself.to_str().unwrap(),
            pipe.to_str().unwrap(),
            &format!("{folder}/no-program"),
            "",
        ] {
            stage.compare(&[function, program], None);
        }
    }
    for function in ["bad-path", "bad-environment", "bad-string"] {
        assert_eq!(stage.compare(&[function, musl], None), "error 14\nexit 9\n", "{function}");
    }
}

#[test]
fn where_the_library_is_gone_nothing_says_so_but_the_recorder() {
    const GONE: &str = "where the preload library cannot be read: another user or another root directory";
    let stage = Stage::new();
    for function in FUNCTIONS.into_iter().filter(|function| *function != "no-environment") {
        let said = stage.compare(&[function, stage.path("shows-glibc").to_str().unwrap(), "lost"], Some(GONE));
        assert!(said.ends_with("exit 7\n"), "{function}: {said}");
    }
    for function in ["system", "popen"] {
        assert_eq!(stage.compare(&[function, "echo $0; exit 5", "lost"], Some(GONE)), "sh\nexit 5\n", "{function}");
        stage.compare(&[function, "echo $0"], None);
    }
}

/// The capabilities that a program keeps until it executes do not count: afterwards the library could not be read.
#[test]
fn another_users_programs_are_executed_without_the_library_where_they_cannot_read_it() {
    let stage = Stage::new();
    if std::fs::metadata("/proc/self").unwrap().uid() != 0 {
        return; // Only root becomes another user.
    }
    let as_another =
        ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "sh", "-c", "ls /etc/hostname; id -u; exit 5"];
    let alone = stage.run(Command::new(as_another[0]).args(&as_another[1..]));
    let mut record = Command::new(profrec());
    record.args(["record", "--quiet", "--mode", "allocs", "-o"]).arg(stage.path("p.folded")).arg("--").args(as_another);
    assert_eq!(stage.run(&mut record), alone);
    assert_eq!(alone.2, Some(5));
}

/// Programs without an unwinder need none, and older C libraries are told by a version that the library really needs.
#[test]
fn the_library_needs_the_c_library_alone_and_no_newer_one_than_is_looked_for() {
    use object::read::elf::{FileHeader as _, VerneedIterator};
    let bytes = std::fs::read(inspect::carried()).unwrap();
    let header = object::elf::FileHeader64::<object::Endianness>::parse(&*bytes).unwrap();
    let endian = header.endian().unwrap();
    let sections = header.sections(endian, &*bytes).unwrap();
    let (mut needs, strings): (VerneedIterator<'_, _>, _) = sections.gnu_verneed(endian, &*bytes).unwrap().unwrap();
    let strings = sections.strings(endian, &*bytes, strings).unwrap();
    let (mut libraries, mut versions) = (Vec::new(), Vec::new());
    while let Some((need, mut each)) = needs.next().unwrap() {
        libraries.push(text(need.file(endian, strings).unwrap()));
        while let Some(version) = each.next().unwrap() {
            let name = text(version.name(endian, strings).unwrap());
            let number = name.strip_prefix("GLIBC_").expect("a version of the C library").to_owned();
            versions.push(number.split('.').map(|part| part.parse::<u32>().unwrap()).collect::<Vec<_>>());
        }
    }
    libraries.sort();
    assert_eq!(libraries, ["ld-linux-x86-64.so.2", "libc.so.6"]);
    assert_eq!(versions.into_iter().max().unwrap(), [2, 34], "`follow::program::NEEDED`, README");
}
