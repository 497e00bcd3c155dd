//! What one of gimli's rows says, on made-up registers and memory.

use super::machine::{Machine, register, word};
use super::second::{Listed, Reader};
use gimli::{
    CallFrameInstruction, CfaRule, EhFrame, EvaluationResult, FrameDescriptionEntry, Location, Register, RegisterRule,
    UnwindExpression, UnwindTableRow, Value,
};
use unwind::cfi::{AllRules, Computed, Saved};
use unwind::full::AllRegisters;
use unwind::{FrameAddress, Memory, Rule, Truncated};

/// Every address holds a word of its own.
struct Hashed;

impl Memory for Hashed {
    fn read(&mut self, address: u64) -> Option<u64> {
        Some(word(address))
    }
}

/// How many states a description remembers at once, if it has only what compilers write: then nothing of it may be beyond us.
pub(super) fn ordinary<A: Machine>(listed: &Listed<'_>, fde: &FrameDescriptionEntry<Reader<'_>>) -> Option<usize> {
    let near = |offset: i64| offset % 8 == 0 && (0..1 << 19).contains(&offset);
    let base = |register: Register| [A::SP, A::FP].contains(&register.0);
    let (mut remembered, mut most) = (0_usize, 0);
    let mut ordinary = |instruction| {
        use CallFrameInstruction as Cfi;
        match instruction {
            Cfi::DefCfa { register, offset } => base(register) && near(offset as i64),
            Cfi::DefCfaOffset { offset } => near(offset as i64),
            Cfi::DefCfaRegister { register } => base(register),
            Cfi::RememberState => {
                remembered += 1;
                most = most.max(remembered);
                true
            }
            Cfi::RestoreState => {
                remembered = remembered.saturating_sub(1);
                true
            }
            Cfi::AdvanceLoc { .. } | Cfi::Offset { .. } | Cfi::Restore { .. } | Cfi::SameValue { .. } => true,
            Cfi::Undefined { .. } | Cfi::NegateRaState | Cfi::ArgsSize { .. } | Cfi::Nop => true,
            _ => false,
        }
    };
    let (mut initial, mut own) =
        (fde.cie().instructions(&listed.section, &listed.bases), fde.instructions(&listed.section, &listed.bases));
    let mut defines = false;
    while let Ok(Some(instruction)) = initial.next() {
        defines |= matches!(instruction, CallFrameInstruction::DefCfa { .. });
        // A change of what is not yet defined is for gimli a change of register 0; and a function can restore there what was remembered here.
        if !defines || matches!(instruction, CallFrameInstruction::RememberState) || !ordinary(instruction) {
            return None;
        }
    }
    while let Ok(Some(instruction)) = own.next() {
        if !ordinary(instruction) {
            return None;
        }
    }
    (defines && fde.cie().return_address_register().0 == A::RA).then_some(most)
}

pub(super) struct Oracle<'a, 'row> {
    section: EhFrame<Reader<'a>>,
    encoding: gimli::Encoding,
    row: &'row UnwindTableRow<usize>,
    pc: u64,
    signal: bool,
    /// Number and value of the return address column.
    column: (u16, u64),
    made_up: fn(u16) -> u64,
    sp: u64,
}

impl<'a, 'row> Oracle<'a, 'row> {
    pub(super) fn new<A: Machine>(
        listed: &Listed<'a>,
        fde: &FrameDescriptionEntry<Reader<'a>>,
        row: &'row UnwindTableRow<usize>,
        pc: u64,
    ) -> Self {
        assert_eq!(A::RETURN_ADDRESS.0, A::RA);
        let signal = fde.is_signal_trampoline();
        let column = (A::RA, A::return_address(pc));
        Self {
            section: listed.section,
            encoding: fde.cie().encoding(),
            row,
            pc,
            signal,
            column,
            made_up: register::<A>,
            sp: register::<A>(A::SP),
        }
    }

    fn register(&self, number: u16) -> u64 {
        if number == self.column.0 { self.column.1 } else { (self.made_up)(number) }
    }

    /// The value of an expression; `None` if gimli cannot evaluate it.
    fn evaluate(&self, expression: &UnwindExpression<usize>, cfa: Option<u64>) -> Option<u64> {
        let mut evaluation = expression.get(&self.section).ok()?.evaluation(self.encoding);
        evaluation.set_max_iterations(1000);
        if let Some(cfa) = cfa {
            evaluation.set_initial_value(cfa);
        }
        let mut result = evaluation.evaluate().ok()?;
        loop {
            result = match result {
                EvaluationResult::RequiresRegister { register, .. } => {
                    evaluation.resume_with_register(Value::Generic(self.register(register.0))).ok()?
                }
                EvaluationResult::RequiresMemory { address, size: 8, space: None, .. } => {
                    evaluation.resume_with_memory(Value::Generic(word(address))).ok()?
                }
                EvaluationResult::Complete => break,
                _ => return None,
            };
        }
        match evaluation.as_result().first()?.location {
            Location::Address { address } => Some(address),
            _ => None,
        }
    }

