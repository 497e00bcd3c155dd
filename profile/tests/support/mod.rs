//! Profiles that the tests encode.
#![allow(dead_code, unreachable_pub, reason = "each test file uses its part")]

use profile_recorder_profile::{
    AddressKind, Event, Frame, Label, Labels, Mapping, MappingId, Options, Profile, Sample, SampleType, StackId, Svma,
    SymbolFrame, Symbols, Thread, ThreadId, values,
};
use std::io;

/// Names that formats are easily broken by.
pub const ODD: [&str; 16] = [
    "a;b",
    "operator new[](unsigned long)",
    "say \"hi\" & 'bye'",
    "two\nlines\r\n\tand a tab",
    "<T as Trait>::f<&'static str>",
    "</script><script>alert(1)</script>",
    "]]> --> <!-- &amp;",
    "f 12",
    "# not a comment",
    "\u{fffd} was no UTF-8",
    "naïve::функция::関数",
    "",
    " ",
    "\0",
    "(anonymous namespace)::f()",
    "[unknown]",
];

/// A function in one of the mappings of [`cpu`].
pub fn at(mapping: u32, svma: u64, kind: AddressKind) -> Frame {
    Frame::Address { mapping: Some(MappingId(mapping)), svma: Svma(svma), kind }
}

/// A small CPU profile with everything that a profile can have: inlined functions, addresses without symbols and without mappings,
/// single samples, labels, losses.
pub fn cpu() -> (Profile, Symbols) {
    use AddressKind::{Instruction, ReturnAddress};
    let mut profile = Profile::new(vec![SampleType::new("samples", "count"), SampleType::new("cpu", "nanoseconds")]);
    profile.period_type = Some(SampleType::new("cpu", "nanoseconds"));
    profile.period = 10_000_000;
    profile.start_unix_ns = 1_700_000_000_123_456_789;
    profile.duration_ns = 2_000_000_000;
    profile.mappings = vec![
        Mapping {
            start: 0x5555_5555_6000,
            end: 0x5555_5555_9000,
            file_offset: 0x1000,
            bias: 0x5555_5555_4000,
            path: "/usr/bin/my app".into(),
            build_id: (0..20).collect(),
        },
        Mapping {
            start: 0x7fff_f7c2_8000,
            end: 0x7fff_f7dc_0000,
            file_offset: 0x28000,
            bias: 0x7fff_f7c0_0000,
            path: "/usr/lib/x86_64-linux-gnu/libc.so.6".into(),
            build_id: vec![0xab; 20],
        },
    ];
    profile.threads = vec![
        Thread { pid: 4711, tid: 4711, name: "main".into(), process: "my app".into(), slot: 1 },
        Thread { pid: 4711, tid: 4712, name: "worker 7".into(), process: "my app".into(), slot: 2 },
    ];
    let main = at(0, 0x2100, ReturnAddress);
    let parse = at(0, 0x2205, ReturnAddress);
    let memcpy = at(1, 0x2_9010, Instruction);
    let stripped = at(1, 0x3_0000, Instruction);
    let nowhere = Frame::Address { mapping: None, svma: Svma(0x7fff_0000_1234), kind: Instruction };
    let hot = profile.stacks.intern([main.clone(), parse.clone(), memcpy.clone()]);
    let cold = profile.stacks.intern([main.clone(), stripped]);
    let jit = profile.stacks.intern([Frame::named("[truncated: no unwind table]"), nowhere]);
    let lost = profile.stacks.intern([Frame::named("[lost: store full]")]);
    let mut add = |stack, thread: Option<u32>, labels: Vec<Label>, samples, nanos| {
        profile.samples.push(Sample {
            stack,
            thread: thread.map(ThreadId),
            labels: labels.into(),
            values: values![samples, nanos],
        });
    };
    add(hot, Some(0), vec![], 7, 70_000_001);
    add(hot, Some(1), vec![Label::text("request", "GET /"), Label::number("shard", 3)], 2, 20_000_000);
    add(cold, Some(0), vec![], 1, 10_000_000);
    add(jit, Some(1), vec![], 1, 10_000_000);
    add(lost, None, vec![], 3, 30_000_000);
    profile.events = (0..2)
        .map(|i| Event {
            unix_ns: profile.start_unix_ns + i * 10_000_000,
            thread: ThreadId(1),
            stack: jit,
            weight: 5_000_000,
        })
        .collect();
    profile.comments = vec!["my app (pid 4711): lost: 3 events, 30.000 ms (store full)".into()];

    let mut symbols = Symbols::new();
    let mut name = |frame: &Frame, functions: Vec<SymbolFrame>| symbols.insert(frame.address().unwrap(), functions);
    let function = |name: &str, file: Option<&str>, line, start| SymbolFrame {
        file: file.map(Into::into),
        line,
        function_start: Some(Svma(start)),
        ..SymbolFrame::named(name)
    };
    name(&main, vec![function("app::main", Some("/src/main.rs"), 12, 0x20f0)]);
    let inlined = SymbolFrame {
        inlined: true,
        system_name: Some("_ZN4core3ops4CallE".into()),
        ..function("core::ops::Call<(u8, i32)>::call", Some("/rust/ops.rs"), 250, 0x2200)
    };
    name(&parse, vec![inlined, function("app::parse;json", Some("/src/parse.rs"), 40, 0x2180)]);
    name(&memcpy, vec![function("memcpy", None, 0, 0x2_9000)]);
    (profile, symbols)
}

