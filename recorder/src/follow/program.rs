//! What a program is that is about to be executed, told as the kernel and the dynamic loader will see it.

use super::READ;
use capture::elf::{u16_at, u32_at, u64_at};
use capture::syscall::File;
use layout::Unfollowed;

/// What the library needs of a C library at most, as its dynamic loader has it among its own strings.
const NEEDED: &[u8] = b"\0GLIBC_2.34\0";
/// As the kernel: scripts whose interpreters are scripts.
const MOST_SCRIPTS: usize = 5;
/// Bytes of a file that are read at once: most executables have all that is looked at in them. (The kernel looks at 256 for the line of a script.)
const START: usize = 1024;

const MAGIC: &[u8] = b"\x7fELF";
const CLASS_64: u8 = 2;
const LITTLE_ENDIAN: u8 = 1;
const ET_DYN: u16 = 3;
const EM_X86_64: u16 = 62;
const PT_DYNAMIC: u32 = 2;
const PT_INTERP: u32 = 3;
const HEADER: u16 = 56;
const MOST_HEADERS: u16 = 64;
const DT_FLAGS_1: u64 = 0x6fff_fffb;
const DF_1_PIE: u64 = 0x0800_0000;
const SET_USER: u32 = 0o4000;
const SET_GROUP: u32 = 0o2000;
const GROUP_EXECUTES: u32 = 0o010;

/// Whether the preload library can be loaded into it, as far as its files tell: what cannot be read, or is none of what is known here, can.
pub(super) fn examine(mut file: File) -> Result<(), Unfollowed> {
    for _ in 0..MOST_SCRIPTS {
        // Zeros behind what there is.
        let mut start = [0; START + 1];
        let Ok(length) = file.read_at(start.split_at_mut(START).0, 0) else { return Ok(()) };
        if start.starts_with(MAGIC) {
            return Elf { file, start, length }.examine();
        }
        let Some(interpreter) = interpreter(&mut start) else { return Ok(()) };
        let Ok(next) = File::open(interpreter, READ) else { return Ok(()) };
        file = next;
    }
    Ok(())
}

/// The path behind `#!`, with a zero byte at its end.
fn interpreter(start: &mut [u8; START + 1]) -> Option<&[u8]> {
    let blank = |byte: &u8| matches!(byte, b' ' | b'\t');
    let (mark, line) = start.split_at_mut(2);
    if mark != b"#!" {
        return None;
    }
    let line = line.get_mut(line.iter().position(|byte| !blank(byte))?..)?;
    let length = line.iter().position(|byte| blank(byte) || matches!(byte, b'\n' | 0)).filter(|length| *length != 0)?;
    *line.get_mut(length)? = 0;
    line.get(..=length)
}

/// A file that begins as executables do.
struct Elf {
    file: File,
    start: [u8; START + 1],
    /// How much of that is the file's.
    length: usize,
}

impl Elf {
    /// So many bytes at an offset.
    fn read<const N: usize>(&self, offset: u64) -> Option<[u8; N]> {
        let start = self.start.get(..self.length).unwrap_or_default();
        if let Some(bytes) = usize::try_from(offset).ok().and_then(|offset| start.get(offset..)?.first_chunk()) {
            return Some(*bytes);
        }
        let mut bytes = [0; N];
        (self.file.read_at(&mut bytes, offset) == Ok(N)).then_some(bytes)
    }

