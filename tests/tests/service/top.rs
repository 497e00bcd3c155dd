//! `profrec top` in a terminal: what a person sees, what keys do, and that the terminal is given back however it ends.

use profile_recorder_tests::resident::Resident;
use profile_recorder_tests::terminal::Terminal;
use profile_recorder_tests::{output, profrec, programs, run, text};
use std::path::Path;
use std::process::Command;

/// Keeps a processor busy, half of the time in `json.dumps`, and holds on to more and more memory, slowly.
const WORK: &str = "import json
keep = []
while True:
    keep.append('x' * 5000)
    json.dumps(list(range(3000)))";

/// After `profrec top` has ended: how, and whether the terminal echoes and edits lines as before.
const AND_THEN: &str =
    "; echo \"ended $?\"; stty -a | tr ' ;' '\\n\\n' | grep -x -e -echo -e -icanon -e echo -e icanon";

fn working() -> Resident {
    Resident::start(Command::new(programs::python()).args(["-c", WORK]).env("PROFILE_RECORDER_ALLOC_INTERVAL", "16KiB"))
}

fn command(resident: &mut Resident, options: &str) -> String {
    let pid = resident.child().id();
    format!("{} top {} --seconds 1 {options}{AND_THEN}", profrec().display(), resident.socket(pid).display())
}

/// The `profrec top` that looks at the recorder there, if one runs.
fn pid_of(socket: &Path) -> Option<String> {
    let found = output(Command::new("pgrep").args(["-f", &format!("profrec top {}", socket.display())]));
    text(&found.stdout).split_whitespace().next().map(str::to_owned)
}

/// Asserts that the shell has its terminal again, with what stood on it before.
fn assert_given_back(terminal: &Terminal, code: u8) -> String {
    let screen = terminal.see(&format!("ended {code}\nicanon\necho\n"));
    assert!(screen.contains("before it\n") && !screen.contains("q quit"), "{screen}");
    screen
}

fn started(terminal: &Terminal, resident: &mut Resident, options: &str) {
    terminal.enter("echo before it");
    terminal.enter(&command(resident, options));
    terminal.see("q quit");
}

#[test]
fn keys_do_what_the_help_says() {
    let mut resident = working();
    let terminal = Terminal::start(120, 30, &[("NO_COLOR", "1")]);
    started(&terminal, &mut resident, "");
    let pid = resident.child().id();
    terminal.see(" functions, by self, every 1 s");
    terminal.key("s");
    let screen = terminal.see("_PyEval_EvalFrameDefault");
    assert!(
        screen.starts_with("python3") && screen.lines().next().unwrap().contains(&format!("({pid}) at /")),
        "{screen}"
    );
    assert!(screen.contains("cpu, cpu: ") && screen.contains(" functions, by total, every 1 s"), "{screen}");
    let styled = terminal.styled_screen();
    // Underlined, bold, reversed, and the terminal's own colours (39, 49) are no colours.
    let colors = (0..=8).flat_map(|color| [format!("[3{color}"), format!("[4{color}"), format!("[9{color}")]);
    colors.for_each(|color| assert!(!styled.contains(&color), "{color}: {styled:?}"));

    terminal.key("?");
    terminal.see("stop and go on");
    terminal.key("Escape");
    terminal.key("f");
    terminal.see(" stacks, by total");
    terminal.see(" < ");
    terminal.key("f");
    terminal.key("/");
    terminal.enter("evalframe");
    let screen = terminal.see(" functions, by total, every 1 s, filter: evalframe\n");
    assert!(
        screen.lines().skip(4).all(|line| line.is_empty() || line.contains("EvalFrame") || line.starts_with("q quit")),
        "{screen}"
    );
    terminal.key("Enter");
    terminal.see("heaviest stack of _PyEval_EvalFrameDefault");
    terminal.key("Escape");
    // One after the other: two that are read at once are one key to crossterm, as they are to terminals that send Escape before a key pressed with Alt.
    terminal.wait_for("the table alone", |screen| !screen.contains("heaviest stack"));
    terminal.key("Escape");
    terminal.wait_for("no filter", |screen| !screen.contains("filter:"));
    terminal.key("v");
    terminal.see("cpu, samples: ");
    terminal.key("r");
    terminal.see("by total upwards");
    terminal.key("r");
    terminal.key("Space");
    let paused = terminal.see("PAUSED");
    std::thread::sleep(std::time::Duration::from_millis(1500));
    assert_eq!(terminal.screen(), paused, "nothing moves");
    for (mode, said) in [
        ("wall", "wall, wall: "),
        ("offcpu", "offcpu, "),
        ("allocs", "since the start, "),
        ("heap", "live now, "),
        ("threads", "threads, threads: 1 now"),
    ] {
        terminal.key("m");
        let screen = terminal.see(said);
        assert!(screen.contains(mode), "{screen}");
    }
    terminal.key("q");
    assert_given_back(&terminal, 0);
}

