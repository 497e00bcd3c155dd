//! Writes what the fuzz targets begin with, a folder for each: `seeds DIRECTORY`. Taken from files that every Linux system has, so that nothing large lies in the repository.

use flate2::read::GzDecoder;
use gimli::{BaseAddresses, CieOrFde, EhFrame, EhFrameOffset, LittleEndian, UnwindSection as _};
use layout::{Frame, ModuleIndex, Root};
// Built as the targets are, it counts what it covers as they do.
use libfuzzer_sys as _;
use object::{Object as _, ObjectSection as _};
use profile::{Label, Options, Profile, Sample, SampleType, SymbolFrame, Symbols, Thread, ThreadId, encode, values};
use std::io::Read as _;
use std::path::{Path, PathBuf};

#[path = "../../profile/tests/support/store.rs"]
#[allow(unreachable_pub, dead_code, missing_docs, reason = "shared with the tests of the crate")]
mod store;

/// Functions of each file and kind of description.
const FUNCTIONS: usize = 12;

fn main() -> std::io::Result<()> {
    let directory = PathBuf::from(std::env::args_os().nth(1).expect("seeds DIRECTORY"));
    let write = |target: &str, name: &str, bytes: &[u8]| {
        let directory = directory.join(target);
        std::fs::create_dir_all(&directory)?;
        std::fs::write(directory.join(name), bytes)
    };
    for path in files() {
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let bytes = std::fs::read(&path)?;
        let file = object::File::parse(&*bytes).expect("an ELF file");
        for (i, seed) in call_frame_information(&file).iter().enumerate() {
            write("cfi", &format!("{name}-{i}"), seed)?;
        }
        for section in [".plt", ".plt.sec", ".plt.got", ".text"] {
            let Some(data) = file.section_by_name(section).and_then(|section| section.data().ok()) else { continue };
            write("code", &format!("{name}{section}"), &[&[100], &data[..data.len().min(256)]].concat())?;
        }
        write("elf", &name, &[&[0, 0, 0], &bytes[..bytes.len().min(3000)]].concat())?;
    }
    let trampoline = [0x48, 0x83, 0xec, 0x08, 0xff, 0xd1, 0x48, 0x83, 0xc4, 0x08, 0xc3];
    let signal_return =
        [0x48, 0xc7, 0xc0, 0x0f, 0x00, 0x00, 0x00, 0x0f, 0x05, 0xb8, 0x0f, 0x00, 0x00, 0x00, 0x0f, 0x05];
    write("code", "small", &[&[100; 17][..], &trampoline, &signal_return, &[0x90; 16]].concat())?;
    let maps = std::fs::read("/proc/self/maps")?;
    for piece in [0, 3, 255] {
        write("maps", &format!("self-{piece}"), &[&[piece, piece], &*maps].concat())?;
    }
    for (i, seed) in (1..40).map(noise).enumerate() {
        write("walker", &format!("noise-{i}"), &seed)?;
        write("stack", &format!("noise-{i}"), &seed)?;
        write("store", &format!("noise-{i}"), &[&[1, 31, 1], &*seed].concat())?;
    }
    write("store", "whole", &[&[0], &*a_store()].concat())?;
    let (profile, symbols) = a_profile();
    let mut packed = Vec::new();
    encode::pprof::encode(&profile, &symbols, &Options::default(), &mut packed)?;
    write("pprof", "packed", &packed)?;
    let mut unpacked = Vec::new();
    GzDecoder::new(&*packed).read_to_end(&mut unpacked)?;
    write("pprof", "unpacked", &unpacked)?;
    for (target, encode) in [
        (
            "perf",
            encode::perf::encode as fn(&Profile, &Symbols, &Options, &mut dyn std::io::Write) -> std::io::Result<()>,
        ),
        ("col", encode::col::encode),
        ("raw", encode::raw::encode),
    ] {
        let mut bytes = Vec::new();
        encode(&profile, &symbols, &Options::default(), &mut bytes)?;
        write(target, "written", &bytes)?;
    }
    write(
        "col",
        "metadata",
        b"# {\"metadata\": {\"profiling_mode\": \"cpu\"}, \"application_metadata\": [null, {\"exe\": \"/a\", \"n\": 3}]}\n1;c;java;appid: x;main;f_[k] 3\n",
    )?;
    write(
        "perf",
        "perf",
        b"# note\nperf  12 [001] 100.5:  5 cycles:u: \n\t  1f operator new(unsigned long)+0x1f (/lib/a (deleted))\n  a.c:12\n\t 2f main (inlined)\n\n",
    )?;
    write(
        "dhat",
        "points",
        br#"{"dhatFileVersion":2,"bklt":true,"cmd":"a","pid":7,"pps":[{"tb":9,"tbk":2,"eb":4,"ebk":1,"fs":[1,2]}],"ftbl":["[root]","0x10: f (a.c:3)","0x20: g (in /x)"]}"#,
    )?;
    write(
        "heaptrack",
        "events",
        b"v 10400 3\nX ./a b\nI 1000 10\ns 4 main\ns 3 f g\ns 6 /bin/a\ni 10 3 1 0 c\ni 20 3 2 0 7 1 0 8\nt 1 0\nt 2 1\na 10 1\na 3 2\n+ 0\n+ 1\n- 1\nc 5\n- 0\nR 5\n",
    )?;
    for (i, request) in requests().iter().enumerate() {
        (0..3)
            .try_for_each(|rules| write("http", &format!("{i}-{rules}"), &[&[rules], request.as_bytes()].concat()))?;
    }
    write("collapsed", "lines", b"# a comment\nmain;f;g 12\nmain;f 3\n\nmain;operator new(unsigned long) -1\n;; 7\n")
}

