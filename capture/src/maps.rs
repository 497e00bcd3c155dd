//! `/proc/thread-self/maps`, read line by line without allocation.
//!
//! Called from: slow paths of hooks, ordinary threads. It takes no lock of the dynamic linker and sees what that does not list: the vDSO, objects that are
//! being loaded, anonymous code of JIT compilers.

use crate::mapping::Mapping;
use crate::syscall::File;

/// Bytes of the longest line that is read whole; the rest of a longer path is cut off.
const BUFFER: usize = 8192;

/// One mapping.
#[derive(Clone, Copy, Debug)]
pub struct Line<'a> {
    /// First address.
    pub start: u64,
    /// Address past the last.
    pub end: u64,
    /// May be executed.
    pub executable: bool,
    /// May be written.
    pub writable: bool,
    /// Offset in the file.
    pub offset: u64,
    /// Device, as `makedev` packs major and minor for small numbers.
    pub device: u64,
    /// Inode; 0 if it is no file.
    pub inode: u64,
    /// Path or `[name]`; empty for anonymous memory.
    pub path: &'a [u8],
}

/// Calls `visit` for each mapping in the order of addresses, until it returns false. False if the file cannot be read, or has none: `/proc/self` is the first thread, which may have ended.
pub fn each(mut visit: impl FnMut(&Line<'_>) -> bool) -> bool {
    let Ok(file) =
        File::open(b"/proc/thread-self/maps\0", File::READ).or_else(|_| File::open(b"/proc/self/maps\0", File::READ))
    else {
        return false;
    };
    // Not on the stack: a handler's may be small.
    let Some(mut buffer) = Mapping::new(BUFFER) else { return false };
    let buffer = buffer.bytes_mut();
    let (mut held, mut any) = (0, false);
    loop {
        let Some(room) = buffer.get_mut(held..) else { return false };
        let Ok(read) = file.read(room) else { return false };
        if read == 0 {
            return any;
        }
        any = true;
        held += read;
        let mut done = 0;
        while let Some(rest) = buffer.get(done..held) {
            let Some(length) = rest.iter().position(|b| *b == b'\n') else { break };
            if let Some(line) = rest.get(..length).and_then(parse)
                && !visit(&line)
            {
                return true;
            }
            done += length + 1;
        }
        if done == 0 && held == BUFFER {
            // A line longer than the buffer: what follows its start is dropped up to the next newline.
            held = 512;
            continue;
        }
        // Never beyond the buffer; said once more, so that no panic is compiled in.
        let end = held.min(buffer.len());
        buffer.copy_within(done.min(end)..end, 0);
        held -= done;
    }
}

fn parse(line: &[u8]) -> Option<Line<'_>> {
    let mut rest = line;
    let start = hex(&mut rest, b'-')?;
    let end = hex(&mut rest, b' ')?;
    let (writable, executable) = (*rest.get(1)? == b'w', *rest.get(2)? == b'x');
    rest = rest.get(5..)?;
    let offset = hex(&mut rest, b' ')?;
    let major = hex(&mut rest, b':')?;
    let minor = hex(&mut rest, b' ')?;
    let mut inode = 0_u64;
    while let Some(digit) = rest.first().filter(|b| b.is_ascii_digit()) {
        inode = inode.wrapping_mul(10).wrapping_add(u64::from(digit - b'0'));
        rest = rest.get(1..)?;
    }
    Some(Line {
        start,
        end,
        executable,
        writable,
        offset,
        device: (major << 8) | minor,
        inode,
        path: rest.trim_ascii_start(),
    })
}

fn hex(rest: &mut &[u8], end: u8) -> Option<u64> {
    let mut value = 0_u64;
    for (i, byte) in rest.iter().enumerate() {
        if *byte == end {
            *rest = rest.get(i + 1..)?;
            return Some(value);
        }
        value = (value << 4) | u64::from((*byte as char).to_digit(16)?);
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_with_spaces_in_its_path_is_read_whole() {
        let line = parse(b"7f00a000-7f00b000 r-xp 00026000 08:01 1837   /tmp/a b (deleted)").unwrap();
        assert_eq!((line.start, line.end, line.executable, line.offset), (0x7f00_a000, 0x7f00_b000, true, 0x26000));
        assert_eq!((line.device, line.inode, line.path), (0x801, 1837, &b"/tmp/a b (deleted)"[..]));
        let anonymous = parse(b"7f00a000-7f00b000 rw-p 00000000 00:00 0 ").unwrap();
        assert_eq!((anonymous.executable, anonymous.writable, anonymous.inode), (false, true, 0));
        assert_eq!((anonymous.path, line.writable), (&b""[..], false));
    }

    #[test]
    fn the_own_code_and_stack_are_found() {
        let code = the_own_code_and_stack_are_found as *const () as u64;
        let local = 0_u8;
        let stack = &raw const local as u64;
        let (mut found_code, mut found_stack) = (false, false);
        assert!(each(|line| {
            found_code |= line.executable && line.start <= code && code < line.end;
            found_stack |= line.start <= stack && stack < line.end;
            true
        }));
        assert!(found_code && found_stack);
    }
}
