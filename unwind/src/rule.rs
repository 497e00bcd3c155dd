use core::fmt;

/// How to get from a frame to its caller, for one address of code.
///
/// 48 bits, so that a module's number fits beside it in one word. What the bits say differs by architecture: see
/// [`x86_64::Form`](crate::x86_64::Form) and [`aarch64::Form`](crate::aarch64::Form). Any bits can be stepped with: what means
/// nothing is unsupported.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Rule(u64);

impl Rule {
    /// Bits that a rule uses, from the lowest.
    pub const BITS: u32 = 48;
    /// Nothing is known about the address, which lies in no module (made at run time). Stepping with it tries the frame pointer.
    pub const NONE: Self = Self(0);
    /// The frame has no caller: it is the root.
    pub const END_OF_STACK: Self = Self(END_OF_STACK);
    /// No table covers the address, and nothing may be guessed. Ends the walk.
    ///
    /// For gaps in a module's table (code of linkers and assemblers holds the frame pointer of some other function, so that following
    /// it skips frames), and for memory that is not executable.
    pub const NO_TABLE: Self = Self(NO_TABLE);
    /// There is a caller, but the rule for it cannot be expressed. Ends the walk.
    pub const UNSUPPORTED: Self = Self(UNSUPPORTED);

    /// The rule with these bits; those above the lowest [`BITS`](Self::BITS) are ignored.
    #[inline]
    pub const fn from_bits(bits: u64) -> Self {
        Self(bits & ((1 << Self::BITS) - 1))
    }

    /// The rule in the lowest [`BITS`](Self::BITS) bits; zero for [`NONE`](Self::NONE).
    #[inline]
    pub const fn to_bits(self) -> u64 {
        self.0
    }

    /// Whether nothing is known.
    #[inline]
    pub const fn is_none(self) -> bool {
        self.0 == Self::NONE.0
    }
}

#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
impl Rule {
    /// The host's rule for the perf trampoline of CPython, which [`arch::rule_from_code`](crate::arch::rule_from_code) recognises.
    pub const PERF_TRAMPOLINE: Self = crate::arch::PERF_TRAMPOLINE;
    /// The host's rule for frames that signals make, which [`arch::rule_from_code`](crate::arch::rule_from_code) recognises.
    pub const SIGNAL_FRAME: Self = crate::arch::SIGNAL_FRAME;
}

/// The lowest bits of every rule.
pub(crate) const KIND_BITS: u32 = 4;
/// Kinds that all architectures share; the other numbers are theirs.
pub(crate) const END_OF_STACK: u64 = 1;
pub(crate) const UNSUPPORTED: u64 = 2;
pub(crate) const NO_TABLE: u64 = 3;

impl fmt::Debug for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::NONE => f.write_str("Rule::NONE"),
            Self::END_OF_STACK => f.write_str("Rule::END_OF_STACK"),
            Self::UNSUPPORTED => f.write_str("Rule::UNSUPPORTED"),
            Self::NO_TABLE => f.write_str("Rule::NO_TABLE"),
            Self(bits) => write!(f, "Rule({bits:#014x})"),
        }
    }
}

/// A signed or unsigned field of a rule: `WIDTH` bits from bit `AT`, holding multiples of `UNIT`.
pub(crate) struct Field<const AT: u32, const WIDTH: u32, const UNIT: i32>;

impl<const AT: u32, const WIDTH: u32, const UNIT: i32> Field<AT, WIDTH, UNIT> {
    const MASK: u64 = {
        assert!(WIDTH > 0 && WIDTH <= 24 && AT + WIDTH <= Rule::BITS && UNIT > 0);
        (1 << WIDTH) - 1
    };
    /// Extremes of a signed field, in units.
    const MIN: i64 = -1 << (WIDTH - 1);
    const MAX: i64 = !Self::MIN;
    const BITS_ABOVE: u32 = 64 - AT - WIDTH;
    const OTHER_BITS: u32 = 64 - WIDTH;

    const fn units(value: i64) -> Option<i64> {
        match (value.checked_div(UNIT as i64), value.checked_rem(UNIT as i64)) {
            (Some(units), Some(0)) => Some(units),
            _ => None,
        }
    }

    /// The field's bits in place, if the value is a multiple of the unit and fits.
    pub(crate) const fn signed(value: i64) -> Option<u64> {
        match Self::units(value) {
            Some(units) if units >= Self::MIN && units <= Self::MAX => Some((units as u64 & Self::MASK) << AT),
            _ => None,
        }
    }

    /// The field's value, to be added to an address.
    #[inline]
    pub(crate) const fn read_signed(bits: u64) -> i32 {
        (((bits << Self::BITS_ABOVE) as i64 >> Self::OTHER_BITS) as i32).wrapping_mul(UNIT)
    }

    /// The field's bits in place, if the value is not negative, a multiple of the unit, and fits.
    pub(crate) const fn unsigned(value: i64) -> Option<u64> {
        match Self::units(value) {
            Some(units) if units >= 0 && units as u64 <= Self::MASK => Some((units as u64) << AT),
            _ => None,
        }
    }

    /// The field's value.
    #[inline]
    pub(crate) const fn read_unsigned(bits: u64) -> i32 {
        ((bits >> AT & Self::MASK) as i32).wrapping_mul(UNIT)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bits_above_the_rule_are_ignored() {
        assert_eq!(Rule::from_bits(0xffff_0000_0000_0001), Rule::END_OF_STACK);
        assert_eq!(Rule::from_bits(Rule::UNSUPPORTED.to_bits()), Rule::UNSUPPORTED);
        assert!(Rule::from_bits(0).is_none());
    }

    #[test]
    fn a_signed_field_keeps_its_extremes_and_refuses_what_lies_beyond() {
        type F = Field<8, 10, 8>;
        for value in [-4096, -8, 0, 8, 4088] {
            assert_eq!(F::read_signed(F::signed(value).unwrap() | 0xffff_ffff_fffc_00ff) as i64, value);
        }
        for value in [-4104, 4096, 4, i64::MIN, i64::MAX] {
            assert_eq!(F::signed(value), None, "{value}");
        }
    }

    #[test]
    fn an_unsigned_field_keeps_its_extremes_and_refuses_what_lies_beyond() {
        type F = Field<38, 10, 8>;
        for value in [0, 8, 8184] {
            assert_eq!(F::read_unsigned(F::unsigned(value).unwrap() | 0xff) as i64, value);
        }
        for value in [-8, 8192, 7, i64::MIN, i64::MAX] {
            assert_eq!(F::unsigned(value), None, "{value}");
        }
    }
}
