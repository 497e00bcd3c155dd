//! Builds unwind tables for the capture side, which cannot: it does not allocate.
//!
//! Called from: ordinary threads, and allocation hooks under their guard (never a handler).

use capture::modules::{self, Image, Publish};
use unwind::Rule;
use unwind::arch::Registers;
use unwind::build::{Section, build, describe, find_eh_frame};

/// Installs the builder, once.
pub(crate) fn install() {
    modules::set_builder(find, evaluate, build_table);
}

fn find(eh_frame_hdr: &[u8], avma: u64) -> Option<u64> {
    find_eh_frame(Section { bytes: eh_frame_hdr, address: avma })
}

fn evaluate(image: &Image<'_>, avma: u64) -> Option<Rule> {
    let hdr = Section { bytes: image.eh_frame_hdr, address: image.eh_frame_hdr_avma };
    let eh_frame = Section { bytes: image.eh_frame, address: image.eh_frame_avma };
    describe::<Registers>(hdr, eh_frame, avma).map(|described| described.rule)
}

fn build_table(image: &Image<'_>, publish: &mut Publish<'_>) {
    let section = Section { bytes: image.eh_frame, address: image.eh_frame_avma };
    let (table, _) = build::<Registers>(section, image.bias);
    publish(&table.pcs, &table.rules, &table.interned);
}
