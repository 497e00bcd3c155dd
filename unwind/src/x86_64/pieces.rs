//! Rules for well-known code that is described nowhere: what a compiler puts into every object for its beginning and its end (glibc's `crti.S` and GCC's `crtstuff.c`, as GCC compiles it), and what V8's
//! collector calls to look at the stack, which is written in assembly (`PushAllRegistersAndIterateStack`).
//!
//! Each piece is known by all of its bytes but addresses, so that nothing else is taken for it.

use super::code::frame;
use crate::x86_64::{Base, Cfa, Form, FramePointer};
use crate::{FrameAddress, Memory, Rule};

/// A byte that may be any.
const ANY: u16 = 0x100;

/// A piece of code, and how much of the stack is between the stack pointer and the caller's frame at each of its instructions.
struct Piece {
    code: &'static [u16],
    /// Offsets of instructions where nothing was pushed.
    outer: &'static [u8],
    /// Where eight bytes were.
    inner: &'static [u8],
    /// Where these are the caller's `rbp`.
    pushed: &'static [u8],
    /// Where `rbp` is the frame pointer, and any number of bytes was pushed.
    framed: &'static [u8],
}

const PIECES: [Piece; 8] = [INIT, FINI, DEREGISTER, REGISTER, AUX, AUX_FIXED, DUMMY, ITERATE];

/// `_init`: calls `__gmon_start__`, if there is one.
const INIT: Piece = Piece {
    code: &[
        0x48, 0x83, 0xec, 0x08, 0x48, 0x8b, 0x05, ANY, ANY, ANY, ANY, 0x48, 0x85, 0xc0, 0x74, 0x02, 0xff, 0xd0, 0x48,
        0x83, 0xc4, 0x08, 0xc3,
    ],
    outer: &[0, 22],
    inner: &[4, 11, 14, 16, 18],
    pushed: &[],
    framed: &[],
};

/// `_fini`.
const FINI: Piece = Piece {
    code: &[0x48, 0x83, 0xec, 0x08, 0x48, 0x83, 0xc4, 0x08, 0xc3],
    outer: &[0, 8],
    inner: &[4],
    pushed: &[],
    framed: &[],
};

/// `deregister_tm_clones`.
const DEREGISTER: Piece = Piece {
    code: &[
        0x48, 0x8d, 0x3d, ANY, ANY, ANY, ANY, 0x48, 0x8d, 0x05, ANY, ANY, ANY, ANY, 0x48, 0x39, 0xf8, 0x74, 0x15, 0x48,
        0x8b, 0x05, ANY, ANY, ANY, ANY, 0x48, 0x85, 0xc0, 0x74, 0x09, 0xff, 0xe0, 0x0f, 0x1f, 0x80, 0, 0, 0, 0, 0xc3,
    ],
    outer: &[0, 7, 14, 17, 19, 26, 29, 31, 40],
    inner: &[],
    pushed: &[],
    framed: &[],
};

/// `register_tm_clones`.
const REGISTER: Piece = Piece {
    code: &[
        0x48, 0x8d, 0x3d, ANY, ANY, ANY, ANY, 0x48, 0x8d, 0x35, ANY, ANY, ANY, ANY, 0x48, 0x29, 0xfe, 0x48, 0x89, 0xf0,
        0x48, 0xc1, 0xee, 0x3f, 0x48, 0xc1, 0xf8, 0x03, 0x48, 0x01, 0xc6, 0x48, 0xd1, 0xfe, 0x74, 0x14, 0x48, 0x8b,
        0x05, ANY, ANY, ANY, ANY, 0x48, 0x85, 0xc0, 0x74, 0x08, 0xff, 0xe0, 0x66, 0x0f, 0x1f, 0x44, 0, 0, 0xc3,
    ],
    outer: &[0, 7, 14, 17, 20, 24, 28, 31, 34, 36, 43, 46, 48, 56],
    inner: &[],
    pushed: &[],
    framed: &[],
};

/// `__do_global_dtors_aux`, which calls `__cxa_finalize`, if there is one, and `deregister_tm_clones`.
const AUX: Piece = Piece {
    code: &[
        0xf3, 0x0f, 0x1e, 0xfa, 0x80, 0x3d, ANY, ANY, ANY, ANY, 0x00, 0x75, 0x2b, 0x55, 0x48, 0x83, 0x3d, ANY, ANY,
        ANY, ANY, 0x00, 0x48, 0x89, 0xe5, 0x74, 0x0c, 0x48, 0x8b, 0x3d, ANY, ANY, ANY, ANY, 0xe8, ANY, ANY, ANY, ANY,
        0xe8, ANY, ANY, ANY, ANY, 0xc6, 0x05, ANY, ANY, ANY, ANY, 0x01, 0x5d, 0xc3, 0x0f, 0x1f, 0x00, 0xc3,
    ],
    outer: &[0, 4, 11, 13, 52, 56],
    inner: &[],
    pushed: &[14, 22, 25, 27, 34, 39, 44, 51],
    framed: &[],
};

/// The same in an executable at a fixed address.
const AUX_FIXED: Piece = Piece {
    code: &[
        0xf3, 0x0f, 0x1e, 0xfa, 0x80, 0x3d, ANY, ANY, ANY, ANY, 0x00, 0x75, 0x13, 0x55, 0x48, 0x89, 0xe5, 0xe8, ANY,
        ANY, ANY, ANY, 0xc6, 0x05, ANY, ANY, ANY, ANY, 0x01, 0x5d, 0xc3, 0x90, 0xc3,
    ],
    outer: &[0, 4, 11, 13, 30, 32],
    inner: &[],
    pushed: &[14, 17, 22, 29],
    framed: &[],
};

