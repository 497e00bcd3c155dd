//! Walks over arbitrary rules, stacks and registers.
//!
//! A walk ends, and says the same end again. The incremental walk gives what the plain one gives, each time, whatever changed in the stack, in its readable part or in
//! the registers since the time before. What rules say about an address stays the same, as [`unwind::kept`] asks, and so does code.

mod machine;

use crate::input::Input;
use machine::Machine;
use std::mem::MaybeUninit;
use unwind::kept::{self, Extent, KeptFrame, Room, TooDeep, Word};
use unwind::{FrameAddress, Memory, Rule, Rules, STACK_SWITCHES, Slot, Step, Truncated, Walker, aarch64, x86_64};

/// Where the words of the stack begin.
const STACK: u64 = 0x7000_0000;
/// Where code lies; one rule holds for every so many addresses.
const CODE: u64 = 0x40_0000;
/// Bytes of code.
pub const CODE_BYTES: usize = 256;
/// Bytes beyond the words that a rule can reach: the farthest slot of a signal's frame.
const REACH: u64 = 4095 * 8;
const MOST_WALKS: usize = 64;
/// Words of the stack.
pub const WORDS: usize = 127;

/// Walks on both architectures, in a stack with a hole.
pub fn check(data: &[u8]) {
    check_in(data, (CODE, STACK), &mut [0; WORDS * 8], &Stack::new);
}

/// The code: calls of both architectures at half of the addresses.
pub fn code() -> [u8; CODE_BYTES] {
    std::array::from_fn(|at| [0, 0, 0, 0xe8, 0, 0, 0, 0x94, 0, 0, 0, 0x90, 0, 0, 0, 0xd4][at % 16])
}

/// Walks on both architectures. `memory` reads the [`code`] and the stack, whose bytes are given, at these two addresses, for a walk that begins at a stack pointer; 64 bytes from
/// `hole` on need not be readable.
pub fn check_in<M: Memory>(
    data: &[u8],
    bases: (u64, u64),
    bytes: &mut [u8; WORDS * 8],
    memory: &dyn Fn(&[u8], u64, u64) -> M,
) {
    for check in [check_on::<x86_64::Registers, M>, check_on::<aarch64::Registers, M>] {
        bytes.fill(0);
        check(Input::new(data), bases, bytes, memory);
    }
}

/// A stack of its own, whose words have numbers from the stack pointer of the walk to the top.
struct Stack {
    bytes: Vec<u8>,
    hole: u64,
    sp: u64,
}

impl Stack {
    fn new(bytes: &[u8], hole: u64, sp: u64) -> Self {
        Self { bytes: bytes.to_vec(), hole, sp }
    }

    fn get(&self, address: u64) -> Option<u64> {
        if let Some(at) = address.checked_sub(CODE).filter(|at| *at < CODE_BYTES as u64) {
            let eight = *code()[at as usize..].first_chunk()?;
            return Some(u64::from_le_bytes(eight));
        }
        let at = usize::try_from(address.checked_sub(STACK)?).ok()?;
        let bytes = self.bytes.get(at..at.checked_add(8)?)?;
        let in_hole = address + 8 > self.hole && address < self.hole.saturating_add(64);
        (!in_hole).then(|| u64::from_le_bytes(bytes.try_into().expect("eight bytes")))
    }
}

/// The highest bit of a slot's number.
const TOP: u64 = 1 << 31;

impl Memory for Stack {
    fn read(&mut self, address: u64) -> Option<u64> {
        self.get(address)
    }

    fn slot(&self, address: u64) -> Option<Slot> {
        (address >= self.sp.max(STACK) && self.get(address).is_some()).then(|| Slot((TOP | (address - STACK)) as u32))
    }

    fn read_slot(&mut self, Slot(number): Slot) -> Option<u64> {
        let address = STACK + u64::from(number).checked_sub(TOP)?;
        self.get(address).filter(|_| address >= self.sp)
    }

