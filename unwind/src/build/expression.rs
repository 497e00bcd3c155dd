use gimli::{EndianSlice, Expression, LittleEndian, Operation, UnitOffset};

/// A value that instructions or an expression compute from registers of the frame.
///
/// Expressions are free programs, but those in real files are few; only these are understood.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Computed {
    /// `register + offset`.
    Register {
        /// DWARF's number.
        register: u16,
        /// In bytes.
        offset: i64,
    },
    /// `*(register + offset) + add`.
    Load {
        /// DWARF's number.
        register: u16,
        /// In bytes.
        offset: i64,
        /// In bytes.
        add: i64,
    },
    /// `register + offset + (((ra & 15) >= pushed_from) << 3)`: what linkers write for procedure linkage tables.
    Plt {
        /// DWARF's number.
        register: u16,
        /// In bytes.
        offset: i64,
        /// DWARF's number of the register compared.
        ra: u16,
        /// Address modulo 16 from which 8 bytes more are on the stack.
        pushed_from: u64,
    },
    /// Not understood.
    Unknown,
}

type Reader<'a> = EndianSlice<'a, LittleEndian>;

/// Most operations of an expression that is understood.
const LONGEST: usize = 9;

impl Computed {
    /// Understands an expression.
    pub(super) fn from_expression(expression: Expression<Reader<'_>>, encoding: gimli::Encoding) -> Self {
        let mut all = [Op::Other; LONGEST];
        let mut len = 0_usize;
        let mut operations = expression.operations(encoding);
        loop {
            match operations.next() {
                Ok(Some(operation)) => {
                    let Some(slot) = all.get_mut(len) else { return Self::Unknown };
                    *slot = Op::of(&operation);
                    len = len.wrapping_add(1);
                }
                Ok(None) => break,
                Err(_) => return Self::Unknown,
            }
        }
        Self::from_ops(all.get(..len).unwrap_or_default())
    }

    fn from_ops(ops: &[Op]) -> Self {
        use Op::{Add, And, Const, GreaterOrEqual, Load, Other, Plus, Register, ShiftLeft};
        match *ops {
            [Register(register, offset)] => Self::Register { register, offset },
            [Register(register, offset), Add(add)] | [Register(register, offset), Const(add), Plus] => {
                Self::Register { register, offset: offset.wrapping_add(add) }
            }
            [Register(register, offset), Load] => Self::Load { register, offset, add: 0 },
            [Register(register, offset), Load, Add(add)] | [Register(register, offset), Load, Const(add), Plus] => {
                Self::Load { register, offset, add }
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
            ] => Self::Plt { register, offset, ra, pushed_from: from as u64 },
            [Other, ..] | [_, ..] | [] => Self::Unknown,
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
    ShiftLeft,
    Other,
}

impl Op {
    fn of(operation: &Operation<Reader<'_>>) -> Self {
        match *operation {
            Operation::RegisterOffset { register, offset, base_type: UnitOffset(0) } => {
                Self::Register(register.0, offset)
            }
            Operation::UnsignedConstant { value } => i64::try_from(value).map_or(Self::Other, Self::Const),
            Operation::SignedConstant { value } => Self::Const(value),
            Operation::PlusConstant { value } => i64::try_from(value).map_or(Self::Other, Self::Add),
            Operation::Deref { base_type: UnitOffset(0), size: 8, space: false } => Self::Load,
            Operation::Plus => Self::Plus,
            Operation::And => Self::And,
            Operation::Ge => Self::GreaterOrEqual,
            Operation::Shl => Self::ShiftLeft,
            _ => Self::Other,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn understood(bytes: &[u8]) -> Computed {
        let encoding = gimli::Encoding { address_size: 8, format: gimli::Format::Dwarf32, version: 1 };
        Computed::from_expression(Expression(EndianSlice::new(bytes, LittleEndian)), encoding)
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
    fn the_linkage_table_is_understood() {
        let plt = [0x77, 0x08, 0x80, 0x00, 0x3f, 0x1a, 0x3b, 0x2a, 0x33, 0x24, 0x22];
        assert_eq!(understood(&plt), Computed::Plt { register: 7, offset: 8, ra: 16, pushed_from: 11 });
    }

    #[test]
    fn anything_else_is_unknown() {
        let breg7_0_deref_deref = [0x77, 0x00, 0x06, 0x06];
        let deref_of_four_bytes = [0x77, 0x00, 0x94, 0x04];
        let unfinished = [0x77];
        let long = [0x96; 20];
        for bytes in [&[][..], &breg7_0_deref_deref, &deref_of_four_bytes, &unfinished, &long] {
            assert_eq!(understood(bytes), Computed::Unknown);
        }
    }
}
