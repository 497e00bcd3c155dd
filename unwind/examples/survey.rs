//! Builds the tables of ELF files and says what they hold: `cargo run --release -p profile-recorder-unwind --example survey -- FILE...`

use std::time::Instant;

use object::{Object as _, ObjectSection as _};
use profile_recorder_unwind::arch::Registers;
use profile_recorder_unwind::build::{Section, build};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    println!("functions skipped malformed      rows unsupported rules  bytes  ms ns/row file");
    for path in std::env::args().skip(1) {
        let bytes = std::fs::read(&path)?;
        let file = object::File::parse(&*bytes)?;
        let Some(eh_frame) = file.section_by_name(".eh_frame") else {
            println!("no .eh_frame: {path}");
            continue;
        };
        let section = Section { bytes: eh_frame.data()?, address: eh_frame.address() };
        let (mut fastest, mut built) = (f64::INFINITY, None);
        for _ in 0..5 {
            let start = Instant::now();
            built = Some(build::<Registers>(section, 0));
            fastest = fastest.min(start.elapsed().as_secs_f64());
        }
        let Some((table, counts)) = built else { continue };
        let rows = table.pcs.len();
        println!(
            "{:9} {:7} {:9} {rows:9} {:11} {:5} {:6}K {:5.1} {:4.0} {path}",
            counts.functions,
            counts.skipped,
            counts.malformed,
            counts.unsupported_rows,
            table.interned.len(),
            (rows * 6 + table.interned.len() * 8) / 1024,
            fastest * 1e3,
            fastest * 1e9 / rows as f64,
        );
    }
    Ok(())
}
