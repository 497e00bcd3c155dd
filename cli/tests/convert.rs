//! `profrec convert`: any readable format to any writable one, and names that are found later, elsewhere.

mod support;
mod view;

use profile::decode::{self, Limits};
use profile::encode::Growth;
use profile::{Format, Options, Profile, Symbols};
use std::fs;
use std::path::{Path, PathBuf};
use support::Place;

/// Allocates below inlined functions, with numbers that differ by stack.
const PROGRAM: &str = "\
#include <stdlib.h>
void *volatile kept;
static inline __attribute__((always_inline)) void innermost(size_t n) { kept = malloc(n); }
static inline __attribute__((always_inline)) void middle(size_t n) { innermost(n); innermost(2 * n); }
__attribute__((noinline)) void few(void) { for (int i = 0; i < 3; i++) middle(100); }
__attribute__((noinline)) void many(void) { for (int i = 0; i < 11; i++) middle(7); few(); }
int main(void) { few(); many(); return 0; }
";

/// A program with names and lines, and a directory in which a copy of it can be hidden.
fn program(place: &mut Place) -> (PathBuf, PathBuf) {
    let program = place.compile("program", PROGRAM, &["-O2", "-g", "-Wl,--build-id"]);
    let symbols = place.path("symbols");
    fs::create_dir(&symbols).unwrap();
    (program, symbols)
}

fn run(place: &Place, arguments: &[&str]) -> String {
    let ran = place.run(arguments);
    assert_eq!(ran.code, Some(0), "{arguments:?}: {}", ran.stderr);
    ran.stderr
}

