use std::vec;
use std::vec::Vec;

use super::*;
use crate::Walker;
use crate::fake::{Chance, Stack, walk as walk_plainly};
use crate::x86_64::{Base, Cfa, Form, FramePointer, Registers};

pub(super) const BASE: u64 = 0x7000;
pub(super) const ROOM: usize = 200;

pub(super) type Frames = Vec<KeptFrame<Registers, ()>>;

fn room_for(depth: usize) -> Frames {
    let registers = Registers { pc: 0, sp: 0, fp: None };
    let empty = KeptFrame {
        registers: registers.pack(),
        note: 0,
        words_from: 0,
        tag: (),
        is_instruction: true,
        check: Check::Step,
    };
    vec![empty; depth]
}

pub(super) fn room() -> Frames {
    room_for(ROOM)
}

/// A rule for every address: mostly frames of a few words, some with a frame pointer, rarely the odd ones.
pub(super) struct ByAddress;

impl Rules for ByAddress {
    type Tag = ();

    fn lookup(&mut self, address: FrameAddress) -> (Rule, ()) {
        let pc = address.for_lookup();
        let size = 8 * (1 + (pc >> 4) % 4) as i32;
        let cfa = Cfa::Offset(Base::StackPointer, size);
        let form = match pc % 16 {
            0..=7 => Form::Frame { cfa, fp: FramePointer::Same, signal: false },
            // Where nobody keeps anything: below the frame.
            8 => Form::Frame { cfa, fp: FramePointer::AtCfa(-8 - size), signal: false },
            9..=10 if size >= 16 => Form::Frame { cfa, fp: FramePointer::AtCfa(-16), signal: false },
            11 => Form::Frame { cfa: Cfa::Offset(Base::FramePointer, 16), fp: FramePointer::AtCfa(-16), signal: false },
            12 => Form::Frame {
                cfa: Cfa::Load { base: Base::StackPointer, offset: 0, add: 8 },
                fp: FramePointer::Same,
                signal: false,
            },
            13 => return (Rule::END_OF_STACK, ()),
            14 => return (Rule::NONE, ()),
            15 => return (Rule::UNSUPPORTED, ()),
            _ => Form::Frame { cfa, fp: FramePointer::Undefined, signal: false },
        };
        (form.encode(), ())
    }
}

pub(super) fn word(chance: &mut Chance) -> u64 {
    match chance.below(8) {
        // Mostly code, some addresses on the stack, some nonsense.
        0..=5 => 0x10_0000 + chance.below(0x400),
        6 => BASE + 8 * chance.below(120),
        _ => chance.below(3) * 0x9999,
    }
}

pub(super) fn addresses(frames: &[KeptFrame<Registers, ()>]) -> Vec<FrameAddress> {
    frames.iter().rev().map(KeptFrame::address).collect()
}

#[test]
fn a_kept_walk_is_a_plain_walk_whatever_changes_in_between() {
    let (shared, all) = compare_with_plain_walks(ROOM);
    assert!(shared * 4 > all, "{shared} of {all}: the comparison is put to use");
}

/// Kept frames take room until they are passed, and move to places that they have themselves.
#[test]
fn a_kept_walk_in_just_enough_room_is_a_plain_walk() {
    for depth in 2..40 {
        let (shared, _) = compare_with_plain_walks(depth);
        assert!(shared > 0 || depth < 4, "nothing is shared in room for {depth}");
    }
}

