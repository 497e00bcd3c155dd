//! Walks from each instruction of code that runs: through prologues, epilogues, linkage tables, hand-written assembly, exceptions. The truth is a
//! shadow stack, which reads no unwind information.
//!
//! Each test lists what walks may find instead: places whose unwind information is not true, and gaps of the walk.

#[path = "every_instruction/mod.rs"]
mod steps;

use profile_recorder_tests::{output, scratch, text};
use std::collections::HashMap;
use std::fmt::Write as _;
use std::hint::black_box;
use std::process::{Child, Command, Stdio};
use steps::libraries::Library;
use steps::report::Report;
use steps::stepper::Stepper;
use steps::tally::Finding::{self, Early, Replaced, Wrong};

/// What walks from a place may find instead of the truth, and how often at most. The place is a function, or an object for those without names.
type Known = (Finding, &'static str, u64);

/// Of one `longjmp`. `__longjmp` is described by what it will go on with, once it has read all of that.
const LONGJMP: [Known; 1] = [(Early, "libc.so.6", 9)];

/// Of one jump to a landing pad: what libgcc's unwinder does to its own frame before, and the jump itself.
const THROW: [Known; 2] = [(Replaced, "libgcc_s.so.1", 250), (Early, "libgcc_s.so.1", 2)];

fn times(times: u64, known: &[Known]) -> Vec<Known> {
    known.iter().map(|(finding, place, most)| (*finding, *place, most * times)).collect()
}

/// Steps through a function: at least so many instructions, and nothing is found but what is known.
#[track_caller]
fn stepped(name: &str, least: u64, known: &[Known], function: impl FnOnce()) -> Report {
    check(name, Stepper::new(&mut handler_stack()).run(function), least, known)
}

/// The same for a function of a library.
#[track_caller]
fn stepped_library(library: &Library, function: &str, least: u64, known: &[Known]) -> Report {
    let run = library.function(function);
    stepped(&format!("{library} {function}"), least, known, || run())
}

fn handler_stack() -> Vec<u8> {
    vec![0; 1 << 18]
}

#[track_caller]
fn check(name: &str, report: Report, least: u64, known: &[Known]) -> Report {
    println!("{name}: {report}");
    assert!(report.instructions() > least, "{name}: only {}", report.instructions());
    let mut known = known.to_vec();
    for found in &report.found {
        let allowed =
            |(what, place, most): &&mut Known| *what == found.finding && found.place.is(place) && found.count <= *most;
        let Some((.., most)) = known.iter_mut().find(allowed) else {
            let differences = report.differences.join("\n");
            panic!("{name}: {} {} in {}\n{differences}", found.count, found.finding, found.place);
        };
        *most -= found.count;
    }
    report
}

/// One of these tests in a process of its own, where the C library or OpenSSL finds another processor.
struct Elsewhere {
    name: String,
    process: Option<Child>,
}

const ELSEWHERE: &str = "EVERY_INSTRUCTION_ELSEWHERE";

fn is_elsewhere() -> bool {
    std::env::var_os(ELSEWHERE).is_some()
}

impl Elsewhere {
    /// One for each value of an environment variable; none if this is one.
    fn start(test: &str, variable: &str, values: &[&str]) -> Vec<Self> {
        let values = values.iter().filter(|_| !is_elsewhere());
        let start = values.map(|value| {
            let mut command = Command::new(std::env::current_exe().unwrap());
            command.args(["--exact", test, "--nocapture"]).env(ELSEWHERE, "1").env(variable, value);
            let process = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
            Self { name: format!("{variable}={value}"), process: Some(process) }
        });
        start.collect()
    }

    fn wait(mut self) {
        let output = self.process.take().unwrap().wait_with_output().unwrap();
        println!("{}:\n{}", self.name, text(&output.stdout));
        let passed = output.status.success() && text(&output.stdout).contains("1 passed");
        assert!(passed, "{}\n{}", self.name, text(&output.stderr));
    }
}

impl Drop for Elsewhere {
    fn drop(&mut self) {
        if let Some(process) = &mut self.process {
            let _ = process.kill();
            let _ = process.wait();
        }
    }
}

#[test]
fn rust_code_is_walked_from_every_instruction() {
    let report = stepped("Rust", 50_000, &[], || {
        let mut text = String::new();
        write!(text, "{:>10.3e} {:?} {:x}", black_box(1.5e10), black_box(["a", "b\n"]), black_box(u128::MAX)).unwrap();
        black_box(text);
        let mut numbers: Vec<u32> = (0..20).map(|i| i * 17 % 21).collect();
        numbers.sort_by(|a, b| black_box(b).cmp(a));
        let map: HashMap<u32, String> = numbers.iter().take(5).map(|n| (*n, n.to_string())).collect();
        black_box(map);
    });
    assert!(report.calls() > 1000);
}

#[test]
fn an_unwinding_panic_is_walked_from_every_instruction() {
    struct Dropped<'a>(&'a mut u32);
    impl Drop for Dropped<'_> {
        fn drop(&mut self) {
            *self.0 += 1;
        }
    }
    let report = stepped("panic", 10_000, &times(4, &THROW), || {
        let mut dropped = 0;
        let caught = std::panic::catch_unwind(core::panic::AssertUnwindSafe(|| {
            let _dropped = Dropped(&mut dropped);
            std::panic::resume_unwind(Box::new(black_box(1)));
        }));
        assert!(caught.is_err() && dropped == 1);
    });
    assert!(report.left() > 1, "no landing pads");
}