fn bytes(place: &Place, name: &str) -> Vec<u8> {
    fs::read(place.path(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
}

fn read(path: &Path) -> (Profile, Symbols) {
    decode::read(&fs::read(path).unwrap(), Limits::default()).unwrap()
}

#[test]
fn stacks_are_shown_as_it_was_asked() {
    let mut place = Place::new();
    place.add("a.folded", "main;f;g 3\nmain;g 1\n", 0o644);
    let (profile, symbols) = read(&place.path("a.folded"));
    let svg = |options: Options| {
        let mut bytes = Vec::new();
        Format::Svg.encode(&profile, &symbols, &options, &mut bytes).unwrap();
        bytes
    };
    let title = Some("t".to_owned());
    let asked = Options { title: title.clone(), reversed: true, growth: Growth::Up, ..Options::default() };
    run(&place, &["convert", "a.folded", "--title", "t", "--reversed", "--grow", "up", "-o", "r.svg"]);
    run(&place, &["convert", "a.folded", "--title", "t", "-o", "p.svg"]);
    assert!(bytes(&place, "r.svg") == svg(asked));
    assert!(bytes(&place, "p.svg") == svg(Options { title, ..Options::default() }));
    assert!(bytes(&place, "r.svg") != bytes(&place, "p.svg"));

    program(&mut place);
    let options = ["record", "--mode", "allocs", "--thread-frames", "-o", "threads.folded", "--", "./program"];
    run(&place, &options);
    let text = support::text(place.path("threads.folded"));
    assert!(text.lines().filter(|line| !line.starts_with('#')).all(|line| line.starts_with("program")), "{text}");
}

#[test]
fn names_found_elsewhere_later_give_what_recording_with_names_gives() {
    let mut place = Place::new();
    let (program, symbols) = program(&mut place);
    let record = ["record", "--mode", "allocs", "--symbols"];
    run(&place, &[&record[..], &["full", "-o", "in-place.folded", "-o", "in-place.svg", "--", "./program"]].concat());
    run(&place, &[&record[..], &["none", "-o", "bare.profrec", "-o", "bare.pb.gz", "--", "./program"]].concat());
    let plain = support::text(place.path("in-place.folded"));
    assert!(plain.contains("main;many;middle;innermost;malloc 22"), "{plain}");

    // What record does with the very profile that the file holds, while the program is there.
    let (profile, named) = read(&place.path("bare.profrec"));
    assert!(named.is_empty());
    let found = symbolize::symbolize(&profile, &symbolize::Options::default());
    assert_eq!(found.notes, Vec::<String>::new());
    let in_place = |format: Format| {
        let mut bytes = Vec::new();
        let options = Options { title: Some("program".into()), ..Options::default() };
        format.encode(&profile, &found.symbols, &options, &mut bytes).unwrap();
        bytes
    };
    // The other machine does not have it.
    fs::rename(&program, symbols.join("program")).unwrap();

    for format in Format::ALL {
        let name = format!("later{}", format.extension());
        run(&place, &["convert", "bare.profrec", "--symbols", "symbols", "--title", "program", "-o", &name]);
        assert!(bytes(&place, &name) == in_place(format), "{format} is another");
    }
    // Two recordings are the same in formats that tell neither time nor place. pprof does not tell an address's kind nor the process.
    for input in ["bare.profrec", "bare.pb.gz"] {
        let to = ["-o", "elsewhere.folded", "-o", "elsewhere.svg"];
        run(&place, &[&["convert", input, "--symbols", "symbols", "--title", "program"], &to[..]].concat());
        for ending in ["folded", "svg"] {
            let (here, there) = (format!("in-place.{ending}"), format!("elsewhere.{ending}"));
            assert!(bytes(&place, &here) == bytes(&place, &there), "{ending} from {input} is another");
        }
    }
    run(&place, &["convert", "bare.pb.gz", "--symbols", "symbols", "-o", "later.pprof"]);
    assert!(bytes(&place, "later.pprof") == in_place(Format::Pprof), "pprof from pprof is another");
}

#[test]
fn what_cannot_be_found_is_said_and_stays_an_address() {
    let mut place = Place::new();
    let (program, _) = program(&mut place);
    run(&place, &["record", "--mode", "allocs", "--symbols", "none", "-o", "bare.profrec", "--", "./program"]);
    fs::remove_file(program).unwrap();
    let said = run(&place, &["convert", "bare.profrec", "--symbols", "symbols", "-o", "bare.folded"]);
    assert!(said.contains("warning: ") && said.contains("program: cannot be read: no such file"), "{said}");
    let plain = support::text(place.path("bare.folded"));
    assert!(plain.contains(";program+0x") && plain.contains(";malloc 11"), "{plain}");
    let quiet = run(&place, &["convert", "-q", "bare.profrec", "-o", "bare.folded"]);
    assert_eq!(quiet, "");
}

#[test]
fn every_format_is_written_and_those_that_are_read_keep_the_total() {
    let mut place = Place::new();
    program(&mut place);
    run(&place, &["record", "--mode", "allocs", "-o", "all.profrec", "--", "./program"]);
    let names: Vec<String> = Format::ALL.iter().map(|format| format!("all{}", format.extension())).collect();
    let others = names.iter().filter(|name| *name != "all.profrec");
    let outputs: Vec<&str> = others.clone().flat_map(|name| ["-o", name]).collect();
    let said = run(&place, &[&["convert", "all.profrec"], &outputs[..]].concat());
    assert!(others.clone().all(|name| said.contains(name.as_str())), "{said}");
    let (profile, symbols) = read(&place.path("all.profrec"));
    assert!(!symbols.is_empty());
    let total = profile.total(profile.default_column());
    for name in ["all.profrec", "all.pb.gz", "all.perf", "all.collapsed", "all.col"] {
        run(&place, &["convert", name, "-o", "again.folded"]);
        let again = support::text(place.path("again.folded"));
        let values = again.lines().filter(|line| !line.starts_with('#')).filter_map(|line| line.rsplit_once(' '));
        assert_eq!(values.map(|(_, value)| value.parse::<i64>().unwrap()).sum::<i64>(), total, "{name}");
        assert!(again.contains("main;many;middle;innermost;malloc 22"), "{name}: {again}");
    }
}

#[test]
fn short_names_leave_the_code_that_somebody_wrote() {
    let mut place = Place::new();
    let source = "#include <vector>\nnamespace space { template <typename T> __attribute__((noinline)) void fill(std::vector<T> &v) \
                  { for (int i = 0; i < 3; i++) v.push_back(T(i)); } }\n\
                  int main() { std::vector<long> v; space::fill<long>(v); return v.size() == 3 ? 0 : 1; }\n";
    let file = place.add("fill.cc", source, 0o644);
    let program = place.path("fill");
    let status = std::process::Command::new("g++").args(["-O1", "-g", "-o"]).arg(&program).arg(file).status();
    assert!(status.unwrap().success());
    run(
        &place,
        &["record", "--mode", "allocs", "--names", "short", "-o", "short.folded", "-o", "full.profrec", "--", "./fill"],
    );
    let short = support::text(place.path("short.folded"));
    let line = short.lines().find(|line| line.contains("space::fill")).expect("its allocations");
    assert!(line.starts_with("main;space::fill<…>;std::vector<…>::push_back"), "{short}");
    assert!(line.ends_with(" 3") && !line.contains("operator new"), "{short}");
    assert!(!short.contains("_start"), "{short}");
    // Full names can be made short later as well.
    run(&place, &["record", "--mode", "allocs", "-o", "full.profrec", "--", "./fill"]);
    run(&place, &["convert", "full.profrec", "--names", "short", "-o", "later.folded"]);
    let stacks = |text: &str| text.lines().filter(|line| !line.starts_with('#')).map(str::to_owned).collect::<Vec<_>>();
    assert_eq!(stacks(&support::text(place.path("later.folded"))), stacks(&short));
}

#[test]
fn what_cannot_be_converted_is_said_in_one_line() {
    let mut place = Place::new();
    place.add("empty", "", 0o644);
    place.add("damaged.pb.gz", b"\x1f\x8b\x08\0 this is no gzip", 0o644);
    place.add("notes.txt", "hello\n", 0o644);
    place.add("one.folded", "main;work 3\n", 0o644);
    for (arguments, code, said) in [
        (&["missing.pb.gz", "-o", "x.svg"][..], 1, "cannot read 'missing.pb.gz': no such file or directory"),
        (&["empty", "-o", "x.svg"], 1, "cannot read 'empty': it is empty"),
        (&["damaged.pb.gz", "-o", "x.svg"], 1, "cannot read 'damaged.pb.gz': "),
        (&["notes.txt", "-o", "x.svg"], 1, "readable formats are raw, pprof"),
        (&["one.folded", "-o", "x.bmp"], 2, "no format is known by the file name 'x.bmp'"),
        (&["one.folded"], 2, "--output <FILE>"),
        (&["one.folded", "-o", "a.svg", "-o", "./a.svg"], 2, "'./a.svg' is given twice"),
        (&["one.folded", "-o", "missing/x.svg"], 1, "its directory does not exist"),
        (
            &["one.folded", "--symbols", "nowhere", "-o", "x.svg"],
            2,
            "'nowhere' for '--symbols <DIR>' is not a directory",
        ),
    ] {
        let ran = place.run(&[&["convert"], arguments].concat());
        assert_eq!(ran.code, Some(code), "{arguments:?}: {}", ran.stderr);
        assert!(ran.stderr.starts_with("error: ") && ran.stderr.contains(said), "{arguments:?}: {}", ran.stderr);
        assert_eq!(ran.stderr.lines().count(), 1, "{}", ran.stderr);
    }
    assert_eq!(place.new_files(), Vec::<String>::new());
}

#[test]
fn a_profile_comes_from_standard_input_too() {
    let place = Place::new();
    let mut command = place.command(&["convert", "-", "-o", "out.perf"]);
    let mut child = command.stdin(std::process::Stdio::piped()).spawn().unwrap();
    std::io::Write::write_all(&mut child.stdin.take().unwrap(), b"main;work 3\n").unwrap();
    assert!(child.wait().unwrap().success());
    let text = support::text(place.path("out.perf"));
    assert!(text.contains(" work (") && text.contains(" main ("), "{text}");
}
