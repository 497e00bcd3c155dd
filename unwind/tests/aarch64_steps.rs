//! Single steps through aarch64 programs, and walks from each of their instructions, in qemu's user mode. The instructions executed say what the stack is.

#![cfg(target_os = "linux")]

mod support {
    pub(crate) mod cross;
    pub(crate) mod gdb;
    pub(crate) mod guest;
    pub(crate) mod shadow;
}

use std::collections::BTreeMap;
use std::path::Path;

use profile_recorder_unwind::{FrameAddress, Truncated};
use support::cross;
use support::gdb::{Cpu, Guest, Stop, TRAP, USR1};
use support::guest::{Module, Modules, walk};
use support::shadow::{SYSTEM_CALL, Shadow};

/// How many instructions were stepped through. The stack was exact, root included, but where something else is counted.
#[derive(Debug, Default)]
struct Stepped {
    instructions: usize,
    /// The link register held a signed return address.
    signed: usize,
    /// The walk ended early since a rule is unsupported, by function.
    unsupported: BTreeMap<String, usize>,
    /// What the C library says about a function was wrong; the frames up to that were exact.
    misdescribed: usize,
    /// There was no stack: several frames, or the whole stack, were about to be left.
    leaving: usize,
}

/// They write over their own return address before they leave for somewhere else.
const REPLACE_RETURN_ADDRESS: [&str; 4] =
    ["swapcontext", "_Unwind_RaiseException", "_Unwind_Resume", "_Unwind_Resume_or_Rethrow"];

/// The program of `tests/aarch64`, stopped where a part begins.
struct Program {
    guest: Guest,
    modules: Modules,
    /// Callers of the function that runs the parts, as libgcc says.
    callers: Vec<u64>,
}

impl Program {
    fn start(path: &Path, arguments: &[&str], environment: &[&str]) -> Self {
        let mut guest = Guest::start(cross::ROOT, path, arguments, environment);
        assert_eq!(guest.go(), Stop::Signal(TRAP));
        let hex = |hex: &str| u64::from_str_radix(hex, 16).unwrap();
        let (mut modules, mut frames) = (Vec::new(), Vec::new());
        for line in guest.lines_until("end") {
            match *line.split(' ').collect::<Vec<_>>() {
                ["module", bias, ""] => modules.push(Module::read(path, hex(bias))),
                ["module", bias, library] if library.starts_with('/') => {
                    modules.push(Module::read(Path::new(&format!("{}{library}", cross::ROOT)), hex(bias)));
                }
                // The vDSO, which newer emulators have.
                ["module", ..] => {}
                ["frame", address] => frames.push(hex(address)),
                _ => panic!("{line}"),
            }
        }
        let callers = frames.into_iter().skip(1).filter(|address| *address != 0).collect();
        Self { guest, modules: Modules(modules), callers }
    }

    /// Steps through a part to its end. A signal comes after every so many instructions outside of its handler, if not zero.
    fn step_through(&mut self, signal_every: usize) -> Stepped {
        const END: u32 = 0xd420_0040;
        let mut cpu = self.guest.cpu();
        let (frames, end) = walk(&mut self.guest, &self.modules, &cpu);
        let callers = frames.iter().skip(1).map(|frame| frame.address());
        assert!(callers.eq(self.callers.iter().copied()) && end.is_ok(), "{frames:x?}, {end:?}");
        let mut shadow = Shadow::new(&frames[1..], &cpu);
        let (mut stepped, mut since_signal) = (Stepped::default(), 0);
        cpu.pc += 4;
        self.guest.set_pc(cpu.pc);
        loop {
            let instruction = self.instruction(cpu.pc);
            if instruction == END {
                return stepped;
            }
            self.compare(&shadow, &cpu, &mut stepped);
            let outside = !shadow.is_in_handler();
            since_signal += usize::from(outside);
            cpu = if outside && since_signal == signal_every {
                since_signal = 0;
                self.interrupt(&cpu, USR1, &mut shadow)
            } else {
                self.step(instruction, &cpu, &mut shadow)
            };
        }
    }

