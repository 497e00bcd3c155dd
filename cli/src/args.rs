//! The command line: what was typed, and what it means.

mod agent;
mod convert;
mod diff;
mod mode;
mod sample;
mod shown;
mod top;
mod view;

pub(crate) use agent::{Agent, PushFiles};
pub(crate) use convert::Convert;
pub(crate) use diff::{Diff, DiffFormat};
pub(crate) use sample::{Completions, List, Man, Sample};
pub(crate) use shown::Shown;
pub(crate) use top::{By, Top};
pub(crate) use view::View;

use crate::error::Error;
use crate::outputs::OutputPath;
use clap::builder::{OsStringValueParser, TypedValueParser};
use clap::error::ErrorKind;
use clap::{Args, Parser, Subcommand, ValueEnum};
use profile::Mode;
use std::ffi::OsString;
use std::io::{IsTerminal, stderr, stdout};
use std::path::PathBuf;
use std::time::Duration;

/// What to do.
#[derive(Debug)]
pub(crate) enum Invocation {
    /// Record profiles of a command.
    Record(Record),
    /// Count the allocations of a command.
    Stat(Stat),
    /// Write a profile in other formats.
    Convert(Convert),
    /// Compare two profiles.
    Diff(Box<Diff>),
    /// Show profiles in a browser.
    View(View),
    /// Ask a running recorder for a profile.
    Sample(Sample),
    /// Show what a running recorder sees, again and again.
    Top(Box<Top>),
    /// Tell which recorders there are.
    List(List),
    /// Collect from all recorders of the machine.
    Agent(Box<Agent>),
    /// Send profiles that exist to where an agent sends its own.
    Push(PushFiles),
    /// Print completions for a shell.
    Completions(Completions),
    /// Write the manual pages.
    Man(Man),
}

/// What `record` was asked for.
#[derive(Debug)]
pub(crate) struct Record {
    /// What to measure; at least one, each once.
    pub(crate) modes: Vec<Mode>,
    /// Samples a second of CPU time.
    pub(crate) hz: u32,
    /// Mean bytes between two sampled allocations.
    pub(crate) interval: u64,
    /// Files to write, as they were named.
    pub(crate) outputs: Vec<OutputPath>,
    /// How long to record, from the command's start; `None`: to its end.
    pub(crate) duration: Option<Duration>,
    /// Whether child processes are recorded too.
    pub(crate) follow: bool,
    /// Whether a line shows what is recorded while the command runs.
    pub(crate) progress: bool,
    /// Say nothing unless something goes wrong.
    pub(crate) quiet: bool,
    /// How much to find out about addresses.
    pub(crate) symbols: symbolize::Detail,
    /// How names are shown.
    pub(crate) names: symbolize::NameStyle,
    /// How stacks are shown.
    pub(crate) shown: Shown,
    /// The command and its arguments.
    pub(crate) command: CommandLine,
}

/// What `stat` was asked for.
#[derive(Debug)]
pub(crate) struct Stat {
    /// JSON instead of text.
    pub(crate) json: bool,
    /// How often to run the command.
    pub(crate) repeat: u32,
    /// Where to write, instead of standard error.
    pub(crate) output: Option<PathBuf>,
    /// The command and its arguments.
    pub(crate) command: CommandLine,
}

/// A command as the user gave it.
#[derive(Clone, Debug)]
pub(crate) struct CommandLine {
    /// What to run.
    pub(crate) program: OsString,
    /// What to tell it.
    pub(crate) arguments: Vec<OsString>,
}

const EXAMPLES: &str = "\
Examples:
  profrec record -- python3 -c 'print(sum(range(10**7)))'           CPU time, to profile.html
  profrec record --mode allocs -o a.svg -o a.pb.gz -- ./server      every allocation, as flame graph and for 'go tool pprof'
  profrec stat -- ls                                                how often ls calls malloc
  profrec diff base.pb.gz head.pb.gz --fail-on allocs=+0            what a change allocates more, and where";

