//! Labels that the application sets through `profile_recorder::labels`: its copy of that library looks these functions up by name.

use profile_recorder::preload;

/// Puts the calling thread under a label; what was in force before, for [`profile_recorder_label_leave_v1`].
///
/// # Safety
/// The pointers are valid for their lengths.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn profile_recorder_label_enter_v1(
    key: *const u8,
    key_length: usize,
    value: *const u8,
    value_length: usize,
) -> u64 {
    // SAFETY: as the caller promises.
    unsafe { preload::label_enter(key, key_length, value, value_length) }
}

/// Ends a label.
#[unsafe(no_mangle)]
pub extern "C" fn profile_recorder_label_leave_v1(before: u64) {
    preload::label_leave(before);
}