#[test]
fn functions_of_all_shapes_are_walked_from_every_instruction() {
    /// `lea r10, [rsp + 8]`, before a stack is aligned; `or qword ptr [rsp], 0`, a probe of the stack.
    const KEEPS_STACK_POINTER: &[u8] = &[0x4c, 0x8d, 0x54, 0x24, 0x08];
    const PROBE: &[u8] = &[0x48, 0x83, 0x0c, 0x24, 0x00];
    let known = LONGJMP;
    let directory = scratch();
    let mut flags = vec![
        "-O0",
        "-O1",
        "-O2",
        "-O3",
        "-Os",
        "-O0 -fomit-frame-pointer",
        "-O2 -fno-omit-frame-pointer",
        "-O2 -mno-red-zone -fstack-clash-protection",
        "-O2 -fcf-protection=full",
        "-O2 -maccumulate-outgoing-args",
        "-O2 -mstackrealign",
        "-O1 -mindirect-branch=thunk",
        "-Os -fno-optimize-sibling-calls",
        "-O2 -mcmodel=large",
    ];
    if is_x86_feature_detected!("avx2") {
        flags.push("-O3 -mavx2 -fstack-protector-all");
    }
    for flags in flags {
        let library = Library::compile("shapes.c", &format!("{flags} -Wl,-z,now"), directory.path());
        assert!(library.contains(KEEPS_STACK_POINTER) && library.contains(PROBE) == flags.contains("clash"));
        let report = stepped_library(&library, "run", 3000, &known);
        assert!(report.calls() > 150);
    }
    let has_clang = Command::new("clang").arg("--version").output().is_ok_and(|output| output.status.success());
    for flags in ["-O0", "-O1", "-O2", "-Os -fomit-frame-pointer", "-O2 -fno-omit-frame-pointer"] {
        if has_clang {
            let flags = format!("{flags} -Wl,-z,now");
            let library = Library::compile_by("clang", "shapes.c", &flags, directory.path());
            stepped_library(&library, "run", 3000, &LONGJMP);
        }
    }
}