    fn unchanged(&mut self, words: &[Word], sp: u64) -> usize {
        let compared = words.iter().rev().take_while(|word| word.slot != Word::NONE[0].slot);
        compared.for_each(|word| assert!(STACK + u64::from(word.slot.0) - TOP >= sp, "a word below the frame"));
        words.iter().rev().take_while(|word| word.holds(self)).count()
    }
}

/// The rules by address, over and over, wherever the stack lies; the tag is the address.
#[derive(Clone, Copy)]
struct Repeated<'a> {
    rules: &'a [Rule],
    bases: (u64, u64),
}

impl Repeated<'_> {
    fn at(&self, address: FrameAddress) -> Rule {
        let pc = address.for_lookup();
        let (code, stack) = self.bases;
        let place = [(code, CODE), (stack, STACK)].map(|(base, place)| pc.wrapping_sub(base).wrapping_add(place));
        let near = place.iter().zip([CODE, STACK]).find(|(place, base)| place.abs_diff(*base) < 1 << 16);
        self.rules[(near.map_or(pc, |(place, _)| *place) % self.rules.len() as u64) as usize]
    }
}

impl Rules for Repeated<'_> {
    type Tag = u64;

    fn lookup(&mut self, address: FrameAddress) -> (Rule, u64) {
        (self.at(address), address.for_lookup())
    }
}

/// Mostly code, some addresses on the stack, some nonsense.
fn word(input: &mut Input<'_>, (code, stack): (u64, u64)) -> u64 {
    match input.u8() {
        low @ 0..0x80 => code + 16 + u64::from(low),
        low @ 0x80..0xd0 => stack + 8 * u64::from(input.u8()) + u64::from(low >> 4 & 4),
        low @ 0xd0..0xe0 => stack + 8 * u64::from(input.u8()) + u64::from(low & 7),
        0xe0..0xf0 => 0,
        _ => input.u64(),
    }
}

type Frame<G> = (FrameAddress, u64, G);

/// All frames of a plain walk, leaf first, and how it ended.
fn walk_plainly<G: Machine>(
    (at, registers): (FrameAddress, G),
    rules: Repeated<'_>,
    memory: impl Memory,
) -> (Vec<Frame<G>>, Result<(), Truncated>) {
    let mut walker = match at {
        FrameAddress::Instruction(_) => Walker::at_instruction(registers, rules, memory),
        FrameAddress::ReturnAddress(_) => Walker::at_return_address(registers, rules, memory),
    };
    // Between two switches the stack pointer rises, in memory or in reach of it; on aarch64 a leaf's caller may share it.
    let limit = 2 * (usize::from(STACK_SWITCHES) + 1) * (WORDS * 8 + REACH as usize + 16);
    let mut frames = Vec::new();
    loop {
        match walker.advance() {
            Step::Frame(address, tag) => frames.push((address, tag, *walker.registers())),
            Step::End(end) => {
                assert_eq!(walker.advance(), Step::End(end), "an end is an end");
                return (frames, end);
            }
        }
        assert!(frames.len() <= limit, "the walk does not end");
    }
}

fn zeroed<T>() -> T
where
    T: Copy,
{
    // SAFETY: used for kept frames only: numbers and enums of which zero is a value. The recorder's begin as zeroed memory too.
    #[allow(unsafe_code)]
    unsafe {
        MaybeUninit::zeroed().assume_init()
    }
}

struct Walked<G: unwind::Unwind> {
    frames: Vec<KeptFrame<G, u64>>,
    words: Vec<Word>,
    extent: Extent,
    note: u64,
}

