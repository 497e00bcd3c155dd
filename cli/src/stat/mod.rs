//! `profrec stat`: exact counts of the allocation functions, laid out as `perf stat` lays out its own.

mod repeat;

use crate::args::{CommandLine, Stat};
use crate::ending::Ending;
use crate::error::{Error, warn};
use crate::numbers::with_commas;
use crate::pending::PendingFile;
use crate::run::{self, Finished, Settings};
use crate::{summary, target};
use layout::{Function, Live};
use profile::store::{Counts, Decoded};
use repeat::Repeated;
use serde::Serialize;
use std::collections::BTreeMap;
use std::fmt::{self, Display};
use std::io::{self, Write, stderr};

/// Shown even if they are never called: that they are not is a result.
const ALWAYS: [Function; 5] =
    [Function::Malloc, Function::Calloc, Function::Realloc, Function::PosixMemalign, Function::Free];

/// Does all of it. The ending is the command's, unless the command succeeded and this did not.
pub(crate) fn stat(stat: &Stat) -> Result<Ending, Error> {
    target::check(&stat.command.program, std::env::var_os("PATH").as_deref())?;
    let file = stat.output.clone().map(PendingFile::create).transpose()?;
    let settings = Settings { modes: "stat".to_owned(), interval: 1, hz: 99, follow: true, progress: false };
    let mut reports = Vec::new();
    let mut ending = Ending::Code(0);
    for _ in 0..stat.repeat {
        let finished = run::run(&stat.command, &settings)?;
        ending = Ending::of(finished.status);
        if finished.stores.decoded.is_empty() {
            crate::error::print(&Error::failure(summary::nothing_recorded(&stat.command, finished.stores.empty)));
            return Ok(ending.but_failed());
        }
        reports.push(Report::new(&stat.command, &finished, ending));
        if ending != Ending::Code(0) {
            break;
        }
    }
    let runs = reports.len() as u32;
    if runs < stat.repeat {
        warn(format!("run {runs} of {} failed; the others were not begun", stat.repeat));
    }
    let report = if stat.repeat > 1 { repeat::mean(reports) } else { reports.pop() };
    let Some(report) = report else { return Ok(ending) };
    let write = |out: &mut dyn Write| if stat.json { report.write_json(out) } else { write!(out, "{report}") };
    match file {
        Some(file) => drop(file.finish(write)?),
        // Nobody listens: nobody misses it.
        None => drop(write(&mut stderr().lock())),
    }
    Ok(ending)
}

/// What is told of one function.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
struct Row {
    calls: u64,
    /// Bytes asked; absent where none are.
    #[serde(skip_serializing_if = "Option::is_none")]
    bytes: Option<u64>,
}

/// What is told of live memory.
#[derive(Clone, Debug, PartialEq, Serialize)]
struct LiveRow {
    pid: u32,
    process: String,
    peak_bytes: i64,
    peak_after_seconds: f64,
    end_bytes: i64,
    /// Whether these are bytes of the blocks, or bytes asked for them.
    bytes_are: &'static str,
}

#[derive(Debug, Serialize)]
struct Report {
    /// Version of this layout.
    version: u32,
    command: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    exit_code: Option<u8>,
    #[serde(skip_serializing_if = "Option::is_none")]
    signal: Option<i32>,
    processes: usize,
    /// Calls that allocate, of all functions together.
    allocations: u64,
    /// Bytes asked in them.
    bytes: u64,
    functions: BTreeMap<&'static str, Row>,
    /// Live memory of the process that had the most.
    #[serde(skip_serializing_if = "Option::is_none")]
    live: Option<LiveRow>,
    elapsed_seconds: f64,
    user_seconds: f64,
    system_seconds: f64,
    /// Events that could not be recorded.
    #[serde(skip_serializing_if = "Option::is_none")]
    lost: Option<String>,
    /// What cannot be seen, and of which executable.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    unseen: Vec<String>,
    /// Of several runs: the numbers above are their means.
    #[serde(skip_serializing_if = "Option::is_none")]
    repeated: Option<Repeated>,
}

