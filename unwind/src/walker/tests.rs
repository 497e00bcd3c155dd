use std::vec::Vec;

use super::*;
use crate::fake::{Chance, Listed, Stack, walk};
use crate::{aarch64, x86_64};

const SP: u64 = 0x7000;

const CALL: Rule = x86_64::Form::Frame {
    cfa: x86_64::Cfa::Offset(x86_64::Base::StackPointer, 8),
    fp: x86_64::FramePointer::Same,
    signal: false,
}
.encode();

fn leaf(pc: u64) -> x86_64::Registers {
    x86_64::Registers { pc, sp: SP, fp: None }
}

#[test]
fn a_walk_gives_each_frame_with_what_its_lookup_said() {
    let rules = Listed(&[(0x1000, CALL), (0x2000 - 1, CALL), (0x3000 - 1, Rule::END_OF_STACK)]);
    let mut walker = Walker::at_instruction(leaf(0x1000), rules, Stack(SP, &[0x2000, 0x3000]));
    assert_eq!(walker.advance(), Step::Frame(FrameAddress::Instruction(0x1000), 0x1000));
    assert_eq!(walker.advance(), Step::Frame(FrameAddress::ReturnAddress(0x2000), 0x1fff));
    assert_eq!(walker.registers().sp, SP + 8);
    assert_eq!(walker.advance(), Step::Frame(FrameAddress::ReturnAddress(0x3000), 0x2fff));
    assert_eq!(walker.advance(), Step::End(Ok(())));
    assert_eq!(walker.advance(), Step::End(Ok(())));
}

#[test]
fn a_walk_from_a_return_address_looks_it_up_inside_the_call() {
    let rules = Listed(&[(0x1000 - 1, Rule::END_OF_STACK)]);
    let (frames, end) = walk(Walker::at_return_address(leaf(0x1000), rules, Stack(SP, &[])));
    assert_eq!((frames, end), (Vec::from([FrameAddress::ReturnAddress(0x1000)]), Ok(())));
}

#[test]
fn a_frame_whose_caller_is_unknown_is_still_given() {
    let rules = Listed(&[(0x1000, CALL)]);
    let (frames, end) = walk(Walker::at_instruction(leaf(0x1000), rules, Stack(SP, &[0x2000])));
    assert_eq!(frames, [FrameAddress::Instruction(0x1000), FrameAddress::ReturnAddress(0x2000)]);
    assert_eq!(end, Err(Truncated::NoTable));
}

#[test]
fn a_walk_in_circles_between_stacks_ends() {
    let load = x86_64::Cfa::Load { base: x86_64::Base::StackPointer, offset: 0, add: 0 };
    let rule = x86_64::Form::Frame { cfa: load, fp: x86_64::FramePointer::Same, signal: false }.encode();
    // From SP + 8 to SP + 24 and back.
    let words = [0x1000, SP + 24, 0x1000, SP + 8];
    let registers = x86_64::Registers { sp: SP + 8, ..leaf(0x1000) };
    let (frames, end) = walk(Walker::at_instruction(registers, By(|_| rule), Stack(SP, &words)));
    assert_eq!((frames.len(), end), (2 * usize::from(STACK_SWITCHES) + 2, Err(Truncated::NoProgress)));
}

struct By<F>(F);

impl<F: Fn(u64) -> Rule> Rules for By<F> {
    type Tag = ();

    fn lookup(&mut self, address: FrameAddress) -> (Rule, ()) {
        ((self.0)(address.for_lookup()), ())
    }
}

/// Bits of a rule: anything, or kinds that mean something with numbers that stay in the neighbourhood.
fn any_rule(chance: &mut Chance) -> Rule {
    use x86_64::{Base, Cfa, FramePointer};
    let small = |chance: &mut Chance| chance.below(40) as i32 * 8 - 64;
    let base = if chance.below(2) == 0 { Base::StackPointer } else { Base::FramePointer };
    match chance.below(8) {
        0 => Rule::from_bits(chance.next()),
        1 => Rule::from_bits((chance.next() & !0xf) | (4 + chance.below(6))),
        2 => Rule::NONE,
        3 => x86_64::SIGNAL_FRAME,
        4 => {
            use aarch64::{Base, Form, Saved};
            let base = if chance.below(2) == 0 { Base::StackPointer } else { Base::FramePointer };
            let (lr, fp) = (Saved::AtCfa(small(chance)), Saved::AtCfa(small(chance)));
            Form::Frame { base, cfa: small(chance), lr, fp, signal: chance.below(9) == 0 }.encode()
        }
        kind => {
            let cfa = match kind {
                5 => Cfa::Load { base, offset: small(chance), add: small(chance) },
                _ => Cfa::Offset(base, small(chance) + chance.below(2) as i32),
            };
            let fp = match chance.below(3) {
                0 => FramePointer::Same,
                1 => FramePointer::AtCfa(small(chance)),
                _ => FramePointer::At(base, small(chance)),
            };
            x86_64::Form::Frame { cfa, fp, signal: chance.below(9) == 0 }.encode()
        }
    }
}

#[test]
fn random_rules_over_random_memory_never_panic_and_always_end() {
    const WORDS: u64 = 128;
    let mut chance = Chance(0x1234_5678_9abc_def1);
    let mut reached = 0;
    for _ in 0..50_000 {
        // Mostly addresses inside the stack, so that walks get far; anything and the ends of the address space otherwise.
        let base = *[SP, 8, u64::MAX - 1024, u64::MAX - 100].get(chance.below(6) as usize).unwrap_or(&SP);
        let words: Vec<u64> = (0..WORDS)
            .map(|_| match chance.below(8) {
                0 => chance.next(),
                1 => chance.below(3),
                _ => base.wrapping_add(chance.below(WORDS * 8)) & !(chance.below(2) * 7),
            })
            .collect();
        let rules: Vec<Rule> = (0..4).map(|_| any_rule(&mut chance)).collect();
        let rules = |pc: u64| rules[(pc % 4) as usize];
        let sp = base.wrapping_add(chance.below(WORDS * 8));
        let fp = Some(base.wrapping_add(chance.below(WORDS * 8) & !7)).filter(|_| chance.below(4) > 0);
        let longest = (usize::from(STACK_SWITCHES) + 1) * (WORDS as usize * 8 + 16);

        let registers = x86_64::Registers { pc: chance.next(), sp, fp };
        let (frames, _) = walk(Walker::at_instruction(registers, By(rules), Stack(base, &words)));
        assert!(frames.len() <= longest);
        reached = reached.max(frames.len());

        let registers = aarch64::Registers { pc: chance.next(), sp, fp, lr: Some(chance.next()) };
        let (frames, _) = walk(Walker::at_instruction(registers, By(rules), Stack(base, &words)));
        assert!(frames.len() <= longest);
        reached = reached.max(frames.len());
    }
    assert!(reached > 50, "walks that end at once prove nothing: {reached}");
}