/// `frame_dummy`, behind the end of the piece before it: jumps to `register_tm_clones`.
const DUMMY: Piece = Piece {
    code: &[0xc3, 0x0f, 0x1f, 0x80, 0, 0, 0, 0, 0xf3, 0x0f, 0x1e, 0xfa, ANY, ANY],
    outer: &[8, 12],
    inner: &[],
    pushed: &[],
    framed: &[],
};

/// V8's `PushAllRegistersAndIterateStack`, the same in every node and Chromium so far: pushes what a function has to keep, and calls another.
const ITERATE: Piece = Piece {
    code: &[
        0x55, 0x48, 0x89, 0xe5, 0x68, 0xcd, 0xcd, 0xcd, 0x00, 0x53, 0x41, 0x54, 0x41, 0x55, 0x41, 0x56, 0x41, 0x57,
        0x49, 0x89, 0xd0, 0x48, 0x89, 0xe2, 0x41, 0xff, 0xd0, 0x48, 0x83, 0xc4, 0x30, 0x5d, 0xc3,
    ],
    outer: &[0, 32],
    inner: &[],
    pushed: &[1],
    framed: &[4, 9, 10, 12, 14, 16, 18, 21, 24, 27, 31],
};

/// The rule for an address that no table covers, if it lies in one of these pieces.
///
/// `code` reads instructions here. What it cannot read does not match.
#[cold]
pub fn rule_of_piece<M: Memory>(address: FrameAddress, code: &mut M) -> Option<Rule> {
    const PUSHED: Rule =
        Form::Frame { cfa: Cfa::Offset(Base::StackPointer, 16), fp: FramePointer::AtCfa(-16), signal: false }.encode();
    const FRAMED: Rule =
        Form::Frame { cfa: Cfa::Offset(Base::FramePointer, 16), fp: FramePointer::AtCfa(-16), signal: false }.encode();
    let mut bytes = Bytes { code, word: None };
    PIECES.iter().find_map(|piece| {
        let places =
            [(piece.outer, frame(8)), (piece.inner, frame(16)), (piece.pushed, PUSHED), (piece.framed, FRAMED)];
        places.into_iter().find_map(|(offsets, rule)| {
            let found =
                offsets.iter().any(|offset| bytes.are(address.address().wrapping_sub((*offset).into()), piece.code));
            found.then_some(rule)
        })
    })
}

/// Reads code a byte at a time.
struct Bytes<'a, M> {
    code: &'a mut M,
    /// The aligned word that was read last, and its address.
    word: Option<(u64, [u8; 8])>,
}

impl<M: Memory> Bytes<'_, M> {
    fn are(&mut self, start: u64, wanted: &[u16]) -> bool {
        let mut all = (start..start.saturating_add(wanted.len() as u64)).zip(wanted);
        all.all(|(at, byte)| *byte == ANY || self.at(at).map(u16::from) == Some(*byte))
    }

    fn at(&mut self, address: u64) -> Option<u8> {
        let aligned = address & !7;
        let bytes = match self.word {
            Some((known, bytes)) if known == aligned => bytes,
            _ => self.code.read(aligned)?.to_le_bytes(),
        };
        self.word = Some((aligned, bytes));
        bytes.get((address & 7) as usize).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fake::Stack;
    use std::vec::Vec;

    const START: u64 = 0x1000;

    /// The rule at each offset into a piece, and before and behind it.
    fn rules(code: &[u16]) -> Vec<Option<Rule>> {
        let mut bytes = Vec::from([0xcc; 16]);
        bytes.extend(code.iter().map(|byte| if *byte == ANY { 0x5a } else { *byte as u8 }));
        bytes.resize(96, 0xcc);
        let words: Vec<u64> =
            bytes.chunks_exact(8).map(|chunk| u64::from_le_bytes(chunk.try_into().unwrap())).collect();
        let at = |at| rule_of_piece(FrameAddress::Instruction(at), &mut Stack(START - 16, &words));
        (START - 1..START + code.len() as u64 + 1).map(at).collect()
    }

    #[test]
    fn every_instruction_of_each_piece_has_its_rule_and_nothing_else_has_one() {
        for piece in PIECES {
            let rules = rules(piece.code);
            for (at, rule) in (-1_i32..).zip(rules) {
                let among = |offsets: &[u8]| offsets.iter().any(|offset| i32::from(*offset) == at);
                let is_known = [piece.outer, piece.inner, piece.pushed, piece.framed].into_iter().any(among);
                assert_eq!(rule.is_some(), is_known, "{at}");
                assert_eq!(rule == Some(frame(8)), among(piece.outer), "{at}");
                assert_eq!(rule == Some(frame(16)), among(piece.inner), "{at}");
            }
        }
    }

    #[test]
    fn a_piece_that_differs_in_one_byte_is_not_known() {
        for piece in PIECES {
            for (at, byte) in piece.code.iter().enumerate().filter(|(_, byte)| **byte != ANY) {
                let mut other = piece.code.to_vec();
                other[at] = byte ^ 1;
                let places = rules(&other).iter().flatten().count();
                assert_eq!(places, 0, "{at}");
            }
        }
    }
}