impl Report {
    fn new(command: &CommandLine, finished: &Finished, ending: Ending) -> Self {
        let stores = &finished.stores.decoded;
        let mut counts = Counts::default();
        stores.iter().for_each(|store| counts += store.counts);
        let allocating = || Function::ALL.into_iter().filter(|function| !function.releases());
        let (exit_code, signal) = match ending {
            Ending::Code(code) => (Some(code), None),
            Ending::Signal(signal) => (None, Some(signal)),
        };
        let words = [&command.program].into_iter().chain(&command.arguments);
        Self {
            version: 1,
            command: words.map(|word| word.to_string_lossy().into_owned()).collect(),
            exit_code,
            signal,
            processes: summary::processes(stores),
            allocations: allocating().map(|function| counts.calls_of(function)).sum(),
            bytes: allocating().map(|function| counts.bytes_of(function)).sum(),
            functions: rows(&counts).collect(),
            live: live(stores),
            elapsed_seconds: finished.elapsed.as_secs_f64(),
            user_seconds: finished.user.as_secs_f64(),
            system_seconds: finished.system.as_secs_f64(),
            lost: summary::losses(stores),
            unseen: summary::unseen(stores).into_iter().chain(summary::unfollowed(stores)).collect(),
            repeated: None,
        }
    }

    /// How far the runs lie apart in a number, if there were several.
    fn spread(&self, name: &str) -> String {
        let of = self.repeated.as_ref().and_then(|repeated| Some((repeated, repeated.spread.get(name)?)));
        of.map_or_else(String::new, |(repeated, spread)| format!("  ( +- {:.2}% )", spread.percent(repeated.runs)))
    }

    fn write_json(&self, out: &mut dyn Write) -> io::Result<()> {
        serde_json::to_writer(&mut *out, self)?;
        writeln!(out)
    }
}

fn live(stores: &[Decoded]) -> Option<LiveRow> {
    let (store, live) =
        stores.iter().filter_map(|store| Some((store, store.live?))).max_by_key(|(_, live)| live.peak_bytes)?;
    Some(LiveRow {
        pid: store.pid,
        process: store.process().to_owned(),
        peak_bytes: live.peak_bytes,
        peak_after_seconds: live.peak_after_ns as f64 / 1e9,
        end_bytes: live.bytes,
        bytes_are: if live.kind == Live::Allocated { "allocated" } else { "requested" },
    })
}

fn rows(counts: &Counts) -> impl Iterator<Item = (&'static str, Row)> {
    let told = |function: &Function| counts.calls_of(*function) != 0 || ALWAYS.contains(function);
    Function::ALL.into_iter().filter(told).map(|function| {
        let bytes = (!function.releases()).then(|| counts.bytes_of(function));
        (function.name(), Row { calls: counts.calls_of(function), bytes })
    })
}

impl Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let runs = self.repeated.as_ref().map_or_else(String::new, |repeated| format!(" ({} runs)", repeated.runs));
        writeln!(f, "\n Performance counter stats for '{}'{runs}:\n", self.command.join(" "))?;
        let in_order =
            Function::ALL.iter().filter_map(|function| Some((function.name(), self.functions.get(function.name())?)));
        for (name, row) in in_order {
            line(f, row.calls, name, row.bytes, &self.spread(name))?;
        }
        writeln!(f)?;
        line(f, self.allocations, "allocations", Some(self.bytes), &self.spread("allocs"))?;
        if let Some(live) = &self.live {
            let whose = if self.processes > 1 { format!(" in {} ({})", live.process, live.pid) } else { String::new() };
            let peak = format!("{}      {:<25}", signed(live.peak_bytes), "bytes live at the peak");
            writeln!(
                f,
                "{peak} # {:18.9} seconds after the start{whose}{}",
                live.peak_after_seconds,
                self.spread("peak")
            )?;
            writeln!(f, "{}      bytes live at the end{}", signed(live.end_bytes), self.spread("live"))?;
        }
        for line in self.lost.iter().chain(&self.unseen) {
            writeln!(f, "\n {line}")?;
        }
        writeln!(f, "\n {:17.9} seconds time elapsed{}\n", self.elapsed_seconds, self.spread("elapsed_seconds"))?;
        writeln!(f, " {:17.9} seconds user{}", self.user_seconds, self.spread("user_seconds"))?;
        writeln!(f, " {:17.9} seconds sys{}\n", self.system_seconds, self.spread("system_seconds"))
    }
}

/// A child can give back more than it has asked for: what its parent had.
fn signed(bytes: i64) -> String {
    let sign = if bytes < 0 { "-" } else { "" };
    format!("{:>18}", format!("{sign}{}", with_commas(bytes.unsigned_abs())))
}

