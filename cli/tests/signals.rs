//! Signals mean the command.

mod support;

use std::io::{BufRead, BufReader, Read};
use std::os::unix::process::CommandExt;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};
use support::{Place, Ran};

/// What a script does until a signal ends it, or half a minute is over: then it has failed.
const WAIT: &str = "i=0; while [ $i -lt 3000 ]; do i=$((i+1)); sleep 0.01; done; exit 99";

/// The command, where no signal is ignored: what a shell finds ignored it cannot trap.
fn with_default_signals(command: &Command) -> Command {
    let mut env = Command::new("env");
    env.arg("--default-signal").arg(command.get_program()).args(command.get_args());
    env.envs(command.get_envs().filter_map(|(name, value)| Some((name, value?))));
    env.current_dir(command.get_current_dir().unwrap());
    env
}

/// Starts a shell script that says `ready`, and waits until it has.
fn start(place: &Place, script: &str) -> (Child, BufReader<ChildStdout>) {
    let mut command =
        with_default_signals(&place.command(&["record", "--quiet", "-o", "a.folded", "--", "sh", "-c", script]));
    // A group of its own, whose parent lies outside: the kernel does not let SIGTSTP stop an orphaned group, which ours may be.
    command.process_group(0);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut stdout = BufReader::new(child.stdout.take().unwrap());
    let mut line = String::new();
    stdout.read_line(&mut line).unwrap();
    assert_eq!(line, "ready\n");
    (child, stdout)
}

fn send(child: &Child, signal: rustix::process::Signal) {
    rustix::process::kill_process(rustix::process::Pid::from_child(child), signal).unwrap();
}

fn end(child: Child, mut stdout: BufReader<ChildStdout>) -> Ran {
    let mut rest = String::new();
    stdout.read_to_string(&mut rest).unwrap();
    Ran { stdout: rest, ..Ran::of(child.wait_with_output().unwrap()) }
}

/// The state letter of a process, and its only child.
fn state(pid: u32) -> char {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    stat.rsplit_once(") ").unwrap().1.chars().next().unwrap()
}

fn only_child(pid: u32) -> u32 {
    let children = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap();
    children.trim().parse().unwrap()
}

