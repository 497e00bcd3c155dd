//! What the fuzz targets check. Each takes arbitrary bytes and panics where a promise is broken.
//!
//! Whatever a damaged file or a strange program can bring about, the recorder lives inside somebody else's process: it may say that it does not know,
//! but not crash, not loop, and not claim what is not so.

pub mod allocated;
pub mod cfi;
pub mod code;
#[cfg(all(fuzzing, feature = "http"))]
pub mod http;
pub mod input;
pub mod profiles;
pub mod walker;