#[test]
fn calls_between_objects_are_walked_from_every_instruction() {
    /// `endbr64; bnd jmp` or `endbr64; jmp`.
    const CHECKED_ENTRIES: [&[u8]; 2] =
        [&[0xf3, 0x0f, 0x1e, 0xfa, 0xf2, 0xff, 0x25], &[0xf3, 0x0f, 0x1e, 0xfa, 0xff, 0x25]];
    // The resolver saves vectors as the processor can: by XSAVEC, XSAVE or FXSAVE.
    let processors = ["glibc.cpu.hwcaps=-XSAVEC", "glibc.cpu.hwcaps=-XSAVEC,-XSAVE"];
    let elsewhere =
        Elsewhere::start("calls_between_objects_are_walked_from_every_instruction", "GLIBC_TUNABLES", &processors);
    let directory = scratch();
    // The linker that comes with Rust.
    let sysroot = output(Command::new("rustc").args(["--print", "sysroot"]));
    let lld =
        format!("-B{}/lib/rustlib/x86_64-unknown-linux-gnu/bin/gcc-ld -fuse-ld=lld", text(&sysroot.stdout).trim());
    let tables = [
        "-O0 -Wl,-z,lazy",
        "-O2 -Wl,-z,lazy",
        "-O2 -Wl,-z,now",
        "-O2 -fno-plt",
        "-O0 -fcf-protection=full -Wl,-z,lazy,-z,ibtplt",
        "-O2 -fcf-protection=full -Wl,-z,lazy,-z,ibtplt",
        "-O2 -fcf-protection=full -Wl,-z,now,-z,ibtplt",
        "-O2 -Wl,-z,lazy -fuse-ld=gold",
        "-O2 -Wl,-z,now -fuse-ld=gold",
        &format!("-O2 -Wl,-z,lazy {lld}"),
        &format!("-O2 -fcf-protection=full -Wl,-z,lazy,-z,force-ibt {lld}"),
        "-O2 -Wl,-z,lazy -mtls-dialect=gnu2",
    ];
    for flags in if is_elsewhere() { &tables[..1] } else { &tables[..] } {
        let library = Library::compile("linkage.c", flags, directory.path());
        let has_checked_entries = CHECKED_ENTRIES.iter().any(|entry| library.contains(entry));
        assert_eq!(has_checked_entries, flags.contains("ibt"), "{flags}");
        stepped_library(&library, "run", if flags.contains("lazy") { 7000 } else { 2000 }, &[]);
    }
    elsewhere.into_iter().for_each(Elsewhere::wait);
}

#[test]
fn the_beginning_and_the_end_of_an_object_are_walked_from_every_instruction() {
    let directory = scratch();
    for flags in ["-O2", "-O2 -Wl,-z,lazy", "-O2 -fcf-protection=full"] {
        let library = Library::compile("linkage.c", flags, directory.path());
        let called = library.beginning_and_end();
        assert_eq!(called.len(), 4, "GCC's own, and none of the source's");
        stepped(&format!("{library} from its beginning to its end"), 40, &[], || called.iter().for_each(|call| call()));
    }
}

#[test]
fn string_functions_for_all_processors_are_walked_from_every_instruction() {
    // Those of this processor, and of others that have less.
    let processors = [
        "glibc.cpu.hwcaps=-AVX512VL,-AVX512BW",
        "glibc.cpu.hwcaps=-AVX512VL,-AVX512F",
        "glibc.cpu.hwcaps=-AVX512VL,-AVX512F,-AVX2,-AVX_Fast_Unaligned_Load,-ERMS",
        "glibc.cpu.hwcaps=-AVX512VL,-AVX512F,-AVX2,-AVX_Fast_Unaligned_Load,-ERMS,-Fast_Unaligned_Copy,-SSSE3",
        "glibc.cpu.x86_non_temporal_threshold=0x4040:glibc.cpu.x86_rep_movsb_threshold=0x400:glibc.cpu.x86_rep_stosb_threshold=0x400",
    ];
    let elsewhere = Elsewhere::start(
        "string_functions_for_all_processors_are_walked_from_every_instruction",
        "GLIBC_TUNABLES",
        &processors,
    );
    let directory = scratch();
    let library = Library::compile("strings.c", "-O1 -Wl,-z,now", directory.path());
    stepped_library(&library, "copies", 15_000, &[]);
    stepped_library(&library, "searches", 20_000, &[]);
    elsewhere.into_iter().for_each(Elsewhere::wait);
}

#[test]
fn the_c_library_and_the_vdso_are_walked_from_every_instruction() {
    // `__mpn_mul_1` and `__mpn_addmul_1` push two registers and do not say so.
    let numbers_in_text = [(Wrong, "libc.so.6", 500)];
    let directory = scratch();
    let library = Library::compile("libc.c", "-O1 -Wl,-z,now -lm", directory.path());
    stepped_library(&library, "texts", 10_000, &numbers_in_text);
    stepped_library(&library, "numbers", 2000, &[]);
    let clocks = library.function("clocks");
    let report = Stepper::new(&mut handler_stack()).watch(vdso()).run(|| clocks());
    assert!(report.watched() > 300, "{} instructions in the vDSO", report.watched());
    check("clocks", report, 1000, &[]);
}

