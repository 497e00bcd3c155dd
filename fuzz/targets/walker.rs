//! See [`fuzz::walker`].
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzz::walker::check(data));
