//! Frames for a batch of addresses in one mapped file.

use std::sync::Arc;

use profile::{Svma, SymbolFrame};

use crate::demangle::Name;
use crate::elf::Elf;
use crate::functions::{self, Function};
use crate::lines::{self, Line};
use crate::locate::{self, Binary};
use crate::{Detail, Options, packed, vdso};

/// The frames at each of the sorted addresses, innermost first; reports in `notes` what could not be used. `has_named` says that other
/// addresses of the file have names already.
pub(crate) fn frames(
    path: &str,
    (build_id, recorded, has_named): (&[u8], i64, bool),
    addresses: &[u64],
    options: &Options,
    notes: &mut Vec<String>,
) -> Vec<Vec<SymbolFrame>> {
    let mut functions = vec![None; addresses.len()];
    if path == vdso::PATH {
        vdso_functions(build_id, addresses, &mut functions, notes);
        return functions.iter().map(|function| function.iter().map(frame).collect()).collect();
    }
    let main = match locate::binary(path, build_id, recorded, options) {
        Ok(binary) => Some(binary),
        Err(reason) => {
            notes.push(format!("{path}: {reason}"));
            None
        }
    };
    let full = options.detail == Detail::Full;
    let wants_debug_file = main.as_ref().is_none_or(|main| !main.elf.has_symtab() || (full && !main.elf.has_dwarf()));
    let debug = wants_debug_file.then(|| locate::debug_file(main.as_ref(), path, build_id, options)).flatten();
    names(main.as_ref(), debug.as_ref(), addresses, &mut functions, notes);

    let dwarf = [&main, &debug].into_iter().flatten().find(|binary| full && binary.elf.has_dwarf());
    let lines = dwarf.and_then(|binary| {
        // Other addresses have no lines, and blazesym may overflow on them.
        let code: Vec<u64> = addresses.iter().copied().filter(|&address| binary.elf.has_code_at(address)).collect();
        let package = locate::package(binary, path, build_id, options);
        if let Some(reason) = lack(lines::memory(binary, package.as_deref()), options) {
            notes.push(format!("{path}: {reason}"));
            return None;
        }
        let lines = lines::find(&binary.path, package.as_deref(), &code, &options.debug_dirs);
        lines.map(|lines| code.into_iter().zip(lines)).map_err(|reason| notes.push(format!("{path}: {reason}"))).ok()
    });
    let mut lines = lines.into_iter().flatten().peekable();
    let frames: Vec<_> = addresses
        .iter()
        .zip(&functions)
        .map(|(address, function)| {
            let lines = lines.next_if(|(at, _)| at == address).map(|(_, lines)| lines).unwrap_or_default();
            join(function.as_ref(), lines)
        })
        .collect();
    if main.is_some() && !has_named && frames.iter().all(Vec::is_empty) {
        notes.push(format!("{path}: no symbols for any of its addresses; is it stripped?"));
    }
    frames
}

/// Why a file's lines are not looked up, where they may take these bytes of memory and those of mappings besides.
fn lack((memory, mapped): (u64, u64), options: &Options) -> Option<String> {
    let all = memory.saturating_add(mapped);
    let (may, left) =
        [(memory, options.memory), (all, options.address_space)].into_iter().find(|(may, left)| *may > *left as u64)?;
    let (may, left) = (may >> 20, left >> 20);
    Some(format!("names only: lines and inlined functions may take {may} MiB of memory, and {left} are left"))
}

/// The frame of a function of which only the name is known.
pub(crate) fn frame(function: &Function) -> SymbolFrame {
    let Name { shown, system } = &*function.name;
    SymbolFrame {
        name: Arc::clone(shown),
        system_name: system.clone(),
        file: None,
        line: 0,
        function_start: Some(Svma(function.start)),
        inlined: false,
    }
}

fn names(
    main: Option<&Binary>,
    debug: Option<&Binary>,
    addresses: &[u64],
    found: &mut [Option<Function>],
    notes: &mut Vec<String>,
) {
    if let Some(Binary { elf, path }) = main {
        functions_of(elf, addresses, found);
        if !elf.has_symtab() {
            match packed::unpack(elf) {
                Some(Ok(elf)) => functions_of(&elf, addresses, found),
                Some(Err(reason)) => notes.push(format!("{}: {reason}", path.display())),
                None => {}
            }
        }
    }
    if let Some(Binary { elf, .. }) = debug {
        functions_of(elf, addresses, found);
    }
}

fn functions_of(elf: &Elf, addresses: &[u64], found: &mut [Option<Function>]) {
    for table in functions::tables(elf) {
        if found.iter().any(|function| function.as_ref().is_none_or(|function| !function.sized)) {
            functions::find(elf, table, addresses, found);
        }
    }
}

fn vdso_functions(build_id: &[u8], addresses: &[u64], found: &mut [Option<Function>], notes: &mut Vec<String>) {
    let Some(elf) = vdso::read() else { return };
    if !build_id.is_empty() && elf.build_id().as_deref() == Some(build_id) {
        functions_of(&elf, addresses, found);
    } else {
        notes.push(format!("{}: of another kernel: no names", vdso::PATH));
    }
}

/// Joins the function from the symbol table with what DWARF says about the same address. The enclosing function keeps
/// its name from the table, so that names do not depend on whether debug information is installed.
fn join(function: Option<&Function>, lines: Vec<Line>) -> Vec<SymbolFrame> {
    if function.is_none() && lines.last().is_some_and(Line::is_label) {
        return Vec::new();
    }
    let mut frames: Vec<SymbolFrame> = lines.into_iter().map(Line::into_frame).collect();
    match (frames.last_mut(), function) {
        (Some(last), Some(function)) => {
            let known = frame(function);
            last.name = known.name;
            last.system_name = known.system_name;
            last.function_start = known.function_start;
        }
        (None, Some(function)) => frames.push(frame(function)),
        (_, None) => {}
    }
    frames
}
