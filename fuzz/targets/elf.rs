//! Program headers of an object, out of arbitrary memory: the recorder's own file, with a stand-in for the process's memory.
#![no_main]

#[path = "../../capture/src/elf.rs"]
#[allow(dead_code, unreachable_pub, reason = "a module of another crate, of which not all is used here")]
mod elf;
#[path = "stand_ins/probed.rs"]
mod probed;

use fuzz::input::Input;

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    let mut input = Input::new(data);
    let base = if input.u8() % 4 == 3 { u64::MAX - 0x1000 } else { 0x5555_5555_4000 };
    let (start, offset) = (base.wrapping_add(u64::from(input.u8()) << 12), u64::from(input.u8()) << 12);
    probed::set(base, input.rest());
    let Some(headers) = elf::read(base, start, offset) else { return };
    assert!(headers.build_id_length <= headers.build_id.len());
    assert!(headers.build_id[headers.build_id_length..].iter().all(|byte| *byte == 0));
    // Whether an object is the same as before hangs on this.
    assert_eq!(elf::read(base, start, offset).map(|again| again.fingerprint), Some(headers.fingerprint));
});
