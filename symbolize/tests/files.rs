//! Files that changed, vanished, or are damaged, and code that lies in no file.

mod running;
mod support;

use std::fs;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

use profile::{AddressKind, Frame, Mapping, MappingId, Profile, Svma};
use profile_recorder_symbolize::{Detail, Options, symbolize};
use support::*;

const PROGRAM: &str = "static inline int twice(int x) { return x * 2; }\n\
                       __attribute__((noinline)) int work(volatile int *p) { return twice(*p); }\n\
                       int main(void) { volatile int x = 4; return work(&x); }\n";

/// A program with debug information, its build id, and the address of `work`.
fn program(folder: &Folder) -> (std::path::PathBuf, Vec<u8>, u64) {
    let path = folder.compile("gcc", PROGRAM, "program", &["-O2", "-g", "-Wl,--build-id"]);
    let work = nm(&path, &[]).into_iter().find(|(name, ..)| name == "work").expect("nm lists it").1;
    let id = build_id(&path);
    assert_eq!(id.len(), 20);
    (path, id, work)
}

#[test]
fn a_replaced_file_gives_no_names() {
    let folder = Folder::new();
    let (path, id, work) = program(&folder);
    folder.compile("gcc", &PROGRAM.replace("* 2", "* 3"), "program", &["-O2", "-g", "-Wl,--build-id"]);
    for detail in [Detail::Names, Detail::Full] {
        let found = symbolize(&profile(mapping(&path, id.clone()), &[work]), &options(detail));
        assert!(found.symbols.is_empty());
        assert_eq!(found.notes.len(), 1);
        assert!(found.notes[0].contains("replaced since it was recorded"), "{:?}", found.notes);
    }
    // Without a build id the path decides.
    let found = symbolize(&profile(mapping(&path, Vec::new()), &[work]), &options(Detail::Names));
    assert_eq!(linker_name(&found, work).as_deref(), Some("work"));
}

#[test]
fn a_file_that_lost_its_build_id_is_another_file() {
    let folder = Folder::new();
    let (path, id, work) = program(&folder);
    folder.compile("gcc", PROGRAM, "program", &["-O2", "-g", "-Wl,--build-id=none"]);
    let found = symbolize(&profile(mapping(&path, id), &[work]), &options(Detail::Names));
    assert!(found.symbols.is_empty());
    assert_eq!(found.notes.len(), 1);
}

#[test]
fn a_deleted_file_is_found_where_copies_are_kept() {
    let folder = Folder::new();
    let (path, id, work) = program(&folder);
    let copies = folder.path("copies");
    fs::create_dir(&copies).expect("a folder");
    fs::rename(&path, copies.join("program")).expect("a move");
    let gone = Path::new(&format!("{} (deleted)", text(&path))).to_owned();
    let profile = profile(mapping(&gone, id), &[work]);
    let without = symbolize(&profile, &options(Detail::Full));
    assert!(without.symbols.is_empty());
    assert!(without.notes[0].contains("cannot be read"), "{:?}", without.notes);
    let with = symbolize(&profile, &Options { debug_dirs: vec![copies], ..Options::default() });
    assert_eq!(with.notes, Vec::<String>::new());
    assert_eq!(linker_name(&with, work).as_deref(), Some("work"));
}