fn vdso() -> std::ops::Range<u64> {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    let line = maps.lines().find(|line| line.ends_with("[vdso]")).expect("the kernel maps it");
    let (start, end) = line.split_once(' ').and_then(|(range, _)| range.split_once('-')).unwrap();
    let [start, end] = [start, end].map(|hex| u64::from_str_radix(hex, 16).unwrap());
    start..end
}

#[test]
fn long_jumps_are_walked_from_every_instruction() {
    let directory = scratch();
    for flags in ["-O0 -Wl,-z,now", "-O2 -Wl,-z,now"] {
        let library = Library::compile("jumps.c", flags, directory.path());
        let report = stepped_library(&library, "run", 1000, &times(5, &LONGJMP));
        assert_eq!(report.left(), 5);
        // The compiler does not describe what its own jump does to the stack.
        let report = stepped_library(&library, "run_builtin", 200, &[(Wrong, "by_builtin", 2)]);
        assert_eq!(report.left(), 1);
    }
}

#[test]
fn coroutines_are_walked_from_every_instruction() {
    // glibc does not describe what `swapcontext` does to the stack, and `__start_context` as if something had called it.
    let known =
        [(Wrong, "swapcontext", 70), (Wrong, "setcontext", 20), (Early, "setcontext", 9), (Wrong, "libc.so.6", 5)];
    let directory = scratch();
    for flags in ["-O0 -Wl,-z,now", "-O2 -Wl,-z,now"] {
        let library = Library::compile("jumps.c", flags, directory.path());
        let stack = library.address("coroutine_stack") as u64;
        let run = library.function("run_coroutine");
        let report = Stepper::new(&mut handler_stack()).coroutine(stack..stack + (1 << 16)).run(|| run());
        let report = check(&format!("{library} run_coroutine"), report, 500, &known);
        assert_eq!(report.left(), 8);
    }
}

#[test]
fn exceptions_are_walked_from_every_instruction() {
    let directory = scratch();
    for (flags, part, landing_pads) in
        [("-O0 -Wl,-z,now", "simple", 9), ("-O2 -Wl,-z,now", "simple", 9), ("-O2 -Wl,-z,now", "nested", 17)]
    {
        let library = Library::compile("exceptions.cc", flags, directory.path());
        let report = stepped_library(&library, part, 40_000, &times(landing_pads, &THROW));
        assert_eq!(report.left(), landing_pads);
    }
}

#[test]
fn handlers_of_signals_are_walked_from_every_instruction() {
    let directory = scratch();
    for flags in ["-O0 -Wl,-z,now", "-O2 -Wl,-z,now"] {
        let library = Library::compile("signals.c", flags, directory.path());
        for function in ["run", "run_on_their_own_stack"] {
            let report = stepped_library(&library, function, 1000, &LONGJMP);
            assert_eq!(report.signals(), 7);
        }
        // On a stack that lies above what is interrupted: from there, the walk has to go down.
        let mut signal_stack = [0; 1 << 18];
        let run = library.function("run_on_their_own_stack");
        let report = Stepper::new(&mut signal_stack).run(|| run());
        let report = check(&format!("{library} on a stack above"), report, 1000, &LONGJMP);
        assert_eq!(report.signals(), 7);
    }
}

#[test]
fn assembly_of_openssl_is_walked_from_every_instruction() {
    const PARTS: [&str; 7] = [
        "digests",
        "ciphers_of_blocks",
        "ciphers_of_streams",
        "rc4",
        "curve",
        "numbers_of_512_bits",
        "numbers_of_1024_bits",
    ];
    // Capabilities by OpenSSL's numbers: without AVX2 and later ones, without AVX, and without what the first processors did not have.
    let processors = [":0", "~0x1000000000000000:0", "~0x1200020200000000:0"];
    let elsewhere =
        Elsewhere::start("assembly_of_openssl_is_walked_from_every_instruction", "OPENSSL_ia32cap", &processors);
    let directory = scratch();
    let library = Library::compile("openssl.c", "-O1 -Wl,-z,now -l:libcrypto.so.3", directory.path());
    library.function("prepare")();
    for part in PARTS {
        let run = library.function(part);
        let most = if is_elsewhere() { 30_000 } else { 130_000 };
        let report = Stepper::new(&mut handler_stack()).limit(most).run(|| run());
        check(&format!("OpenSSL {part}"), report, 5000, &[]);
    }
    elsewhere.into_iter().for_each(Elsewhere::wait);
}
