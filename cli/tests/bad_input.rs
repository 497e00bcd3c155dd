//! What cannot be done is refused before anything is run: one line, an exit code, and no file.

mod support;

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt as _;
use std::process::Command;
use support::{Place, is_root};

/// Runs `profrec` on a command that would leave a file, and asserts that it was not run.
fn assert_not_run(options: &[&str], code: i32, said: &[&str]) {
    let place = Place::new();
    let arguments = [options, &["--", "touch", "ran"]].concat();
    place.run(&arguments).assert_refused(code, said);
    assert_eq!(place.new_files(), [""; 0]);
    place.assert_no_store_left();
}

/// Asserts that this command is refused, by `record` and by `stat`.
fn assert_command_refused(place: &Place, command: &str, said: &[&str]) {
    for subcommand in ["record", "stat"] {
        place.run(&[subcommand, "--", command]).assert_refused(1, said);
    }
    assert_eq!(place.new_files(), [""; 0]);
    place.assert_no_store_left();
}

#[test]
fn a_rate_that_is_none_is_a_usage_error() {
    for rate in ["0", "-1", "-99", "10001", "1.5", "fast", ""] {
        assert_not_run(&["record", "--hz", rate], 2, &["--hz", "1 to 10000"]);
    }
    assert_not_run(&["record", "--mode", "allocs", "--hz", "0"], 2, &["'0'"]);
}

#[test]
fn an_interval_that_is_none_is_a_usage_error() {
    for interval in ["0", "-1", "-512KiB", "2TiB", "many"] {
        assert_not_run(&["record", "--mode", "allocs", "--interval", interval], 2, &["--interval", "512KiB"]);
    }
}

#[test]
fn an_unknown_extension_or_mode_is_a_usage_error_that_lists_the_known() {
    for file in ["a.bmp", "a", "svg", "a.gz", "-"] {
        let known = [".svg", ".html", ".pb.gz", ".pprof", ".perf", ".folded", ".collapsed", ".json"];
        assert_not_run(&["record", "-o", file], 2, &known);
    }
    assert_not_run(&["record", "-o", "good.svg", "-o", "bad.xyz"], 2, &["bad.xyz"]);
    assert_not_run(&["record", "--mode", "everything"], 2, &["everything", "cpu, allocs, heap"]);
    assert_not_run(&["record", "--symbols", "some"], 2, &["full, names, none"]);
    assert_not_run(&["record", "-o", "a.svg", "-o", "./a.svg"], 2, &["twice"]);
}

#[test]
fn an_unknown_option_or_subcommand_is_a_usage_error() {
    assert_not_run(&["record", "--frequency", "9"], 2, &["--frequency", "--help"]);
    assert_not_run(&["recrod"], 2, &["recrod"]);
    let place = Place::new();
    place.run(&["record"]).assert_refused(2, &["COMMAND"]);
    place.run(&["stat", "--"]).assert_refused(2, &["COMMAND"]);
}

#[test]
fn an_output_that_cannot_be_written_is_said_before_anything_is_run() {
    assert_not_run(&["record", "-o", "missing/a.svg"], 1, &["cannot write 'missing/a.svg'", "does not exist"]);
    assert_not_run(&["record", "-o", "good.svg", "-o", "/no/such/a.svg"], 1, &["/no/such/a.svg"]);
    assert_not_run(&["record", "-o", "a.svg/"], 1, &["'a.svg/'", "name a file"]);
    assert_not_run(&["record", "-o", "/proc/a.svg"], 1, &["cannot write '/proc/a.svg'"]);
    assert_not_run(&["stat", "-o", "missing/counts.txt"], 1, &["cannot write 'missing/counts.txt'"]);
    assert_not_run(&["stat", "-o", "."], 1, &["directory"]);
}

#[test]
fn a_directory_or_a_device_in_place_of_the_output_is_refused() {
    let place = Place::new();
    std::fs::create_dir(place.path("a.svg")).unwrap();
    place.run(&["record", "-o", "a.svg", "--", "touch", "ran"]).assert_refused(1, &["'a.svg'", "directory"]);
    std::os::unix::fs::symlink("/dev/null", place.path("b.svg")).unwrap();
    place.run(&["record", "-o", "b.svg", "--", "touch", "ran"]).assert_refused(1, &["'b.svg'", "regular"]);
    assert_eq!(place.new_files(), ["a.svg", "b.svg"]);
}