#[test]
fn the_table_fits_a_terminal_that_changes_its_size() {
    let mut resident = working();
    let terminal = Terminal::start(100, 24, &[]);
    started(&terminal, &mut resident, "--mode heap");
    terminal.see("live now, ");
    for (width, height) in [(60, 8), (160, 50), (30, 3), (100, 24)] {
        terminal.resize(width, height);
        terminal.wait_for("last line of keys", |screen| {
            let lines: Vec<&str> = screen.lines().collect();
            lines.len() == usize::from(height) && lines.last().is_some_and(|line| line.starts_with("q quit"))
        });
    }
    assert!(terminal.styled_screen().contains("\u{1b}["), "styles where they are wanted");
    terminal.key("C-c");
    assert_given_back(&terminal, 0);
}

#[test]
fn whatever_ends_it_the_terminal_is_given_back() {
    let mut resident = working();
    let terminal = Terminal::start(100, 24, &[]);
    started(&terminal, &mut resident, "");
    let pid = resident.child().id();
    // Away and back again.
    terminal.key("C-z");
    terminal.wait_for("the shell", |screen| !screen.contains("q quit") && screen.contains("before it"));
    terminal.enter("fg");
    terminal.see("q quit");
    let top = pid_of(&resident.socket(pid)).expect("it runs");
    assert!(output(Command::new("kill").args(["-TERM", &top])).status.success());
    terminal.see("Terminated");
    // What followed it on its line followed when it was stopped.
    terminal.enter(AND_THEN.trim_start_matches("; "));
    assert_given_back(&terminal, 143);

    terminal.enter("clear");
    started(&terminal, &mut resident, "--mode heap");
    terminal.see("live now");
    drop(resident);
    let screen = assert_given_back(&terminal, 1);
    assert!(screen.contains("error: cannot connect to ") || screen.contains("error: no answer from "), "{screen}");
}

/// The reader of keys went round and round at the end of its input, for ever.
#[test]
fn a_terminal_that_is_closed_leaves_no_process() {
    let mut resident = working();
    let terminal = Terminal::start(100, 24, &[]);
    started(&terminal, &mut resident, "");
    let pid = resident.child().id();
    let socket = resident.socket(pid);
    assert!(pid_of(&socket).is_some());
    terminal.close();
    let begun = std::time::Instant::now();
    while pid_of(&socket).is_some() {
        assert!(begun.elapsed() < std::time::Duration::from_secs(30), "it still runs");
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
}

#[test]
fn without_a_terminal_one_table_is_printed() {
    let mut resident = working();
    let pid = resident.child().id();
    let socket = resident.socket(pid).display().to_string();
    let top = |options: &[&str]| output(run(&["top", &socket, "--seconds", "1"]).args(options));
    let ran = top(&["--lines", "3"]);
    assert!(ran.status.success(), "{}", text(&ran.stderr));
    let table = text(&ran.stdout);
    let lines: Vec<&str> = table.lines().collect();
    let heading = lines.iter().position(|line| line.contains("per second")).expect("a heading");
    assert!(lines[0].starts_with("python3") && lines[1].starts_with("cpu, cpu: "), "{table}");
    let shares = lines[heading + 1..heading + 4].iter().map(|line| {
        let numbers: Vec<&str> = line.split_whitespace().filter(|word| word.ends_with('%')).collect();
        numbers[0].trim_end_matches('%').parse::<f64>().expect("a share")
    });
    assert!(shares.collect::<Vec<_>>().is_sorted_by(|a, b| a >= b), "{table}");
    assert!(lines[heading + 4].starts_with("... ") && lines[heading + 4].ends_with(" more"), "{table}");
    assert!(!table.contains('\u{1b}'), "{table:?}");

    // What is held grows, and by whom is told.
    let heap = text(&top(&["--mode", "heap", "--by", "stack", "--metric", "live"]).stdout);
    assert!(
        heap.lines().nth(1).is_some_and(|line| line.starts_with("heap, live: ") && line.contains("live now, +")),
        "{heap}"
    );
    assert!(heap.contains(" < "), "{heap}");
    let wrong = top(&["--metric", "cows"]);
    assert_eq!(wrong.status.code(), Some(2));
    assert_eq!(text(&wrong.stderr), "error: mode cpu has no metric 'cows'; it has samples, cpu\n");
}
