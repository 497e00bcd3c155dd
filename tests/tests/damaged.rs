//! Programs whose unwind information, or whose files, are damaged: they print and end as they do alone, every allocation is counted, and the stacks of what is not damaged are
//! those of the sound program.

#[path = "damaged/elf.rs"]
mod elf;
#[path = "damaged/victim.rs"]
mod victim;

use elf::{Chance, Elf, SEEDS};
use object::elf::PT_GNU_EH_FRAME;
use profile_recorder_tests::{output, place_program, scratch, text};
use std::path::Path;
use std::process::Command;
use victim::{Found, Which, assert_survives, compile, copied, impostor, sound};

/// Changes a program's or a library's file.
fn change(path: &Path, how: impl FnOnce(&mut Elf)) {
    let mut elf = Elf(std::fs::read(path).unwrap());
    how(&mut elf);
    let changed = path.with_extension("changed");
    std::fs::write(&changed, elf.0).unwrap();
    place_program(&changed, path);
}

/// Damages one file or both of those in a directory, and records the program.
fn assert_damage_of_is_survived(from: &Path, what: &str, which: Which, damage: impl Fn(&mut Elf)) -> Found {
    let (directory, program) = copied(from);
    for file in which.files() {
        change(&directory.path().join(file), |elf| damage(elf));
    }
    let what = format!("{what} in {which:?}");
    let found = assert_survives(&what, &[program.to_str().unwrap()], || ());
    let intact = which.intact();
    assert_eq!(found.through(intact), sound().allocs.through(intact), "{what}: stacks without damaged frames");
    found
}

fn assert_survived(what: &str, damage: impl Fn(&mut Elf)) -> [Found; 2] {
    [Which::Program, Which::Library]
        .map(|which| assert_damage_of_is_survived(sound().directory.path(), what, which, &damage))
}

/// The damage is survived, and stacks end at it.
fn assert_shows(what: &str, damage: impl Fn(&mut Elf)) {
    for found in assert_survived(what, damage) {
        assert!(found.is_named("[truncated: no unwind table]"), "{what}");
    }
}

/// The damage is survived, and all stacks are whole: the file tells what memory does not.
fn assert_does_not_matter(what: &str, damage: impl Fn(&mut Elf)) {
    for found in assert_survived(what, damage) {
        assert_eq!(found.stacks, sound().allocs.stacks, "{what}");
    }
}

#[test]
fn frame_information_of_one_byte_over_and_over_is_survived() {
    for byte in [0, 0xff] {
        assert_shows(&format!(".eh_frame of {byte:#x}"), |elf| elf.bytes(".eh_frame").fill(byte));
    }
}

#[test]
fn frame_information_of_noise_is_survived() {
    for seed in SEEDS {
        assert_shows(".eh_frame of noise", |elf| Chance(seed).fill(elf.bytes(".eh_frame")));
    }
    let from = sound().directory.path();
    let both = |elf: &mut Elf| Chance(SEEDS[0]).fill(elf.bytes(".eh_frame"));
    assert_damage_of_is_survived(from, ".eh_frame of noise", Which::Both, both);
}

#[test]
fn frame_information_with_some_wrong_bytes_is_survived() {
    for seed in SEEDS {
        assert_survived("some wrong bytes in .eh_frame", |elf| some_wrong_bytes(seed, elf.bytes(".eh_frame")));
    }
}

fn some_wrong_bytes(seed: u64, bytes: &mut [u8]) {
    let mut chance = Chance(seed);
    for _ in 0..bytes.len() / 16 {
        let at = chance.next() as usize % bytes.len();
        bytes[at] = (chance.next() >> 24) as u8;
    }
}

#[test]
fn descriptions_of_wrong_lengths_are_survived() {
    for length in [1, 4, 0x7fff_ffff, u32::MAX] {
        assert_survived(&format!("descriptions of {length:#x} bytes"), |elf| {
            let section = elf.section(".eh_frame");
            let mut at = section.start;
            while at + 4 <= section.end {
                let own = u32::from_le_bytes(elf.0[at..at + 4].try_into().unwrap());
                // The common part keeps its length: what is cut off are the functions.
                if at > section.start && own != 0 {
                    elf.word(at, length);
                }
                at += 4 + own as usize;
            }
        });
    }
}

