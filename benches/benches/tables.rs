//! Time to build an unwind table: `cargo bench -p profile-recorder-benches --bench tables [-- --quick] [-- FILE...]`

use object::{Object as _, ObjectSection as _};
use profile_recorder_benches::figures::{Rounds, is_quick, time};
use profile_recorder_benches::objects;
use std::fs;
use std::path::{Path, PathBuf};
use unwind::arch::Registers;
use unwind::build::{Section, build};

fn main() {
    let rounds = if is_quick() { 2 } else { 15 };
    println!("Unwind tables, built {rounds} times.\n");
    println!("functions     rows  rules   size KiB   first ms  best ms  best ns/row  median  file");
    for path in files() {
        if let Err(error) = row(&path, rounds) {
            println!("{}: {error}", path.display());
        }
    }
}

fn row(path: &Path, rounds: usize) -> Result<(), Box<dyn std::error::Error>> {
    let bytes = fs::read(path)?;
    let file = object::File::parse(&*bytes)?;
    let eh_frame = file.section_by_name(".eh_frame").ok_or("no .eh_frame")?;
    let section = Section { bytes: eh_frame.data()?, address: eh_frame.address() };
    let mut first = None;
    let mut all = Rounds::default();
    let mut built = Default::default();
    for _ in 0..rounds {
        let nanoseconds = time(|| built = build::<Registers>(section, 0));
        first.get_or_insert(nanoseconds);
        all.push(nanoseconds);
    }
    let (table, counts) = built;
    let rows = table.pcs.len();
    println!(
        "{:9} {rows:8} {:6} {:10} {:10.2} {:8.2} {:12.1} {:7.1}  {}",
        counts.functions,
        table.interned.len(),
        (rows * 6 + table.interned.len() * 8) / 1024,
        first.unwrap_or_default() / 1e6,
        all.best() / 1e6,
        all.best() / rows as f64,
        all.median() / rows as f64,
        path.display(),
    );
    Ok(())
}

/// The files named on the command line; without any, this executable, what it has loaded, and large libraries that may be there.
fn files() -> Vec<PathBuf> {
    let named: Vec<PathBuf> =
        std::env::args().skip(1).filter(|argument| !argument.starts_with("--")).map(PathBuf::from).collect();
    if !named.is_empty() {
        return named;
    }
    let loaded = objects::loaded().into_iter().map(|object| match object.path.as_str() {
        "" => fs::read_link("/proc/self/exe").unwrap_or_default(),
        path => PathBuf::from(path),
    });
    loaded
        // The vDSO has no file.
        .filter(|path| path.is_file())
        .chain(objects::large_libraries())
        .collect()
}
