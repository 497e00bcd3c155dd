//! What the recorder itself calls in the C library. The dynamic linker asks the executable first, and every object before the C library: a program that has functions of its own under such names would be
//! called in its place, at any moment and on any thread. ksh has a `getenv` that works only when the shell is set up; others have a `send` that means something else.
//!
//! So the import slots of this library are pointed at the C library, whoever else was found. Not where a sanitizer stands in front: it has to know of threads and of memory, and does what the functions say.
//!
//! Called from: the start of the process, before anything else of it. May: what hooks may.
#![allow(unsafe_code)]

use crate::linked::{self, Linked};
use crate::next;
use capture::images::{Image, Images, Names, Object, Slot};

/// What this library exports and calls itself: its own, and not that of a program that has another.
const OWN: [&[u8]; 4] = [b"munmap", b"pthread_create", b"sigaction", b"syscall"];

/// Points this library's import slots at the C library's functions where another object's were found.
pub fn bind() {
    let here = bind as *const () as u64;
    let (_, list) = linked::list();
    if all_are_bound(list, here) {
        return;
    }
    let Some(images) = Images::read() else { return };
    let libc = images.of(linked::next(c"__libc_start_main"));
    let (Some(own), Some(libc)) = (images.of(here), libc) else { return };
    own.slots(|slot, names| {
        if let Some(function) = meant(&images, &own, &libc, slot, names) {
            // SAFETY: the dynamic linker has done with this library, which nobody closes; the function is the one that was meant.
            unsafe { slot.replace(function) };
        }
    });
}

/// Whether all slots lead to where they should: so it is in most programs, and found without a look at every mapping.
fn all_are_bound(list: u64, here: u64) -> bool {
    let Some(own) = Linked::of(list, here) else { return true };
    let (mut last, mut all) = (own, true);
    if let Some(object) = Object::at(own.loaded) {
        object.imports(|import| {
            // Zero: nobody has it, which is allowed.
            if import.value != 0
                && !last.contains(import.value)
                && let Some(other) = Linked::of(list, import.value)
            {
                all &= own.contains(import.value) || other.is_system();
                last = other;
            }
        });
    }
    all
}

/// Where a slot is to lead, if not where it does.
fn meant(images: &Images, own: &Image<'_>, libc: &Image<'_>, slot: &Slot<'_>, names: &mut Names) -> Option<u64> {
    let found = images.of(slot.value)?;
    if [own, libc].iter().any(|image| image.base() == found.base()) || next::is_sanitizer(&found) {
        return None;
    }
    let name = slot.name(names)?;
    match own.defines(name) {
        Some(function) => OWN.contains(&name).then_some(function),
        None => libc.defines(name),
    }
}