impl<G: Machine> Walked<G> {
    fn compare(&mut self, from: (FrameAddress, G), rules: Repeated<'_>, memory: &mut impl Memory) {
        let (plain, end) = walk_plainly(from, rules, &mut *memory);
        // A chain of frame pointers is believed if a call stands before the return address. That is code, which stays as it is while somebody returns there; what takes the stack
        // for code is not compared.
        let in_stack = |address: u64| address.wrapping_sub(rules.bases.1) < (WORDS * 8 + 8) as u64;
        let chained = |pair: &[Frame<G>]| rules.at(pair[0].0).is_none() && in_stack(pair[1].0.address());
        if plain.windows(2).any(chained) {
            self.extent = Extent::default();
            return;
        }
        let (before, notes) = (self.extent.depth, self.notes());
        let room = Room { frames: &mut self.frames, words: &mut self.words };
        let walked = match kept::walk(room, &mut self.extent, from, &mut { rules }, memory) {
            Ok(walked) => walked,
            Err(TooDeep) => {
                assert_eq!(self.extent, Extent::default(), "nothing is kept");
                // The kept frames take room until they are passed.
                assert!(plain.len() + before > self.frames.len(), "{} frames are not too deep", plain.len());
                return;
            }
        };
        assert_eq!(walked.end, end);
        let kept =
            self.frames[..self.extent.depth].iter().rev().map(|frame| (frame.address(), frame.tag, frame.registers()));
        assert!(kept.eq(plain.iter().copied()), "the frames of a plain walk: {plain:x?}");
        assert!(walked.shared <= before.min(self.extent.depth));
        let after = self.notes();
        assert_eq!(notes[..walked.shared], after[..walked.shared], "shared frames keep their notes");
        assert!(after[walked.shared..].iter().all(|note| *note == 0), "new frames have none");
        for frame in &mut self.frames[..self.extent.depth] {
            self.note += 1;
            frame.note = self.note;
        }
    }

    fn notes(&self) -> Vec<u64> {
        self.frames[..self.extent.depth].iter().map(|frame| frame.note).collect()
    }
}

fn check_on<G: Machine, M: Memory>(
    mut input: Input<'_>,
    bases: (u64, u64),
    bytes: &mut [u8; WORDS * 8],
    memory: &dyn Fn(&[u8], u64, u64) -> M,
) {
    let rules: Vec<Rule> = (0..1 + input.u8() % 16)
        .map(|_| match input.u8() {
            kind if kind % 4 == 0 => Rule::from_bits(input.u64()),
            kind => G::rule(kind, &mut input),
        })
        .collect();
    let rules = Repeated { rules: &rules, bases };
    let room = 4 + usize::from(input.u8());
    let words = 8 + usize::from(input.u8()) % (WORDS - 7);
    for place in bytes.chunks_exact_mut(8).take(words) {
        place.copy_from_slice(&word(&mut input, bases).to_le_bytes());
    }
    let frames = vec![zeroed::<KeptFrame<G, u64>>(); room];
    let mut walked = Walked { frames, words: vec![Word::default(); 2 * room], extent: Extent::default(), note: 0 };
    let mut hole = 0;
    let (code, stack) = bases;
    let mut at = FrameAddress::ReturnAddress(code);
    let mut registers = G::new(code, stack, Some(stack), None);
    for _ in 0..MOST_WALKS {
        // As a program does: some frames return, some are pushed, a word changes here or there, or nothing does.
        match input.u8() {
            0..0x40 => {
                let place = 8 * (usize::from(input.u8()) % words);
                bytes[place..place + 8].copy_from_slice(&word(&mut input, bases).to_le_bytes());
            }
            0x40..0x80 => registers = registers.with_sp(word(&mut input, bases)),
            0x80..0xa0 => {
                registers = G::new(word(&mut input, bases), registers.sp(), Some(word(&mut input, bases)), None);
            }
            0xa0..0xb0 => registers = G::new(registers.pc(), registers.sp(), None, Some(word(&mut input, bases))),
            0xb0..0xc0 => hole = word(&mut input, bases) & !63,
            0xc0..0xd0 => at = FrameAddress::Instruction(0),
            0xd0..0xe0 => at = FrameAddress::ReturnAddress(0),
            0xe0.. => {}
        }
        at = match at {
            FrameAddress::Instruction(_) => FrameAddress::Instruction(registers.pc()),
            FrameAddress::ReturnAddress(_) => FrameAddress::ReturnAddress(registers.pc()),
        };
        walked.compare((at, registers), rules, &mut memory(&bytes[..words * 8], hole, registers.sp()));
        if input.is_empty() {
            break;
        }
    }
}