    fn examine(&self) -> Result<(), Unfollowed> {
        let start = &self.start;
        let (Some(kind), Some(machine)) = (u16_at(start, 16), u16_at(start, 18)) else { return Ok(()) };
        if start[4] != CLASS_64 || start[5] != LITTLE_ENDIAN || machine != EM_X86_64 {
            return Err(Unfollowed::Architecture);
        }
        let (Some(table), Some(HEADER), Some(count @ 1..)) = (u64_at(start, 32), u16_at(start, 54), u16_at(start, 56))
        else {
            return Ok(());
        };
        let mut dynamic = None;
        for index in 0..count.min(MOST_HEADERS) {
            let Some(header) = self.read::<{ HEADER as usize }>(table.wrapping_add(u64::from(index * HEADER))) else {
                return Ok(());
            };
            match u32_at(&header, 0) {
                Some(PT_INTERP) => {
                    self.gains_rights()?;
                    return u64_at(&header, 8).map_or(Ok(()), |offset| self.named_loader(offset));
                }
                Some(PT_DYNAMIC) => dynamic = u64_at(&header, 8),
                _ => (),
            }
        }
        match dynamic {
            // A dynamic loader that is told by its arguments what to load.
            Some(offset) if kind == ET_DYN && !self.is_executable(offset) => loader(&self.file),
            _ => Err(Unfollowed::Static),
        }
    }

    /// Whether a file without a loader is an executable all the same, and no library: a static one that can lie anywhere (`-static-pie`).
    fn is_executable(&self, dynamic: u64) -> bool {
        const MOST: u64 = 64;
        for index in 0..MOST {
            let Some(entry) = self.read::<16>(dynamic.wrapping_add(index * 16)) else { break };
            match (u64_at(&entry, 0), u64_at(&entry, 8)) {
                (Some(DT_FLAGS_1), Some(flags)) => return flags & DF_1_PIE != 0,
                (Some(0), _) => break,
                _ => (),
            }
        }
        false
    }

    /// What gains rights by being executed finds nothing preloaded whose path has a slash (ld.so(8)).
    fn gains_rights(&self) -> Result<(), Unfollowed> {
        let Ok(status) = self.file.status() else { return Ok(()) };
        if status.mode & (SET_USER | SET_GROUP) == 0 {
            return Ok(());
        }
        // It belongs to whom the process acts for.
        let Ok(own) = File::open(b"/proc/self\0", READ).and_then(|process| process.status()) else {
            return Ok(());
        };
        let as_user = status.mode & SET_USER != 0 && status.user != own.user;
        let as_group = status.mode & SET_GROUP != 0 && status.mode & GROUP_EXECUTES != 0 && status.group != own.group;
        if as_user || as_group { Err(Unfollowed::Privileged) } else { Ok(()) }
    }

    /// The loader whose path lies at this offset.
    fn named_loader(&self, offset: u64) -> Result<(), Unfollowed> {
        /// Longer ones are not known to exist.
        const LONGEST: usize = 128;
        let Some(path) = self.read::<LONGEST>(offset) else { return Ok(()) };
        let path = path.iter().position(|byte| *byte == 0).and_then(|end| path.get(..=end)).unwrap_or_default();
        // Without it the kernel executes nothing.
        File::open(path, READ).map_or(Ok(()), |file| loader(&file))
    }
}

