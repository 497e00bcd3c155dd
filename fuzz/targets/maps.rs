//! The list of mappings, out of arbitrary text that arrives in pieces: the recorder's own file, with a stand-in for the kernel's.
#![no_main]

#[path = "stand_ins/mapping.rs"]
mod mapping;
#[path = "../../capture/src/maps.rs"]
#[allow(dead_code, unreachable_pub, reason = "a module of another crate, of which not all is used here")]
mod maps;
#[path = "stand_ins/syscall.rs"]
mod syscall;

use fuzz::input::Input;

type Line = (u64, u64, [bool; 2], u64, u64, u64, Vec<u8>);

fn lines(contents: &[u8], piece: usize) -> Vec<Line> {
    syscall::set(contents, piece);
    let mut lines = Vec::new();
    let whole = maps::each(|line| {
        let maps::Line { start, end, executable, writable, offset, device, inode, path } = *line;
        lines.push((start, end, [executable, writable], offset, device, inode, path.to_vec()));
        true
    });
    assert_eq!(whole, !contents.is_empty(), "no process is without mappings");
    lines
}

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    let mut input = Input::new(data);
    let piece = 1 + usize::from(input.u8()) * 8;
    // Some lines are made longer than the buffer.
    let repeated = (usize::from(input.u8()) * 50).min(piece * 100);
    let (front, text) = (vec![b'x'; repeated], input.rest());
    let contents = [text, &front, text].concat();
    let in_pieces = lines(&contents, piece);
    let longest = contents.split(|byte| *byte == b'\n').map(<[u8]>::len).max().unwrap_or(0);
    if longest < 8000 {
        assert_eq!(in_pieces, lines(&contents, usize::MAX), "the same lines however they arrive");
    }
    let most = contents.iter().filter(|byte| **byte == b'\n').count();
    assert!(in_pieces.len() <= most);
    let mut seen = 0;
    maps::each(|_| {
        seen += 1;
        seen < 2
    });
    assert!(seen <= 2, "it stops when told to");
});
