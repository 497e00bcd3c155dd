//! Function names from symbol tables, compared with nm of binutils.

mod support;

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};

use profile_recorder_symbolize::Detail;
use support::*;

const PROGRAM: &str = r#"
    __attribute__((noinline)) static int hidden(int x) { __asm__(""); return x + 1; }
    __attribute__((noinline)) int visible(int x) { __asm__(""); return hidden(x) * 2; }
    int alias(int x) __attribute__((alias("visible")));
    int __alias(int x) __attribute__((alias("visible")));
    int main(void) { return visible(3); }
"#;

/// A loaded library whose name starts so.
fn library(name: &str) -> Option<PathBuf> {
    let folders =
        ["/lib/x86_64-linux-gnu", "/usr/lib/x86_64-linux-gnu", "/lib/aarch64-linux-gnu", "/lib64", "/usr/lib"];
    let entries = folders.iter().filter_map(|folder| fs::read_dir(folder).ok()).flatten().flatten();
    let mut found: Vec<PathBuf> = entries
        .map(|entry| entry.path())
        .filter(|path| path.file_name().is_some_and(|file| file.to_string_lossy().starts_with(name)))
        .filter(|path| text(path).contains(".so"))
        .filter(|path| path.is_file())
        .collect();
    found.sort();
    found.into_iter().next()
}

/// Every function that nm lists has one of its names at its first, middle and last byte.
#[track_caller]
fn agrees_with_nm(path: &Path, arguments: &[&str], at_least: usize) {
    let symbols = nm(path, arguments);
    assert!(symbols.len() >= at_least, "nm lists {} functions in {}", symbols.len(), path.display());
    let mut addresses = Vec::new();
    for &(_, start, size) in symbols.iter().filter(|(_, _, size)| *size > 0) {
        addresses.extend([start, start + size / 2, start + size - 1]);
    }
    let found = symbolized(path, &addresses, &options(Detail::Names));
    assert_eq!(found.notes, Vec::<String>::new());
    let mut covering: HashMap<u64, Vec<&str>> = HashMap::new();
    for (name, start, size) in symbols.iter().filter(|(_, _, size)| *size > 0) {
        for address in [*start, start + size / 2, start + size - 1] {
            covering.entry(address).or_default().push(name);
        }
    }
    for (address, names) in covering {
        let found = linker_name(&found, address).unwrap_or_else(|| panic!("{address:#x} has no name, not {names:?}"));
        // Nested functions: the inner one may begin inside the outer one, and nm tells both.
        let inside =
            |(name, start, size): &(String, u64, u64)| *name == found && (*start..start + size).contains(&address);
        assert!(symbols.iter().any(inside), "{address:#x} is {found}, not {names:?}");
    }
}

#[test]
fn every_function_of_a_program_has_its_name() {
    let folder = Folder::new();
    let program = folder.compile("gcc", PROGRAM, "program", &["-O1"]);
    agrees_with_nm(&program, &[], 4);
}

#[test]
fn a_name_without_underscores_is_preferred() {
    let folder = Folder::new();
    let program = folder.compile("gcc", PROGRAM, "program", &["-O1"]);
    let visible = nm(&program, &[]).into_iter().find(|(name, ..)| name == "visible").expect("nm lists it").1;
    let found = symbolized(&program, &[visible], &options(Detail::Names));
    assert_eq!(linker_name(&found, visible).as_deref(), Some("alias"));
}

#[test]
fn the_c_library_is_named_by_its_dynamic_symbols() {
    let Some(libc) = library("libc.so.6") else { return };
    agrees_with_nm(&libc, &["-D"], 1000);
    let symbols = nm(&libc, &["-D"]);
    for wanted in ["malloc", "free", "calloc", "realloc", "read", "write", "poll", "open", "printf", "qsort"] {
        let address = symbols.iter().find(|(name, ..)| name == wanted).expect("libc has it").1;
        let found = symbolized(&libc, &[address], &options(Detail::Names));
        let found = linker_name(&found, address).expect("a name");
        assert!(!found.starts_with('_'), "{wanted} is called {found}");
    }
}

#[test]
fn the_python_library_is_named_by_its_dynamic_symbols() {
    let Some(python) = library("libpython3") else { return };
    agrees_with_nm(&python, &["-D"], 1000);
}

