use std::vec;
use std::vec::Vec;

use super::tests::{BASE, ByAddress, Frames, ROOM, addresses, room, word};
use super::*;
use crate::Walker;
use crate::fake::{Chance, Stack, walk as walk_plainly};
use crate::x86_64::{Base, Cfa, Form, FramePointer, Registers};

/// What is known of a way from a leaf to a frame that was kept.
struct Known {
    start: Registers,
    joint: usize,
    at_joint: KeptFrame<Registers, ()>,
    tip: Tip,
    words: Vec<Word>,
    /// Of the frames, the leaf first, without the joint.
    addresses: Vec<FrameAddress>,
}

impl Known {
    fn of(start: Registers, frames: &Frames, words: &[Word], depth: usize, joint: usize) -> Option<Self> {
        let mut read = [Word::default(); 16];
        let tip = tip_of((&frames[joint..depth], words), &mut ByAddress, &mut read)?;
        let addresses = addresses(&frames[joint + 1..depth]);
        Some(Self { start, joint, at_joint: frames[joint], tip, words: read[..tip.words].to_vec(), addresses })
    }

    /// Where it leads to is kept, and all that it depends on is as it was.
    fn holds(&self, start: Registers, kept: &[KeptFrame<Registers, ()>], memory: &mut Stack<'_>) -> bool {
        let is_at = |one: Registers, other: Registers, with_frame_pointer: bool| {
            (one.pc, one.sp) == (other.pc, other.sp) && (!with_frame_pointer || one.fp == other.fp)
        };
        is_at(start, self.start, self.tip.needs_frame_pointer)
            && self.words.iter().all(|word| word.holds(memory))
            && kept.get(self.joint).is_some_and(|frame| {
                frame.is_instruction == self.at_joint.is_instruction
                    && is_at(frame.registers(), self.at_joint.registers(), self.tip.joint_needs_frame_pointer)
            })
    }
}

/// Known ways are taken whatever was walked, and kept, since they were walked.
#[test]
fn a_known_way_to_what_is_kept_is_a_plain_walk_whatever_changes_in_between() {
    let mut chance = Chance(11);
    let (mut taken, mut with_other_frame_pointers) = (0, 0);
    for _ in 0..4_000 {
        let mut words: Vec<u64> = (0..60).map(|_| word(&mut chance)).collect();
        let (mut frames, mut words_kept, mut extent) = (room(), vec![Word::default(); 2 * ROOM], Extent::default());
        let starts: Vec<_> = (0..3).map(|_| (0x10_0000 + chance.below(0x400), BASE + 8 * chance.below(40))).collect();
        let mut known: Vec<Known> = Vec::new();
        for _ in 0..40 {
            if chance.below(3) == 0 {
                words[chance.below(60) as usize] = word(&mut chance);
            }
            let (pc, sp) = starts[chance.below(3) as usize];
            let registers = Registers { pc, sp, fp: Some(BASE + 8 * chance.below(4)) };
            let plain = walk_plainly(Walker::at_return_address(registers, ByAddress, Stack(BASE, &words)));
            let mut memory = Stack(BASE, &words);
            for way in
                known.iter().filter(|way| way.holds(registers, &frames[..extent.depth], &mut Stack(BASE, &words)))
            {
                let kept = (&frames[..], &words_kept[..]);
                if let Some(end) = end_from(kept, way.joint + 1, &mut ByAddress, &mut memory) {
                    let mut found = way.addresses.clone();
                    found.extend(addresses(&frames[..=way.joint]));
                    assert_eq!((found, end), plain);
                    taken += 1;
                    with_other_frame_pointers += usize::from(registers.fp != way.start.fp);
                }
            }
            // Not every stack is walked to be kept: those that are known are not.
            if chance.below(2) == 0 {
                let room = Room { frames: &mut frames, words: &mut words_kept };
                let start = (FrameAddress::ReturnAddress(pc), registers);
                walk(room, &mut extent, start, &mut ByAddress, &mut memory).unwrap();
                let depth = extent.depth;
                known.extend((0..depth).filter_map(|joint| Known::of(registers, &frames, &words_kept, depth, joint)));
            }
        }
    }
    assert!(taken > 10_000, "{taken} known ways were taken");
    assert!(with_other_frame_pointers > 1_000, "{with_other_frame_pointers} of them with another frame pointer");
}

