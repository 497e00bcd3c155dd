use crate::cfi::cursor::Cursor;
use crate::cfi::{CallerRules, Cie, Computed, Saved, Source};

/// Executes call frame instructions.
pub(crate) struct Executor<R: CallerRules> {
    remembered: R::Remembered,
    depth: usize,
    /// Where the last rules begin to hold.
    pub(super) location: u64,
}

impl<R: CallerRules> Default for Executor<R> {
    fn default() -> Self {
        Self { remembered: R::nothing_remembered(), depth: 0, location: 0 }
    }
}

impl<R: CallerRules> Executor<R> {
    /// The rules that hold at the address `until`; from where on, [`location`](Self::location) says. All before them were given to `emit`.
    ///
    /// `None` if from `location` on nothing is known: the instructions are malformed, or remember more states at once than there is room for.
    pub(super) fn run(
        &mut self,
        source: &mut impl Source,
        cie: &Cie,
        (at, end): (u64, u64),
        initial: &R,
        (from, until): (u64, u64),
        mut emit: impl FnMut(u64, &R),
    ) -> Option<R> {
        (self.depth, self.location) = (0, from);
        let mut rules = *initial;
        let mut cursor = Cursor { source, at, end };
        while !cursor.is_at_end() {
            let opcode = cursor.u8()?;
            let low = opcode & 0x3f;
            let next = match opcode {
                0x40..=0x7f => Some(u64::from(low)),
                0x02 => Some(u64::from(cursor.u8()?)),
                0x03 => Some(u64::from(cursor.u16()?)),
                0x04 => Some(u64::from(cursor.u32()?)),
                _ => None,
            };
            let next = match next {
                Some(delta) => self.location.checked_add(delta.wrapping_mul(cie.code_factor))?,
                None if opcode == 0x01 => cursor.pointer(cie.encoding, None)?,
                None => {
                    self.change(&mut cursor, cie, opcode, &mut rules, initial)?;
                    continue;
                }
            };
            if next > until {
                break;
            }
            if next < self.location {
                return None;
            }
            if next > self.location {
                emit(self.location, &rules);
                self.location = next;
            }
        }
        Some(rules)
    }

    /// An instruction that does not move on.
    #[inline]
    fn change(
        &mut self,
        cursor: &mut Cursor<'_, impl Source>,
        cie: &Cie,
        opcode: u8,
        rules: &mut R,
        initial: &R,
    ) -> Option<()> {
        let factored = |offset: i64| offset.wrapping_mul(cie.data_factor);
        let low = u16::from(opcode & 0x3f);
        match opcode {
            0x80..=0xbf => {
                let offset = factored(cursor.uleb()? as i64);
                rules.set(low, Saved::at_cfa(offset));
            }
            0xc0..=0xff => restore(rules, initial, low),
            // nop
            0x00 => {}
            // offset_extended
            0x05 => {
                let register = cursor.register()?;
                rules.set(register, Saved::at_cfa(factored(cursor.uleb()? as i64)));
            }
            // restore_extended
            0x06 => restore(rules, initial, cursor.register()?),
            // undefined
            0x07 => rules.set(cursor.register()?, Saved::Undefined),
            // same_value
            0x08 => rules.set(cursor.register()?, Saved::Same),
            // register
            0x09 => {
                let register = cursor.register()?;
                rules.set(register, Saved::Register(cursor.register()?));
            }
            // remember_state
            0x0a => {
                *self.remembered.as_mut().get_mut(self.depth)? = *rules;
                self.depth = self.depth.wrapping_add(1);
            }
            // restore_state
            0x0b => {
                self.depth = self.depth.checked_sub(1)?;
                *rules = *self.remembered.as_mut().get(self.depth)?;
            }
            // def_cfa
            0x0c => {
                let register = cursor.register()?;
                *rules.cfa() = Computed::register(register, cursor.uleb()? as i64);
            }
            // def_cfa_register
            0x0d => {
                let new = cursor.register()?;
                let Computed::Register { register, .. } = rules.cfa() else { return None };
                *register = new;
            }
            // def_cfa_offset
            0x0e => set_offset(rules, cursor.uleb()? as i64)?,
            // def_cfa_expression
            0x0f => *rules.cfa() = cursor.expression()?,
            // expression
            0x10 => {
                let register = cursor.register()?;
                rules.set(register, Saved::At(cursor.expression()?));
            }
            // offset_extended_sf
            0x11 => {
                let register = cursor.register()?;
                rules.set(register, Saved::at_cfa(factored(cursor.sleb()?)));
            }
            // def_cfa_sf
            0x12 => {
                let register = cursor.register()?;
                *rules.cfa() = Computed::register(register, factored(cursor.sleb()?));
            }
            // def_cfa_offset_sf
            0x13 => set_offset(rules, factored(cursor.sleb()?))?,
            // val_offset
            0x14 => {
                let register = cursor.register()?;
                rules.set(register, Saved::cfa_plus(factored(cursor.uleb()? as i64)));
            }
            // val_offset_sf
            0x15 => {
                let register = cursor.register()?;
                rules.set(register, Saved::cfa_plus(factored(cursor.sleb()?)));
            }
            // val_expression
            0x16 => {
                let register = cursor.register()?;
                let value = match cursor.expression()? {
                    Computed::Load { register, offset, add: 0 } => Saved::At(Computed::Register { register, offset }),
                    _ => Saved::Unknown,
                };
                rules.set(register, value);
            }
            // AARCH64_negate_ra_state_with_pc and AARCH64_negate_ra_state: return addresses are stripped of a signature wherever they come from.
            0x2c | 0x2d => {}
            // GNU_args_size
            0x2e => {
                cursor.uleb()?;
            }
            // GNU_negative_offset_extended
            0x2f => {
                let register = cursor.register()?;
                rules.set(register, Saved::at_cfa(factored(cursor.uleb()? as i64).wrapping_neg()));
            }
            _ => return None,
        }
        Some(())
    }
}

fn restore<R: CallerRules>(rules: &mut R, initial: &R, register: u16) {
    if let Some(saved) = initial.get(register) {
        rules.set(register, saved);
    }
}

fn set_offset(rules: &mut impl CallerRules, new: i64) -> Option<()> {
    let Computed::Register { register, .. } = *rules.cfa() else { return None };
    *rules.cfa() = Computed::register(register, new);
    Some(())
}
