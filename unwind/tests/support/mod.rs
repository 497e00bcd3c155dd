//! Walks the stack of this process: tables of its loaded objects, its readable memory, its registers.

#![allow(dead_code, reason = "each test uses its part")]

use profile_recorder_unwind::arch::{Registers, rule_from_code, rule_of_piece};
use profile_recorder_unwind::build::{OwnedTable, Section, build, find_eh_frame};
use profile_recorder_unwind::{FrameAddress, Memory, Rule, Rules, Step, Truncated, Walker};

/// Frames of one walk. Kept in place since handlers, which fill it, may not allocate.
#[derive(Clone)]
pub(crate) struct Frames {
    frames: [FrameAddress; 128],
    len: usize,
    pub(crate) end: Result<(), Truncated>,
}

impl Frames {
    pub(crate) fn as_slice(&self) -> &[FrameAddress] {
        &self.frames[..self.len]
    }

    /// The addresses, as `backtrace` gives them.
    pub(crate) fn addresses(&self) -> impl Iterator<Item = u64> + '_ {
        self.as_slice().iter().map(|frame| frame.address())
    }
}

/// What a walk of this process needs. Objects that are loaded later are not in it.
pub(crate) struct Process {
    modules: Vec<(u64, u64, u64, OwnedTable)>,
    readable: Vec<(u64, u64)>,
    executable: Vec<(u64, u64)>,
}

impl Process {
    /// The one of this thread; the first call builds it, all others may be in handlers.
    pub(crate) fn this() -> &'static Self {
        thread_local! {
            static THIS: &'static Process = Box::leak(Box::new(Process::build()));
        }
        THIS.with(|this| *this)
    }

    fn build() -> Self {
        let mut modules = Vec::new();
        // SAFETY: the callback gets the pointer that is passed here, and only during this call.
        unsafe { libc::dl_iterate_phdr(Some(add_module), (&raw mut modules).cast()) };
        let readable = mapped(|rights, rest| rights.starts_with('r') && !rest.contains("[vvar"));
        Self { modules, readable, executable: mapped(|rights, _| rights.contains('x')) }
    }

    pub(crate) fn walk_from(&self, registers: Registers) -> Frames {
        let mut frames = Frames { frames: [FrameAddress::Instruction(0); 128], len: 0, end: Ok(()) };
        let mut walker = Walker::at_instruction(registers, Lookup(self), ThisProcess(self));
        loop {
            match walker.advance() {
                Step::Frame(frame, ()) if frames.len < frames.frames.len() => {
                    frames.frames[frames.len] = frame;
                    frames.len += 1;
                }
                Step::Frame(..) => return frames,
                Step::End(end) => {
                    frames.end = end;
                    return frames;
                }
            }
        }
    }
}

extern "C" fn add_module(info: *mut libc::dl_phdr_info, _size: usize, modules: *mut libc::c_void) -> libc::c_int {
    // SAFETY: `dl_iterate_phdr` gives a valid description, and passes through the vector from above.
    let (info, modules) = unsafe { (&*info, &mut *modules.cast::<Vec<(u64, u64, u64, OwnedTable)>>()) };
    // SAFETY: the loader keeps that many program headers there.
    let headers = unsafe { std::slice::from_raw_parts(info.dlpi_phdr, usize::from(info.dlpi_phnum)) };
    let bias = info.dlpi_addr;
    let loads = || headers.iter().filter(|header| header.p_type == libc::PT_LOAD);
    let end_of_segment = |address: u64| {
        let offset = address - bias;
        loads().find(|l| l.p_vaddr <= offset && offset < l.p_vaddr + l.p_memsz).map(|l| bias + l.p_vaddr + l.p_memsz)
    };
    let section = |address: u64| {
        let len = (end_of_segment(address).expect("in a segment") - address) as usize;
        // SAFETY: the bytes lie in a loaded read-only segment, and nothing is unloaded during a test.
        Section { bytes: unsafe { std::slice::from_raw_parts(address as *const u8, len) }, address }
    };
    if let Some(header) = headers.iter().find(|header| header.p_type == libc::PT_GNU_EH_FRAME) {
        let eh_frame = find_eh_frame(section(bias + header.p_vaddr)).expect("a header names its section");
        let (table, _) = build::<Registers>(section(eh_frame), bias);
        let start = loads().map(|load| load.p_vaddr).min().expect("a loaded object has segments");
        let end = loads().map(|load| load.p_vaddr + load.p_memsz).max().expect("a loaded object has segments");
        modules.push((bias + start, bias + end, bias, table));
    }
    0
}