#[test]
fn a_stripped_program_has_no_names_and_a_note() {
    let folder = Folder::new();
    let program = folder.compile("gcc", PROGRAM, "program", &["-O1"]);
    let main = nm(&program, &[]).into_iter().find(|(name, ..)| name == "main").expect("nm lists it").1;
    run("strip", &[text(&program)]);
    let found = symbolized(&program, &[main], &options(Detail::Names));
    assert!(found.symbols.is_empty());
    assert_eq!(found.notes.len(), 1);
    assert!(found.notes[0].contains("stripped"), "{:?}", found.notes);
}

#[test]
fn the_table_that_some_distributions_pack_into_stripped_files_is_read() {
    let folder = Folder::new();
    let program = folder.compile("gcc", PROGRAM, "program", &["-O1"]);
    let symbols = nm(&program, &[]);
    let packed = folder.path("table");
    run("objcopy", &["--only-keep-debug", text(&program), text(&packed)]);
    run("xz", &[text(&packed)]);
    run("strip", &[text(&program)]);
    let section = format!(".gnu_debugdata={}", text(&folder.path("table.xz")));
    run("objcopy", &["--add-section", &section, text(&program)]);
    let hidden = symbols.iter().find(|(name, ..)| name == "hidden").expect("nm lists it").1;
    let found = symbolized(&program, &[hidden], &options(Detail::Names));
    assert_eq!(linker_name(&found, hidden).as_deref(), Some("hidden"));
}

#[test]
fn rust_and_cpp_names_are_demangled_and_keep_their_linker_names() {
    let folder = Folder::new();
    let source = "namespace space { __attribute__((noinline)) int foo(int x, char) { __asm__(\"\"); return x; } }\n\
                  int main() { return space::foo(1, 'a'); }";
    let cpp = folder.compile("g++", source, "cpp", &["-O1"]);
    let source = "struct S; trait T { fn foo(&self) -> usize; }\n\
                  impl T for S { #[inline(never)] fn foo(&self) -> usize { std::hint::black_box(1) } }\n\
                  fn main() { S.foo(); }";
    let legacy = folder.compile("rustc", source, "legacy", &["-O", "-g"]);
    let v0 = folder.compile("rustc", source, "v0", &["-O", "-g", "-Csymbol-mangling-version=v0"]);
    for (path, part, shown) in [
        (cpp, "foo", "space::foo(int, char)"),
        (legacy, "3foo", "<legacy::S as legacy::T>::foo"),
        (v0, "3foo", "<v0::S as v0::T>::foo"),
    ] {
        let (name, start, _) = nm(&path, &[])
            .into_iter()
            .find(|(name, ..)| name.contains(part) && !name.contains("foofoo"))
            .expect("nm lists it");
        for detail in [Detail::Names, Detail::Full] {
            let found = symbolized(&path, &[start], &options(detail));
            let last = found.symbols.get(&frame(start)).last().expect("a frame").clone();
            assert_eq!((&*last.name, last.system_name.as_deref()), (shown, Some(&*name)), "{detail:?}");
            assert_eq!(last.function_start.map(|svma| svma.0), Some(start));
        }
    }
}

#[test]
fn bytes_of_a_name_that_are_no_utf_8_are_marked() {
    let folder = Folder::new();
    let source =
        "__attribute__((noinline)) int cut12(int x) { __asm__(\"\"); return x; }\nint main(void) { return cut12(1); }";
    let program = folder.compile("gcc", source, "program", &["-O1", "-g"]);
    let start = nm(&program, &[]).into_iter().find(|(name, ..)| name == "cut12").expect("nm lists it").1;
    let mut bytes = fs::read(&program).expect("the file");
    let places: Vec<usize> = (0..bytes.len() - 6).filter(|at| &bytes[*at..at + 6] == b"cut12\0").collect();
    assert!(!places.is_empty());
    places.into_iter().for_each(|at| bytes[at + 3..at + 5].copy_from_slice(b"\xff\xc3"));
    fs::write(&program, bytes).expect("it is ours");
    for detail in [Detail::Names, Detail::Full] {
        let found = symbolized(&program, &[start], &options(detail));
        assert_eq!(&*found.symbols.get(&frame(start))[0].name, "cut\u{fffd}\u{fffd}", "{detail:?}");
    }
}