#[test]
fn our_own_executable_is_read_after_it_was_deleted() {
    // Asks itself, as the program of a deleted copy of this test.
    if std::env::var_os("DELETED_COPY").is_some() {
        let path = fs::read_link("/proc/self/exe").expect("a link");
        assert!(text(&path).ends_with(" (deleted)"));
        let (id, address) = (std::env::var("BUILD_ID"), std::env::var("ADDRESS"));
        let id = id.expect("a build id");
        let id = (0..id.len() / 2).map(|at| u8::from_str_radix(&id[2 * at..2 * at + 2], 16).expect("hexadecimal"));
        let address = address.expect("an address").parse().expect("a number");
        let found = symbolize(&profile(mapping(&path, id.collect()), &[address]), &options(Detail::Names));
        assert_eq!(found.notes, Vec::<String>::new());
        assert_eq!(linker_name(&found, address).as_deref(), Some("main"));
        return;
    }
    let folder = Folder::new();
    let own = std::env::current_exe().expect("a path");
    let id = build_id(&own);
    if id.is_empty() {
        return;
    }
    let copy = folder.path("copy");
    fs::copy(&own, &copy).expect("a copy");
    let main = nm(&copy, &[]).into_iter().find(|(name, ..)| name == "main").expect("nm lists it").1;
    let id: String = id.iter().map(|byte| format!("{byte:02x}")).collect();
    let script = "rm \"$0\"; exec \"/proc/self/fd/9\" our_own_executable --nocapture 9<&9";
    let mut command = Command::new("sh");
    command.arg0("sh").args(["-c", &format!("exec 9<\"$0\"; {script}"), text(&copy)]);
    let status = command.env("DELETED_COPY", "1").env("BUILD_ID", id).env("ADDRESS", main.to_string()).status();
    assert!(status.expect("sh").success());
}

#[test]
fn what_is_no_file_is_not_read() {
    let folder = Folder::new();
    let pipe = folder.path("pipe");
    run("mkfifo", &[text(&pipe)]);
    let empty = folder.path("empty");
    fs::write(&empty, "").expect("a file");
    for path in [pipe, empty, folder.path("missing"), folder.path(""), "/dev/zero".into(), "/proc/self/maps".into()] {
        let found = symbolize(&profile(mapping(&path, Vec::new()), &[1, 4096]), &options(Detail::Full));
        assert!(found.symbols.is_empty());
        assert_eq!(found.notes.len(), 1, "{}", path.display());
    }
    for path in ["", "[heap]", "[vsyscall]", "//anon", "/memfd:code (deleted)", "anon_inode:[perf_event]"] {
        let found = symbolize(&profile(mapping(Path::new(path), vec![1]), &[1]), &options(Detail::Full));
        assert_eq!(found, Default::default(), "{path}");
    }
}

#[test]
fn nothing_is_looked_up_when_nothing_is_asked() {
    let folder = Folder::new();
    let (path, id, work) = program(&folder);
    let found = symbolize(&profile(mapping(&path, id), &[work]), &options(Detail::None));
    assert_eq!(found, Default::default());
}

#[test]
fn a_mapping_that_does_not_exist_is_ignored() {
    let mut profile = Profile::default();
    profile.stacks.frame_id(Frame::Address {
        mapping: Some(MappingId(7)),
        svma: Svma(1),
        kind: AddressKind::Instruction,
    });
    assert_eq!(symbolize(&profile, &Options::default()), Default::default());
}

#[test]
fn damaged_files_end_in_notes_and_never_in_panics() {
    let folder = Folder::new();
    let (path, _, _) = program(&folder);
    let whole = fs::read(&path).expect("the program");
    let addresses: Vec<u64> = (0..0x4000).step_by(64).collect();
    let damaged = folder.path("damaged");
    let mut random = 0x2545_f491_4f6c_dd1d_u64;
    let mut next = |below: usize| {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        (random % below as u64) as usize
    };
    for round in 0..400 {
        let mut bytes = whole.clone();
        if round % 4 == 0 {
            bytes.truncate(next(whole.len()));
        } else {
            for _ in 0..=next(40) {
                // Headers, section table and symbols more often than code.
                let at = match next(3) {
                    0 => next(0x400),
                    1 => whole.len() - 1 - next(0x1800),
                    _ => next(whole.len()),
                };
                bytes[at] = next(256) as u8;
            }
        }
        // A new file each time: one that is being mapped must not shrink.
        let _ = fs::remove_file(&damaged);
        fs::write(&damaged, bytes).expect("a file");
        let detail = if round % 2 == 0 { Detail::Full } else { Detail::Names };
        let found = symbolize(&profile(mapping(&damaged, Vec::new()), &addresses), &options(detail));
        assert!(found.notes.len() <= 3, "{:?}", found.notes);
    }
}

