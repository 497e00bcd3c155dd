//! Names, inlined frames and lines of large files: `cargo bench -p profile-recorder-benches --bench symbols [-- --quick] [FILE...]`
//!
//! In processor time of the one thread that works. Each file and each detail in a process of its own, whose peak of resident memory is what the work took. The first round counts: that is
//! what a person waits for. `kept` is what is resident when the C library has returned what it holds free: the names themselves, and whatever
//! was not released.

use object::{Object, ObjectSection, SectionKind};
use profile::{AddressKind, Format, Frame, Mapping, MappingId, Profile, Sample, SampleType, StackId, Stacks, Svma};
use profile_recorder_benches::figures::{is_quick, processor_time};
use std::path::{Path, PathBuf};
use std::process::Command;
use symbolize::{Detail, Options, symbolize};

/// Says to a child of this program what to measure.
const CHILD: &str = "PROFILE_RECORDER_BENCH_SYMBOLS";
const DETAILS: [(&str, Detail); 2] = [("names", Detail::Names), ("full", Detail::Full)];

fn main() {
    if let Ok(asked) = std::env::var(CHILD) {
        let (name, rest) = asked.split_once(' ').expect("DETAIL COUNT FILE");
        let (count, file) = rest.split_once(' ').expect("DETAIL COUNT FILE");
        let detail = DETAILS.iter().find(|(known, _)| *known == name).expect("a known detail").1;
        return measure(Path::new(file), detail, count.parse().expect("a number"));
    }
    let named: Vec<PathBuf> = std::env::args_os().skip(1).map(PathBuf::from).filter(|path| path.is_file()).collect();
    let files = if named.is_empty() { usual_files() } else { named };
    println!("Symbolising addresses spread over the code of a file, then drawing the flame graph of stacks of them.\n");
    println!(
        "    file MiB  DWARF MiB  addresses  detail  symbols ms  us/address    SVG ms  peak MiB  kept MiB   named  file"
    );
    for file in files {
        for (name, _) in DETAILS {
            for count in if is_quick() { vec![1000] } else { vec![1000, 10_000] } {
                let own = std::env::current_exe().expect("a path");
                let child = Command::new(own).env(CHILD, format!("{name} {count} {}", file.display())).status();
                assert!(child.is_ok_and(|status| status.success()), "{}", file.display());
            }
        }
    }
}

fn usual_files() -> Vec<PathBuf> {
    let sysroot = Command::new("rustc").args(["--print", "sysroot"]).output().expect("rustc is needed");
    let libraries = PathBuf::from(String::from_utf8_lossy(&sysroot.stdout).trim()).join("lib");
    let entries = std::fs::read_dir(libraries).expect("the sysroot has libraries").flatten().map(|entry| entry.path());
    let driver = entries.filter(|path| path.to_string_lossy().contains("librustc_driver"));
    driver.chain(std::env::current_exe()).collect()
}

fn measure(file: &Path, detail: Detail, count: usize) {
    let bytes = std::fs::read(file).expect("a readable file");
    let elf = object::File::parse(&*bytes).expect("an ELF file");
    let code: Vec<(u64, u64)> = elf
        .sections()
        .filter(|section| section.kind() == SectionKind::Text)
        .map(|section| (section.address(), section.size()))
        .collect();
    let dwarf: u64 = elf.sections().filter(|s| s.name().is_ok_and(|n| n.starts_with(".debug"))).map(|s| s.size()).sum();
    let build_id = elf.build_id().ok().flatten().unwrap_or_default().to_vec();
    let profile = profile(file, build_id, &addresses(&code, count));
    let size = bytes.len();
    drop(elf);
    drop(bytes);

    let before = resident_kib("VmRSS");
    reset_peak();
    let start = processor_time();
    let found = symbolize(&profile, &Options { detail, ..Options::default() });
    let symbols = (processor_time() - start) as f64;
    let peak = resident_kib("VmHWM");
    // SAFETY: the C library's allocator is the one in use, and nothing is asked of it but to return free pages.
    unsafe { libc::malloc_trim(0) };
    let after = resident_kib("VmRSS");
    let start = processor_time();
    let mut svg = Vec::new();
    Format::Svg.encode(&profile, &found.symbols, &profile::Options::default(), &mut svg).expect("memory is a file");
    let drawn = (processor_time() - start) as f64;
    let mib = |kib: u64| kib as f64 / 1024.0;
    let name = DETAILS.iter().find(|(_, known)| *known == detail).map_or("", |(name, _)| name);
    println!(
        "{:12.0} {:10.0} {count:10} {name:>7} {:11.1} {:11.2} {:9.1} {:9.1} {:9.1} {:6.1}% {}",
        size as f64 / 1048576.0,
        dwarf as f64 / 1048576.0,
        symbols / 1e6,
        symbols / 1e3 / count as f64,
        drawn / 1e6,
        mib(peak.saturating_sub(before)),
        mib(after.saturating_sub(before)),
        100.0 * found.symbols.len() as f64 / count as f64,
        file.file_name().unwrap_or_default().to_string_lossy(),
    );
    found.notes.iter().for_each(|note| println!("  {note}"));
}

/// Places in the code, evenly spread.
fn addresses(code: &[(u64, u64)], count: usize) -> Vec<u64> {
    let total: u64 = code.iter().map(|(_, size)| size).sum();
    let step = (total / count as u64).max(1);
    let mut places = Vec::new();
    let mut at = step / 2;
    for (start, size) in code {
        while at < *size && places.len() < count {
            places.push(start + at);
            at += step;
        }
        at = at.saturating_sub(*size);
    }
    places
}

/// Stacks of twenty of the addresses each.
fn profile(file: &Path, build_id: Vec<u8>, addresses: &[u64]) -> Profile {
    let mut profile = Profile::new(vec![SampleType::new("cpu", "nanoseconds")]);
    let path = file.to_str().expect("a path that is text").to_owned();
    profile.mappings.push(Mapping { start: 0, end: u64::MAX, path, build_id, ..Mapping::default() });
    let frames: Vec<_> = addresses
        .iter()
        .map(|svma| Frame::Address { mapping: Some(MappingId(0)), svma: Svma(*svma), kind: AddressKind::Instruction })
        .collect();
    for stack in frames.chunks(20) {
        let stack: StackId = stack.iter().fold(Stacks::ROOT, |stack, frame| {
            let frame = profile.stacks.frame_id(frame.clone());
            profile.stacks.push(stack, frame)
        });
        profile.samples.push(Sample {
            stack,
            thread: None,
            labels: profile::Labels::new(),
            values: profile::values![1_000_000],
        });
    }
    profile
}

fn resident_kib(field: &str) -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':'));
    line.and_then(|rest| rest.split_whitespace().next()?.parse().ok()).unwrap_or(0)
}

/// Makes the peak of resident memory begin again at what is resident now.
fn reset_peak() {
    std::fs::write("/proc/self/clear_refs", "5").expect("the kernel resets the peak");
}
