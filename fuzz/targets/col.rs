//! See [`fuzz::profiles`].
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzz::profiles::col(data));