#[test]
fn generated_code_is_named_by_perf_maps() {
    let pid = std::process::id();
    let map = format!("/tmp/perf-{pid}.map");
    fs::write(&map, "7f0000001000 40 LazyCompile:~work app.js:3\n7f0000001040 10 py::run:/app.py\n").expect("a map");
    let anonymous = Mapping { bias: 0x7f00_0000_0000, path: "//anon".to_owned(), ..Mapping::default() };
    let mut profile = Profile { mappings: vec![anonymous], ..Profile::default() };
    let outside = |avma, kind| Frame::Address { mapping: None, svma: Svma(avma), kind };
    let run = outside(0x7f00_0000_1048, AddressKind::Instruction);
    let work = outside(0x7f00_0000_1040, AddressKind::ReturnAddress);
    let unknown = outside(0x7f00_0000_2000, AddressKind::Instruction);
    let mapped = Frame::Address { mapping: Some(MappingId(0)), svma: Svma(0x1008), kind: AddressKind::Instruction };
    for frame in [&run, &work, &unknown, &mapped] {
        profile.stacks.frame_id(frame.clone());
    }
    let pids = vec![u32::MAX, pid];
    let found = symbolize(&profile, &Options { perf_map_pids: pids, ..Options::default() });
    fs::remove_file(&map).expect("the map");
    let name = |frame| found.symbols.get(frame).first().map(|symbol| symbol.name.to_string());
    assert_eq!(found.notes, Vec::<String>::new());
    assert_eq!(name(&run).as_deref(), Some("py::run:/app.py"));
    assert_eq!(name(&work).as_deref(), Some("LazyCompile:~work app.js:3"));
    assert_eq!(name(&mapped).as_deref(), Some("LazyCompile:~work app.js:3"));
    assert_eq!(name(&unknown), None);
}

#[test]
fn the_vdso_of_this_kernel_is_named_and_that_of_another_is_not() {
    let maps = fs::read_to_string("/proc/self/maps").expect("maps");
    let Some(line) = maps.lines().find(|line| line.ends_with("[vdso]")) else { return };
    let (start, end) = line.split_whitespace().next().and_then(|range| range.split_once('-')).expect("a range");
    let start = u64::from_str_radix(start, 16).expect("hexadecimal");
    let length = u64::from_str_radix(end, 16).expect("hexadecimal") - start;
    let mut image = vec![0; length as usize];
    let memory = fs::File::open("/proc/self/mem").expect("our memory");
    std::os::unix::fs::FileExt::read_exact_at(&memory, &mut image, start).expect("the vDSO");
    let folder = Folder::new();
    let copy = folder.path("vdso");
    fs::write(&copy, image).expect("a file");

    let symbols = nm(&copy, &["-D"]);
    let clock = symbols.iter().find(|(name, ..)| name.contains("clock_gettime")).expect("the vDSO has it").clone();
    let vdso = |id| profile(mapping(Path::new("[vdso]"), id), &[clock.1 + 1]);
    let found = symbolize(&vdso(build_id(&copy)), &options(Detail::Full));
    assert!(linker_name(&found, clock.1 + 1).expect("a name").contains("clock_gettime"));
    let other = symbolize(&vdso(vec![7; 20]), &options(Detail::Full));
    assert!(other.symbols.is_empty());
    assert_eq!(other.notes, ["[vdso]: of another kernel: no names"]);
}

#[test]
fn random_addresses_of_a_big_file_never_panic() {
    let own = std::env::current_exe().expect("a path");
    let end = nm(&own, &[]).iter().map(|(_, start, size)| start + size).max().expect("functions");
    let mut addresses = vec![0, 1, u64::MAX, u64::MAX - 1, end, 1 << 63];
    addresses.extend((1..2000).map(|n: u64| n.wrapping_mul(0x9e37_79b9_7f4a_7c15) % (end + end / 8)));
    let found = symbolized(&own, &addresses, &options(Detail::Full));
    assert_eq!(found.notes, Vec::<String>::new());
    assert!(found.symbols.len() > 200 && found.symbols.has_lines());
    assert!(found.symbols.get(&frame(u64::MAX)).is_empty());
}
