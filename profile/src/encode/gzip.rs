//! Gzip whose writer knows what repeats.
//!
//! Of a large profile, nine bytes of ten are a stack that was written just before, or the labels of a thread. A compressor finds that out by looking every few
//! bytes up in a table, for five times as long as everything else takes. Here it is told: [`Gzip::again`] is one back-reference. What follows the samples
//! (names, locations) is compressed by flate2, in the same member, since not every reader takes more than one.
//!
//! The blocks written here have the codes that RFC 1951 fixes.

use flate2::Compression;
use flate2::write::DeflateEncoder;
use std::io::{self, Write};

/// Bytes that are collected before they are summed up or passed on.
const PIECE: usize = 1 << 16;
/// Furthest that a back-reference reaches.
const WINDOW: u64 = 1 << 15;
/// Shortest and longest one.
const SHORTEST: usize = 3;
const LONGEST: usize = 258;
/// Magic number, deflate, no name, no time, fastest, Unix.
const HEADER: [u8; 10] = [0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 4, 3];

/// A gzip member in the making.
pub(super) struct Gzip<W: Write> {
    out: W,
    sum: crc32fast::Hasher,
    /// Plain bytes that are not summed up yet.
    plain: Vec<u8>,
    /// Plain bytes before those.
    before: u64,
    packed: Vec<u8>,
    /// Bits that are not a byte of `packed` yet, the first the lowest.
    bits: u64,
    bit_count: u32,
    /// A back-reference that can still grow.
    distance: u64,
    length: usize,
}

impl<W: Write> Gzip<W> {
    /// Begins a member.
    pub(super) fn new(out: W) -> Self {
        let mut gzip = Self {
            out,
            sum: crc32fast::Hasher::new(),
            plain: Vec::with_capacity(2 * PIECE),
            before: 0,
            packed: Vec::with_capacity(2 * PIECE),
            bits: 0,
            bit_count: 0,
            distance: 0,
            length: 0,
        };
        gzip.packed.extend_from_slice(&HEADER);
        // A block of fixed codes, and not the last.
        gzip.put(0b010, 3);
        gzip
    }

    /// Where the next byte will be.
    pub(super) fn position(&self) -> u64 {
        self.before + self.plain.len() as u64
    }

    /// Writes bytes.
    pub(super) fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        if bytes.is_empty() {
            return Ok(());
        }
        self.end_reference();
        self.literals(bytes);
        self.take(bytes)
    }

    /// Writes bytes that were written before, at this position.
    pub(super) fn again(&mut self, bytes: &[u8], at: u64) -> io::Result<()> {
        let distance = self.position() - at;
        if distance > WINDOW || distance < bytes.len() as u64 {
            return self.write(bytes);
        }
        if distance != self.distance || self.length == 0 {
            if bytes.len() < SHORTEST {
                return self.write(bytes);
            }
            self.end_reference();
            self.distance = distance;
        }
        self.length += bytes.len();
        self.take(bytes)
    }

    /// Ends the member with bytes of which nothing is known.
    pub(super) fn finish(mut self, rest: &[u8]) -> io::Result<()> {
        self.end_reference();
        // The end of the block; then an empty stored one, which ends at a whole byte.
        self.put(0, 7);
        self.put(0, 3);
        self.put(0, self.bit_count.wrapping_neg() % 8);
        while self.bit_count > 0 {
            self.packed.push(self.bits as u8);
            self.bits >>= 8;
            self.bit_count -= 8;
        }
        self.packed.extend_from_slice(&[0, 0, 0xff, 0xff]);
        self.out.write_all(&self.packed)?;
        let mut deflate = DeflateEncoder::new(&mut self.out, Compression::fast());
        deflate.write_all(rest)?;
        deflate.finish()?;
        self.sum.update(&self.plain);
        self.sum.update(rest);
        // The length is stated modulo 2^32.
        let length = self.before + (self.plain.len() + rest.len()) as u64;
        self.out.write_all(&self.sum.finalize().to_le_bytes())?;
        self.out.write_all(&(length as u32).to_le_bytes())?;
        self.out.flush()
    }

    /// Keeps bytes for the sum, and passes on what is ready.
    fn take(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.plain.extend_from_slice(bytes);
        if self.plain.len() >= PIECE {
            self.sum.update(&self.plain);
            self.before += self.plain.len() as u64;
            self.plain.clear();
        }
        if self.packed.len() >= PIECE {
            self.out.write_all(&self.packed)?;
            self.packed.clear();
        }
        Ok(())
    }

    fn literals(&mut self, bytes: &[u8]) {
        // Three have 27 bits at most.
        for bytes in bytes.chunks(3) {
            let of_last_first = bytes.iter().rev().map(|byte| LITERALS[usize::from(*byte)]);
            let (codes, widths) = of_last_first.fold((0, 0), |(codes, widths), (code, width)| {
                (codes << width | u32::from(code), widths + u32::from(width))
            });
            self.put(codes, widths);
        }
    }

    /// Writes the back-reference that was growing.
    fn end_reference(&mut self) {
        let mut left = std::mem::take(&mut self.length);
        if left == 0 {
            return;
        }
        let (distance, distance_width) = distance_code(self.distance as u32);
        while left > 0 {
            // What is left must not be too short for one more.
            let length =
                if left > LONGEST && left < LONGEST + SHORTEST { LONGEST - SHORTEST } else { left.min(LONGEST) };
            let (code, width) = LENGTHS[length - SHORTEST];
            self.put(u32::from(code) | distance << width, u32::from(width) + distance_width);
            left -= length;
        }
    }

    /// Appends at most 32 bits.
    fn put(&mut self, code: u32, width: u32) {
        self.bits |= u64::from(code) << self.bit_count;
        self.bit_count += width;
        if self.bit_count >= 32 {
            self.packed.extend_from_slice(&(self.bits as u32).to_le_bytes());
            self.bits >>= 32;
            self.bit_count -= 32;
        }
    }
}

