//! `go tool pprof` reads what we write and comes to the same numbers. Without Go there is nothing to compare with, and the tests fail.

mod support;

use profile_recorder_profile::decode::{self, Limits};
use profile_recorder_profile::top::{self, Leaf};
use profile_recorder_profile::{
    AddressKind, Frame, Labels, Mapping, MappingId, Options, Profile, Sample, SampleType, Svma, Symbols, encode, values,
};
use std::path::{Path, PathBuf};
use std::process::Command;
use support::encoded;

/// The real reader; its absence is an error, not a reason to pass.
fn go_pprof() -> PathBuf {
    let mut found: Vec<PathBuf> = ["/usr/lib", "/usr/local"]
        .iter()
        .filter_map(|dir| std::fs::read_dir(dir).ok())
        .flatten()
        .filter_map(|entry| Some(entry.ok()?.path().join("pkg/tool/linux_amd64/pprof")))
        .filter(|path| path.exists())
        .collect();
    found.sort();
    found.pop().expect("Go's pprof: apt-get install golang-1.19-go")
}

/// Runs it on a profile without letting it contact anybody or look for binaries, unless the arguments name one.
fn run(pprof: &Path, name: &str, of: &(Profile, Symbols), arguments: &[&str]) -> String {
    let dir = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let file = dir.join(format!("{name}.pb.gz"));
    std::fs::write(&file, encoded(encode::pprof::encode, of, &Options::default())).unwrap();
    let output = Command::new(pprof)
        .args(arguments)
        .arg(&file)
        .env("PPROF_TMPDIR", dir)
        .env("PPROF_BINARY_PATH", dir)
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    text
}

/// (self, total, name) of each row of `-top`, and the total it states.
fn rows(text: &str) -> (i64, Vec<(i64, i64, String)>) {
    let number = |text: &str| text.trim_end_matches(|c: char| c.is_alphabetic()).parse::<i64>().unwrap();
    let total = text.lines().find_map(|line| line.split_once(" of ").or(line.split_once("% of "))).unwrap().1;
    let total = total.rsplit("of ").next().unwrap().trim_end_matches(" total");
    let rows = text.lines().skip_while(|line| !line.contains("flat%")).skip(1).map(|line| {
        let words: Vec<&str> = line.split_whitespace().collect();
        (number(words[0]), number(words[3]), words[5..].join(" ").trim_end_matches(" (inline)").to_owned())
    });
    (number(total), rows.collect())
}

fn top_equals(name: &str, of: &(Profile, Symbols)) {
    let pprof = go_pprof();
    for (column, sample_type) in of.0.sample_types.iter().enumerate() {
        let (index, unit) = (format!("-sample_index={}", sample_type.kind), format!("-unit={}", sample_type.unit));
        let mut ours = top::functions(&of.0, &of.1, column, Leaf::Recorded);
        for by in ["-flat", "-cum"] {
            let arguments = ["-top", by, "-symbolize=none", "-nodecount=10", "-nodefraction=0", &index, &unit];
            let (total, rows) = rows(&run(&pprof, name, of, &arguments));
            assert_eq!(total, of.0.total(column), "{index}");
            if by == "-cum" {
                ours.sort_by_key(|f| std::cmp::Reverse(f.total));
            }
            let key = |own: i64, total: i64| if by == "-cum" { total } else { own };
            // Where values are equal the tools order functions as they like.
            let theirs: Vec<i64> = rows.iter().map(|row| key(row.0, row.1)).collect();
            let expected: Vec<i64> = ours.iter().take(rows.len()).map(|f| key(f.self_value, f.total)).collect();
            assert_eq!(theirs, expected, "{by} {index}");
            assert!(rows.len() >= ours.len().min(10), "{by} {index}: {rows:?}");
            for row in &rows {
                let same = |f: &top::Function| (f.self_value, f.total, &f.name) == (row.0, row.1, &row.2);
                assert!(ours.iter().any(same), "{by} {index}: {row:?} is not among ours");
            }
        }
    }
}