const RECORD_EXAMPLES: &str = "\
Examples:
  profrec record -- ./program --its-option                          CPU time, to profile.html
  profrec record --hz 999 -o cpu.pb.gz -- make                      a finer look at make and all that it starts
  profrec record --mode wall -o wall.pb.gz -- ./program             where every thread is all the time, waiting or not
  profrec record --mode allocs -o allocs.svg -- ./program           every allocation with its stack
  profrec record --mode cpu,heap -o p.pb.gz -o p.svg -- ./program   both: in one p.pb.gz; p.cpu.svg and p.heap.svg
  profrec record --mode allocs --interval 512KiB -- ./program       a sample of the allocations, at less cost
  profrec record --duration 30 --mode heap -- ./server              its first half minute; it goes on, unrecorded
  profrec record -o '{EXE}-{PID}.svg' -- make -j2                   a file for each process

The format follows the extension of FILE: .svg .html .pb.gz .pprof .perf .folded .collapsed .col .json
  .firefox.json .speedscope.json .profrec
Several modes are in one file if it is .pb.gz .pprof .json .speedscope.json .html or .profrec, and else in one each.";

const STAT_EXAMPLES: &str = "\
Examples:
  profrec stat -- python3 -c pass
  profrec stat --repeat 5 -- ./program                              means, and how far the runs lie apart
  profrec stat --json -o counts.json -- ./program                   for 'profrec diff' and scripts";

/// Record CPU and allocation profiles of any program, without privileges and without changing it.
#[derive(Debug, Parser)]
#[command(name = "profrec", version = env!("PROFREC_VERSION"), after_help = EXAMPLES, max_term_width = 120)]
#[command(disable_help_subcommand = false, arg_required_else_help = true, subcommand_required = true)]
struct Typed {
    #[command(subcommand)]
    command: TypedCommand,
}

#[derive(Debug, Subcommand)]
enum TypedCommand {
    /// Run a command and write profiles of it and of the processes that it starts
    #[command(after_help = RECORD_EXAMPLES)]
    Record(TypedRecord),
    /// Write a profile in other formats, with names for the addresses that have none
    #[command(after_help = convert::EXAMPLES)]
    Convert(convert::TypedConvert),
    /// Run a command and count its calls of every allocation function exactly
    #[command(after_help = STAT_EXAMPLES)]
    Stat(TypedStat),
    /// Compare two profiles, or two sets of counters: what changed, where, and whether that is too much
    #[command(after_help = diff::EXAMPLES)]
    Diff(diff::TypedDiff),
    /// Show profiles in a browser, and compare them
    #[command(after_help = view::EXAMPLES)]
    View(view::TypedView),
    /// Ask a program that carries the library for a profile, while it runs
    #[command(after_help = sample::SAMPLE_EXAMPLES)]
    Sample(sample::TypedSample),
    /// Watch where a program that carries the library spends time or memory
    #[command(after_help = top::EXAMPLES)]
    Top(Top),
    /// List the programs of yours that can be asked
    #[command(after_help = sample::LIST_EXAMPLES)]
    List(List),
    /// Collect from all programs of the machine that carry the library, to files and to profiling services
    #[command(after_help = agent::AGENT_EXAMPLES)]
    Agent(Box<Agent>),
    /// Send profiles to profiling services
    #[command(after_help = agent::PUSH_EXAMPLES)]
    Push(agent::TypedPush),
    /// Print completions for a shell
    #[command(after_help = sample::COMPLETIONS_EXAMPLES)]
    Completions(Completions),
    /// Write the manual pages
    #[command(after_help = sample::MAN_EXAMPLES)]
    Man(Man),
}

