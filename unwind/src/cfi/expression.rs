use crate::cfi::Source;
use crate::cfi::cursor::Cursor;

/// A value that instructions or an expression compute from registers of the frame. Offsets in bytes; registers by DWARF's numbers.
///
/// Expressions are free programs, but those in real files are few; only these are understood.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Computed {
    /// `register + offset`.
    Register {
        /// The register.
        register: u16,
        /// Added to it.
        offset: i32,
    },
    /// `*(register + offset) + add`.
    Load {
        /// The register.
        register: u16,
        /// Added to it.
        offset: i32,
        /// Added to what was loaded.
        add: i32,
    },
    /// `*(register + offset + index * scale) + add`: OpenSSL's multiplication keeps the old stack pointer behind an array whose length is in a register.
    LoadIndexed {
        /// The register.
        register: u8,
        /// The register that counts.
        index: u8,
        /// What it counts in.
        scale: u8,
        /// Added to the register.
        offset: i32,
        /// Added to what was loaded.
        add: i16,
    },
    /// `register + offset + (((ra & 15) >= pushed_from) << 3)`: what linkers write for procedure linkage tables.
    Plt {
        /// The register.
        register: u16,
        /// Added to it.
        offset: i32,
        /// The register compared.
        ra: u16,
        /// Address modulo 16 from which 8 bytes more are on the stack.
        pushed_from: u8,
    },
    /// Not understood.
    Unknown,
}

/// Most operations of an expression that is understood.
const LONGEST: usize = 9;

impl Computed {
    pub(super) fn register(register: u16, offset: i64) -> Self {
        i32::try_from(offset).map_or(Self::Unknown, |offset| Self::Register { register, offset })
    }

    /// Understands an expression, which fills the cursor's range.
    pub(super) fn read<S: Source>(cursor: &mut Cursor<'_, S>) -> Self {
        let mut all = [Op::Other; LONGEST];
        let mut length = 0_usize;
        while !cursor.is_at_end() {
            let (Some(op), Some(slot)) = (Op::read(cursor), all.get_mut(length)) else { return Self::Unknown };
            *slot = op;
            length = length.wrapping_add(1);
        }
        Self::from_ops(all.get(..length).unwrap_or_default())
    }

    fn from_ops(ops: &[Op]) -> Self {
        use Op::{Add, And, Const, GreaterOrEqual, Load, Multiply, Plus, Register, ShiftLeft};
        match *ops {
            [Register(register, offset)] => Self::register(register, offset),
            [Register(register, offset), Add(add)] | [Register(register, offset), Const(add), Plus] => {
                Self::register(register, offset.wrapping_add(add))
            }
            [Register(register, offset), Load] => Self::load(register, offset, 0),
            [Register(register, offset), Load, Add(add)] | [Register(register, offset), Load, Const(add), Plus] => {
                Self::load(register, offset, add)
            }
            [
                Register(register, offset),
                Register(ra, 0),
                Const(15),
                And,
                Const(from @ 0..=15),
                GreaterOrEqual,
                Const(3),
                ShiftLeft,
                Plus,
            ] => i32::try_from(offset).map_or(Self::Unknown, |offset| Self::Plt {
                register,
                offset,
                ra,
                pushed_from: from as u8,
            }),
            [
                Register(register, offset),
                Register(index, 0),
                Const(scale @ 1..=255),
                Multiply,
                Plus,
                Load,
                Add(add),
            ] => Self::load_indexed((register, index, scale), offset, add).unwrap_or(Self::Unknown),
            _ => Self::Unknown,
        }
    }

    fn load_indexed((register, index, scale): (u16, u16, i64), offset: i64, add: i64) -> Option<Self> {
        Some(Self::LoadIndexed {
            register: u8::try_from(register).ok()?,
            index: u8::try_from(index).ok()?,
            scale: u8::try_from(scale).ok()?,
            offset: i32::try_from(offset).ok()?,
            add: i16::try_from(add).ok()?,
        })
    }

    fn load(register: u16, offset: i64, add: i64) -> Self {
        match (i32::try_from(offset), i32::try_from(add)) {
            (Ok(offset), Ok(add)) => Self::Load { register, offset, add },
            _ => Self::Unknown,
        }
    }
}

/// The operations that occur in expressions that are understood.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Op {
    Register(u16, i64),
    Const(i64),
    Add(i64),
    Load,
    Plus,
    And,
    GreaterOrEqual,
    Multiply,
    ShiftLeft,
    Other,
}