#[test]
fn top_ten_and_totals_of_allocations_are_the_models() {
    top_equals("heap", &support::heap());
}

#[test]
fn top_ten_and_totals_of_a_large_profile_are_the_models() {
    top_equals("large", &support::large(5_000, 1_000));
}

/// What `-diff_base` subtracts is what the model's difference holds.
#[test]
fn differences_of_go_are_the_models() {
    let pprof = go_pprof();
    let (base, symbols) = support::large(3000, 300);
    let mut head = base.clone();
    for (i, sample) in head.samples.iter_mut().enumerate() {
        sample
            .values
            .iter_mut()
            .for_each(|value| *value = if i % 3 == 0 { *value * 2 } else { *value / (1 + i as i64 % 2) });
    }
    let base_file = Path::new(env!("CARGO_TARGET_TMPDIR")).join("diff-base.pb.gz");
    std::fs::write(&base_file, encoded(encode::pprof::encode, &(base.clone(), symbols.clone()), &Options::default()))
        .unwrap();
    let difference = Profile::difference(&head, &base);
    for (column, sample_type) in base.sample_types.iter().enumerate() {
        let ours = top::functions(&difference, &symbols, column, Leaf::Recorded);
        let (index, unit) = (format!("-sample_index={}", sample_type.kind), format!("-unit={}", sample_type.unit));
        let against = format!("-diff_base={}", base_file.display());
        let arguments = ["-top", "-symbolize=none", "-nodecount=10", "-nodefraction=0", &index, &unit, &against];
        let text = run(&pprof, "diff-head", &(head.clone(), symbols.clone()), &arguments);
        let (_, rows) = rows(&text);
        assert_eq!(rows.len(), 10, "{text}");
        for row in &rows {
            let same = |f: &top::Function| (f.self_value, f.total, &f.name) == (row.0, row.1, &row.2);
            assert!(ours.iter().any(same), "{index}: {row:?} is not among ours");
        }
    }
}

/// Every stack with its value, one after the other.
#[test]
fn traces_of_go_add_up_to_the_models_totals() {
    let pprof = go_pprof();
    let of = support::large(2000, 200);
    for (column, sample_type) in of.0.sample_types.iter().enumerate() {
        let (index, unit) = (format!("-sample_index={}", sample_type.kind), format!("-unit={}", sample_type.unit));
        let text = run(&pprof, "traces", &of, &["-traces", "-symbolize=none", &index, &unit]);
        let values = text.split("-----------+").skip(1).filter_map(|trace| {
            let line = trace.lines().skip(1).find(|line| !line.contains(':') || line.contains("::"))?;
            let digits: String = line.split_whitespace().next()?.chars().take_while(char::is_ascii_digit).collect();
            digits.parse::<i64>().ok()
        });
        assert_eq!(values.sum::<i64>(), of.0.total(column), "{index}");
    }
}

#[test]
fn everything_in_a_profile_reaches_go() {
    let pprof = go_pprof();
    let raw = run(&pprof, "cpu", &support::cpu(), &["-raw", "-symbolize=none"]);
    for expected in [
        "PeriodType: cpu nanoseconds",
        "Period: 10000000",
        "Duration: 2s",
        "Time: 2023-11-14",
        "samples/count cpu/nanoseconds",
        "Comment: my app (pid 4711): lost",
        "thread:[main]",
        "tid:[4712]",
        "request:[GET /]",
        "shard:[3]",
        "app::parse;json /src/parse.rs:40",
        "core::ops::Call<(u8, i32)>::call /rust/ops.rs:250",
        "0x555555556204 M=1",
        "0x7fff00001234",
        "1: 0x555555556000/0x555555559000/0x1000 /usr/bin/my app 000102030405060708090a0b0c0d0e0f10111213 [FN][FL][LN][IN]",
        "2: 0x7ffff7c28000/0x7ffff7dc0000/0x28000 /usr/lib/x86_64-linux-gnu/libc.so.6 abababababababababababababababababababab [FN]",
    ] {
        assert!(raw.contains(expected), "{expected} is missing in\n{raw}");
    }
    let raw = run(&pprof, "heap-raw", &support::heap(), &["-raw", "-symbolize=none"]);
    for expected in
        ["inuse_space/bytes[dflt]", "bytes:[40 bytes]", "bytes:[1000000 bytes]", "process:[python3]", "pid:[11]"]
    {
        assert!(raw.contains(expected), "{expected} is missing in\n{raw}");
    }
}

