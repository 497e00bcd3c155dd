//! The frame pointer of a frame that set one up, from its stack pointer and its first instructions.
//!
//! Called from: the wall-clock sampler, for threads that it looks at from outside: the kernel tells their stack pointer, not their frame pointer. Rust's standard
//! library is built with frame pointers, so half of all blocked Rust threads need it.
//!
//! A function that begins with `push rbp; mov rbp, rsp; push ...; sub rsp, N` has its stack pointer that much below `rbp` wherever it calls from. Anything else is not
//! guessed. The caller checks the return address that the frame pointer leads to.

/// Bytes that are looked at.
pub(crate) const LOOKED_AT: usize = 40;

/// Bytes between `rsp` in the function's body and `rbp`; `None` if the function does not begin in the known way.
pub(crate) fn below_frame_pointer(code: &[u8]) -> Option<u64> {
    let code = code.strip_prefix(&[0xf3, 0x0f, 0x1e, 0xfa]).unwrap_or(code);
    let mut rest = code.strip_prefix(&[0x55])?;
    rest = rest.strip_prefix(&[0x48, 0x89, 0xe5]).or_else(|| rest.strip_prefix(&[0x48, 0x8b, 0xec]))?;
    let mut bytes = 0;
    loop {
        rest = match *rest {
            // push r8 to r15
            [0x41, 0x50..=0x57, ref rest @ ..] | [0x50..=0x57, ref rest @ ..] => rest,
            // sub rsp, imm8
            [0x48, 0x83, 0xec, imm, ..] if imm < 0x80 => return Some(bytes + u64::from(imm)),
            // sub rsp, imm32
            [0x48, 0x81, 0xec, a, b, c, d, ..] => {
                let imm = u32::from_le_bytes([a, b, c, d]);
                return (imm < 1 << 30).then(|| bytes + u64::from(imm));
            }
            // Nothing more is reserved; an instruction cut off at the end is not one.
            [_, _, _, _, _, _, _, ..] => return Some(bytes),
            _ => return None,
        };
        bytes += 8;
    }
}

/// Whether the instruction before a return address can be a call: `code` ends there.
pub(crate) fn ends_with_call(code: &[u8]) -> bool {
    let at = |back: usize| code.len().checked_sub(back).and_then(|i| code.get(i..)).unwrap_or(&[]);
    // call rel32
    if at(5).first() == Some(&0xe8) {
        return true;
    }
    // call r/m64: ff /2, its length by the addressing form, with or without a prefix in front.
    (2..=7).any(|back| {
        let [0xff, modrm, ..] = *at(back) else { return false };
        let (form, rm) = (modrm >> 6, modrm & 7);
        let sib = usize::from(form != 3 && rm == 4);
        let displacement = match form {
            0 if rm == 5 => 4,
            1 => 1,
            2 => 4,
            _ => 0,
        };
        modrm >> 3 & 7 == 2 && 2 + sib + displacement == back
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pushes_and_reserved_bytes_lie_below_the_frame_pointer() {
        // push rbp; mov rbp,rsp; push r15; push r14; push rbx; sub rsp,0x18
        let code = [0x55, 0x48, 0x89, 0xe5, 0x41, 0x57, 0x41, 0x56, 0x53, 0x48, 0x83, 0xec, 0x18, 0x90, 0x90, 0x90];
        assert_eq!(below_frame_pointer(&code), Some(3 * 8 + 0x18));
        // The same behind endbr64, with a large frame.
        let code =
            [0xf3, 0x0f, 0x1e, 0xfa, 0x55, 0x48, 0x89, 0xe5, 0x53, 0x48, 0x81, 0xec, 0x00, 0x10, 0, 0, 0x90, 0x90];
        assert_eq!(below_frame_pointer(&code), Some(8 + 0x1000));
        // push rbp; mov rbp,rsp; push rax; call: the push stands for the reserved bytes.
        let code = [0x55, 0x48, 0x89, 0xe5, 0x50, 0xe8, 1, 2, 3, 4, 0x90, 0x90];
        assert_eq!(below_frame_pointer(&code), Some(8));
    }

    #[test]
    fn what_begins_otherwise_is_not_guessed() {
        assert_eq!(below_frame_pointer(&[0x53, 0x48, 0x83, 0xec, 0x10, 0, 0, 0, 0, 0]), None);
        assert_eq!(below_frame_pointer(&[0x55, 0x53, 0x48, 0x89, 0xe5, 0, 0, 0, 0, 0]), None);
        assert_eq!(below_frame_pointer(&[0x55, 0x48, 0x89, 0xe5, 0x53, 0x48]), None, "cut off");
        assert_eq!(below_frame_pointer(&[]), None);
    }

    #[test]
    fn calls_are_recognised_by_their_end() {
        assert!(ends_with_call(&[0x90, 0x90, 0xe8, 1, 2, 3, 4]));
        assert!(ends_with_call(&[0x90, 0x90, 0x90, 0x90, 0x90, 0xff, 0xd0]), "call rax");
        assert!(ends_with_call(&[0x90, 0x90, 0x90, 0x90, 0xff, 0x50, 0x18]), "call [rax+0x18]");
        assert!(ends_with_call(&[0x90, 0xff, 0x15, 1, 2, 3, 4]), "call [rip+x]");
        assert!(ends_with_call(&[0x41, 0xff, 0x54, 0x24, 0x08]), "call [r12+8]");
        assert!(!ends_with_call(&[0x90; 7]));
        assert!(!ends_with_call(&[]));
    }
}
