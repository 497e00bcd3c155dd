//! Rules from the code itself ([`unwind::arch::rule_from_code`], [`unwind::x86_64::rule_of_piece`]): what it cannot read does not matter, and the rules that it gives can be stepped by.

use crate::input::Input;
use unwind::{FrameAddress, Memory, Rule, aarch64, x86_64};

/// Code from [`START`](Self::START) on; a part of it cannot be read.
struct Code<'a> {
    bytes: &'a [u8],
    hole: u64,
}

impl Code<'_> {
    const START: u64 = 0x1000;
}

impl Memory for Code<'_> {
    fn read(&mut self, address: u64) -> Option<u64> {
        let at = usize::try_from(address.checked_sub(Self::START)?).ok()?;
        let bytes = self.bytes.get(at..at.checked_add(8)?)?;
        (address / 64 != self.hole).then(|| u64::from_le_bytes(bytes.try_into().expect("eight bytes")))
    }
}

/// Looks at every address of some code.
pub fn check(data: &[u8]) {
    let mut input = Input::new(data);
    let hole = Code::START / 64 + u64::from(input.u8());
    let bytes = input.rest();
    let mut code = Code { bytes, hole };
    let end = Code::START + bytes.len() as u64;
    let near = (Code::START.saturating_sub(20)..end + 20).chain([0, 1, 15, 16, u64::MAX, u64::MAX - 15]);
    for address in near {
        for address in [FrameAddress::Instruction(address), FrameAddress::ReturnAddress(address)] {
            let rules = [
                x86_64::rule_from_code(address, &mut code).map(|rule| (rule, x86_64_is_frame(rule))),
                x86_64::rule_of_piece(address, &mut code).map(|rule| (rule, x86_64_is_frame(rule))),
                aarch64::rule_from_code(address, &mut code).map(|rule| (rule, aarch64_is_frame(rule))),
            ];
            for (rule, is_frame) in rules.into_iter().flatten() {
                assert!(is_frame, "{address:?}: {rule:?} leads nowhere");
            }
        }
    }
}

fn x86_64_is_frame(rule: Rule) -> bool {
    use x86_64::Form;
    matches!(Form::decode(rule), Form::Frame { .. } | Form::Context { .. } | Form::EndOfStack)
}

fn aarch64_is_frame(rule: Rule) -> bool {
    use aarch64::Form;
    matches!(Form::decode(rule), Form::Frame { .. } | Form::Context { .. } | Form::EndOfStack)
}