/// A position-independent program: its code lies at another offset in the file than in memory, and is loaded far away from both.
#[test]
fn go_can_symbolize_our_addresses_with_the_file() {
    let pprof = go_pprof();
    let dir = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let (source, program) = (dir.join("named.c"), dir.join("named-program"));
    std::fs::write(&source, "__attribute__((noinline)) int hot_function(int x) { return x * 3; }\nint main(int c, char **v) { return hot_function(c) + 1; }\n").unwrap();
    let status = Command::new("cc").args(["-g", "-O1", "-pie", "-fPIE", "-o"]).arg(&program).arg(&source).status();
    assert!(status.is_ok_and(|status| status.success()), "cc compiles the program");
    let output = |command: &str, arguments: &[&str]| {
        String::from_utf8(Command::new(command).args(arguments).arg(&program).output().unwrap().stdout).unwrap()
    };
    let hex = |text: &str| u64::from_str_radix(text.trim_start_matches("0x"), 16).unwrap();
    let symbols = output("nm", &[]);
    let svma = |name: &str| {
        hex(symbols.lines().find(|l| l.ends_with(&format!(" {name}"))).unwrap().split(' ').next().unwrap())
    };
    let segments = output("readelf", &["-lW"]);
    let code: Vec<&str> = segments.lines().find(|l| l.contains("R E")).unwrap().split_whitespace().collect();
    let (offset, vaddr, size) = (hex(code[1]), hex(code[2]), hex(code[5]));
    let page = |address: u64| address & !0xfff;

    let bias = 0x5612_3456_7000;
    let mut profile = Profile::new(vec![SampleType::new("cpu", "nanoseconds")]);
    profile.mappings = vec![Mapping {
        start: bias + page(vaddr),
        end: bias + page(vaddr + size + 0xfff),
        file_offset: page(offset),
        bias,
        path: program.to_str().unwrap().to_owned(),
        build_id: Vec::new(),
    }];
    let frame = |svma, kind| Frame::Address { mapping: Some(MappingId(0)), svma: Svma(svma), kind };
    // The byte after `main`'s last call would already be another function: only the lookup address is inside.
    let stack = profile.stacks.intern([
        frame(svma("main") + 5, AddressKind::ReturnAddress),
        frame(svma("hot_function"), AddressKind::Instruction),
    ]);
    profile.samples.push(Sample { stack, thread: None, labels: Labels::new(), values: values![1] });
    let text = run(&pprof, "symbolized", &(profile, Symbols::new()), &["-symbolize=local", "-raw"]);
    assert!(text.contains("hot_function") && text.contains("named.c:1"), "{text}");
    assert!(text.contains("main") && text.contains("named.c:2"), "{text}");
}

#[test]
fn a_profile_written_by_go_is_read_whole() {
    let pprof = go_pprof();
    let original = support::large(3000, 500);
    // `-proto` makes Go decode the profile and encode it by itself.
    let copy = Path::new(env!("CARGO_TARGET_TMPDIR")).join("by-go.pb.gz");
    run(&pprof, "to-go", &original, &["-proto", "-symbolize=none", &format!("-output={}", copy.display())]);
    let (profile, symbols) = decode::pprof::decode(&std::fs::read(copy).unwrap(), Limits::default()).unwrap();
    assert_eq!(profile.sample_types, original.0.sample_types);
    for column in 0..2 {
        assert_eq!(profile.total(column), original.0.total(column));
        let sorted = |profile, symbols| top::functions(profile, symbols, column, Leaf::Recorded);
        assert_eq!(sorted(&profile, &symbols), sorted(&original.0, &original.1));
    }
}
