use crate::cfi::cursor::{Cursor, Encoding};
use crate::cfi::{CallerRules, Executor, Source};

/// Which of the two formats a section has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SectionKind {
    /// `.eh_frame`, loaded with the program. An FDE names its CIE by the distance to it.
    EhFrame,
    /// `.debug_frame`, in the file only. An FDE names its CIE by its offset in the section.
    DebugFrame,
}

/// The head of one entry of a section, at an address.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Entry {
    /// Address of the CIE, if the entry is an FDE.
    pub(crate) cie: Option<u64>,
    /// Where the contents begin, and the next entry.
    contents: u64,
    pub(crate) next: u64,
}

impl Entry {
    /// `section` is the address of the section, for `.debug_frame`. `None` at the terminator and where the bytes end.
    pub(crate) fn read<S: Source>(source: &mut S, kind: SectionKind, section: u64, at: u64) -> Option<Self> {
        let mut cursor = Cursor { source, at, end: u64::MAX };
        let length = cursor.u32()?;
        let long = length == u32::MAX;
        let length = match length {
            0 if kind == SectionKind::EhFrame => return None,
            u32::MAX => cursor.u64()?,
            length => u64::from(length),
        };
        let id_at = cursor.at;
        cursor.end = id_at.checked_add(length)?;
        // In `.eh_frame` the field has four bytes even in entries with a long length.
        let (id, of_cie) = match kind {
            SectionKind::EhFrame => (u64::from(cursor.u32()?), 0),
            SectionKind::DebugFrame if long => (cursor.u64()?, u64::MAX),
            SectionKind::DebugFrame => (u64::from(cursor.u32()?), u64::from(u32::MAX)),
        };
        let cie = (id != of_cie).then(|| match kind {
            SectionKind::EhFrame => id_at.wrapping_sub(id),
            SectionKind::DebugFrame => section.wrapping_add(id),
        });
        Some(Self { cie, contents: cursor.at, next: cursor.end })
    }
}

/// What a group of functions shares (common information entry).
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cie {
    pub(super) code_factor: u64,
    pub(super) data_factor: i64,
    /// DWARF's number of the return address column.
    pub(crate) return_address: u16,
    pub(super) encoding: Encoding,
    /// The FDEs carry data of their own.
    augmented: bool,
    pub(crate) signal: bool,
    pub(super) instructions: (u64, u64),
}

impl Cie {
    /// `None` if it is malformed, or has an augmentation that is not known.
    pub(crate) fn read<S: Source>(source: &mut S, kind: SectionKind, section: u64, at: u64) -> Option<Self> {
        let entry = Entry::read(source, kind, section, at).filter(|entry| entry.cie.is_none())?;
        let mut cursor = Cursor { source, at: entry.contents, end: entry.next };
        let version = cursor.u8()?;
        if !matches!((kind, version), (_, 1 | 3) | (SectionKind::DebugFrame, 4)) {
            return None;
        }
        let mut letters = [0; 8];
        let mut length = 0_usize;
        loop {
            let letter = cursor.u8()?;
            if letter == 0 {
                break;
            }
            *letters.get_mut(length)? = letter;
            length = length.wrapping_add(1);
        }
        if version == 4 && (cursor.u8()?, cursor.u8()?) != (8, 0) {
            return None;
        }
        let code_factor = cursor.uleb()?;
        let data_factor = cursor.sleb()?;
        let return_address = if version == 1 { u16::from(cursor.u8()?) } else { cursor.register()? };
        let mut cie = Self {
            code_factor,
            data_factor,
            return_address,
            encoding: Encoding::ABSOLUTE,
            augmented: false,
            signal: false,
            instructions: (0, entry.next),
        };
        let letters = letters.get(..length)?;
        if let [b'z', letters @ ..] = letters {
            cie.augmented = true;
            let length = cursor.uleb()?;
            let data = cursor.at;
            cursor.skip(length)?;
            let mut data = Cursor { source: cursor.source, at: data, end: cursor.at };
            for letter in letters {
                match letter {
                    b'R' => cie.encoding = Encoding(data.u8()?),
                    b'L' => data.skip(1)?,
                    b'P' => {
                        let encoding = Encoding(data.u8()?);
                        if encoding != Encoding::OMITTED {
                            // Its place is all that matters; what it is relative to does not.
                            let _personality = data.pointer(encoding.format(), None)?;
                        }
                    }
                    b'S' => cie.signal = true,
                    // Signed by the other key; tagged stack memory (aarch64).
                    b'B' | b'G' => {}
                    _ => return None,
                }
            }
            cie.instructions.0 = data.end;
        } else if letters.is_empty() {
            cie.instructions.0 = cursor.at;
        } else {
            return None;
        }
        Some(cie)
    }

    /// The rules that its functions begin with; `None` if they are malformed.
    pub(crate) fn initial<R: CallerRules>(&self, source: &mut impl Source, executor: &mut Executor<R>) -> Option<R> {
        executor.run(source, self, self.instructions, &R::EMPTY, (0, u64::MAX), |_, _| ())
    }
}

/// The description of one function (frame description entry).
#[derive(Clone, Copy, Debug)]
pub(crate) struct Fde {
    /// Address of the first instruction.
    pub(crate) start: u64,
    /// Bytes of code.
    pub(crate) length: u64,
    instructions: (u64, u64),
}

impl Fde {
    /// `entry` is that of an FDE, `cie` what it names.
    pub(crate) fn read<S: Source>(source: &mut S, entry: Entry, cie: &Cie) -> Option<Self> {
        let mut cursor = Cursor { source, at: entry.contents, end: entry.next };
        let start = cursor.pointer(cie.encoding, None)?;
        let length = cursor.pointer(cie.encoding.format(), None)?;
        if cie.augmented {
            let bytes = cursor.uleb()?;
            cursor.skip(bytes)?;
        }
        Some(Self { start, length, instructions: (cursor.at, entry.next) })
    }

    /// Whether it describes an address.
    pub(crate) fn contains(&self, address: u64) -> bool {
        address.checked_sub(self.start).is_some_and(|offset| offset < self.length)
    }

    /// Gives the rules with the address from which they hold, ascending.
    ///
    /// # Errors
    ///
    /// The address from which on the instructions are malformed.
    #[cfg(feature = "build")]
    pub(crate) fn execute<R: CallerRules>(
        &self,
        source: &mut impl Source,
        cie: &Cie,
        executor: &mut Executor<R>,
        initial: &R,
        mut emit: impl FnMut(u64, &R),
    ) -> Result<(), u64> {
        let from = (self.start, u64::MAX);
        let last = executor.run(source, cie, self.instructions, initial, from, &mut emit);
        emit(executor.location, &last.ok_or(executor.location)?);
        Ok(())
    }

    /// The rules at one address of the function; `None` if the instructions are malformed before they come to it.
    pub(crate) fn rules_at<R: CallerRules>(&self, source: &mut impl Source, cie: &Cie, address: u64) -> Option<R> {
        let mut executor = Executor::default();
        let initial = cie.initial(source, &mut executor)?;
        executor.run(source, cie, self.instructions, &initial, (self.start, address), |_, _| ())
    }
}
