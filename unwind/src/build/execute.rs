use alloc::vec::Vec;
use core::marker::PhantomData;

use gimli::{
    BaseAddresses, CallFrameInstruction, CallFrameInstructionIter, CommonInformationEntry, EhFrame, EndianSlice,
    FrameDescriptionEntry, LittleEndian, Register, UnwindExpression,
};

use crate::build::{Compile, Computed, Row, Saved};

type Reader<'a> = EndianSlice<'a, LittleEndian>;

/// Executes call frame instructions, for the registers that unwinding needs only.
pub(super) struct Executor<A> {
    remembered: Vec<Row>,
    architecture: PhantomData<A>,
}

impl<A> Default for Executor<A> {
    fn default() -> Self {
        Self { remembered: Vec::new(), architecture: PhantomData }
    }
}

/// Most states that are remembered at once. Compilers need two.
const REMEMBERED: usize = 64;

impl<A: Compile> Executor<A> {
    /// The row that the functions of a CIE begin with; `None` if it is malformed.
    pub(super) fn initial_row(
        &mut self,
        section: &EhFrame<Reader<'_>>,
        bases: &BaseAddresses,
        cie: &CommonInformationEntry<Reader<'_>>,
    ) -> Option<Row> {
        let instructions = cie.instructions(section, bases);
        if cie.return_address_register() != Register(A::RA) {
            return None;
        }
        let (row, _) = self.run(section, cie, instructions, &Row::EMPTY, 0, |_, _| ())?;
        Some(row)
    }

    /// Gives each row with the address from which it holds, ascending; `None` if the description is malformed, which shows only in the end.
    pub(super) fn execute(
        &mut self,
        section: &EhFrame<Reader<'_>>,
        bases: &BaseAddresses,
        fde: &FrameDescriptionEntry<Reader<'_>>,
        initial: &Row,
        mut emit: impl FnMut(u64, &Row),
    ) -> Option<()> {
        let instructions = fde.instructions(section, bases);
        let (row, location) = self.run(section, fde.cie(), instructions, initial, fde.initial_address(), &mut emit)?;
        emit(location, &row);
        Some(())
    }

    /// The last row, with its address. All before it were given to `emit`.
    fn run(
        &mut self,
        section: &EhFrame<Reader<'_>>,
        cie: &CommonInformationEntry<Reader<'_>>,
        mut instructions: CallFrameInstructionIter<'_, Reader<'_>>,
        initial: &Row,
        mut location: u64,
        mut emit: impl FnMut(u64, &Row),
    ) -> Option<(Row, u64)> {
        use CallFrameInstruction as I;
        let data_factor = cie.data_alignment_factor();
        let factored = |offset: i64| offset.wrapping_mul(data_factor);
        let understand = |expression: UnwindExpression<usize>| {
            expression
                .get(section)
                .map_or(Computed::Unknown, |expression| Computed::from_expression(expression, cie.encoding()))
        };
        self.remembered.clear();
        let mut row = *initial;
        while let Some(instruction) = instructions.next().ok()? {
            let next = match instruction {
                I::AdvanceLoc { delta } => {
                    location.checked_add(u64::from(delta).wrapping_mul(cie.code_alignment_factor()))?
                }
                I::SetLoc { address } => address,
                _ => location,
            };
            if next != location {
                emit(location, &row);
                location = Some(next).filter(|next| *next > location)?;
            }
            match instruction {
                I::AdvanceLoc { .. } | I::SetLoc { .. } => {}
                I::DefCfa { register, offset } => {
                    row.cfa = Computed::Register { register: register.0, offset: offset as i64 };
                }
                I::DefCfaSf { register, factored_offset } => {
                    row.cfa = Computed::Register { register: register.0, offset: factored(factored_offset) };
                }
                I::DefCfaRegister { register } => {
                    let Computed::Register { register: old, .. } = &mut row.cfa else { return None };
                    *old = register.0;
                }
                I::DefCfaOffset { offset } => set_offset(&mut row, offset as i64)?,
                I::DefCfaOffsetSf { factored_offset } => set_offset(&mut row, factored(factored_offset))?,
                I::DefCfaExpression { expression } => row.cfa = understand(expression),
                I::Undefined { register } => set::<A>(&mut row, register, Saved::Undefined),
                I::SameValue { register } => set::<A>(&mut row, register, Saved::Same),
                I::Offset { register, factored_offset } => {
                    set::<A>(&mut row, register, Saved::AtCfa(factored(factored_offset as i64)));
                }
                I::OffsetExtendedSf { register, factored_offset } => {
                    set::<A>(&mut row, register, Saved::AtCfa(factored(factored_offset)));
                }
                I::ValOffset { register, factored_offset } => {
                    set::<A>(&mut row, register, Saved::CfaPlus(factored(factored_offset as i64)));
                }
                I::ValOffsetSf { register, factored_offset } => {
                    set::<A>(&mut row, register, Saved::CfaPlus(factored(factored_offset)));
                }
                I::Register { dest_register, .. } => set::<A>(&mut row, dest_register, Saved::Unknown),
                I::Expression { register, expression } if is_kept::<A>(register) => {
                    set::<A>(&mut row, register, Saved::At(understand(expression)));
                }
                I::ValExpression { register, expression } if is_kept::<A>(register) => {
                    let saved = match understand(expression) {
                        Computed::Load { register, offset, add: 0 } => {
                            Saved::At(Computed::Register { register, offset })
                        }
                        _ => Saved::Unknown,
                    };
                    set::<A>(&mut row, register, saved);
                }
                I::Expression { .. } | I::ValExpression { .. } => {}
                I::Restore { register } => {
                    if let Some(initial) = get::<A>(initial, register) {
                        set::<A>(&mut row, register, initial);
                    }
                }
                I::RememberState => {
                    if self.remembered.len() >= REMEMBERED {
                        return None;
                    }
                    self.remembered.push(row);
                }
                I::RestoreState => row = self.remembered.pop()?,
                I::ArgsSize { .. } | I::NegateRaState | I::Nop => {}
            }
        }
        Some((row, location))
    }
}

fn set_offset(row: &mut Row, new: i64) -> Option<()> {
    let Computed::Register { offset, .. } = &mut row.cfa else { return None };
    *offset = new;
    Some(())
}

fn set<A: Compile>(row: &mut Row, register: Register, saved: Saved) {
    if register.0 == A::FP {
        row.fp = saved;
    } else if register.0 == A::RA {
        row.ra = saved;
    } else if register.0 == A::SP {
        row.sp = saved;
    }
}

fn get<A: Compile>(row: &Row, register: Register) -> Option<Saved> {
    match register.0 {
        r if r == A::FP => Some(row.fp),
        r if r == A::RA => Some(row.ra),
        r if r == A::SP => Some(row.sp),
        _ => None,
    }
}

fn is_kept<A: Compile>(register: Register) -> bool {
    get::<A>(&Row::EMPTY, register).is_some()
}