    fn instruction(&mut self, pc: u64) -> u32 {
        let in_a_file = self.modules.instruction(pc);
        in_a_file.unwrap_or_else(|| self.guest.word(pc).expect("it is executed") as u32)
    }

    fn step(&mut self, instruction: u32, before: &Cpu, shadow: &mut Shadow) -> Cpu {
        let stop = self.guest.step(None);
        let after = self.guest.cpu();
        let next = shadow.executed(instruction, before, &after);
        match stop {
            Stop::Signal(TRAP) => {
                // The emulator goes on from a system call to the end of the instruction behind it.
                if instruction == SYSTEM_CALL && after.pc != next.pc {
                    shadow.executed(self.instruction(next.pc), &next, &after);
                }
                after
            }
            Stop::Signal(signal) => self.interrupt(&after, signal, shadow),
            Stop::Exited => panic!("the program has ended"),
        }
    }

    fn interrupt(&mut self, before: &Cpu, signal: u8, shadow: &mut Shadow) -> Cpu {
        assert_eq!(self.guest.step(Some(signal)), Stop::Signal(TRAP));
        let after = self.guest.cpu();
        shadow.interrupted(before, &after);
        after
    }

    fn compare(&mut self, shadow: &Shadow, cpu: &Cpu, stepped: &mut Stepped) {
        stepped.instructions += 1;
        stepped.signed += usize::from(cpu.x[30] >> 48 != 0);
        if shadow.is_leaving(cpu) {
            stepped.leaving += 1;
            return;
        }
        if shadow.is_bound(cpu) {
            // The first instruction of `_dl_runtime_resolve` is described as if the function had been called; but the linkage table has pushed two words.
            stepped.misdescribed += 1;
            return;
        }
        let (frames, end) = walk(&mut self.guest, &self.modules, cpu);
        let truth = shadow.stack(cpu);
        let replaces = |frame: &FrameAddress| REPLACE_RETURN_ADDRESS.contains(&self.modules.function(*frame));
        let as_far_as_possible = match end {
            Ok(()) if frames == truth => true,
            Err(Truncated::UnsupportedRule) if truth.starts_with(&frames) => {
                let function = self.modules.function(*frames.last().unwrap());
                *stepped.unsupported.entry(function.to_owned()).or_default() += 1;
                true
            }
            _ if truth.iter().position(replaces).is_some_and(|last| frames.starts_with(&truth[..=last])) => {
                stepped.misdescribed += 1;
                true
            }
            _ => false,
        };
        assert!(as_far_as_possible, "{}, {end:?}, instead of {}", self.names(&frames), self.names(&truth));
    }

    fn names(&self, frames: &[FrameAddress]) -> String {
        frames.iter().map(|frame| format!("\n  {frame:x?} {}", self.modules.function(*frame))).collect()
    }
}

fn step_through(path: &Path, part: &[&str], environment: &[&str], signal_every: usize) -> Stepped {
    let stepped = Program::start(path, part, environment).step_through(signal_every);
    eprintln!("{part:?} of {}: {stepped:?}", path.file_name().unwrap().display());
    stepped
}

/// All functions are bound before the program starts.
const BOUND: &[&str] = &["LD_BIND_NOW=1"];

#[test]
fn every_kind_of_frame_is_walked_through_from_every_instruction() {
    for (name, options) in [
        ("frames", &["-O2"][..]),
        ("frames-signed", &["-O1", "-fstack-protector-all", "-mbranch-protection=standard"]),
        ("frames-other-key", &["-O2", "-fomit-frame-pointer", "-mbranch-protection=pac-ret+leaf+b-key"]),
        ("frames-slow", &["-O0"]),
    ] {
        let path = cross::stepped(name, options);
        let frames = step_through(&path, &["frames"], BOUND, 0);
        assert!(frames.instructions > 500 && frames.unsupported.is_empty(), "{name}: {frames:?}");
        assert_eq!((frames.misdescribed, frames.leaving), (0, 0), "{name}");
        assert_eq!(frames.signed > 50, options.len() > 1, "{name}: {frames:?}");
    }
}