#[derive(Debug, Args)]
struct TypedRecord {
    /// What to measure; several separated by commas
    #[arg(long = "mode", value_name = "MODE", value_parser = mode::recorded(), value_delimiter = ',', default_value = "cpu")]
    modes: Vec<Mode>,
    /// Samples per second of CPU time, or looks at every thread per second; 1 to 10000 [default: 99]
    #[arg(long, value_name = "N", value_parser = parse_hz, allow_hyphen_values = true)]
    hz: Option<u32>,
    /// Mean bytes between two sampled allocations, like 512KiB; 1 records every allocation [default: 1]
    #[arg(long, value_name = "BYTES", value_parser = ::agent::settings::parse_size, allow_hyphen_values = true)]
    interval: Option<u64>,
    /// Record for so long, then write the profiles and let the command go on [default: until it ends]
    #[arg(long, value_name = "SECONDS", value_parser = parse_duration, allow_hyphen_values = true)]
    duration: Option<Duration>,
    /// Write a profile here, in the format of the extension; can be given several times; {PID} and {EXE} give a file for each process [default: profile.html]
    #[arg(short, long = "output", value_name = "FILE", value_parser = OsStringValueParser::new().try_map(OutputPath::new))]
    outputs: Vec<OutputPath>,
    /// Record only the first process, through its execs, and none that it forks
    #[arg(long)]
    no_follow: bool,
    /// What to find out about each address
    #[arg(long, value_name = "DETAIL", value_enum, default_value = "full")]
    symbols: Symbols,
    /// How names are shown
    #[arg(long, value_name = "STYLE", value_enum, default_value = "full")]
    names: Names,
    #[command(flatten)]
    shown: Shown,
    /// Show a line of what is recorded so far; without being told if standard error is a terminal and standard output, where the command may write, is not
    #[arg(long)]
    progress: bool,
    /// Print nothing but errors
    #[arg(short, long)]
    quiet: bool,
    /// The command to run, with its arguments
    #[arg(value_name = "COMMAND", required = true, trailing_var_arg = true)]
    command: Vec<OsString>,
}

