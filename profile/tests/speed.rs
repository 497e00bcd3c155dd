//! How long the formats take: `cargo test --release -- --ignored --nocapture`.

mod support;

use profile_recorder_profile::{Format, Options, Profile, decode};
use std::time::Instant;

#[test]
#[ignore = "a measurement"]
fn a_million_samples_take_a_fraction_of_a_second() {
    let of = support::large(1_000_000, 50_000);
    println!("{} samples, {} stacks, {} frames", of.0.samples.len(), of.0.stacks.len(), of.0.stacks.frames().len());
    for format in Format::ALL {
        let start = Instant::now();
        let bytes = support::encoded(|p, s, o, w| format.encode(p, s, o, w), &of, &Options::default());
        println!("{format:>10}: {:>8.1?} {:>10} bytes", start.elapsed(), bytes.len());
        if format == Format::Pprof {
            let start = Instant::now();
            decode::pprof::decode(&bytes, decode::Limits::default()).unwrap();
            println!("{:>10}: {:>8.1?}", "decode", start.elapsed());
        }
    }
    let (mut profile, _) = of;
    let start = Instant::now();
    profile.sort();
    println!("{:>10}: {:>8.1?}", "sort", start.elapsed());
    let start = Instant::now();
    let difference = Profile::difference(&profile, &profile);
    println!("{:>10}: {:>8.1?} {}", "difference", start.elapsed(), difference.samples.len());
    let start = Instant::now();
    Profile::merge([profile.clone(), profile]);
    println!("{:>10}: {:>8.1?}", "merge", start.elapsed());
}
