//! The executable's headers: does a dynamic loader run, and is it one that can load the preload library?

use object::elf::{EM_386, EM_AARCH64, EM_ARM, EM_PPC64, EM_RISCV, EM_S390, EM_X86_64, ET_DYN, FileHeader64, Machine};
use object::read::elf::{FileHeader, ProgramHeader};
use object::{Endianness, ReadCache};
use std::fs::File;
use std::path::Path;

const MAGIC: &[u8] = b"\x7fELF";
const CLASS_64: u8 = 2;
const ADVICE_STATIC: &str = "link it dynamically, or build the recorder into it (crate profile-recorder)";

/// The error says why the library cannot get into it, and what to do.
pub(super) fn check(file: &File, start: &[u8], path: &Path) -> Result<(), String> {
    if start.is_empty() {
        return Err("it is empty; build it again".to_owned());
    }
    if !start.starts_with(MAGIC) {
        return Err(
            "it is neither an ELF executable nor a script with '#!'; name its interpreter, as in 'sh FILE'".to_owned()
        );
    }
    let (Some(class), Some(order), Some(machine)) = (start.get(4), start.get(5), start.get(18..20)) else {
        return Err(damaged());
    };
    let bytes = [machine[0], machine[1]];
    let machine = if *order == 2 { u16::from_be_bytes(bytes) } else { u16::from_le_bytes(bytes) };
    let machine = Machine(machine);
    if (*class, architecture(machine)) != (CLASS_64, std::env::consts::ARCH) {
        return Err(format!(
            "it is built for {}, this is profrec for {}; build it for {1}, or use a profrec built for it",
            name(machine, *class),
            std::env::consts::ARCH
        ));
    }
    match interpreter(file).map_err(|()| damaged())? {
        Some(loader) if cfg!(target_env = "gnu") && loader.contains("ld-musl") => Err(format!(
            "it uses musl ({loader}), the preload library glibc; build it for glibc, or build the recorder into it (crate profile-recorder)"
        )),
        Some(_) => Ok(()),
        None if is_loader(file, path) => Ok(()),
        None => Err(format!("it is statically linked, so no preload library can be loaded into it; {ADVICE_STATIC}")),
    }
}

fn damaged() -> String {
    "its ELF headers are damaged; build it again".to_owned()
}

fn interpreter(file: &File) -> Result<Option<String>, ()> {
    let data = ReadCache::new(file);
    let header = FileHeader64::<Endianness>::parse(&data).map_err(drop)?;
    let endian = header.endian().map_err(drop)?;
    for segment in header.program_headers(endian, &data).map_err(drop)? {
        if let Some(path) = segment.interpreter(endian, &data).map_err(drop)? {
            return Ok(Some(String::from_utf8_lossy(path).into_owned()));
        }
    }
    Ok(None)
}

/// The dynamic loader names no other, and does as LD_PRELOAD says to the program that it is given.
fn is_loader(file: &File, path: &Path) -> bool {
    let data = ReadCache::new(file);
    let Ok(header) = FileHeader64::<Endianness>::parse(&data) else { return false };
    let dynamic = header.endian().is_ok_and(|endian| header.e_type(endian) == ET_DYN);
    let name = path.file_name().unwrap_or_default().as_encoded_bytes();
    dynamic && [&b"ld-linux"[..], b"ld.so", b"ld-2."].iter().any(|prefix| name.starts_with(prefix))
}

/// As Rust names it.
fn architecture(machine: Machine) -> &'static str {
    match machine {
        EM_X86_64 => "x86_64",
        EM_386 => "x86",
        EM_AARCH64 => "aarch64",
        EM_ARM => "arm",
        EM_RISCV => "riscv64",
        EM_PPC64 => "powerpc64",
        EM_S390 => "s390x",
        _ => "",
    }
}

fn name(machine: Machine, class: u8) -> String {
    match architecture(machine) {
        "" => format!("another architecture (ELF machine {})", machine.0),
        "x86_64" if class != CLASS_64 => "x86_64 with 32-bit pointers".to_owned(),
        known => known.to_owned(),
    }
}
