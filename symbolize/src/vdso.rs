//! The vDSO, code that the kernel maps into every process and that no file holds.
//!
//! All processes of one boot share one image, so that ours serves for the recorded one. The build id tells whether the
//! profile comes from another kernel.

use std::fs::{self, File};

use crate::elf::Elf;
use crate::image::Image;

/// What `/proc/PID/maps` calls it.
pub(crate) const PATH: &str = "[vdso]";
/// A few pages; anything larger is not the vDSO.
const LIMIT: u64 = 1 << 20;

/// Reads the vDSO of this process.
pub(crate) fn read() -> Option<Elf> {
    let maps = fs::read_to_string("/proc/self/maps").ok()?;
    let line = maps.lines().find(|line| line.ends_with(PATH))?;
    let (start, end) = line.split_whitespace().next()?.split_once('-')?;
    let start = u64::from_str_radix(start, 16).ok()?;
    let length = u64::from_str_radix(end, 16).ok()?.checked_sub(start)?;
    let memory = Image::File(File::open("/proc/self/mem").ok()?, u64::MAX);
    Elf::parse(Image::Memory(memory.read(start, length, LIMIT)?)).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_vdso_has_a_build_id_and_symbols() {
        let vdso = read().expect("this process has a vDSO");
        assert!(vdso.build_id().is_some());
        assert!(!crate::functions::tables(&vdso).is_empty());
    }
}