/// Requests that a server answers.
fn requests() -> Vec<String> {
    let get =
        |target: &str| format!("GET {target} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer s3cret\r\n\r\n");
    let post = |target: &str, body: &str| {
        let length = body.len();
        format!(
            "POST {target} HTTP/1.1\r\nHost: 127.0.0.1:1\r\nAuthorization: Bearer s3cret\r\nContent-Length: {length}\r\n\r\n{body}"
        )
    };
    let mut all: Vec<String> = [
        "/",
        "/health",
        "/metrics",
        "/alloc/stats",
        "/debug/pprof",
        "/debug/pprof/",
        "/debug/pprof/cmdline",
        "/debug/pprof/symbol?0x401000+0x1",
        "/debug/pprof/profile?seconds=30&hz=99&mode=cpu&format=pprof",
        "/debug/pprof/allocs?seconds=0.5&interval=512KiB&debug=1",
        "/debug/pprof/heap?format=collapsed&symbols=names&thread=worker-*",
        "/debug/pprof/wall?rate=10&format=svg&session=a+b",
        "/debug/pprof/goroutine?debug=2",
        "/debug/pprof/mutex",
        "/echo/x?y=%41+z",
        "/nothing",
    ]
    .map(get)
    .to_vec();
    let sample = r#"{"numberOfSamples":100,"timeInterval":"10 ms","mode":"wall","format":"perf","symbols":"full","session":"a b"}"#;
    all.extend([
        post("/sample", sample),
        post("/debug/pprof/symbol", "0x401000+0x402000"),
        post("/debug/pprof/finish?session=a+b", ""),
        post("/echo/", "x"),
    ]);
    all.push("POST /samples HTTP/1.1\r\nHost: [::1]\r\nOrigin: http://[::1]\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n".to_owned());
    all.push(all.concat());
    all
}

/// The C library, the dynamic linker and this program; cross compilers' libraries if they are there.
fn files() -> Vec<PathBuf> {
    let maps = std::fs::read_to_string("/proc/self/maps").expect("mappings");
    let mut files: Vec<PathBuf> =
        maps.lines().filter_map(|line| line.split_whitespace().nth(5)).map(PathBuf::from).collect();
    let cross = Path::new("/usr/aarch64-linux-gnu/lib");
    files.extend(["libc.so.6", "ld-linux-aarch64.so.1"].map(|name| cross.join(name)));
    files.retain(|path| path.is_file());
    files.sort();
    files.dedup();
    files
}

