use crate::{FrameAddress, Memory, Rule, Truncated, Unwind};

/// Looks rules up. The recorder's answer comes from a cache of addresses and the tables of all modules.
///
/// Where a module's table has no row, the code itself may be known (`arch::rule_from_code`); else [`Rule::NO_TABLE`] is the answer
/// in modules and in memory that is not executable, and [`Rule::NONE`] in code that was made at run time.
pub trait Rules {
    /// What the lookup knows about a frame besides its rule, such as the module's number.
    type Tag: Copy;

    /// The rule for [`address.for_lookup()`](FrameAddress::for_lookup).
    fn lookup(&mut self, address: FrameAddress) -> (Rule, Self::Tag);
}

impl<R: Rules + ?Sized> Rules for &mut R {
    type Tag = R::Tag;

    #[inline]
    fn lookup(&mut self, address: FrameAddress) -> (Rule, Self::Tag) {
        (**self).lookup(address)
    }
}

/// How often one walk may go over to a stack that lies lower: signal stacks, stacks that grow in segments, coroutines.
pub const STACK_SWITCHES: u8 = 16;

/// Walks one stack, leaf first.
///
/// Ends always: between two switches of stacks, which are bounded, the stack pointer only rises. The number of frames is
/// bounded by the readable memory only; callers that keep frames stop when they have enough.
#[derive(Clone, Debug)]
pub struct Walker<G, R, M> {
    rules: R,
    memory: M,
    registers: G,
    state: State,
    switches: u8,
}

#[derive(Clone, Copy, Debug)]
enum State {
    /// At this address, which was not looked up yet.
    Leaf(FrameAddress),
    /// At a frame with this rule.
    Frame(Rule),
    Ended(Result<(), Truncated>),
}

/// The next event of a walk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step<T> {
    /// The next frame, root-ward, with what the lookup said about it.
    Frame(FrameAddress, T),
    /// No further frame: the root was reached, or the reason why not. Repeated if asked again.
    End(Result<(), Truncated>),
}

impl<G: Unwind, R: Rules, M: Memory> Walker<G, R, M> {
    /// A walk that begins at an instruction about to run: registers of a signal's context, or one's own.
    #[inline]
    pub fn at_instruction(registers: G, rules: R, memory: M) -> Self {
        let state = State::Leaf(FrameAddress::Instruction(registers.pc()));
        Self { rules, memory, registers, state, switches: STACK_SWITCHES }
    }

    /// A walk that begins at a return address: the registers are what they will be when the call has returned.
    #[inline]
    pub fn at_return_address(registers: G, rules: R, memory: M) -> Self {
        let state = State::Leaf(FrameAddress::ReturnAddress(registers.pc()));
        Self { rules, memory, registers, state, switches: STACK_SWITCHES }
    }

    /// The next frame, or the end.
    #[inline]
    pub fn advance(&mut self) -> Step<R::Tag> {
        let address = match self.state {
            State::Leaf(address) => address,
            State::Frame(rule) => match self.registers.step(rule, &mut self.memory) {
                Ok(Some(caller)) if caller.stack_switch && self.switches == 0 => {
                    return self.end(Err(Truncated::NoProgress));
                }
                Ok(Some(caller)) => {
                    self.switches = self.switches.wrapping_sub(u8::from(caller.stack_switch));
                    self.registers = caller.registers;
                    caller.address
                }
                Ok(None) => return self.end(Ok(())),
                Err(reason) => return self.end(Err(reason)),
            },
            State::Ended(end) => return Step::End(end),
        };
        let (rule, tag) = self.rules.lookup(address);
        self.state = State::Frame(rule);
        Step::Frame(address, tag)
    }

    fn end(&mut self, end: Result<(), Truncated>) -> Step<R::Tag> {
        self.state = State::Ended(end);
        Step::End(end)
    }

    /// The registers of the frame that [`advance`](Self::advance) gave last.
    #[inline]
    pub fn registers(&self) -> &G {
        &self.registers
    }
}

#[cfg(test)]
mod tests;
