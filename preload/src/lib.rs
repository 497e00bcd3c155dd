//! Preload library.