fn line(f: &mut fmt::Formatter<'_>, calls: u64, name: &str, bytes: Option<u64>, spread: &str) -> fmt::Result {
    let calls = with_commas(calls);
    match bytes {
        Some(bytes) => writeln!(f, "{calls:>18}      {name:<25} # {:>18} bytes asked{spread}", with_commas(bytes)),
        None => writeln!(f, "{calls:>18}      {name}{spread}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::Stores;
    use profile::store::LiveMemory;
    use std::os::unix::process::ExitStatusExt;
    use std::process::ExitStatus;
    use std::time::Duration;

    fn report() -> Report {
        let counted = |pid: u32, function: Function, calls: u64, bytes: u64| {
            let mut store = Decoded { pid, ..Decoded::default() };
            store.counts.calls[function as usize] = calls;
            store.counts.bytes[function as usize] = bytes;
            store
        };
        let mut decoded = vec![
            counted(1, Function::Malloc, 12_000, 1_234_000),
            counted(1, Function::Memalign, 2, 8192),
            counted(2, Function::Malloc, 345, 567),
            counted(2, Function::Free, 10_000, 0),
        ];
        let live = |bytes, peak_bytes, peak_after_ns| {
            Some(LiveMemory { kind: Live::Allocated, bytes, peak_bytes, peak_after_ns })
        };
        decoded[0].live = live(40, 1_000, 9_000_000);
        decoded[2].live = live(-32, 65_536, 12_500_000);
        decoded[2].exe = "/bin/sed".to_owned();
        let finished = Finished {
            status: ExitStatus::from_raw(0),
            elapsed: Duration::from_nanos(123_456_789),
            user: Duration::from_millis(100),
            system: Duration::from_millis(20),
            stores: Stores { decoded, empty: 0 },
        };
        let command = CommandLine { program: "python3".into(), arguments: vec!["-c".into(), "pass".into()] };
        Report::new(&command, &finished, Ending::Code(0))
    }

    #[test]
    fn the_text_is_laid_out_as_perf_lays_it_out() {
        let expected = "
 Performance counter stats for 'python3 -c pass':

            12,345      malloc                    #          1,234,567 bytes asked
                 0      calloc                    #                  0 bytes asked
                 0      realloc                   #                  0 bytes asked
            10,000      free
                 0      posix_memalign            #                  0 bytes asked
                 2      memalign                  #              8,192 bytes asked

            12,347      allocations               #          1,242,759 bytes asked
            65,536      bytes live at the peak    #        0.012500000 seconds after the start in sed (2)
               -32      bytes live at the end

       0.123456789 seconds time elapsed

       0.100000000 seconds user
       0.020000000 seconds sys

";
        assert_eq!(report().to_string(), expected);
    }

    #[test]
    fn what_cannot_be_seen_is_said_and_only_then() {
        let mut report = report();
        report.unseen = vec!["rustc exports its own malloc".to_owned()];
        assert!(report.to_string().contains("at the end\n\n rustc exports its own malloc\n\n"), "{report}");
        let json = |report: &Report| serde_json::to_value(report).unwrap();
        assert_eq!(json(&report)["unseen"], serde_json::json!(["rustc exports its own malloc"]));
        report.unseen.clear();
        assert_eq!(json(&report).get("unseen"), None);
    }

    #[test]
    fn json_holds_the_same_numbers() {
        let mut json = Vec::new();
        report().write_json(&mut json).unwrap();
        assert_eq!(json.iter().filter(|b| **b == b'\n').count(), 1);
        let json: serde_json::Value = serde_json::from_slice(&json).unwrap();
        assert_eq!(json["functions"]["malloc"], serde_json::json!({"calls": 12345, "bytes": 1234567}));
        assert_eq!(json["functions"]["free"], serde_json::json!({"calls": 10000}));
        assert_eq!(json["functions"].get("valloc"), None);
        assert_eq!((&json["allocations"], &json["processes"]), (&12_347.into(), &2.into()));
        assert_eq!((&json["live"]["peak_bytes"], &json["live"]["end_bytes"]), (&65_536.into(), &(-32).into()));
        assert_eq!((&json["live"]["bytes_are"], &json["live"]["pid"]), (&"allocated".into(), &2.into()));
        assert_eq!((&json["exit_code"], json.get("signal")), (&0.into(), None));
    }
}