/// Every function saves a register that only the last of them uses as a frame pointer.
#[test]
fn saved_frame_pointers_count_where_somebody_asks_for_them() {
    struct Saves;
    impl Rules for Saves {
        type Tag = ();
        fn lookup(&mut self, address: FrameAddress) -> (Rule, ()) {
            let cfa = |base| Cfa::Offset(base, 16);
            let saved = FramePointer::AtCfa(-16);
            let form = match address.for_lookup() {
                0x3000..0x4000 => Form::EndOfStack,
                0x2000..0x3000 => Form::Frame { cfa: cfa(Base::FramePointer), fp: saved, signal: false },
                0x1000..0x2000 => Form::Frame { cfa: cfa(Base::StackPointer), fp: FramePointer::Same, signal: false },
                _ => Form::Frame { cfa: cfa(Base::StackPointer), fp: saved, signal: false },
            };
            (form.encode(), ())
        }
    }
    // A frame is two words: a saved frame pointer or nothing, the return address.
    let read = |pcs: &[u64], joint: usize| {
        // What a frame with a frame pointer finds there is its own place, whoever saved it before.
        let frame_pointer = |at: usize| match (at..).zip(&pcs[at..]).find(|(_, pc)| !(0x1000..0x2000).contains(*pc)) {
            Some((i, 0x2000..0x3000)) => BASE + 16 * i as u64,
            _ => 7,
        };
        let mut words: Vec<u64> = (1..pcs.len()).flat_map(|i| [frame_pointer(i), pcs[i]]).collect();
        words.extend([0, 0]);
        let registers = Registers { pc: pcs[0], sp: BASE, fp: Some(frame_pointer(0)) };
        let (mut frames, mut kept, mut extent) = (room(), vec![Word::default(); 2 * ROOM], Extent::default());
        let start = (FrameAddress::ReturnAddress(registers.pc), registers);
        let room = Room { frames: &mut frames, words: &mut kept };
        walk(room, &mut extent, start, &mut Saves, &mut Stack(BASE, &words)).unwrap();
        assert_eq!(extent.depth, pcs.len());
        let mut read = [Word::default(); 8];
        tip_of((&frames[joint..extent.depth], &kept), &mut Saves, &mut read).map(|tip| {
            let mut slots: Vec<u64> =
                read[..tip.words].iter().map(|word| (u64::from(word.slot.0 ^ 1 << 31) - BASE) / 8).collect();
            let first = slots.first().copied();
            slots.sort_unstable();
            (slots, first, tip.needs_frame_pointer, tip.joint_needs_frame_pointer)
        })
    };
    // Nobody asks: return addresses alone.
    assert_eq!(read(&[0x10, 0x20, 0x30, 0x40, 0x3010], 1), Some((vec![1, 3, 5], Some(5), false, false)));
    // The joint has a frame pointer; its callee's word tells it.
    assert_eq!(read(&[0x10, 0x20, 0x2030, 0x40, 0x3010], 2), Some((vec![1, 2, 3], Some(3), false, true)));
    // A callee that leaves it as it is passes it on: from the leaf's register, or from what its own callee saved.
    assert_eq!(read(&[0x1010, 0x2030, 0x40, 0x3010], 2), Some((vec![1], Some(1), true, true)));
    assert_eq!(read(&[0x10, 0x1020, 0x2030, 0x40, 0x3010], 2), Some((vec![0, 1, 3], Some(3), false, true)));
    // At the root nothing is known of it.
    assert_eq!(read(&[0x10, 0x3010], 0), Some((vec![0, 1], Some(1), false, true)));
}
