//! See [`fuzz::http`].
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzz::http::connection(data));
