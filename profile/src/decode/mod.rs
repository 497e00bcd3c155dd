//! Formats in: strict about what they read, never more memory than the limit allows.
