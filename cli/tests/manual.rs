//! What the executable says of itself, and of what it cannot reach.

mod support;

use std::io::Write;
use std::process::{Command, Stdio};
use support::Place;

const COMMANDS: [&str; 11] =
    ["agent", "completions", "convert", "diff", "list", "man", "push", "record", "sample", "stat", "top"];

#[test]
fn every_command_has_a_page_with_its_options_and_examples() {
    let place = Place::new();
    place.run(&["man", "man1"]).assert_code(0);
    for command in COMMANDS {
        let page = support::text(place.path(&format!("man1/profrec-{command}.1")));
        assert!(page.contains(&format!("\\fBprofrec {command}\\fR")), "{page}");
        assert!(page.contains(".SH EXAMPLES\n.nf\n  profrec "), "{command} shows no example");
        let help = place.run(&[command, "--help"]).stdout;
        let options = help.split_whitespace().filter(|word| word.starts_with("--") && word.len() > 2);
        for option in options.filter(|word| word.bytes().all(|b| b == b'-' || b.is_ascii_lowercase())) {
            assert!(page.contains(&option.replace('-', "\\-")), "{command}: {option} is not in {page}");
        }
    }
    let pages = std::fs::read_dir(place.path("man1")).unwrap().map(|entry| entry.unwrap().path());
    let checked =
        Command::new("mandoc").args(["-Tlint", "-Wwarning"]).args(pages).output().expect("apt-get install mandoc");
    let said = String::from_utf8_lossy(&checked.stdout).into_owned();
    // Pages of the same sources are the same on every day.
    let wrong: Vec<&str> = said.lines().filter(|line| !line.contains("missing date")).collect();
    assert_eq!(wrong, [""; 0]);
    let whole = support::text(place.path("man1/profrec.1"));
    COMMANDS.iter().for_each(|command| assert!(whole.contains(&format!("profrec\\-{command}(1)")), "{whole}"));
    place.run(&["man", "/dev/null/man1"]).assert_refused(1, &["cannot make the directory '/dev/null/man1'"]);
}

#[test]
fn completions_are_scripts_that_the_shell_takes() {
    let place = Place::new();
    let ran = place.run(&["completions", "bash"]);
    ran.assert_code(0);
    let mut bash = Command::new("bash").arg("-s").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let ask = "COMP_WORDS=(profrec di); COMP_CWORD=1; _profrec profrec di profrec; echo \"${COMPREPLY[@]}\"\n";
    bash.stdin.take().unwrap().write_all(format!("{}\n{ask}", ran.stdout).as_bytes()).unwrap();
    let answer = bash.wait_with_output().unwrap();
    assert_eq!(String::from_utf8_lossy(&answer.stdout), "diff\n");
    for (shell, load) in [
        (
            "zsh",
            "autoload -U compinit; compinit -u -d dump; source script; [ $_comps[profrec] = _profrec ] && echo loaded",
        ),
        ("fish", "source script; complete -C 'profrec to' | string match -q 'top*'; and echo loaded"),
    ] {
        std::fs::write(place.path("script"), place.run(&["completions", shell]).stdout).unwrap();
        let loaded =
            Command::new(shell).args(["-c", load]).env("HOME", place.path("")).current_dir(place.path("")).output();
        let loaded = support::Ran::of(loaded.expect("apt-get install zsh fish"));
        assert_eq!(loaded.stdout, "loaded\n", "{shell}: {}", loaded.stderr);
    }
    for shell in ["zsh", "fish", "elvish", "powershell"] {
        let ran = place.run(&["completions", shell]);
        ran.assert_code(0);
        assert!(ran.stdout.contains("fail-on"), "{shell}");
    }
    place.run(&["completions", "dos"]).assert_refused(2, &["'dos'", "bash"]);
}

#[test]
fn a_recorder_that_is_not_there_is_named_with_what_to_do() {
    let mut place = Place::new();
    place.add("plain", "", 0o644);
    let plain = place.path("plain").display().to_string();
    for (target, code, said) in [
        ("./none.sock", 1, "cannot connect to ./none.sock: no such file or directory; does the target run"),
        (plain.as_str(), 1, "connection refused; does the target run"),
        ("http://127.0.0.1:1", 1, "connection refused"),
        ("ftp://a", 2, "the scheme is unknown"),
        ("", 2, "the target is empty"),
    ] {
        place.run(&["sample", target]).assert_refused(code, &[said]);
        place.run(&["top", target]).assert_refused(code, &[said]);
    }
    place.run(&["sample", "./a.sock", "-o", "a.bmp"]).assert_refused(2, &[".svg"]);
    place.run(&["sample", "./a.sock", "-o", "no/a.svg"]).assert_refused(1, &["its directory does not exist"]);
    place.run(&["sample", "./a.sock", "--seconds", "0"]).assert_refused(2, &["'0' for '--seconds <N>'"]);
    place.run(&["top", "./a.sock", "--seconds", "61"]).assert_refused(2, &["'61' for '--seconds <N>'"]);
    place.run(&["sample", "./a.sock", "--seconds", "1", "--mode", "threads"]).assert_refused(2, &["one moment"]);
    assert_eq!(place.new_files(), [""; 0]);
}

#[test]
fn an_answer_that_is_no_profile_leaves_no_file() {
    use std::io::{BufRead, BufReader};
    let place = Place::new();
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let answers = [
        (
            "HTTP/1.1 401 Unauthorized\r\nContent-Length: 18\r\n\r\na token is needed\n",
            "answers 401 Unauthorized: a token is needed",
        ),
        ("HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf", "did the target end?"),
        ("junk\r\n\r\n", "did the target end?"),
    ];
    let server = std::thread::spawn(move || {
        answers.map(|(answer, _)| {
            let (mut stream, _) = listener.accept().unwrap();
            let lines = BufReader::new(stream.try_clone().unwrap()).lines().map(Result::unwrap);
            let request: Vec<String> = lines.take_while(|line| !line.is_empty()).collect();
            stream.write_all(answer.as_bytes()).unwrap();
            request
        })
    });
    for (_, said) in answers {
        let mut command = place.command(&["sample", &url, "--mode", "heap", "-o", "a.svg"]);
        let ran = support::Ran::of(command.env("PROFILE_RECORDER_TOKEN", "secret").output().unwrap());
        ran.assert_refused(1, &[said]);
    }
    let requests = server.join().unwrap();
    assert_eq!(requests[0][0], "GET /debug/pprof/heap?format=svg HTTP/1.1");
    assert!(requests[0].iter().any(|line| line == "authorization: Bearer secret"), "{:?}", requests[0]);
    assert_eq!(place.new_files(), [""; 0]);
}