/// Whether a loader is of a C library that is new enough: the oldest defines no version that the library needs. The names of those lie in one of its first pages.
fn loader(file: &File) -> Result<(), Unfollowed> {
    const BLOCK: usize = 4096;
    let mut block = [0; BLOCK];
    let mut offset = 0;
    while let Ok(length) = file.read_at(&mut block, offset)
        && length >= NEEDED.len()
    {
        let read = block.get(..length).unwrap_or_default();
        if read.windows(NEEDED.len()).any(|window| window == NEEDED) {
            return Ok(());
        }
        offset += (length - NEEDED.len() + 1) as u64;
    }
    Err(Unfollowed::Library)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::ffi::OsStrExt as _;
    use std::path::Path;

    fn examined(path: &Path) -> Result<(), Unfollowed> {
        examine(File::open(&[path.as_os_str().as_bytes(), b"\0"].concat(), READ).unwrap())
    }

    /// An executable's headers, and the path of its loader.
    fn elf(class: u8, machine: u16, loader: Option<&Path>) -> Vec<u8> {
        let mut bytes = vec![0; 64 + 2 * HEADER as usize];
        bytes[..6].copy_from_slice(&[MAGIC, &[class, LITTLE_ENDIAN]].concat());
        bytes[16..18].copy_from_slice(&2_u16.to_le_bytes());
        bytes[18..20].copy_from_slice(&machine.to_le_bytes());
        bytes[32..40].copy_from_slice(&64_u64.to_le_bytes());
        bytes[54..56].copy_from_slice(&HEADER.to_le_bytes());
        bytes[56..58].copy_from_slice(&2_u16.to_le_bytes());
        if let Some(loader) = loader {
            let at = 64 + HEADER as usize;
            bytes[at..at + 4].copy_from_slice(&PT_INTERP.to_le_bytes());
            let offset = bytes.len() as u64;
            bytes[at + 8..at + 16].copy_from_slice(&offset.to_le_bytes());
            bytes.extend(loader.as_os_str().as_bytes());
            bytes.resize(bytes.len() + 128, 0);
        }
        bytes
    }

    #[test]
    fn what_a_program_is_told_by_its_headers_and_its_loader() {
        let folder = tempfile::tempdir().unwrap();
        let file = |name: &str, bytes: &[u8]| {
            let path = folder.path().join(name);
            std::fs::write(&path, bytes).unwrap();
            path
        };
        let program = |bytes: &[u8]| examined(&file("program", bytes));
        assert_eq!(program(&elf(CLASS_64, EM_X86_64, None)), Err(Unfollowed::Static));
        assert_eq!(program(&elf(1, 3, None)), Err(Unfollowed::Architecture));
        assert_eq!(program(&elf(1, EM_X86_64, None)), Err(Unfollowed::Architecture));
        assert_eq!(program(&elf(CLASS_64, 183, None)), Err(Unfollowed::Architecture));
        // Wherever the version lies, between two blocks that are read too.
        let loader = folder.path().join("loader");
        let with_loader = elf(CLASS_64, EM_X86_64, Some(&loader));
        assert_eq!(program(&with_loader), Ok(()), "the kernel says that it is not there");
        for at in (0..5000).step_by(7) {
            let mut bytes = vec![b'x'; 5000];
            bytes.splice(at..at, NEEDED.iter().copied());
            file("loader", &bytes);
            assert_eq!(program(&with_loader), Ok(()), "at {at}");
        }
        for other in [&b""[..], b"short", b"\0GLIBC_2.33\0GLIBC_2.3\0", &[b'x'; 5000], b"GLIBC_2.34\0"] {
            file("loader", other);
            assert_eq!(program(&with_loader), Err(Unfollowed::Library), "{other:?}");
        }
        // What the kernel refuses, or runs by other means.
        for length in 0..with_loader.len() - 128 {
            let cut = program(&with_loader[..length]);
            assert!(matches!(cut, Ok(()) | Err(Unfollowed::Architecture)), "{length} bytes: {cut:?}");
        }
        assert_eq!(program(b"text"), Ok(()));
        assert_eq!(program(b"PK\x03\x04"), Ok(()));
    }

    #[test]
    fn scripts_are_what_their_interpreters_are() {
        let folder = tempfile::tempdir().unwrap();
        let (program, script) = (folder.path().join("program"), folder.path().join("script"));
        std::fs::write(&program, elf(CLASS_64, EM_X86_64, None)).unwrap();
        let is = |text: String| {
            std::fs::write(&script, text).unwrap();
            examined(&script)
        };
        let path = program.display();
        for line in [format!("#!{path}\n"), format!("#! \t{path} -x y\nmore"), format!("#!{path}")] {
            assert_eq!(is(line.clone()), Err(Unfollowed::Static), "{line}");
        }
        for line in ["#!", "#!\n", "#! \t\n", "#!/nowhere/at/all\n", "# no script\n"] {
            assert_eq!(is(line.to_owned()), Ok(()), "{line:?}");
        }
        assert_eq!(is(format!("#!{}\n", script.display())), Ok(()), "a script of itself");
        assert_eq!(is(format!("#!/{}\n", "x".repeat(1000))), Ok(()));
    }

    // A test for musl is static.
    #[cfg(not(target_env = "musl"))]
    #[test]
    fn this_systems_loader_is_new_enough() {
        assert_eq!(examined(&std::env::current_exe().unwrap()), Ok(()));
    }
}