/// Walks that fit into the room: how many of their frames were shared, and how many they had.
fn compare_with_plain_walks(depth: usize) -> (usize, usize) {
    let mut chance = Chance(7);
    let (mut shared_frames, mut all_frames) = (0, 0);
    for _ in 0..2_000 {
        let mut words: Vec<u64> = (0..100).map(|_| word(&mut chance)).collect();
        let (mut frames, mut words_kept, mut extent) =
            (room_for(depth), vec![Word::default(); 2 * depth], Extent::default());
        let mut note = 1;
        let mut registers =
            Registers { pc: 0x10_0001, sp: BASE + 8 * chance.below(80), fp: Some(BASE + 8 * chance.below(90)) };
        for _ in 0..30 {
            // As a program does: some frames return, some are pushed, a word changes here or there, or nothing does.
            match chance.below(4) {
                0 => registers.sp = BASE + 8 * chance.below(80),
                1 => words[chance.below(100) as usize] = word(&mut chance),
                2 => registers.pc = 0x10_0000 + chance.below(0x400),
                _ => {}
            }
            let before: Vec<_> = frames[..extent.depth].iter().map(|f| (f.address(), f.note)).collect();
            let start = (FrameAddress::ReturnAddress(registers.pc), registers);
            let walked = walk(
                Room { frames: &mut frames, words: &mut words_kept },
                &mut extent,
                start,
                &mut ByAddress,
                &mut Stack(BASE, &words),
            );
            let Ok(walked) = walked else {
                assert!(depth < ROOM && extent == Extent::default());
                continue;
            };
            let plain = walk_plainly(Walker::at_return_address(registers, ByAddress, Stack(BASE, &words)));
            assert_eq!((addresses(&frames[..extent.depth]), walked.end), plain);
            let after: Vec<_> = frames[..extent.depth].iter().map(|f| (f.address(), f.note)).collect();
            assert_eq!(before[..walked.shared], after[..walked.shared], "shared frames keep their place and note");
            assert!(after[walked.shared..].iter().all(|(_, note)| *note == 0), "new frames have no note");
            for frame in &mut frames[..extent.depth] {
                note += 1;
                frame.note = note;
            }
            shared_frames += walked.shared;
            all_frames += extent.depth;
        }
    }
    (shared_frames, all_frames)
}

#[test]
fn an_unchanged_stack_is_all_shared() {
    // Frames of two words, up to the root.
    let words: Vec<u64> = (0..20).flat_map(|i| [0, if i == 19 { 0x10_000e } else { 0x10_0012 }]).collect();
    let registers = Registers { pc: 0x10_0012, sp: BASE, fp: Some(0) };
    let start = (FrameAddress::ReturnAddress(registers.pc), registers);
    let (mut frames, mut words_kept, mut extent) = (room(), vec![Word::default(); 2 * ROOM], Extent::default());
    let first = walk(
        Room { frames: &mut frames, words: &mut words_kept },
        &mut extent,
        start,
        &mut ByAddress,
        &mut Stack(BASE, &words),
    )
    .unwrap();
    assert_eq!((first.shared, first.end, extent.depth), (0, Ok(()), 21));
    let second = walk(
        Room { frames: &mut frames, words: &mut words_kept },
        &mut extent,
        start,
        &mut ByAddress,
        &mut Stack(BASE, &words),
    )
    .unwrap();
    assert_eq!((second.shared, second.end, extent.depth), (21, Ok(()), 21));
    // A call deeper: one new frame.
    let below = Registers { pc: 0x10_0011, sp: BASE - 16, fp: Some(0) };
    let mut deeper = vec![0, 0x10_0012];
    deeper.extend(&words);
    let start = (FrameAddress::ReturnAddress(below.pc), below);
    let third = walk(
        Room { frames: &mut frames, words: &mut words_kept },
        &mut extent,
        start,
        &mut ByAddress,
        &mut Stack(BASE - 16, &deeper),
    )
    .unwrap();
    assert_eq!((third.shared, third.end, extent.depth), (21, Ok(()), 22));
}

#[test]
fn a_stack_that_does_not_fit_is_not_kept() {
    let words: Vec<u64> = vec![0x10_0002; 300];
    let registers = Registers { pc: 0x10_0002, sp: BASE, fp: None };
    let start = (FrameAddress::ReturnAddress(registers.pc), registers);
    let (mut frames, mut words_kept, mut extent) = (room(), vec![Word::default(); 2 * ROOM], Extent::default());
    assert_eq!(
        walk(
            Room { frames: &mut frames, words: &mut words_kept },
            &mut extent,
            start,
            &mut ByAddress,
            &mut Stack(BASE, &words)
        ),
        Err(TooDeep)
    );
    assert_eq!(extent, Extent::default());
}