impl Op {
    fn read<S: Source>(cursor: &mut Cursor<'_, S>) -> Option<Self> {
        let opcode = cursor.u8()?;
        Some(match opcode {
            0x06 => Self::Load,
            0x08 => Self::Const(i64::from(cursor.u8()?)),
            0x09 => Self::Const(i64::from(cursor.i8()?)),
            0x0a => Self::Const(i64::from(cursor.u16()?)),
            0x0b => Self::Const(i64::from(cursor.u16()? as i16)),
            0x0c => Self::Const(i64::from(cursor.u32()?)),
            0x0d => Self::Const(i64::from(cursor.u32()? as i32)),
            0x10 => i64::try_from(cursor.uleb()?).map_or(Self::Other, Self::Const),
            0x11 => Self::Const(cursor.sleb()?),
            0x1a => Self::And,
            0x1e => Self::Multiply,
            0x22 => Self::Plus,
            0x23 => i64::try_from(cursor.uleb()?).map_or(Self::Other, Self::Add),
            0x24 => Self::ShiftLeft,
            0x2a => Self::GreaterOrEqual,
            0x30..=0x4f => Self::Const(i64::from(opcode.wrapping_sub(0x30))),
            0x70..=0x8f => Self::Register(u16::from(opcode.wrapping_sub(0x70)), cursor.sleb()?),
            0x92 => Self::Register(cursor.register()?, cursor.sleb()?),
            // An operation with operands may end anywhere: what follows is not understood either.
            _ => return None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Slice<'a>(&'a [u8]);

    impl Source for Slice<'_> {
        fn read<const N: usize>(&mut self, address: u64) -> Option<[u8; N]> {
            self.0.get(usize::try_from(address).ok()?..)?.first_chunk().copied()
        }
    }

    fn understood(bytes: &[u8]) -> Computed {
        Computed::read(&mut Cursor { source: &mut Slice(bytes), at: 0, end: bytes.len() as u64 })
    }

    #[test]
    fn frames_that_align_their_stack_are_understood() {
        let breg6_minus_8_deref = [0x76, 0x78, 0x06];
        assert_eq!(understood(&breg6_minus_8_deref), Computed::Load { register: 6, offset: -8, add: 0 });
        let breg6_0 = [0x76, 0x00];
        assert_eq!(understood(&breg6_0), Computed::Register { register: 6, offset: 0 });
    }

    #[test]
    fn frames_that_keep_the_old_stack_pointer_on_the_new_stack_are_understood() {
        let breg7_40_deref_plus_8 = [0x77, 0x28, 0x06, 0x23, 0x08];
        assert_eq!(understood(&breg7_40_deref_plus_8), Computed::Load { register: 7, offset: 40, add: 8 });
        let breg7_40_deref_lit8_plus = [0x77, 0x28, 0x06, 0x38, 0x22];
        assert_eq!(understood(&breg7_40_deref_lit8_plus), Computed::Load { register: 7, offset: 40, add: 8 });
    }

    #[test]
    fn a_stack_pointer_behind_an_array_is_understood() {
        // breg7 8; breg9 0; lit8; mul; plus; deref; plus_uconst 8
        let indexed = [0x77, 0x08, 0x79, 0x00, 0x38, 0x1e, 0x22, 0x06, 0x23, 0x08];
        let expected = Computed::LoadIndexed { register: 7, index: 9, scale: 8, offset: 8, add: 8 };
        assert_eq!(understood(&indexed), expected);
        assert_eq!(size_of::<Computed>(), 12, "a handler keeps some hundred of them on its stack");
    }

    #[test]
    fn the_linkage_table_is_understood() {
        let plt = [0x77, 0x08, 0x80, 0x00, 0x3f, 0x1a, 0x3b, 0x2a, 0x33, 0x24, 0x22];
        assert_eq!(understood(&plt), Computed::Plt { register: 7, offset: 8, ra: 16, pushed_from: 11 });
    }

    #[test]
    fn anything_else_is_unknown() {
        let breg7_0_deref_deref = [0x77, 0x00, 0x06, 0x06];
        let deref_of_four_bytes = [0x77, 0x00, 0x94, 0x04];
        let unfinished = [0x77];
        let far = [0x77, 0x80, 0x80, 0x80, 0x80, 0x10];
        let long = [0x96; 20];
        for bytes in [&[][..], &breg7_0_deref_deref, &deref_of_four_bytes, &unfinished, &far, &long] {
            assert_eq!(understood(bytes), Computed::Unknown);
        }
    }
}