/// Sections of a few functions each, of every kind that the file has, behind a byte for the place and a header.
fn call_frame_information(file: &object::File<'_>) -> Vec<Vec<u8>> {
    let Some(section) = file.section_by_name(".eh_frame") else { return Vec::new() };
    let bytes = section.data().expect("bytes");
    let eh_frame = EhFrame::new(bytes, LittleEndian);
    let bases = BaseAddresses::default().set_eh_frame(section.address());
    let entry = |at: usize| {
        let length = u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"));
        &bytes[at..at + 4 + length as usize]
    };
    let mut kinds: Vec<(usize, Vec<usize>)> = Vec::new();
    let mut entries = eh_frame.entries(&bases);
    while let Ok(Some(found)) = entries.next() {
        let CieOrFde::Fde(fde) = found else { continue };
        let EhFrameOffset(cie) = fde.cie_offset();
        match kinds.iter_mut().find(|(known, _)| *known == cie) {
            Some((_, functions)) => functions.push(fde.offset()),
            None => kinds.push((cie, vec![fde.offset()])),
        }
    }
    let mut seeds = Vec::new();
    for (cie, functions) in kinds {
        let step = functions.len().div_ceil(FUNCTIONS);
        let chosen: Vec<usize> = functions.into_iter().step_by(step).collect();
        for group in chosen.chunks(3) {
            // The header names the section and one function that lies nowhere.
            let mut seed = vec![0, 20, 1, 0x1b, 0x03, 0x3b, 0xfc, 0x0f, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0x10, 0x10, 0, 0];
            let start = seed.len();
            seed.extend(entry(cie));
            for function in group {
                let at = seed.len();
                seed.extend(entry(*function));
                let distance = (at + 4 - start) as u32;
                seed[at + 4..at + 8].copy_from_slice(&distance.to_le_bytes());
            }
            seed.extend([0; 4]);
            seeds.push(seed);
        }
    }
    seeds
}

/// The same bytes on each run (xorshift), small ones among them.
fn noise(seed: u64) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    (0..600).map(|_| next()).map(|number| (number >> 16) as u8 >> (number % 3)).collect()
}

fn a_store() -> Vec<u8> {
    let mut store = store::Store::new(31, "/bin/example");
    let thread = store.thread(7, "main", 10, 100);
    store.module(1, "/bin/example", 0x1000, 0x1000, false);
    let labels = store.labels(&[("request", "GET /"), ("user", "")]);
    for root in [Root::Allocs, Root::Cpu, Root::Wall] {
        let root_node = store.root(root, thread);
        let labelled = store.node(root_node, Frame::pseudo(layout::Pseudo::Labels(labels)));
        let main = store.node(labelled, Frame::return_address(ModuleIndex::new(1).expect("small"), 0x1234));
        let leaf = store.node(main, Frame::instruction(ModuleIndex::NONE, 0x99));
        match root {
            Root::Allocs => store.alloc_values(leaf, [3 << 16, 300, 1 << 16, 100, 0]),
            Root::Cpu | Root::Wall => {
                store.time_values(leaf, 2, 20_000_000);
                store.time_sample(leaf, thread, 7, 6_000, 10_000_000);
            }
        }
    }
    store.lose(layout::Lost::StoreFull, 1, 10);
    store.bytes
}

fn a_profile() -> (Profile, Symbols) {
    let mut profile = Profile::new(vec![SampleType::new("samples", "count"), SampleType::new("space", "bytes")]);
    let mut symbols = Symbols::new();
    profile.threads = vec![Thread { pid: 1, tid: 2, name: "worker".into(), process: "example".into(), slot: 0 }];
    profile.mappings =
        vec![profile::Mapping { start: 0x1000, end: 0x9000, path: "/bin/example".into(), ..Default::default() }];
    let address = profile::Frame::Address {
        mapping: Some(profile::MappingId(0)),
        svma: profile::Svma(0x1234),
        kind: profile::AddressKind::ReturnAddress,
    };
    let inlined =
        SymbolFrame { inlined: true, file: Some("/src/f.rs".into()), line: 3, ..SymbolFrame::named("inlined") };
    symbols.insert(address.address().expect("an address"), vec![inlined, SymbolFrame::named("f")]);
    let stack = profile.stacks.intern([profile::Frame::named("main"), address]);
    let labels = vec![Label::text("request", "GET /"), Label::number("shard", 3)];
    profile.samples =
        vec![Sample { stack, thread: Some(ThreadId(0)), labels: labels.into(), values: values![3, 4096] }];
    profile.comments = vec!["an example".into()];
    (profile, symbols)
}