    fn cfa(&self) -> Option<u64> {
        match self.row.cfa() {
            CfaRule::RegisterAndOffset { register, offset } => {
                Some(self.register(register.0).wrapping_add_signed(*offset))
            }
            CfaRule::Expression(expression) => self.evaluate(expression, None),
        }
    }

    /// What a column holds in the caller; `unspecified` if nothing is said. The inner `None`: it is lost; the outer: gimli cannot tell.
    fn column(&self, number: u16, cfa: u64, unspecified: Option<u64>) -> Option<Option<u64>> {
        let Some(rule) = self.row.register(Register(number)) else { return Some(unspecified) };
        Some(match rule {
            RegisterRule::Undefined => None,
            RegisterRule::SameValue => Some(self.register(number)),
            RegisterRule::Offset(offset) => Some(word(cfa.wrapping_add_signed(offset))),
            RegisterRule::ValOffset(offset) => Some(cfa.wrapping_add_signed(offset)),
            RegisterRule::Register(other) => Some(self.register(other.0)),
            RegisterRule::Expression(expression) => {
                let at = self.evaluate(&expression, Some(cfa))?;
                // gcc leaves such a rule in force when the register was restored: then the place lies outside of the frame.
                let restored = !self.signal && self.sp < cfa && !(self.sp..cfa).contains(&at);
                Some(if restored { self.register(number) } else { word(at) })
            }
            RegisterRule::ValExpression(expression) => Some(self.evaluate(&expression, Some(cfa))?),
            _ => return None,
        })
    }

    /// What the packed rule says. If all of the description is ordinary, and so is the row, there must be one.
    pub(super) fn compare_rule<A: Machine>(&self, rule: Rule, ordinary: bool) {
        let (pc, row) = (self.pc, self.row);
        // What glibc's resolver on aarch64 says of itself is two words short; the rule adds them.
        let counted_from_sp =
            matches!(row.cfa(), CfaRule::RegisterAndOffset { register: Register(register), .. } if *register == A::SP);
        if A::RA == 30 && counted_from_sp && row.register(Register(30)) == Some(RegisterRule::Offset(8)) {
            return;
        }
        let frame = A::made_up(pc);
        let caller = match frame.step(rule, &mut Hashed) {
            Ok(Some(caller)) => caller,
            Ok(None) => {
                return assert_eq!(row.register(Register(A::RA)), Some(RegisterRule::Undefined), "{pc:#x}: {row:?}");
            }
            Err(Truncated::UnsupportedRule) => return assert!(!ordinary || !self.fits::<A>(), "{pc:#x}: {row:?}"),
            Err(Truncated::NoProgress) => {
                return assert!(self.cfa().is_some_and(|cfa| cfa <= frame.sp()), "{pc:#x}: {row:?}");
            }
            Err(other) => panic!("{other:?} at {pc:#x}"),
        };
        let registers = caller.registers;
        let cfa = self.cfa().unwrap_or_else(|| panic!("{rule:?} for {row:?}"));
        assert_eq!(Some(Some(registers.sp())), self.column(A::SP, cfa, Some(cfa)), "{pc:#x}: {row:?}");
        assert_eq!(Some(registers.frame_pointer()), self.column(A::FP, cfa, Some(self.register(A::FP))), "{row:?}");
        let return_address = self.column(A::RA, cfa, Some(self.column.1));
        assert_eq!(Some(Some(registers.pc())), return_address, "{pc:#x}: {row:?}");
        assert_eq!(matches!(caller.address, FrameAddress::Instruction(_)), self.signal);
    }

    /// Whether a rule has room for the row.
    fn fits<A: Machine>(&self) -> bool {
        let rule = |number| self.row.register(Register(number));
        let near = |offset: i64| offset % 8 == 0 && offset.abs() < 1 << 16;
        let fp = match rule(A::FP) {
            None | Some(RegisterRule::SameValue | RegisterRule::Undefined) => true,
            Some(RegisterRule::Offset(offset)) => near(offset),
            _ => false,
        };
        let ra = match (A::RA, rule(A::RA), rule(A::FP)) {
            (16, ra, _) => ra == Some(RegisterRule::Offset(-8)),
            (_, Some(RegisterRule::Offset(ra)), Some(RegisterRule::Offset(fp))) => {
                near(ra) && (-256..256).contains(&(fp - ra))
            }
            (_, Some(RegisterRule::Offset(ra)), _) => near(ra),
            (_, ra, _) => matches!(ra, None | Some(RegisterRule::SameValue | RegisterRule::Undefined)),
        };
        fp && ra && rule(A::SP).is_none()
    }

