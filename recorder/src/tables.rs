//! Builds unwind tables for the capture side, which cannot: it does not allocate.
//!
//! Called from: ordinary threads, and allocation hooks under their guard (never a handler).

use capture::modules::{self, Image, Publish};
use unwind::build::{Section, build, find_eh_frame};

/// Installs the builder, once.
pub(crate) fn install() {
    modules::set_builder(find, build_table);
}

fn find(eh_frame_hdr: &[u8], avma: u64) -> Option<u64> {
    find_eh_frame(Section { bytes: eh_frame_hdr, address: avma })
}

fn build_table(image: &Image<'_>, publish: &mut Publish<'_>) {
    let section = Section { bytes: image.eh_frame, address: image.eh_frame_avma };
    let (table, _) = build::<unwind::arch::Registers>(section, image.bias);
    publish(&table.pcs, &table.rules, &table.interned);
}