#[test]
fn a_read_only_output_or_directory_is_refused() {
    if is_root() {
        // Root may write there all the same, except where nobody may.
        return;
    }
    let mut place = Place::new();
    place.add("a.svg", "before", 0o444);
    place.run(&["record", "-o", "a.svg", "--", "touch", "ran"]).assert_refused(1, &["'a.svg'", "permission denied"]);
    std::fs::create_dir(place.path("dir")).unwrap();
    std::fs::set_permissions(place.path("dir"), std::os::unix::fs::PermissionsExt::from_mode(0o555)).unwrap();
    place.run(&["record", "-o", "dir/a.svg", "--", "touch", "ran"]).assert_refused(1, &["permission denied"]);
    assert_eq!(support::text(place.path("a.svg")), "before");
    assert_eq!(place.new_files(), ["dir"]);
}

/// Runs a script where `small` is a file system with room for a page, and `fixed` one that nobody can write to, not even root.
fn among_file_systems(place: &Place, script: &str) -> support::Ran {
    for name in ["small", "fixed"] {
        std::fs::create_dir_all(place.path(name)).unwrap();
    }
    let mounts = "mount -t tmpfs -o size=64k none small && mount -t tmpfs -o ro none fixed && head -c 60k /dev/zero >small/filler";
    let command = place.command(&[]);
    let mut unshare = Command::new("unshare");
    unshare.args(["--mount", "--map-root-user", "sh", "-c", &format!("{mounts} || exit 99; {script}")]);
    unshare.envs(command.get_envs().filter_map(|(name, value)| Some((name, value?))));
    unshare.env("profrec", command.get_program()).current_dir(place.path(""));
    support::Ran::of(unshare.output().unwrap())
}

#[test]
fn a_full_disk_is_said_in_a_line_and_nothing_half_written_is_left() {
    let place = Place::new();
    // Something to convert and to compare, where there is room.
    place.run(&["record", "--quiet", "--mode", "allocs", "-o", "a.profrec", "--", "ls", "-l", "/"]).assert_code(0);
    for (options, file) in [
        ("record --quiet --mode allocs -o small/b.svg -- ls -l /", "small/b.svg"),
        ("record --quiet --mode allocs -o small/{EXE}.svg -- ls -l /", "small/ls.svg"),
        ("convert --quiet a.profrec -o small/b.html", "small/b.html"),
        ("diff --quiet a.profrec a.profrec -o small/b.html", "small/b.html"),
    ] {
        let ran = among_file_systems(&place, &format!("$profrec {options} >/dev/null; echo $?; ls -A small"));
        let line = format!("error: cannot write '{file}': no space left on device\n");
        assert_eq!((ran.stdout.as_str(), ran.stderr.as_str()), ("1\nfiller\n", line.as_str()), "{options}");
    }
    place.assert_no_store_left();
}

#[test]
fn a_file_system_that_nobody_can_write_to_is_refused_before_anything_is_run() {
    let place = Place::new();
    place.run(&["record", "--quiet", "--mode", "allocs", "-o", "a.profrec", "--", "ls", "-l", "/"]).assert_code(0);
    for options in [
        "record -o fixed/b.svg -- touch ran",
        "record -o fixed/{PID}.svg -- touch ran",
        "stat -o fixed/b.svg -- touch ran",
        "convert a.profrec -o fixed/b.svg",
        "diff a.profrec a.profrec -o fixed/b.svg",
        "sample ./none.sock -o fixed/b.svg",
    ] {
        let ran = among_file_systems(&place, &format!("exec $profrec {options}"));
        ran.assert_refused(1, &["error: cannot write 'fixed/", "': read-only file system\n"]);
    }
    assert_eq!(place.new_files(), ["a.profrec", "fixed", "small"]);
}