#[derive(Debug, Args)]
struct TypedStat {
    /// Print one JSON object instead of text
    #[arg(long)]
    json: bool,
    /// Run the command so often, 1 to 1000, and give means and how far the runs lie apart
    #[arg(long, value_name = "N", default_value = "1", hide_default_value = true, value_parser = parse_repeat, allow_hyphen_values = true)]
    repeat: u32,
    /// Write to this file instead of standard error
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// The command to run, with its arguments
    #[arg(value_name = "COMMAND", required = true, trailing_var_arg = true)]
    command: Vec<OsString>,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Symbols {
    /// Functions, inlined functions, files and lines
    Full,
    /// Functions
    Names,
    /// Nothing: addresses stay addresses
    None,
}

impl From<Symbols> for symbolize::Detail {
    fn from(typed: Symbols) -> Self {
        match typed {
            Symbols::Full => Self::Full,
            Symbols::Names => Self::Names,
            Symbols::None => Self::None,
        }
    }
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Names {
    /// As they are
    Full,
    /// Without types, and stacks without the frames of start-up and allocator
    Short,
}

impl From<Names> for symbolize::NameStyle {
    fn from(typed: Names) -> Self {
        match typed {
            Names::Full => Self::Full,
            Names::Short => Self::Short,
        }
    }
}

/// The whole command line, for whoever describes it.
pub(crate) fn definition() -> clap::Command {
    <Typed as clap::CommandFactory>::command()
}

/// Reads this process's command line. Ends the process after printing help or the version.
pub(crate) fn parse() -> Result<Invocation, Error> {
    match Typed::try_parse() {
        Ok(typed) => typed.command.understand(),
        Err(error) => match error.kind() {
            ErrorKind::DisplayHelp
            | ErrorKind::DisplayVersion
            | ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => error.exit(),
            _ => Err(Error::usage(one_line(&error.render().to_string()))),
        },
    }
}

impl TypedCommand {
    fn understand(self) -> Result<Invocation, Error> {
        match self {
            Self::Record(typed) => typed.understand().map(Invocation::Record),
            Self::Convert(typed) => typed.understand().map(Invocation::Convert),
            Self::View(typed) => typed.understand().map(Invocation::View),
            Self::Sample(typed) => typed.understand().map(Invocation::Sample),
            Self::Top(top) => top.understand().map(|top| Invocation::Top(Box::new(top))),
            Self::List(list) => Ok(Invocation::List(list)),
            Self::Agent(agent) => Ok(Invocation::Agent(agent)),
            Self::Push(typed) => typed.understand().map(Invocation::Push),
            Self::Completions(completions) => Ok(Invocation::Completions(completions)),
            Self::Man(man) => Ok(Invocation::Man(man)),
            Self::Diff(typed) => typed.understand().map(|diff| Invocation::Diff(Box::new(diff))),
            Self::Stat(typed) => Ok(Invocation::Stat(Stat {
                json: typed.json,
                repeat: typed.repeat,
                output: typed.output,
                command: CommandLine::new(typed.command)?,
            })),
        }
    }
}

impl TypedRecord {
    fn understand(self) -> Result<Record, Error> {
        let mut modes = self.modes;
        modes.sort_unstable();
        modes.dedup();
        let mut outputs = self.outputs;
        if outputs.is_empty() {
            outputs.extend(OutputPath::new("profile.html".into()));
        }
        if let Some(twice) = OutputPath::first_repeated(&outputs) {
            return Err(Error::usage(format!("'{twice}' is given twice as an output; name each file once")));
        }
        if self.hz.is_some() && !modes.iter().any(|mode| mode.is_time()) {
            crate::error::warn("--hz has no effect without --mode cpu, wall or offcpu");
        }
        if self.interval.is_some() && modes.iter().all(|mode| mode.is_time()) {
            crate::error::warn("--interval has no effect without --mode allocs or heap");
        }
        Ok(Record {
            modes,
            hz: self.hz.unwrap_or(99),
            interval: self.interval.unwrap_or(1),
            outputs,
            duration: self.duration,
            follow: !self.no_follow,
            progress: !self.quiet && (self.progress || (stderr().is_terminal() && !stdout().is_terminal())),
            quiet: self.quiet,
            symbols: self.symbols.into(),
            names: self.names.into(),
            shown: self.shown,
            command: CommandLine::new(self.command)?,
        })
    }
}

impl CommandLine {
    fn new(words: Vec<OsString>) -> Result<Self, Error> {
        let mut words = words.into_iter();
        let program = words.next().filter(|program| !program.is_empty());
        let program = program.ok_or_else(|| Error::usage("the command is empty; name a program after '--'"))?;
        Ok(Self { program, arguments: words.collect() })
    }

