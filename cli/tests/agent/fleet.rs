//! Processes that are not there, with a profile that is known.

use crate::support::Place;
use profile::{
    AddressKind, Format, Frame, Label, Mapping, MappingId, Options, Profile, Sample, SampleType, Svma, SymbolFrame,
    Symbols, Thread, ThreadId,
};
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};

/// CPU time of the profile that each answers with, and its samples.
pub(crate) const CPU_NS: i64 = 700_000_000;
pub(crate) const SAMPLES: i64 = 7;

/// Listening fakes; ended when dropped.
pub(crate) struct Fleet(Child);

impl Fleet {
    /// So many of them, in the place's directory.
    pub(crate) fn start(place: &Place, count: u32) -> Self {
        Self::start_partly_old(place, count, 0)
    }

    /// The same; the first `old` of them measure to the end, whatever they are told.
    pub(crate) fn start_partly_old(place: &Place, count: u32, old: u32) -> Self {
        let (profile, symbols) = profile();
        let mut raw = Vec::new();
        Format::Raw.encode(&profile, &symbols, &Options::default(), &mut raw).unwrap();
        std::fs::write(place.path("fake.profrec"), raw).unwrap();
        let mut command = Command::new("python3");
        command.arg(script("recorders.py")).arg(place.path("")).arg(count.to_string()).arg(place.path("fake.profrec"));
        command.arg(old.to_string());
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("apt-get install python3");
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        assert_eq!(line, "listening\n");
        Self(child)
    }
}

impl Drop for Fleet {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A file of `tests/agent`.
pub(crate) fn script(name: &str) -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/agent").join(name)
}

/// Two stacks on two threads, one of them with a label.
pub(crate) fn profile() -> (Profile, Symbols) {
    let mut profile = Profile::new(vec![SampleType::new("samples", "count"), SampleType::new("cpu", "nanoseconds")]);
    (profile.period_type, profile.period) = (Some(SampleType::new("cpu", "nanoseconds")), 90_909_090);
    (profile.start_unix_ns, profile.duration_ns) = (1_700_000_000_000_000_000, 1_000_000_000);
    let build_id = vec![0xab, 0xcd];
    profile.mappings.push(Mapping {
        start: 0x40_0000,
        end: 0x50_0000,
        bias: 0x40_0000,
        path: "/bin/shop".into(),
        build_id,
        ..Mapping::default()
    });
    profile.threads =
        (1..3).map(|tid| Thread { pid: 7, tid, name: format!("t{tid}"), process: "shop".into(), slot: tid }).collect();
    let frame = |svma| Frame::Address { mapping: Some(MappingId(0)), svma: Svma(svma), kind: AddressKind::Instruction };
    let mut symbols = Symbols::new();
    for (svma, name) in [(0x10, "main"), (0x20, "parse"), (0x30, "write")] {
        symbols.insert(frame(svma).address().unwrap(), vec![SymbolFrame::named(name)]);
    }
    let parse = profile.stacks.intern([frame(0x10), frame(0x20)]);
    let write = profile.stacks.intern([frame(0x10), frame(0x30)]);
    for (stack, thread, labels, count) in
        [(parse, 0, vec![], 4), (parse, 1, vec![], 1), (write, 1, vec![Label::text("route", "/orders")], 2)]
    {
        profile.samples.push(Sample {
            stack,
            thread: Some(ThreadId(thread)),
            labels: labels.into(),
            values: profile::values![count, count * 100_000_000],
        });
    }
    (profile, symbols)
}