#[test]
fn a_search_table_of_one_byte_over_and_over_is_survived() {
    for byte in [0, 0xff] {
        assert_does_not_matter(&format!("a header of {byte:#x}"), |elf| elf.bytes(".eh_frame_hdr").fill(byte));
    }
}

#[test]
fn a_search_table_of_noise_is_survived() {
    for seed in SEEDS {
        assert_shows("a table of noise", |elf| Chance(seed).fill(&mut elf.bytes(".eh_frame_hdr")[12..]));
    }
}

#[test]
fn a_search_table_that_is_not_sorted_is_survived() {
    assert_shows("a table in reverse", |elf| {
        let table = &mut elf.bytes(".eh_frame_hdr")[12..];
        let entries: Vec<[u8; 8]> = table.chunks_exact(8).rev().map(|entry| entry.try_into().unwrap()).collect();
        table.chunks_exact_mut(8).zip(entries).for_each(|(to, entry)| to.copy_from_slice(&entry));
    });
}

#[test]
fn a_search_table_that_leads_elsewhere_is_survived() {
    for distance in [1, 0x1000, 0x7fff_0000] {
        assert_shows(&format!("descriptions {distance:#x} bytes away"), |elf| {
            let table = elf.section(".eh_frame_hdr").skip(12 + 4).step_by(8);
            for at in table {
                let own = u32::from_le_bytes(elf.0[at..at + 4].try_into().unwrap());
                elf.word(at, own.wrapping_add(distance));
            }
        });
        assert_survived(&format!("a section {distance:#x} bytes away"), |elf| {
            let at = elf.section(".eh_frame_hdr").start + 4;
            elf.word(at, distance);
        });
    }
}

#[test]
fn a_search_table_that_claims_to_be_huge_is_survived() {
    for count in [1000, u32::MAX] {
        assert_survived(&format!("{count:#x} entries"), |elf| {
            let at = elf.section(".eh_frame_hdr").start + 8;
            elf.word(at, count);
            // The program header allows as much.
            let header = elf.program_header(PT_GNU_EH_FRAME);
            elf.long_word(header + 40, 1 << 40);
        });
    }
}

#[test]
fn a_program_header_that_leads_nowhere_is_survived() {
    for (address, length) in
        [(0x1234_5678, 64), (0x7fff_ffff_f000, 1 << 20), (u64::MAX - 7, 8), (u64::MAX - 7, u64::MAX), (1, u64::MAX)]
    {
        assert_does_not_matter(&format!("{length:#x} bytes at {address:#x}"), |elf| {
            let header = elf.program_header(PT_GNU_EH_FRAME);
            elf.long_word(header + 16, address);
            elf.long_word(header + 40, length);
        });
    }
}

#[test]
fn damaged_debugging_information_is_survived() {
    for section in [".debug_info", ".debug_abbrev", ".debug_line", ".debug_str", ".symtab", ".strtab", ".shstrtab"] {
        for (which, seed) in [Which::Program, Which::Library].into_iter().zip(SEEDS) {
            let (directory, program) = copied(sound().directory.path());
            change(&directory.path().join(which.files()[0]), |elf| some_wrong_bytes(seed, elf.bytes(section)));
            assert_survives(&format!("wrong bytes in {section} of {which:?}"), &[program.to_str().unwrap()], || ());
        }
    }
}

type Damage = fn(&mut Elf);