/// Code and width of each literal. Huffman codes begin with their highest bit, all else with its lowest.
const LITERALS: [(u16, u8); 256] = {
    let mut codes = [(0, 0); 256];
    let mut byte = 0;
    while byte < 256 {
        codes[byte] =
            if byte < 144 { (reversed(0x30 + byte as u16, 8), 8) } else { (reversed(0x190 + byte as u16 - 144, 9), 9) };
        byte += 1;
    }
    codes
};

/// Code and width of each length from [`SHORTEST`] on, with its extra bits.
const LENGTHS: [(u16, u8); LONGEST - SHORTEST + 1] = {
    let mut codes = [(0, 0); LONGEST - SHORTEST + 1];
    let mut symbol = 257;
    let mut length = 0;
    while symbol < 285 {
        // Four symbols each for one extra bit more, and eight without.
        let extra_width = if symbol < 265 { 0 } else { (symbol - 261) / 4 };
        let (code, width) = length_symbol(symbol);
        let mut extra = 0;
        while extra < 1 << extra_width && length < codes.len() {
            codes[length] = (code | extra << width, width + extra_width as u8);
            length += 1;
            extra += 1;
        }
        symbol += 1;
    }
    codes[LONGEST - SHORTEST] = length_symbol(285);
    codes
};

const fn length_symbol(symbol: u16) -> (u16, u8) {
    if symbol < 280 { (reversed(symbol - 256, 7), 7) } else { (reversed(0xc0 + symbol - 280, 8), 8) }
}

/// Code and width of a distance, with its extra bits.
const fn distance_code(distance: u32) -> (u32, u32) {
    let from_0 = distance - 1;
    let (symbol, extra_width) = if from_0 < 4 {
        (from_0, 0)
    } else {
        let extra_width = from_0.ilog2() - 1;
        (2 * extra_width + (from_0 >> extra_width), extra_width)
    };
    let extra = from_0 & ((1 << extra_width) - 1);
    (reversed(symbol as u16, 5) as u32 | extra << 5, 5 + extra_width)
}

const fn reversed(code: u16, width: u32) -> u16 {
    code.reverse_bits() >> (16 - width)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;

    /// Numbers that are the same in every run.
    fn random(state: &mut u64) -> usize {
        *state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (*state >> 33) as usize
    }

    fn unpacked(packed: &[u8]) -> Vec<u8> {
        let mut unpacked = Vec::new();
        flate2::read::GzDecoder::new(packed).read_to_end(&mut unpacked).unwrap();
        unpacked
    }

    #[test]
    fn whatever_is_repeated_comes_out_as_it_went_in() {
        let mut state = 1;
        for rounds in [0, 1, 2, 50, 3000] {
            let (mut packed, mut plain) = (Vec::new(), Vec::new());
            let mut gzip = Gzip::new(&mut packed);
            for _ in 0..rounds {
                if random(&mut state).is_multiple_of(3) || plain.is_empty() {
                    let bytes: Vec<u8> = (0..random(&mut state) % 40).map(|_| random(&mut state) as u8).collect();
                    gzip.write(&bytes).unwrap();
                    plain.extend(bytes);
                } else {
                    // Near and beyond the window, short and longer than one reference, some of them continuing the one before.
                    let mut at = plain.len() - 1 - random(&mut state) % plain.len().min(50_000);
                    for _ in 0..1 + random(&mut state) % 3 {
                        let length = (random(&mut state) % 700).min(plain.len() - at);
                        let bytes = plain[at..at + length].to_vec();
                        gzip.again(&bytes, at as u64).unwrap();
                        plain.extend(bytes);
                        at += length;
                    }
                }
                assert_eq!(gzip.position(), plain.len() as u64);
            }
            let rest: Vec<u8> = (0..rounds).map(|_| random(&mut state) as u8 & 7).collect();
            gzip.finish(&rest).unwrap();
            plain.extend(rest);
            assert!(unpacked(&packed) == plain, "{rounds} rounds");
        }
    }

    #[test]
    fn every_length_and_distance_has_its_code() {
        for distance in [1, 2, 3, 4, 5, 8, 9, 257, 258, 259, 1024, 1025, 32_767, 32_768] {
            let (mut packed, mut plain) = (Vec::new(), Vec::new());
            let mut gzip = Gzip::new(&mut packed);
            let first: Vec<u8> = (0..distance).map(|i: u32| (i * 7 + i / 251) as u8).collect();
            gzip.write(&first).unwrap();
            plain.extend(&first);
            for length in 1..=600.min(distance as usize) {
                let at = plain.len() - distance as usize;
                let bytes = plain[at..at + length].to_vec();
                gzip.again(&bytes, at as u64).unwrap();
                gzip.write(&[length as u8]).unwrap();
                plain.extend(bytes);
                plain.push(length as u8);
            }
            gzip.finish(&[]).unwrap();
            assert!(unpacked(&packed) == plain, "distance {distance}");
        }
    }

    #[test]
    fn what_is_known_to_repeat_takes_three_bytes() {
        let stack: Vec<u8> = (0..200).collect();
        let mut packed = Vec::new();
        let mut gzip = Gzip::new(&mut packed);
        gzip.write(&stack).unwrap();
        for i in 1..=1000 {
            gzip.again(&stack, (i - 1) * 200).unwrap();
        }
        gzip.finish(&[]).unwrap();
        assert!(packed.len() < 300 + 3 * 1000, "{}", packed.len());
    }
}