/// A small heap profile of two processes.
pub fn heap() -> (Profile, Symbols) {
    let types =
        [("alloc_objects", "count"), ("alloc_space", "bytes"), ("inuse_objects", "count"), ("inuse_space", "bytes")];
    let mut profile = Profile::new(types.map(|(kind, unit)| SampleType::new(kind, unit)).to_vec());
    profile.default_sample_type = Some(3);
    profile.period_type = Some(SampleType::new("space", "bytes"));
    profile.period = 524_288;
    profile.start_unix_ns = 1_700_000_000_000_000_000;
    profile.duration_ns = 61_000_000_000;
    profile.threads = vec![
        Thread { pid: 10, tid: 10, name: "sh".into(), process: "dash".into(), slot: 0 },
        Thread { pid: 11, tid: 0, name: "pool".into(), process: "python3".into(), slot: 0 },
    ];
    let grow = profile.stacks.intern(["main", "grow", "realloc"].map(Frame::named));
    let leak = profile.stacks.intern(["main", "load", "leak", "malloc"].map(Frame::named));
    let mut add = |stack, thread, values: [i64; 4]| {
        profile.samples.push(Sample {
            stack,
            thread: Some(ThreadId(thread)),
            labels: Labels::new(),
            values: values.to_vec().into(),
        });
    };
    add(grow, 0, [100, 4096, 0, 0]);
    add(leak, 1, [10, 10_000_000, 8, 8_000_000]);
    add(grow, 1, [3, 3000, 1, 1000]);
    (profile, Symbols::new())
}

/// `count` samples in `stacks` stacks of about 30 frames, in 20 threads; every address has a name.
pub fn large(count: usize, stacks: usize) -> (Profile, Symbols) {
    let mut profile =
        Profile::new(vec![SampleType::new("alloc_objects", "count"), SampleType::new("alloc_space", "bytes")]);
    profile.mappings = vec![Mapping { start: 0, end: 1 << 40, path: "/bin/large".into(), ..Mapping::default() }];
    profile.threads =
        (0..20).map(|i| Thread { pid: 1, tid: i + 1, name: format!("worker {i}"), ..Thread::default() }).collect();
    let mut random = Random(1);
    let mut symbols = Symbols::new();
    let ids: Vec<StackId> = (0..stacks)
        .map(|_| {
            let mut at = 0_u64;
            let frames: Vec<Frame> = (0..30)
                .map(|depth| {
                    // Few ways near the root, many near the leaf.
                    at = at * 3 % 4001 + random.below(if depth < 10 { 2 } else { 4 });
                    let frame = self::at(0, at * 64 + depth * 1_000_000, AddressKind::ReturnAddress);
                    let name = format!("crate_{}::module::Type<T>::function_{at}_{depth}", at % 17);
                    symbols.insert(frame.address().unwrap(), vec![SymbolFrame::named(name)]);
                    frame
                })
                .collect();
            profile.stacks.intern(frames)
        })
        .collect();
    for i in 0..count {
        let objects = 1 + random.below(9) as i64;
        profile.samples.push(Sample {
            stack: ids[random.below(stacks as u64) as usize],
            thread: Some(ThreadId((i % 20) as u32)),
            labels: Labels::new(),
            values: values![objects, objects * (16 + random.below(500) as i64)],
        });
    }
    (profile, symbols)
}

/// Numbers that are the same in every run.
pub struct Random(pub u64);

impl Random {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        self.0 >> 29
    }

    pub fn below(&mut self, limit: u64) -> u64 {
        self.next() % limit
    }
}

pub fn encoded(
    encode: impl Fn(&Profile, &Symbols, &Options, &mut dyn io::Write) -> io::Result<()>,
    (profile, symbols): &(Profile, Symbols),
    options: &Options,
) -> Vec<u8> {
    let mut out = Vec::new();
    encode(profile, symbols, options, &mut out).expect("a vector takes everything");
    out
}
