//! The formats, byte by byte. `BLESS=1 cargo test` rewrites the files in `tests/golden`.

mod support;

use profile_recorder_profile::decode::Limits;
use profile_recorder_profile::{Options, Profile, Symbols, decode, encode};
use std::path::Path;

fn compare(name: &str, actual: &[u8]) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(name);
    let actual = String::from_utf8_lossy(actual);
    if std::env::var_os("BLESS").is_some() {
        std::fs::write(&path, &*actual).unwrap();
    }
    let expected = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(actual == expected, "{} is not what is written now; BLESS=1 rewrites it\n{actual}", path.display());
}

fn pretty_json(of: &(Profile, Symbols)) -> Vec<u8> {
    pretty(&support::encoded(encode::json::encode, of, &Options::default()))
}

fn pretty(json: &[u8]) -> Vec<u8> {
    let value: serde_json::Value = serde_json::from_slice(json).unwrap();
    let mut text = serde_json::to_vec_pretty(&value).unwrap();
    text.push(b'\n');
    text
}

#[test]
fn collapsed_stacks_are_written_as_before() {
    let options = Options { thread_frames: true, ..Options::default() };
    compare("cpu.collapsed", &support::encoded(encode::collapsed::encode, &support::cpu(), &Options::default()));
    compare("cpu.threads.collapsed", &support::encoded(encode::collapsed::encode, &support::cpu(), &options));
    compare("heap.collapsed", &support::encoded(encode::collapsed::encode, &support::heap(), &Options::default()));
}

#[test]
fn perf_script_text_is_written_as_before() {
    compare("cpu.perf", &support::encoded(encode::perf::encode, &support::cpu(), &Options::default()));
    compare("heap.perf", &support::encoded(encode::perf::encode, &support::heap(), &Options::default()));
}

#[test]
fn json_is_written_as_before() {
    compare("cpu.json", &pretty_json(&support::cpu()));
    compare("heap.json", &pretty_json(&support::heap()));
}

#[test]
fn pprof_is_written_as_before() {
    for (name, of) in [("cpu.pprof.json", support::cpu()), ("heap.pprof.json", support::heap())] {
        let bytes = support::encoded(encode::pprof::encode, &of, &Options::default());
        compare(name, &pretty_json(&decode::pprof::decode(&bytes, Limits::default()).unwrap()));
    }
}

#[test]
fn what_viewers_read_is_written_as_before() {
    for (name, of) in [("cpu", support::cpu()), ("heap", support::heap())] {
        let options = Options::default();
        compare(&format!("{name}.firefox.json"), &pretty(&support::encoded(encode::firefox::encode, &of, &options)));
        compare(
            &format!("{name}.speedscope.json"),
            &pretty(&support::encoded(encode::speedscope::encode, &of, &options)),
        );
        compare(&format!("{name}.col"), &support::encoded(encode::col::encode, &of, &options));
    }
}

/// Files of another version must still be read: this one is never rewritten without a new version.
#[test]
fn a_raw_file_of_version_1_is_read() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/cpu.profrec");
    if std::env::var_os("BLESS").is_some() && !path.exists() {
        std::fs::write(&path, support::encoded(encode::raw::encode, &support::cpu(), &Options::default())).unwrap();
    }
    let bytes = std::fs::read(&path).unwrap();
    assert!(decode::raw::decode(&bytes, Limits::default()).unwrap() == support::cpu());
}