fn wait_until(what: &str, condition: impl Fn() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(10);
    while !condition() {
        assert!(Instant::now() < deadline, "{what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn a_signal_to_profrec_reaches_the_command_which_decides() {
    use rustix::process::Signal;
    for (name, signal) in [
        ("INT", Signal::INT),
        ("TERM", Signal::TERM),
        ("HUP", Signal::HUP),
        ("QUIT", Signal::QUIT),
        ("USR1", Signal::USR1),
        ("USR2", Signal::USR2),
        ("ALRM", Signal::ALARM),
        ("WINCH", Signal::WINCH),
    ] {
        let place = Place::new();
        let script = format!("trap 'echo got; exit 7' {name}; echo ready; {WAIT}");
        let (child, stdout) = start(&place, &script);
        send(&child, signal);
        let ran = end(child, stdout);
        ran.assert_code(7);
        assert_eq!(ran.stdout, "got\n", "{name}");
        assert_eq!(place.new_files(), ["a.folded"]);
        place.assert_no_store_left();
    }
}

/// Whether a thread of the process waits in openat.
fn waits_to_open(pid: u32) -> bool {
    let threads = std::fs::read_dir(format!("/proc/{pid}/task")).unwrap().map(|thread| thread.unwrap().path());
    let calls = threads.filter_map(|thread| std::fs::read_to_string(thread.join("syscall")).ok());
    calls.into_iter().any(|call| call.starts_with("257 "))
}

#[test]
fn signals_and_the_end_do_not_wait_for_a_store_that_is_read_meanwhile() {
    let place = Place::new();
    // A pipe holds up who opens it, as a large store does who decodes it. At the end it goes, before another look finds it.
    let store = "$PROFILE_RECORDER_STORE/1-1.store";
    let script = format!(
        "mkfifo {store}; trap 'exec 3<>{store}; rm {store}' EXIT; trap 'echo got; exit 7' USR1; echo ready; {WAIT}"
    );
    let (child, stdout) = start(&place, &script);
    wait_until("the pipe is opened", || waits_to_open(child.id()));
    send(&child, rustix::process::Signal::USR1);
    let ran = end(child, stdout);
    ran.assert_code(7);
    assert_eq!(ran.stdout, "got\n");
    place.assert_no_store_left();
}

#[test]
fn a_command_that_dies_of_the_signal_takes_profrec_with_it_after_the_profile_is_written() {
    let place = Place::new();
    let (child, stdout) = start(&place, "echo ready; exec sleep 60");
    send(&child, rustix::process::Signal::TERM);
    assert_eq!(end(child, stdout).signal, Some(15));
    assert_eq!(place.new_files(), ["a.folded"]);
    place.assert_no_store_left();
}

#[test]
fn stopping_and_continuing_profrec_stops_and_continues_the_command() {
    use rustix::process::Signal;
    let place = Place::new();
    let (child, stdout) = start(&place, &format!("trap 'exit 8' TERM; echo ready; {WAIT}"));
    let command = only_child(child.id());
    send(&child, Signal::TSTP);
    wait_until("both stop", || state(child.id()) == 'T' && state(command) == 'T');
    send(&child, Signal::CONT);
    wait_until("both continue", || state(child.id()) != 'T' && state(command) != 'T');
    send(&child, Signal::TERM);
    end(child, stdout).assert_code(8);
}

#[test]
fn what_the_command_sends_to_its_parent_does_not_come_back() {
    let place = Place::new();
    let script = "trap 'echo got' USR1; echo ready; kill -USR1 $PPID; sleep 0.2; echo end";
    let (child, stdout) = start(&place, script);
    let ran = end(child, stdout);
    ran.assert_code(0);
    assert_eq!(ran.stdout, "end\n");
}

#[test]
fn the_command_ignores_and_blocks_what_it_would_without_profrec() {
    let place = Place::new();
    let masks = "grep -E 'Sig(Blk|Ign|Cgt)' /proc/self/status";
    let profrec = env!("CARGO_BIN_EXE_profrec");
    let under = |prefix: &str| {
        let blocked = "INT,TERM,USR2,ALRM,CHLD,URG,RTMIN+3";
        let script = format!("trap '' HUP USR1 TSTP ALRM; env --block-signal={blocked} {prefix} {masks}");
        let mut command = place.command(&[]);
        let mut shell = std::process::Command::new("sh");
        shell.args(["-c", &script]).envs(command.get_envs().filter_map(|(k, v)| Some((k, v?))));
        shell.current_dir(command.get_current_dir().unwrap());
        let _ = &mut command;
        Ran::of(shell.output().unwrap()).stdout
    };
    let without = under("");
    assert!(without.contains("SigBlk"), "{without}");
    assert_eq!(under(&format!("{profrec} stat -o counts.txt --")), without);
    // The last of several runs begins as the first.
    assert_eq!(under(&format!("{profrec} stat --repeat 2 -o counts.txt --")), without.repeat(2));
}

#[test]
fn what_a_killed_profrec_leaves_is_removed_by_the_next_and_what_a_living_one_has_is_not() {
    use rustix::process::Signal;
    let place = Place::new();
    let script = format!("trap 'exit 7' USR1; echo ready; {WAIT}");
    let directories = || std::fs::read_dir(place.stores()).unwrap().count();
    let (alive, stdout) = start(&place, &script);
    let (mut killed, rest) = start(&place, "echo ready; exec sleep 60");
    let command = only_child(killed.id());
    send(&killed, Signal::KILL);
    killed.wait().unwrap();
    assert_eq!(directories(), 2);
    place.run(&["stat", "--", "true"]).assert_code(0);
    assert_eq!(directories(), 1);
    send(&alive, Signal::USR1);
    end(alive, stdout).assert_code(7);
    assert_eq!(place.new_files(), ["a.folded"]);
    place.assert_no_store_left();
    let command = rustix::process::Pid::from_raw(command.cast_signed()).unwrap();
    rustix::process::kill_process(command, Signal::TERM).unwrap();
    drop(rest);
}
