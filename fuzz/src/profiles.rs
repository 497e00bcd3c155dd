//! Decoders of profiles: a store that a process died in the middle of, files of other programs, files that somebody damaged.
//!
//! No panic, no more memory than the size of the input allows, and every index in what they return leads somewhere. What was read can be written, and read again: the
//! totals are the same.

use crate::allocated::at_most;
use crate::input::Input;
use layout::{Frame, Lost, ModuleIndex, Pseudo, RecordId, Root};
use profile::decode::Limits;
use profile::{Options, Profile, SampleType, Symbols, decode, encode};

#[path = "../../profile/tests/support/store.rs"]
#[allow(unreachable_pub, missing_docs, dead_code, reason = "shared with the tests of the crate")]
mod written;

/// Bytes that the text formats may have.
const LIMITS: Limits = Limits { bytes: 1 << 18 };

/// What a decoder may allocate for so many bytes.
const fn memory(bytes: usize) -> usize {
    (1 << 20) + 128 * bytes
}

/// A store: as it is, or written by what the bytes say and then damaged.
pub fn store(data: &[u8]) {
    let mut input = Input::new(data);
    let bytes = if input.u8().is_multiple_of(2) { input.rest().to_vec() } else { written(input) };
    let decoded = at_most(memory(bytes.len()), || profile::store::decode(&bytes));
    let Ok(decoded) = decoded else { return };
    for profile in [&decoded.allocs, &decoded.cpu, &decoded.wall].into_iter().flatten() {
        whole(profile);
        write_everything(profile, &Symbols::new(), is_written(data));
    }
}

/// A pprof file.
pub fn pprof(data: &[u8]) {
    let decoded = at_most(memory(LIMITS.bytes), || decode::pprof::decode(data, LIMITS));
    let Ok((profile, symbols)) = decoded else { return };
    whole(&profile);
    write_everything(&profile, &symbols, is_written(data));
}

/// Collapsed stacks.
pub fn collapsed(data: &[u8]) {
    let samples = SampleType::new("samples", "count");
    let decoded = at_most(memory(data.len()), || decode::collapsed::decode(data, samples.clone(), LIMITS));
    let Ok(profile) = decoded else { return };
    whole(&profile);
    write_everything(&profile, &Symbols::new(), is_written(data));
    let mut written = Vec::new();
    encode::collapsed::encode(&profile, &Symbols::new(), &Options::default(), &mut written).expect("memory takes all");
    let again = decode::collapsed::decode(&written, samples, LIMITS).expect("what was written can be read");
    assert!(overflows(&profile, 0) || again.total(0) == profile.total(0));
}

/// The text of `perf script`.
pub fn perf(data: &[u8]) {
    read(data, || decode::perf::decode(data, LIMITS));
}

/// gProfiler's stacks.
pub fn col(data: &[u8]) {
    read(data, || Ok((decode::col::decode(data, LIMITS)?, Symbols::new())));
}

/// JSON of DHAT.
pub fn dhat(data: &[u8]) {
    read(data, || decode::dhat::decode(data, LIMITS));
}

/// Files of heaptrack.
pub fn heaptrack(data: &[u8]) {
    read(data, || decode::heaptrack::decode(data, LIMITS));
}

/// Our own files: as they are, or with checksums that fit.
pub fn raw(data: &[u8]) {
    let mut bytes = data.to_vec();
    if data.len().is_multiple_of(2) {
        mend(&mut bytes);
    }
    read(&bytes, || decode::raw::decode(&bytes, LIMITS));
    let Ok(of) = decode::raw::decode(&bytes, LIMITS) else { return };
    let mut written = Vec::new();
    encode::raw::encode(&of.0, &of.1, &Options::default(), &mut written).expect("memory takes all");
    let again = decode::raw::decode(&written, Limits::default()).expect("what was written can be read");
    // Equal frames and stacks, which only a damaged file holds twice, are one there: their names may have been others'.
    assert_eq!(again.0, of.0);
}

/// Makes the checksum of each chunk fit.
fn mend(bytes: &mut [u8]) {
    let mut at = 9;
    while let Some(head) = bytes.get(at..at + 9) {
        let length = u32::from_le_bytes([head[1], head[2], head[3], head[4]]) as usize;
        let Some(payload) = bytes.get(at + 9..).and_then(|rest| rest.get(..length)) else { return };
        let mut hasher = crc32fast::Hasher::new();
        hasher.update(&head[..1]);
        hasher.update(payload);
        let sum = hasher.finalize().to_le_bytes();
        bytes[at + 5..at + 9].copy_from_slice(&sum);
        at += 9 + length;
    }
}

/// What holds for every decoder.
fn read(data: &[u8], decode: impl Fn() -> Result<(Profile, Symbols), decode::DecodeError>) {
    let decoded = at_most(memory(LIMITS.bytes), decode);
    let Ok((profile, symbols)) = decoded else { return };
    whole(&profile);
    write_everything(&profile, &symbols, is_written(data));
}