#[test]
fn a_file_that_is_no_profile_is_named_with_what_can_be_read() {
    let mut place = Place::new();
    place.add("picture.png", b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR and so on", 0o644);
    place.add("cut.pb.gz", b"\x1f\x8b\x08\0\0\0\0\0", 0o644);
    place.add("empty.pb.gz", b"", 0o644);
    for (file, said) in [
        ("picture.png", "readable"),
        ("cut.pb.gz", "damaged gzip data"),
        ("empty.pb.gz", "is empty"),
        ("none.pb.gz", "no such file"),
    ] {
        let named = format!("cannot read '{file}'");
        place.run(&["convert", file, "-o", "b.svg"]).assert_refused(1, &[&named, said]);
        place.run(&["diff", file, file, "-o", "b.md"]).assert_refused(1, &[&named, said]);
    }
    assert_eq!(place.new_files(), [""; 0]);
}

#[test]
fn a_command_that_is_not_there_is_named() {
    let mut place = Place::new();
    place.add("plain", "echo", 0o644);
    for (command, why) in [
        ("no-such-command", "not found in PATH"),
        ("./no-such-command", "no such file"),
        ("/usr", "not a file"),
        ("./plain", "permission denied"),
    ] {
        assert_command_refused(&place, command, &[&format!("cannot run '{command}'"), why]);
    }
    place.run(&["record", "--", ""]).assert_refused(2, &["empty"]);
}

#[test]
fn a_static_executable_is_refused_with_what_to_do_instead() {
    let mut place = Place::new();
    let source = "int main(void) { return 0; }";
    for (name, options) in [("static", &["-static"][..]), ("static_pie", &["-static-pie"])] {
        place.compile(name, source, options);
        assert_command_refused(
            &place,
            &format!("./{name}"),
            &[&format!("./{name}"), "statically linked", "link it dynamically"],
        );
    }
    place.add("script", "#!./static\n", 0o755);
    assert_command_refused(&place, "./script", &["cannot record './script' (./static)", "statically linked"]);
}

#[test]
fn a_set_user_id_executable_is_refused_with_what_to_do_instead() {
    const ANOTHER: Option<u32> = Some(12345);
    let mut place = Place::new();
    let mut program = "su".to_owned();
    if is_root() {
        // Those of the system become root, which it is.
        place.run(&["stat", "--", "su", "--version"]).assert_code(0);
        let path = place.add("suid", std::fs::read("/bin/true").unwrap(), 0o755);
        std::os::unix::fs::chown(&path, ANOTHER, ANOTHER).unwrap();
        std::fs::set_permissions(&path, Permissions::from_mode(0o4755)).unwrap();
        program = "./suid".to_owned();
    }
    assert_command_refused(&place, &program, &[&format!("'{program}'"), "set-user-ID", "run what it would run"]);
    place.add("script", format!("#!/usr/bin/env {program}\n"), 0o755);
    assert_command_refused(&place, "./script", &["set-user-ID"]);
}

#[test]
fn what_is_neither_elf_nor_a_script_is_refused() {
    let mut place = Place::new();
    place.add("text", "echo hello\n", 0o755);
    assert_command_refused(&place, "./text", &["'./text'", "neither an ELF executable nor a script", "sh FILE"]);
}

#[test]
fn an_executable_of_another_architecture_is_refused() {
    let mut place = Place::new();
    let mut foreign = std::fs::read("/bin/sh").unwrap();
    foreign[18..20].copy_from_slice(&243_u16.to_le_bytes());
    place.add("foreign", foreign, 0o755);
    assert_command_refused(&place, "./foreign", &["built for riscv64", std::env::consts::ARCH]);
}

#[test]
fn a_cache_directory_that_cannot_be_trusted_is_passed_over() {
    use std::os::unix::fs::PermissionsExt;
    let place = Place::new();
    let cache = place.path("cache");
    std::fs::create_dir_all(cache.join("profile-recorder")).unwrap();
    std::fs::set_permissions(cache.join("profile-recorder"), PermissionsExt::from_mode(0o777)).unwrap();
    let output = place.command(&["stat", "--", "true"]).env("XDG_CACHE_HOME", &cache).output().unwrap();
    assert_eq!(std::fs::read_dir(cache.join("profile-recorder")).unwrap().count(), 0);
    // It went to the next: the home directory's.
    assert!(place.path("../home/.cache/profile-recorder").is_dir(), "{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn help_and_version_are_no_errors() {
    for (arguments, said) in [
        (&["--version"][..], concat!("profrec ", env!("CARGO_PKG_VERSION"))),
        (&["--help"], "Examples:"),
        (&["record", "--help"], "--mode allocs"),
        (&["stat", "--help"], "--json"),
    ] {
        let output = Command::new(env!("CARGO_BIN_EXE_profrec")).args(arguments).output().unwrap();
        assert!(output.status.success());
        assert!(String::from_utf8(output.stdout).unwrap().contains(said), "{arguments:?}");
    }
}