    fn computed(&self, what: Computed) -> Option<u64> {
        let at = |register, offset: i32| self.register(register).wrapping_add_signed(i64::from(offset));
        Some(match what {
            Computed::Register { register, offset } => at(register, offset),
            Computed::Load { register, offset, add } => word(at(register, offset)).wrapping_add_signed(i64::from(add)),
            Computed::LoadIndexed { register, offset, index, scale, add } => {
                let index = self.register(u16::from(index)).wrapping_mul(u64::from(scale));
                word(at(u16::from(register), offset).wrapping_add(index)).wrapping_add_signed(i64::from(add))
            }
            Computed::Plt { register, offset, ra, pushed_from } => {
                at(register, offset).wrapping_add(u64::from(self.register(ra) & 15 >= u64::from(pushed_from)) << 3)
            }
            Computed::Unknown => return None,
        })
    }

    /// What is said about all registers, and a step by it.
    pub(super) fn compare_all<A: Machine, const N: usize>(&self, all: &AllRules<N>, signal: bool) {
        let row = self.row;
        if let Some(cfa) = self.computed(all.cfa) {
            assert_eq!(Some(cfa), self.cfa(), "{row:?}");
        }
        let mut registers = AllRegisters::<N>::at(FrameAddress::Instruction(self.pc));
        for (number, saved) in (0..).zip(all.registers) {
            registers.set(number, Some(self.register(number)));
            self.compare_saved(saved, row.register(Register(number)));
        }
        match registers.step::<A>(all, signal, &mut Hashed) {
            Ok(Some(caller)) => {
                let cfa = self.cfa().unwrap_or_else(|| panic!("{all:?} for {row:?}"));
                for (number, saved) in (0..).zip(all.registers) {
                    if is_not_known::<N>(saved) {
                        assert_eq!(caller.get(number), None);
                        continue;
                    }
                    let unspecified = match number {
                        sp if sp == A::SP => Some(cfa),
                        kept if A::CALLEE_SAVED >> kept & 1 != 0 => Some(self.register(kept)),
                        // What the function may have changed: its own value or none.
                        lost => caller.get(lost).and(Some(self.register(lost))),
                    };
                    assert_eq!(Some(caller.get(number)), self.column(number, cfa, unspecified), "{number}: {row:?}");
                }
                let return_address = self.column(A::RA, cfa, Some(self.column.1));
                assert_eq!(Some(Some(caller.address.address())), return_address, "{row:?}");
                assert_eq!(matches!(caller.address, FrameAddress::Instruction(_)), signal);
            }
            Ok(None) => assert_eq!(row.register(Register(A::RA)), Some(RegisterRule::Undefined)),
            Err(_) => {
                let ra = all.registers[usize::from(A::RA)];
                assert!(is_not_known::<N>(ra) || is_not_known::<N>(Saved::At(all.cfa)), "{row:?}");
            }
        }
    }

    fn compare_saved(&self, saved: Saved, rule: Option<RegisterRule<usize>>) {
        let equal = match (saved, &rule) {
            (Saved::Unspecified, None)
            | (Saved::Same, Some(RegisterRule::SameValue))
            | (Saved::Undefined, Some(RegisterRule::Undefined)) => true,
            (Saved::AtCfa(ours), Some(RegisterRule::Offset(theirs)))
            | (Saved::CfaPlus(ours), Some(RegisterRule::ValOffset(theirs))) => i64::from(ours) == *theirs,
            (Saved::Unknown, Some(RegisterRule::Offset(far) | RegisterRule::ValOffset(far))) => {
                i32::try_from(*far).is_err()
            }
            (Saved::Register(ours), Some(RegisterRule::Register(theirs))) => ours == theirs.0,
            (Saved::At(what), Some(RegisterRule::Expression(expression))) => {
                self.computed(what).is_none_or(|at| Some(at) == self.evaluate(expression, Some(0)))
            }
            (Saved::At(what), Some(RegisterRule::ValExpression(expression))) => {
                self.computed(what).is_some_and(|at| Some(word(at)) == self.evaluate(expression, Some(0)))
            }
            (Saved::Unknown, Some(RegisterRule::ValExpression(_))) => true,
            _ => false,
        };
        assert!(equal, "{saved:?} for {rule:?} at {:#x}", self.pc);
    }
}

/// Whether nobody can tell a value: it is not understood, or comes from a register that was not asked for.
fn is_not_known<const N: usize>(saved: Saved) -> bool {
    let beyond = |number: u16| usize::from(number) >= N;
    match saved {
        Saved::Unknown | Saved::At(Computed::Unknown) => true,
        Saved::Register(number) => beyond(number),
        Saved::At(Computed::Register { register, .. } | Computed::Load { register, .. }) => beyond(register),
        Saved::At(Computed::LoadIndexed { register, index, .. }) => beyond(register.into()) || beyond(index.into()),
        Saved::At(Computed::Plt { register, ra, .. }) => beyond(register) || beyond(ra),
        _ => false,
    }
}
