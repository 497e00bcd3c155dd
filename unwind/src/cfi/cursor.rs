use crate::cfi::Computed;

/// Where frame information is read from: memory of the process, or a copy of a section at its address.
pub trait Source {
    /// The bytes from `address` on; `None` if they cannot be read.
    fn read<const N: usize>(&mut self, address: u64) -> Option<[u8; N]>;
}

impl<S: Source + ?Sized> Source for &mut S {
    #[inline]
    fn read<const N: usize>(&mut self, address: u64) -> Option<[u8; N]> {
        (**self).read(address)
    }
}

/// Bytes that lie at an address of the process, or of the ELF file if everything else does too.
#[derive(Clone, Copy, Debug)]
pub struct Section<'a> {
    /// The contents. They may go on beyond the section, to the end of its segment.
    pub bytes: &'a [u8],
    /// Where the first byte lies.
    pub address: u64,
}

impl Source for Section<'_> {
    #[inline]
    fn read<const N: usize>(&mut self, address: u64) -> Option<[u8; N]> {
        let at = usize::try_from(address.wrapping_sub(self.address)).ok()?;
        self.bytes.get(at..)?.first_chunk().copied()
    }
}

/// Several sections, each at its address.
impl<const SECTIONS: usize> Source for [Section<'_>; SECTIONS] {
    fn read<const N: usize>(&mut self, address: u64) -> Option<[u8; N]> {
        self.iter_mut().find_map(|section| section.read(address))
    }
}

/// Reads on from an address, up to an end.
pub(super) struct Cursor<'a, S> {
    pub(super) source: &'a mut S,
    pub(super) at: u64,
    pub(super) end: u64,
}

/// How a pointer is written (DW_EH_PE).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Encoding(pub(super) u8);

impl Encoding {
    pub(super) const ABSOLUTE: Self = Self(0);
    pub(super) const OMITTED: Self = Self(0xff);

    /// The same without what it is relative to: for lengths.
    pub(super) const fn format(self) -> Self {
        Self(self.0 & 0x0f)
    }
}

impl<S: Source> Cursor<'_, S> {
    #[inline]
    fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        let next = self.at.checked_add(N as u64).filter(|next| *next <= self.end)?;
        let bytes = self.source.read(self.at)?;
        self.at = next;
        Some(bytes)
    }

    pub(super) fn is_at_end(&self) -> bool {
        self.at >= self.end
    }

    pub(super) fn skip(&mut self, bytes: u64) -> Option<()> {
        self.at = self.at.checked_add(bytes).filter(|next| *next <= self.end)?;
        Some(())
    }

    #[inline]
    pub(super) fn u8(&mut self) -> Option<u8> {
        self.take::<1>().map(|[byte]| byte)
    }

    pub(super) fn i8(&mut self) -> Option<i8> {
        self.u8().map(|byte| byte as i8)
    }

    pub(super) fn u16(&mut self) -> Option<u16> {
        self.take().map(u16::from_le_bytes)
    }

    pub(super) fn u32(&mut self) -> Option<u32> {
        self.take().map(u32::from_le_bytes)
    }

    pub(super) fn u64(&mut self) -> Option<u64> {
        self.take().map(u64::from_le_bytes)
    }

    /// Unsigned LEB128; bits above the 64th must be zero.
    #[inline]
    pub(super) fn uleb(&mut self) -> Option<u64> {
        let first = self.u8()?;
        if first < 0x80 {
            return Some(u64::from(first));
        }
        let mut value = u64::from(first & 0x7f);
        let mut shift = 7_u32;
        loop {
            let byte = self.u8()?;
            let bits = u64::from(byte & 0x7f);
            match bits.checked_shl(shift).filter(|shifted| shifted.wrapping_shr(shift) == bits) {
                Some(shifted) => value |= shifted,
                None if bits == 0 => {}
                None => return None,
            }
            if byte & 0x80 == 0 {
                return Some(value);
            }
            shift = shift.saturating_add(7);
        }
    }

    /// Signed LEB128.
    #[inline]
    pub(super) fn sleb(&mut self) -> Option<i64> {
        let mut value = 0_u64;
        let mut shift = 0_u32;
        loop {
            let byte = self.u8()?;
            let bits = u64::from(byte & 0x7f);
            match shift {
                0..=56 => value |= bits.wrapping_shl(shift),
                63 if bits == 0 || bits == 0x7f => value |= bits.wrapping_shl(63),
                _ => return None,
            }
            shift = shift.wrapping_add(7);
            if byte & 0x80 == 0 {
                let negative = byte & 0x40 != 0 && shift < 64;
                return Some(if negative { value | u64::MAX.wrapping_shl(shift) } else { value } as i64);
            }
        }
    }

    /// An encoded pointer. Those to be looked up in memory are not: only pointers to personality routines are, and nobody asks for them.
    pub(super) fn pointer(&mut self, Encoding(encoding): Encoding, data: Option<u64>) -> Option<u64> {
        if encoding & 0x80 != 0 {
            return None;
        }
        let base = match encoding & 0x70 {
            0x00 => 0,
            0x10 => self.at,
            0x30 => data?,
            _ => return None,
        };
        let value = match encoding & 0x0f {
            0x00 | 0x04 | 0x0c => self.u64()?,
            0x01 => self.uleb()?,
            0x02 => u64::from(self.u16()?),
            0x03 => u64::from(self.u32()?),
            0x09 => self.sleb()? as u64,
            0x0a => self.u16()? as i16 as u64,
            0x0b => self.u32()? as i32 as u64,
            _ => return None,
        };
        Some(base.wrapping_add(value))
    }

    /// A register's number.
    #[inline]
    pub(super) fn register(&mut self) -> Option<u16> {
        u16::try_from(self.uleb()?).ok()
    }

    /// A block of the length that stands in front of it, understood as an expression.
    pub(super) fn expression(&mut self) -> Option<Computed> {
        let length = self.uleb()?;
        let start = self.at;
        self.skip(length)?;
        Some(Computed::read(&mut Cursor { source: self.source, at: start, end: self.at }))
    }
}