/// Code whose frame information is in its file only, to be read with sections and all.
#[test]
fn damaged_frame_information_in_the_file_is_survived() {
    let directory = scratch();
    compile(directory.path(), &["-fno-asynchronous-unwind-tables", "-fno-unwind-tables"]);
    let damages: [(&str, Damage); 5] = [
        ("nothing wrong", |_| ()),
        ("zeros", |elf| elf.bytes(".debug_frame").fill(0)),
        ("noise", |elf| Chance(SEEDS[0]).fill(elf.bytes(".debug_frame"))),
        ("some wrong bytes", |elf| some_wrong_bytes(SEEDS[1], elf.bytes(".debug_frame"))),
        ("what calls itself compressed", |elf| {
            let header = elf.section_header(".debug_frame");
            elf.long_word(header + 8, object::elf::SHF_COMPRESSED.0);
            // ELFCOMPRESS_ZLIB, and more bytes than there is memory.
            let start = elf.section(".debug_frame").start;
            elf.word(start, 1);
            elf.long_word(start + 8, 1 << 60);
        }),
    ];
    for (what, damage) in damages {
        for which in [Which::Program, Which::Library] {
            let found =
                assert_damage_of_is_survived(directory.path(), &format!("{what} in .debug_frame"), which, damage);
            assert_eq!(found.is_named("[truncated"), what != "nothing wrong", "{what}");
        }
    }
}

/// Does something to the library's file while it is in use, before the library worked and after. The program alone must stand it too.
fn assert_change_is_survived(from: &Path, change: &str, more: impl Fn(&Path) -> Option<String>) -> [Found; 2] {
    let (directory, program) = copied(from);
    let library = directory.path().join("libdamaged.so");
    let prepare = || {
        // Another file at the same place, not other contents of the file that is in use.
        let _gone = std::fs::remove_file(&library);
        std::fs::copy(from.join("libdamaged.so"), &library).unwrap();
        more(directory.path())
    };
    ["0", "1"].map(|round| {
        let more = prepare();
        let mut command = vec![program.to_str().unwrap(), round, change, library.to_str().unwrap()];
        command.extend(more.as_deref());
        let alone = output(Command::new(command[0]).args(&command[1..]));
        assert_eq!((text(&alone.stdout), alone.status.code()), (sound().stdout.clone(), Some(0)), "{command:?} alone");
        let found = assert_survives(&format!("{command:?}"), &command, || drop(prepare()));
        let intact = Which::Library.intact();
        assert_eq!(found.through(intact), sound().allocs.through(intact), "{command:?}: stacks without the library");
        found
    })
}

#[test]
fn a_library_whose_file_is_deleted_is_walked_through() {
    for found in assert_change_is_survived(sound().directory.path(), "delete", |_| None) {
        assert_eq!(found.depths(), sound().allocs.depths(), "all frames are there, named or not");
    }
}

#[test]
fn a_library_whose_file_is_replaced_is_walked_through_and_not_misnamed() {
    let all = assert_change_is_survived(sound().directory.path(), "replace", |directory| {
        let other = directory.join("other.so");
        impostor(&other);
        Some(other.to_str().unwrap().to_owned())
    });
    for found in all {
        assert_eq!(found.depths(), sound().allocs.depths(), "all frames are there, named or not");
        assert!(!found.is_named("impostr"), "names of another file");
    }
}

#[test]
fn a_library_that_loses_what_is_not_loaded_is_walked_through() {
    let end = Elf(std::fs::read(sound().directory.path().join("libdamaged.so")).unwrap()).end_of_segments();
    for found in assert_change_is_survived(sound().directory.path(), "truncate", |_| Some(end.to_string())) {
        assert_eq!(found.depths(), sound().allocs.depths(), "all frames are there, named or not");
    }
}

#[test]
fn a_library_that_loses_its_frame_information_is_survived() {
    let (directory, _) = copied(sound().directory.path());
    let library = directory.path().join("libdamaged.so");
    let mut elf = Elf(std::fs::read(&library).unwrap());
    let [header, section] = [".eh_frame_hdr", ".eh_frame"].map(|name| elf.section(name).start);
    let moved_to = elf.move_segment_to_the_end(header);
    std::fs::write(&library, elf.0).unwrap();
    for size in [moved_to, moved_to + 20, moved_to + section - header + 50] {
        let [early, _late] = assert_change_is_survived(directory.path(), "truncate", |_| Some(size.to_string()));
        assert_ne!(early.depths(), sound().allocs.depths(), "nobody can know what is in no file and not in memory");
    }
}
