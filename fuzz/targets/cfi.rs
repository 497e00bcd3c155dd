//! See [`fuzz::cfi`].
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzz::cfi::check(data));