    /// The program's name without its directories.
    pub(crate) fn name(&self) -> String {
        let path = std::path::Path::new(&self.program);
        path.file_name().unwrap_or(&self.program).to_string_lossy().into_owned()
    }
}

fn parse_hz(text: &str) -> Result<u32, String> {
    let hz = text.parse().ok().filter(|hz| (1..=10_000).contains(hz));
    hz.ok_or_else(|| "it must be a whole number from 1 to 10000".to_owned())
}

fn parse_duration(text: &str) -> Result<Duration, String> {
    let seconds = text.parse().ok().filter(|seconds: &f64| (0.001..=1e9).contains(seconds));
    seconds.map(Duration::from_secs_f64).ok_or_else(|| "it must be a number of seconds, 0.001 or more".to_owned())
}

fn parse_repeat(text: &str) -> Result<u32, String> {
    let repeat = text.parse().ok().filter(|repeat| (1..=1000).contains(repeat));
    repeat.ok_or_else(|| "it must be a whole number from 1 to 1000".to_owned())
}

/// The error without the usage below it.
fn one_line(rendered: &str) -> String {
    let about = rendered.lines().map(str::trim).take_while(|line| !line.starts_with("Usage:"));
    let words: Vec<&str> = about.filter(|line| !line.starts_with("For more information")).collect();
    let text = words.join(" ").split_whitespace().collect::<Vec<_>>().join(" ");
    let text = text.strip_prefix("error: ").unwrap_or(&text);
    format!("{text} (try '--help')")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(words: &[&str]) -> Result<Record, Error> {
        let words = ["profrec", "record"].iter().chain(words);
        let typed = Typed::try_parse_from(words).map_err(|e| Error::usage(one_line(&e.render().to_string())))?;
        match typed.command.understand()? {
            Invocation::Record(record) => Ok(record),
            other => panic!("not record: {other:?}"),
        }
    }

    #[test]
    fn the_definition_is_sound() {
        definition().debug_assert();
    }

    #[test]
    fn without_options_cpu_time_goes_to_a_page() {
        let record = record(&["--", "ls"]).unwrap();
        assert_eq!((record.modes, record.hz, record.interval, record.follow), (vec![Mode::Cpu], 99, 1, true));
        assert_eq!(record.outputs.iter().map(ToString::to_string).collect::<Vec<_>>(), ["profile.html"]);
    }

    #[test]
    fn modes_are_separated_by_commas_or_repeated_and_each_counts_once() {
        for words in [&["--mode", "allocs,cpu", "ls"][..], &["--mode=allocs", "--mode", "cpu,allocs", "--", "ls"]] {
            assert_eq!(record(words).unwrap().modes, [Mode::Cpu, Mode::Allocs]);
        }
    }

    #[test]
    fn what_follows_the_command_is_the_commands() {
        for words in [&["ls", "--hz", "0", "--", "-o"][..], &["--", "ls", "--hz", "0", "--", "-o"]] {
            let command = record(words).unwrap().command;
            assert_eq!(command.program, "ls");
            assert_eq!(command.arguments, ["--hz", "0", "--", "-o"]);
        }
    }

    #[test]
    fn wrong_values_are_usage_errors_on_one_line_that_name_them() {
        for (words, said) in [
            (&["--hz", "0", "--", "ls"][..], "'0' for '--hz <N>': it must be a whole number from 1 to 10000"),
            (&["--hz", "-5", "--", "ls"], "'-5' for '--hz <N>'"),
            (&["--hz=1e3", "ls"], "'1e3' for '--hz <N>'"),
            (&["--hz", "10001", "ls"], "'10001'"),
            (&["--duration", "0", "ls"], "'0' for '--duration <SECONDS>': it must be a number of seconds"),
            (&["--duration", "-1", "ls"], "'-1' for '--duration <SECONDS>'"),
            (&["--duration", "nan", "ls"], "'nan' for '--duration <SECONDS>'"),
            (&["--interval", "0", "ls"], "'0' for '--interval <BYTES>'"),
            (&["--interval", "-512", "ls"], "'-512' for '--interval <BYTES>'"),
            (
                &["--mode", "threads", "ls"],
                "'threads' for '--mode <MODE>' [possible values: cpu, wall, offcpu, allocs, heap]",
            ),
            (&["--mode", "", "ls"], "--mode <MODE>"),
            (&["-o", "x.bmp", "ls"], ".collapsed, .col, .json, .firefox.json, .speedscope.json, .profrec"),
            (&["-o", "", "ls"], "--output <FILE>"),
            (&["-o", "a.svg", "-o", "./a.svg", "ls"], "'./a.svg' is given twice"),
            (&["--no-such", "ls"], "'--no-such'"),
            (&[], "<COMMAND>"),
            (&["--"], "<COMMAND>"),
            (&["--", ""], "command is empty"),
        ] {
            let error = record(words).unwrap_err();
            assert_eq!(error.exit_code(), 2);
            assert!(error.line().contains(said) && !error.line().contains('\n'), "{words:?}: {}", error.line());
        }
    }
}