/// Mappings of this process, chosen by their rights and the rest of the line.
fn mapped(chosen: impl Fn(&str, &str) -> bool) -> Vec<(u64, u64)> {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    let ranges = maps.lines().filter_map(|line| {
        let (range, rest) = line.split_once(' ')?;
        let (rights, rest) = rest.split_once(' ')?;
        let (start, end) = range.split_once('-')?;
        let number = |hex| u64::from_str_radix(hex, 16).unwrap();
        chosen(rights, rest).then(|| (number(start), number(end)))
    });
    ranges.collect()
}

struct Lookup<'a>(&'a Process);

impl Rules for Lookup<'_> {
    type Tag = ();

    fn lookup(&mut self, address: FrameAddress) -> (Rule, ()) {
        let pc = address.for_lookup();
        let module = self.0.modules.iter().find(|(start, end, ..)| (*start..*end).contains(&pc));
        let Some((_, _, bias, table)) = module else {
            let executable = self.0.executable.iter().any(|(start, end)| (*start..*end).contains(&pc));
            return (if executable { Rule::NONE } else { Rule::NO_TABLE }, ());
        };
        let rule = u32::try_from(pc - bias).ok().and_then(|pc| table.as_table().lookup(pc));
        let rule = rule.or_else(|| rule_from_code(address, &mut ThisProcess(self.0)));
        let rule = rule.or_else(|| rule_of_piece(address, &mut ThisProcess(self.0)));
        (rule.unwrap_or(Rule::NO_TABLE), ())
    }
}

struct ThisProcess<'a>(&'a Process);

impl Memory for ThisProcess<'_> {
    fn read(&mut self, address: u64) -> Option<u64> {
        let inside =
            |(start, end): &(u64, u64)| *start <= address && address.checked_add(8).is_some_and(|to| to <= *end);
        if !self.0.readable.iter().any(inside) {
            return None;
        }
        // SAFETY: the eight bytes lie in memory that was readable when the test began, and stacks are not unmapped while walked.
        Some(unsafe { (address as *const u64).read_unaligned() })
    }
}

/// The registers of the function that this is inlined into.
#[inline(always)]
pub(crate) fn own_registers() -> Registers {
    let (pc, sp, fp);
    // SAFETY: reads registers only.
    unsafe {
        core::arch::asm!(
            "lea {pc}, [rip]", "mov {sp}, rsp", "mov {fp}, rbp",
            pc = out(reg) pc, sp = out(reg) sp, fp = out(reg) fp, options(nomem, nostack),
        );
    }
    Registers { pc, sp, fp: Some(fp) }
}

/// The registers that a signal interrupted.
pub(crate) fn interrupted(context: &libc::ucontext_t) -> Registers {
    let register = |number: libc::c_int| context.uc_mcontext.gregs[number as usize] as u64;
    Registers { pc: register(libc::REG_RIP), sp: register(libc::REG_RSP), fp: Some(register(libc::REG_RBP)) }
}

/// What libgcc says, leaf first, beginning inside `backtrace` itself. Does not allocate.
#[inline(never)]
pub(crate) fn libgcc(addresses: &mut [u64]) -> usize {
    let mut len = 0;
    let mut keep = |frame: &backtrace::Frame| {
        let ip = frame.ip() as u64;
        let kept = addresses.get_mut(len).filter(|_| ip != 0).map(|slot| *slot = ip);
        len += usize::from(kept.is_some());
        kept.is_some()
    };
    // SAFETY: the lock that `trace` would take guards symbolisation only.
    unsafe { backtrace::trace_unsynchronized(&mut keep) };
    len
}

/// What the system does with a signal from now on.
pub(crate) fn handle(
    signal: libc::c_int,
    flags: libc::c_int,
    handler: extern "C" fn(libc::c_int, *mut libc::siginfo_t, *mut libc::ucontext_t),
) {
    // SAFETY: all zeros is a valid `sigaction`.
    let mut action: libc::sigaction = unsafe { core::mem::zeroed() };
    action.sa_sigaction = handler as *const () as usize;
    action.sa_flags = libc::SA_SIGINFO | flags;
    // SAFETY: the handler has the signature that SA_SIGINFO asks for.
    assert_eq!(unsafe { libc::sigaction(signal, &action, core::ptr::null_mut()) }, 0);
}