/// Whether every index leads somewhere.
fn whole(profile: &Profile) {
    let (stacks, threads) = (profile.stacks.len(), profile.threads.len());
    for sample in &profile.samples {
        assert_eq!(sample.values.len(), profile.sample_types.len());
        assert!(sample.stack.index() < stacks && sample.thread.is_none_or(|thread| thread.index() < threads));
    }
    for event in &profile.events {
        assert!(event.stack.index() < stacks && event.thread.index() < threads);
    }
    for frame in profile.stacks.frames() {
        if let profile::Frame::Address { mapping: Some(mapping), .. } = frame {
            assert!(profile.mapping(*mapping).is_some());
        }
    }
    assert!(profile.default_sample_type.is_none_or(|column| column < profile.sample_types.len()));
}

/// Whether sums of a column depend on the order, since they stop at the end of the range.
fn overflows(profile: &Profile, column: usize) -> bool {
    let magnitude = |sum: u64, value: i64| sum.checked_add(value.unsigned_abs()).filter(|sum| *sum < 1 << 63);
    profile.samples.iter().map(|sample| sample.values[column]).try_fold(0, magnitude).is_none()
}

/// Writing takes longer than all the rest: some inputs ask for it.
fn is_written(data: &[u8]) -> bool {
    data.len().is_multiple_of(8)
}

/// Writes every format that costs little, and reads back the one that carries everything.
fn write_everything(profile: &Profile, symbols: &Symbols, written_too: bool) {
    // Stacks are written out for every sample.
    if !written_too || profile.stacks.len() * (profile.samples.len() + profile.events.len()) > 1 << 16 {
        return;
    }
    let options = Options::default();
    for encode in [encode::json::encode, encode::perf::encode, encode::collapsed::encode, encode::col::encode] {
        encode(profile, symbols, &options, &mut std::io::sink()).expect("nothing is refused");
    }
    for encode in [encode::raw::encode, encode::speedscope::encode, encode::firefox::encode] {
        encode(profile, symbols, &options, &mut std::io::sink()).expect("nothing is refused");
    }
    if profile.sample_types.is_empty() {
        return;
    }
    let mut written = Vec::new();
    encode::pprof::encode(profile, symbols, &options, &mut written).expect("memory takes all");
    let (again, _) = decode::pprof::decode(&written, Limits::default()).expect("what was written can be read");
    for column in 0..profile.sample_types.len() {
        assert!(overflows(profile, column) || again.total(column) == profile.total(column), "column {column}");
    }
}

/// Writes a store as a process would, and damages it.
fn written(mut input: Input<'_>) -> Vec<u8> {
    let modes = u32::from(input.u8());
    let length = 16 * usize::from(input.u8());
    let exe = String::from_utf8_lossy(input.take(length)).into_owned();
    let exe = exe.get(..exe.floor_char_boundary(4096)).unwrap_or_default();
    let mut store = written::Store::new(modes, exe);
    let (mut nodes, mut threads) = (vec![RecordId::NONE], vec![RecordId::NONE]);
    let mut damages = Vec::new();
    for _ in 0..400 {
        if input.is_empty() {
            break;
        }
        let operation = input.u8();
        let node = nodes[usize::from(input.u8()) % nodes.len()];
        let thread = threads[usize::from(input.u8()) % threads.len()];
        match operation % 16 {
            0 => {
                let name: Vec<u8> = input.take(16).to_vec();
                let name = String::from_utf8_lossy(&name).into_owned();
                let name = &name[..name.floor_char_boundary(16)];
                threads.push(store.thread(u32::from(input.u8()), name, input.u64(), input.u64()));
            }
            1 => {
                let root = [Root::Allocs, Root::Cpu, Root::Wall][usize::from(operation >> 4) % 3];
                nodes.push(store.root(root, thread));
            }
            2..6 => nodes.push(store.node(node, frame(&mut input))),
            6 | 7 if !node.is_none() => store.alloc_values(node, std::array::from_fn(|_| input.u64())),
            8 if !node.is_none() => store.time_values(node, input.u64(), input.u64()),
            9 => store.time_sample(node, thread, u32::from(input.u8()), input.u64(), input.u64()),
            10 => {
                let length = usize::from(input.u8());
                let path = String::from_utf8_lossy(input.take(length)).into_owned();
                store.module(u32::from(input.u8()), &path, input.u64() >> 1, input.u64(), operation > 0xe0);
            }
            11 => store.lose(Lost::ALL[usize::from(operation >> 4) % Lost::ALL.len()], input.u64(), input.u64()),
            _ => damages.push((input.u64(), input.u64())),
        }
    }
    for (place, damage) in damages {
        let at = (place as usize % store.bytes.len().saturating_sub(8)) & !3;
        store.u32(at, damage as u32);
    }
    if input.u8() % 4 == 3 {
        let length = input.u64() as usize % store.bytes.len();
        store.bytes.truncate(length);
    }
    store.bytes
}

fn frame(input: &mut Input<'_>) -> Frame {
    let kind = input.u8();
    let module = ModuleIndex::new(u16::from(kind >> 5)).expect("a small number");
    match kind % 8 {
        0 => Frame::from_bits(input.u64()),
        1 => Frame::pseudo(Pseudo::SystemCall(u32::from(input.u8()))),
        2 => Frame::instruction(module, 0x1000 + u64::from(input.u8())),
        _ => Frame::return_address(module, 0x1000 + u64::from(input.u8())),
    }
}
