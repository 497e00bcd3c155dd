//! Files that only a process that still runs can show: those of its container, and those that were deleted.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use profile::{AddressKind, Frame, Mapping, Profile, Sample, Svma, Symbols};
use profile_recorder_symbolize::{Detail, Options, complete, symbolize};

use crate::support::*;

/// Says that it runs, and waits until its standard input is closed.
const WAITS: &str = "#include <stdio.h>\n__attribute__((noinline)) int work(void) { puts(\"here\"); return fflush(stdout); }\n\
                     int main(void) { work(); return getchar() != EOF; }\n";

/// A program that was started and said that it runs.
fn started(command: &mut Command) -> Child {
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("it starts");
    let mut line = String::new();
    BufReader::new(child.stdout.as_mut().expect("a pipe")).read_line(&mut line).expect("a line");
    assert_eq!(line, "here\n");
    child
}

fn end(mut child: Child) {
    drop(child.stdin.take());
    child.wait().expect("it ends");
}

#[test]
fn a_deleted_program_is_read_from_the_process_that_runs_it() {
    let folder = Folder::new();
    let program = folder.compile("gcc", WAITS, "program", &["-O2", "-Wl,--build-id"]);
    let (id, work) = (build_id(&program), address_of(&program, "work"));
    let child = started(&mut Command::new(&program));
    fs::remove_file(&program).expect("the file");
    let profile = profile(mapping(&program, id), &[work]);
    let without = symbolize(&profile, &options(Detail::Names));
    assert!(without.symbols.is_empty() && without.notes.len() == 1);
    let with = symbolize(&profile, &Options { file_pids: vec![child.id()], ..options(Detail::Full) });
    end(child);
    assert_eq!(with.notes, Vec::<String>::new());
    assert_eq!(linker_name(&with, work).as_deref(), Some("work"));
}

#[test]
fn a_deleted_library_is_read_from_the_mapping_that_keeps_it() {
    let folder = Folder::new();
    let source = "__attribute__((visibility(\"default\"))) int inside(int x) { return x + 1; }\n";
    let library = folder.compile("gcc", source, "library.so", &["-O2", "-shared", "-fPIC", "-Wl,--build-id"]);
    let program = folder.compile("gcc", WAITS, "program", &["-O2"]);
    let (id, inside) = (build_id(&library), address_of(&library, "inside"));
    let child = started(Command::new(&program).env("LD_PRELOAD", &library));
    fs::remove_file(&library).expect("the file");
    // Only root may follow the links of mappings.
    let may = fs::read_dir(format!("/proc/{}/map_files", child.id()))
        .is_ok_and(|entries| entries.flatten().any(|entry| fs::File::open(entry.path()).is_ok()));
    let profile = profile(mapping(&library, id), &[inside]);
    let found = symbolize(&profile, &Options { file_pids: vec![child.id()], ..options(Detail::Names) });
    end(child);
    assert_eq!(linker_name(&found, inside).as_deref(), may.then_some("inside"));
    assert_eq!(found.notes.len(), usize::from(!may), "{:?}", found.notes);
}

#[test]
fn files_and_perf_maps_of_a_container_are_read_where_the_process_sees_them() {
    let confined = ["--user", "--map-root-user", "--mount", "--pid", "--fork", "--kill-child"];
    if !Command::new("unshare").args(confined).arg("true").status().is_ok_and(|status| status.success()) {
        eprintln!("this machine allows no namespaces: nothing to see");
        return;
    }
    let folder = Folder::new();
    let program = folder.compile("gcc", WAITS, "program", &["-O2", "-Wl,--build-id"]);
    let (id, work) = (build_id(&program), address_of(&program, "work"));
    // Its own /tmp, in which the program lies, and a map by the number that the process has there.
    let script = "exec 9<\"$0\"; mount -t tmpfs none /tmp && mkdir /tmp/inside && cp /dev/fd/9 /tmp/inside/program && \
                  chmod +x /tmp/inside/program && echo '7f0000001000 40 JS:~work' > /tmp/perf-1.map && exec /tmp/inside/program";
    let child = started(Command::new("unshare").args(confined).args(["sh", "-c", script, text(&program)]));
    fs::remove_file(&program).expect("the file");
    let children = fs::read_to_string(format!("/proc/{0}/task/{0}/children", child.id())).expect("its children");
    let pid = children.trim().parse().expect("one child");

    let mut profile = profile(mapping(Path::new("/tmp/inside/program"), id), &[work]);
    let generated = Frame::Address { mapping: None, svma: Svma(0x7f00_0000_1010), kind: AddressKind::Instruction };
    profile.stacks.frame_id(generated.clone());
    let without = symbolize(&profile, &options(Detail::Full));
    let with =
        symbolize(&profile, &Options { file_pids: vec![pid], perf_map_pids: vec![pid], ..options(Detail::Full) });
    end(child);
    assert!(without.symbols.is_empty());
    assert_eq!(with.notes, Vec::<String>::new());
    assert_eq!(linker_name(&with, work).as_deref(), Some("work"));
    assert_eq!(&*with.symbols.get(&generated)[0].name, "JS:~work");
}

/// A profile of addresses as pprof tells them: where the file lay, and not where it was linked.
#[test]
fn addresses_of_a_format_without_the_linkers_are_brought_to_those_of_the_file() {
    let folder = Folder::new();
    // A linker that gives segments other addresses than offsets: here the code is a page further up.
    let options = ["-O2", "-Wl,--build-id", "-no-pie", "-fno-pie", "-Wl,-Ttext-segment=0x7000000"];
    let program = folder.compile("gcc", WAITS, "program", &options);
    let work = address_of(&program, "work");
    let headers = run("readelf", &["-lW", text(&program)]);
    let code = headers.lines().find(|line| line.contains("LOAD") && line.contains("R E")).expect("a segment of code");
    let words: Vec<&str> = code.split_whitespace().collect();
    let number = |word: &str| u64::from_str_radix(word.trim_start_matches("0x"), 16).expect("hexadecimal");
    let (offset, address) = (number(words[1]), number(words[2]));
    assert_ne!(offset, address);
    let (start, wrong) = (address, address - offset);
    let unknown = Mapping {
        start,
        end: start + 0x1000,
        file_offset: offset,
        bias: wrong,
        ..mapping(&program, build_id(&program))
    };
    let mut profile: Profile = crate::support::profile(unknown, &[work - wrong]);
    let stack = profile.stacks.intern([frame(work - wrong)]);
    profile.samples.push(Sample { stack, thread: None, labels: profile::Labels::new(), values: profile::values![] });
    assert!(symbolize(&profile, &Options::default()).symbols.is_empty());
    let (adopted, symbols) = profile_recorder_symbolize::adopt(profile, Symbols::new(), &Options::default());
    assert_eq!(adopted.mappings[0].bias, 0);
    let found = complete(&adopted, symbols, &Options::default());
    assert_eq!(linker_name(&found, work).as_deref(), Some("work"));
}

fn address_of(path: &Path, name: &str) -> u64 {
    nm(path, &[]).into_iter().find(|(found, ..)| found == name).expect("nm lists it").1
}