#[test]
fn a_handler_sees_what_it_interrupted_wherever_that_was() {
    let path = cross::stepped("interrupted", &["-O2", "-mbranch-protection=pac-ret+leaf"]);
    let stepped = step_through(&path, &["frames"], BOUND, 7);
    assert!(stepped.instructions > 1000 && stepped.unsupported.is_empty(), "{stepped:?}");
    assert_eq!((stepped.misdescribed, stepped.leaving), (0, 0));
}

#[test]
fn frames_of_other_compilers_and_of_linkers_are_walked_through_from_every_instruction() {
    let stepped = step_through(&cross::stepped("assembly", &["-O2"]), &["assembly"], BOUND, 0);
    assert!(stepped.instructions > 400 && stepped.signed > 5 && stepped.unsupported.is_empty(), "{stepped:?}");
    assert_eq!((stepped.misdescribed, stepped.leaving), (0, 0));
}

#[test]
fn the_loop_that_probes_a_large_frame_ends_the_walk_and_nothing_else_does() {
    let path = cross::stepped("probed", &["-O2", "-fstack-clash-protection"]);
    let stepped = step_through(&path, &["frames"], BOUND, 0);
    assert!(stepped.unsupported.keys().eq(["large_3000000", "large_400000"]), "{stepped:?}");
    assert_eq!((stepped.misdescribed, stepped.leaving), (0, 0));
}

#[test]
fn functions_that_are_bound_at_their_first_call_are_walked_through_the_dynamic_linker() {
    const LAZILY: &[&str] = &[];
    let stepped = step_through(&cross::stepped("library", &["-O2", "-Wl,-z,lazy"]), &["library"], LAZILY, 0);
    assert!(stepped.instructions > 5000 && stepped.leaving == 0, "{stepped:?}");
    assert!((5..20).contains(&stepped.misdescribed), "one instruction for each: {stepped:?}");
    // It keeps its return address in x15.
    assert!(stepped.unsupported.keys().all(|name| name == "rawmemchr"), "{stepped:?}");
}

#[test]
fn an_exception_is_walked_through_until_the_unwinder_replaces_its_own_return_address() {
    let path = cross::stepped("exceptions", &["-O2", "-mbranch-protection=standard"]);
    let stepped = step_through(&path, &["exceptions"], BOUND, 0);
    assert!(stepped.instructions > 10_000 && stepped.unsupported.is_empty(), "{stepped:?}");
    assert!(stepped.misdescribed < stepped.instructions / 10 && stepped.leaving < 10, "{stepped:?}");
}

#[test]
fn jumps_over_frames_and_to_other_stacks_are_walked_through() {
    let path = cross::stepped("jumps", &["-O2", "-mbranch-protection=standard"]);
    for part in ["leaps", "switches"] {
        let stepped = step_through(&path, &[part], BOUND, 0);
        assert!(stepped.instructions > 100 && stepped.leaving < 60, "{stepped:?}");
        // Their registers are in memory that x0 points to.
        assert!(stepped.unsupported.values().sum::<usize>() < 60, "{stepped:?}");
        assert!(stepped.misdescribed < 120, "{stepped:?}");
    }
}

#[test]
fn handlers_on_either_stack_are_walked_through() {
    let stepped = step_through(&cross::stepped("signals", &["-O2"]), &["signals"], BOUND, 0);
    assert!(stepped.instructions > 200 && stepped.unsupported.is_empty(), "{stepped:?}");
    assert_eq!((stepped.misdescribed, stepped.leaving), (0, 0));
}

#[test]
fn a_thread_is_walked_to_its_start() {
    let stepped = step_through(&cross::stepped("thread", &["-O2"]), &["thread", "frames"], BOUND, 0);
    assert!(stepped.instructions > 500 && stepped.unsupported.is_empty(), "{stepped:?}");
    assert_eq!((stepped.misdescribed, stepped.leaving), (0, 0));
}
