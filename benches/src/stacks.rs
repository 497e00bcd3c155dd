//! Stacks to walk: 128 functions that call each other in a pseudo-random order.
//!
//! They differ in the size of their frames and in how many registers they save, so that they need different rules; compiled as every
//! Rust release build is, they keep no frame pointers.

use std::hint::black_box;
use unwind::arch::Registers;

/// What the functions pass on.
pub struct Descent<'a> {
    left: u32,
    random: u64,
    leaf: &'a mut dyn FnMut(Registers),
}

type Level = fn(&mut Descent<'_>) -> u64;

macro_rules! eight_each {
    ($($high:literal)*) => {
        [$(
            level::<{ $high * 8 }, { $high % 5 + 1 }, 0>, level::<{ $high * 8 + 1 }, { $high % 7 + 1 }, 6>,
            level::<{ $high * 8 + 2 }, { $high % 3 * 9 + 1 }, 2>, level::<{ $high * 8 + 3 }, { $high % 5 + 7 }, 6>,
            level::<{ $high * 8 + 4 }, { $high % 2 * 40 + 3 }, 1>, level::<{ $high * 8 + 5 }, { $high % 7 + 4 }, 6>,
            level::<{ $high * 8 + 6 }, { $high % 5 + 21 }, 4>, level::<{ $high * 8 + 7 }, { $high % 11 + 1 }, 6>,
        )*]
    };
}

static LEVELS: [Level; 128] = eight_each!(0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15);

/// Function `N`: a frame of about `WORDS` words, with `KEPT` values that outlive the call, for which the compiler saves as many registers
/// (the sixth is `rbp`).
#[inline(never)]
fn level<const N: usize, const WORDS: usize, const KEPT: usize>(descent: &mut Descent<'_>) -> u64 {
    let room = black_box([N as u64; WORDS]);
    let kept: [u64; 6] = std::array::from_fn(|i| if i < KEPT { black_box(i as u64) } else { 0 });
    let below = descent.go_on();
    // Not a tail call.
    kept.iter().fold(below ^ room[WORDS / 2], |sum, value| sum.wrapping_mul(31).wrapping_add(*value))
}

impl Descent<'_> {
    #[inline(always)]
    fn go_on(&mut self) -> u64 {
        if self.left == 0 {
            return bottom(self);
        }
        self.left -= 1;
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        LEVELS[(self.random >> 32) as usize % LEVELS.len()](self)
    }
}

#[inline(never)]
fn bottom(descent: &mut Descent<'_>) -> u64 {
    let registers = own_registers();
    (descent.leaf)(registers);
    black_box(1)
}

/// Calls `leaf` below `depth` of the functions, which `seed` chooses, with the registers of its caller.
pub fn descend(depth: u32, seed: u64, leaf: &mut dyn FnMut(Registers)) {
    // Neighbouring seeds shall not begin alike, and zero would stay zero.
    let random = (seed + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    black_box(Descent { left: depth, random, leaf }.go_on());
}

/// The registers of the function that this is inlined into.
#[inline(always)]
fn own_registers() -> Registers {
    let (pc, sp, fp);
    // SAFETY: copies registers.
    unsafe {
        std::arch::asm!(
            "lea {pc}, [rip]", "mov {sp}, rsp", "mov {fp}, rbp",
            pc = out(reg) pc, sp = out(reg) sp, fp = out(reg) fp, options(nomem, nostack, preserves_flags),
        );
    }
    Registers { pc, sp, fp: Some(fp) }
}

/// Calls `f` so many frames further down.
#[inline(never)]
pub fn deeper(frames: u32, f: &mut dyn FnMut()) -> u32 {
    let result = if frames == 0 {
        f();
        0
    } else {
        deeper(frames - 1, f) + 1
    };
    black_box(result)
}
