//! Inlined functions, files and lines, compared with addr2line of binutils.

mod support;

use std::fs;
use std::path::Path;

use profile_recorder_symbolize::{Detail, Options, Symbolized};
use support::*;

const C: &str = "
static inline __attribute__((always_inline)) int innermost(volatile int *p) {
    *p += 1;
    return *p * 3;
}
static inline __attribute__((always_inline)) int middle(volatile int *p) {
    int x = innermost(p);
    *p -= 2;
    return x + innermost(p);
}
__attribute__((noinline)) int outer(volatile int *p) {
    int x = 0;
    for (int i = 0; i < *p; i++)
        x += middle(p);
    return x;
}
int main(void) {
    volatile int n = 3;
    return outer(&n);
}
";

const CPP: &str = "
#include <vector>
namespace space {
template <typename T> struct Sum {
    T total{};
    void add(T x) { total += x; }
};
__attribute__((noinline)) int sum(const std::vector<int> &v) {
    Sum<int> s;
    for (int x : v)
        s.add(x);
    return s.total;
}
}
int main(int argc, char **) { return space::sum(std::vector<int>(argc, 7)); }
";

const RUST: &str = "
#[inline(always)]
fn innermost(x: &mut Vec<u64>) { x.push(1); }
#[inline(never)]
fn outer(x: &mut Vec<u64>) -> u64 {
    for _ in 0..10 { innermost(x); }
    x.iter().map(|x| x * 2).sum()
}
fn main() { println!(\"{}\", outer(&mut Vec::new())); }
";

/// Every byte of the functions whose linker names contain one of `names`.
fn bytes_of(path: &Path, names: &[&str]) -> Vec<u64> {
    let symbols = nm(path, &[]);
    let wanted = symbols.iter().filter(|(name, ..)| names.iter().any(|wanted| name.contains(wanted)));
    let mut addresses: Vec<u64> = wanted.flat_map(|(_, start, size)| *start..start + size).collect();
    addresses.sort_unstable();
    addresses.dedup();
    assert!(addresses.len() > 20, "{addresses:x?}");
    addresses
}

/// All frames of all addresses are the same as addr2line's in the file `reference`.
#[track_caller]
fn agree(found: &Symbolized, addresses: &[u64], reference: &Path) {
    assert_eq!(found.notes, Vec::<String>::new());
    let mut inlined = 0;
    for (address, expected) in addresses.iter().zip(addr2line(reference, addresses)) {
        let frames = found.symbols.get(&frame(*address));
        let ours: Vec<(String, String, u32)> = frames
            .iter()
            .map(|frame| {
                let name = frame.system_name.as_ref().unwrap_or(&frame.name).to_string();
                (name, frame.file.as_deref().unwrap_or("??").to_owned(), frame.line)
            })
            .collect();
        assert_eq!(ours, expected, "at {address:#x}");
        let (last, inner) = frames.split_last().expect("at least one frame");
        assert!(!last.inlined && inner.iter().all(|frame| frame.inlined));
        inlined += inner.len();
    }
    assert!(inlined > 0, "nothing was inlined: the test shows nothing");
}

#[test]
fn c_agrees_with_addr2line() {
    let folder = Folder::new();
    for (name, arguments) in [
        ("dwarf5", &["-O2", "-g"][..]),
        ("dwarf4", &["-O2", "-g", "-gdwarf-4"]),
        ("packed", &["-O2", "-g", "-gz"]),
        ("fixed", &["-O2", "-g", "-fno-pie", "-no-pie"]),
    ] {
        let program = folder.compile("gcc", C, name, arguments);
        let addresses = bytes_of(&program, &["main", "outer"]);
        agree(&symbolized(&program, &addresses, &options(Detail::Full)), &addresses, &program);
    }
}

#[test]
fn cpp_agrees_with_addr2line() {
    let folder = Folder::new();
    let program = folder.compile("g++", CPP, "program", &["-O2", "-g"]);
    let addresses = bytes_of(&program, &["main", "space"]);
    agree(&symbolized(&program, &addresses, &options(Detail::Full)), &addresses, &program);
}

#[test]
fn rust_agrees_with_addr2line() {
    let folder = Folder::new();
    let program = folder.compile("rustc", RUST, "program", &["-O", "-g"]);
    let addresses = bytes_of(&program, &["5outer"]);
    agree(&symbolized(&program, &addresses, &options(Detail::Full)), &addresses, &program);
}

#[test]
fn a_stripped_program_is_read_through_its_debug_link() {
    let folder = Folder::new();
    for (name, build_id) in [("with", "-Wl,--build-id"), ("without", "-Wl,--build-id=none")] {
        let whole = folder.compile("gcc", C, &format!("whole-{name}"), &["-O2", "-g", build_id]);
        let addresses = bytes_of(&whole, &["main", "outer"]);
        let (debug, stripped) = (folder.path(&format!("{name}.debug")), folder.path(name));
        run("objcopy", &["--only-keep-debug", text(&whole), text(&debug)]);
        run("strip", &["-o", text(&stripped), text(&whole)]);
        run("objcopy", &[&format!("--add-gnu-debuglink={}", text(&debug)), text(&stripped)]);
        let found = symbolized(&stripped, &addresses, &options(Detail::Full));
        agree(&found, &addresses, &whole);

        // The names alone come from it, too.
        let names = symbolized(&stripped, &addresses, &options(Detail::Names));
        assert_eq!(linker_name(&names, addresses[0]), linker_name(&found, addresses[0]));

        // In another folder it is found when that folder is asked.
        let elsewhere = folder.path(&format!("elsewhere-{name}"));
        fs::create_dir(&elsewhere).expect("a folder");
        fs::rename(&debug, elsewhere.join(format!("{name}.debug"))).expect("a move");
        assert!(symbolized(&stripped, &addresses, &options(Detail::Full)).symbols.is_empty());
        let options = Options { debug_dirs: vec![elsewhere.clone()], ..Options::default() };
        agree(&symbolized(&stripped, &addresses, &options), &addresses, &whole);

        // One that was made from another program is not used.
        let other = folder.compile("gcc", &C.replace("* 3", "* 5"), &format!("other-{name}"), &["-O2", "-g", build_id]);
        run("objcopy", &["--only-keep-debug", text(&other), text(&elsewhere.join(format!("{name}.debug")))]);
        assert!(symbolized(&stripped, &addresses, &options).symbols.is_empty());
    }
}

#[test]
fn a_stripped_program_is_read_through_its_build_id() {
    let folder = Folder::new();
    let whole = folder.compile("gcc", C, "whole", &["-O2", "-g", "-Wl,--build-id"]);
    let addresses = bytes_of(&whole, &["main", "outer"]);
    let stripped = folder.path("stripped");
    run("strip", &["-o", text(&stripped), text(&whole)]);
    let id: String = build_id(&whole).iter().map(|byte| format!("{byte:02x}")).collect();
    let directory = folder.path("debug").join(".build-id").join(&id[..2]);
    fs::create_dir_all(&directory).expect("folders");
    run("objcopy", &["--only-keep-debug", text(&whole), text(&directory.join(format!("{}.debug", &id[2..])))]);
    let options = Options { debug_dirs: vec![folder.path("debug")], ..Options::default() };
    agree(&symbolized(&stripped, &addresses, &options), &addresses, &whole);

    // Even after the program itself is gone; that it is gone is said.
    let profile = profile(mapping(&stripped, build_id(&stripped)), &addresses);
    fs::remove_file(&stripped).expect("the file");
    let mut found = profile_recorder_symbolize::symbolize(&profile, &options);
    assert_eq!(found.notes.len(), 1, "{:?}", found.notes);
    found.notes.clear();
    agree(&found, &addresses, &whole);
}

#[test]
fn a_return_address_is_looked_up_inside_the_call() {
    use profile::{AddressKind, Frame, MappingId, Svma};
    let folder = Folder::new();
    let source = "#include <stdlib.h>\n\
                  __attribute__((noinline)) void last(int x) {\n    exit(x);\n}\n\
                  __attribute__((noinline)) void after(void) { __asm__(\"\"); }\n\
                  int main(void) { after(); last(2); }\n";
    let program = folder.compile("gcc", source, "program", &["-O2", "-g", "-fno-align-functions"]);
    let symbols = nm(&program, &[]);
    let (_, start, size) = symbols.iter().find(|(name, ..)| name == "last").expect("nm lists it").clone();
    let frame = |kind| Frame::Address { mapping: Some(MappingId(0)), svma: Svma(start + size), kind };
    let mut profile = profile(mapping(&program, build_id(&program)), &[]);
    profile.stacks.frame_id(frame(AddressKind::ReturnAddress));
    profile.stacks.frame_id(frame(AddressKind::Instruction));
    let found = profile_recorder_symbolize::symbolize(&profile, &Options::default());
    let caller = &found.symbols.get(&frame(AddressKind::ReturnAddress))[0];
    assert_eq!((&*caller.name, caller.line), ("last", 3));
    assert!(found.symbols.get(&frame(AddressKind::Instruction)).iter().all(|frame| &*frame.name != "last"));
}

#[test]
fn a_gap_has_no_name_with_debug_information_either() {
    let folder = Folder::new();
    let source = "__asm__(\".text\\n.globl label\\nlabel: ret\\n.skip 8192, 0x90\\n\");\n\
                  int main(void) { return 0; }\n";
    let program = folder.compile("gcc", source, "program", &["-O1", "-g"]);
    let symbols = run("nm", &[text(&program)]);
    let label = symbols.lines().find_map(|line| line.strip_suffix(" T label")).expect("nm lists it");
    let label = u64::from_str_radix(label, 16).expect("hexadecimal");
    for detail in [Detail::Names, Detail::Full] {
        let found = symbolized(&program, &[label, label + 8000], &options(detail));
        assert_eq!(linker_name(&found, label).as_deref(), Some("label"), "{detail:?}");
        assert_eq!(linker_name(&found, label + 8000), None, "{detail:?}");
    }
}

#[test]
fn the_moved_part_of_a_function_is_shown_as_the_function() {
    let folder = Folder::new();
    let source = "#include <stdlib.h>\n\
                  __attribute__((cold)) void unlikely(int);\n\
                  __attribute__((noinline)) int work(int x) {\n    if (x > 1000) {\n        unlikely(x);\n        \
                  unlikely(x + 1);\n    }\n    return x * 2;\n}\n\
                  __attribute__((cold, noinline)) void unlikely(int x) { if (x > 2000) abort(); }\n\
                  int main(int argc, char **argv) { return work(argc); }\n";
    let program = folder.compile("gcc", source, "program", &["-O2", "-g"]);
    let Some((_, cold, _)) = nm(&program, &[]).into_iter().find(|(name, ..)| name == "work.cold") else { return };
    for detail in [Detail::Names, Detail::Full] {
        let found = symbolized(&program, &[cold], &options(detail));
        let last = found.symbols.get(&frame(cold)).last().expect("a frame").clone();
        assert_eq!((&*last.name, last.system_name.as_deref()), ("work", Some("work.cold")));
        assert_eq!(last.line != 0, detail == Detail::Full);
    }
}

#[test]
fn sections_packed_with_zstd_are_read_where_that_is_built_in_and_said_where_not() {
    let folder = Folder::new();
    let whole = folder.compile("gcc", C, "whole", &["-O2", "-g", "-Wl,--build-id"]);
    let addresses = bytes_of(&whole, &["main", "outer"]);
    let packed = folder.path("packed");
    run("objcopy", &["--compress-debug-sections=zstd", text(&whole), text(&packed)]);
    assert!(run("readelf", &["-SWt", text(&packed)]).contains("ZSTD"), "this binutils has no zstd");
    let found = symbolized(&packed, &addresses, &options(Detail::Full));
    if cfg!(feature = "zstd") {
        agree(&found, &addresses, &whole);
    } else {
        assert_eq!(linker_name(&found, addresses[0]).as_deref(), Some("main"));
        assert!(found.notes[0].contains("names only"), "{:?}", found.notes);
    }
}

#[test]
fn split_debug_information_is_read_from_its_package_wherever_that_lies() {
    let folder = Folder::new();
    let whole = folder.compile("gcc", C, "whole", &["-O2", "-g", "-gdwarf-4"]);
    let split = folder.compile("gcc", C, "split", &["-O2", "-g", "-gdwarf-4", "-gsplit-dwarf", "-Wl,--build-id"]);
    let addresses = bytes_of(&split, &["main", "outer"]);
    assert_eq!(addresses, bytes_of(&whole, &["main", "outer"]), "the same code");
    let source_of = |found: &Symbolized| -> Vec<Vec<(String, u32, bool)>> {
        let frames = |address: &u64| {
            let frames = found.symbols.get(&frame(*address)).iter();
            frames.map(|frame| (frame.name.to_string(), frame.line, frame.inlined)).collect()
        };
        addresses.iter().map(frames).collect()
    };
    let expected = source_of(&symbolized(&whole, &addresses, &options(Detail::Full)));
    assert!(expected.iter().any(|frames| frames.len() == 3));

    let package = folder.path("split.dwp");
    run("dwp", &["-e", text(&split), "-o", text(&package)]);
    for file in ["split-split.dwo", "split.dwo"] {
        let _ = fs::remove_file(folder.path(file));
    }
    assert_eq!(source_of(&symbolized(&split, &addresses, &options(Detail::Full))), expected);

    // By name in a directory of symbols, and by build id.
    let elsewhere = folder.path("elsewhere");
    let hex: String = build_id(&split).iter().map(|byte| format!("{byte:02x}")).collect();
    let by_id = elsewhere.join(".build-id").join(&hex[..2]);
    fs::create_dir_all(&by_id).expect("folders");
    let mut at = package;
    for next in [elsewhere.join("split.dwp"), by_id.join(format!("{}.dwp", &hex[2..]))] {
        fs::rename(&at, &next).expect("a move");
        at = next;
        let options = Options { debug_dirs: vec![elsewhere.clone()], ..Options::default() };
        assert_eq!(source_of(&symbolized(&split, &addresses, &options)), expected, "{}", at.display());
    }
    // Without it the names of functions stay, and lines as far as the file itself has them.
    let names = symbolized(&split, &addresses, &options(Detail::Full));
    assert_eq!(linker_name(&names, addresses[0]).as_deref(), Some("main"));
}

#[test]
fn what_two_files_share_is_read_from_their_supplementary_file() {
    let folder = Folder::new();
    let whole = folder.compile("gcc", C, "whole", &["-O2", "-g", "-gdwarf-4", "-Wl,--build-id"]);
    let addresses = bytes_of(&whole, &["main", "outer"]);
    let (one, two, shared) = (folder.path("one"), folder.path("two"), folder.path("shared"));
    for copy in [&one, &two] {
        fs::copy(&whole, copy).expect("a copy");
    }
    run("dwz", &["-m", text(&shared), text(&one), text(&two)]);
    assert!(shared.exists() && run("readelf", &["-SW", text(&one)]).contains(".gnu_debugaltlink"));
    // Files, lines and the enclosing functions; blazesym 0.2.7 does not follow the names of inlined functions into that file.
    let (found, expected) = [&one, &whole].map(|path| symbolized(path, &addresses, &options(Detail::Full))).into();
    assert_eq!(found.notes, Vec::<String>::new());
    let places = |found: &Symbolized, address: u64| -> Vec<(Option<String>, u32, bool)> {
        let place = |f: &profile::SymbolFrame| (f.file.as_ref().map(ToString::to_string), f.line, f.inlined);
        found.symbols.get(&frame(address)).iter().map(place).collect()
    };
    for &address in &addresses {
        assert_eq!(places(&found, address), places(&expected, address), "at {address:#x}");
        assert_eq!(linker_name(&found, address), linker_name(&expected, address));
    }
}

#[test]
fn a_copy_that_was_not_stripped_serves_a_stripped_file_with_the_same_build_id() {
    let folder = Folder::new();
    let whole = folder.compile("gcc", C, "program", &["-O2", "-g", "-Wl,--build-id"]);
    let addresses = bytes_of(&whole, &["main", "outer"]);
    let (empty, copies) = (folder.path("empty"), folder.path("copies"));
    fs::create_dir(&empty).and_then(|()| fs::create_dir(&copies)).expect("folders");
    fs::copy(&whole, copies.join("program")).expect("a copy");
    run("strip", &[text(&whole)]);
    // The second of two directories has it, and the first one's file of that name is of another build.
    folder.compile("gcc", &C.replace("* 3", "* 5"), "empty/program", &["-O2", "-g", "-Wl,--build-id"]);
    let options = Options { debug_dirs: vec![empty, copies.clone()], ..Options::default() };
    agree(&symbolized(&whole, &addresses, &options), &addresses, &copies.join("program"));
}

#[test]
fn a_file_whose_lines_would_take_more_memory_than_there_is_gets_names() {
    let folder = Folder::new();
    let program = folder.compile("gcc", C, "program", &["-g", "-O2", "-Wl,--build-id"]);
    let addresses = bytes_of(&program, &["main", "outer"]);
    let whole = symbolized(&program, &addresses, &options(Detail::Full));
    assert!(whole.symbols.has_lines() && whole.notes.is_empty(), "{:?}", whole.notes);
    let little = |memory, address_space| {
        let options = Options { memory, address_space, ..options(Detail::Full) };
        symbolized(&program, &addresses, &options)
    };
    const MIB: usize = 1 << 20;
    for few in [little(11 * MIB, usize::MAX), little(usize::MAX, 11 * MIB)] {
        assert!(!few.symbols.has_lines());
        assert_eq!(few.symbols.len(), whole.symbols.len());
        let path = text(&program);
        let note =
            format!("{path}: names only: lines and inlined functions may take 12 MiB of memory, and 11 are left");
        assert_eq!(few.notes, [note]);
    }
    assert_eq!(little(13 * MIB, 13 * MIB), whole);
}
