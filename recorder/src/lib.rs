//! Recorder.
