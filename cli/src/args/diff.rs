//! `profrec diff` on the command line.

use crate::diff::{Limit, canonical_metric};
use crate::error::Error;
use clap::{Args, ValueEnum};
use std::path::{Path, PathBuf};

/// What `diff` was asked for.
#[derive(Debug)]
pub(crate) struct Diff {
    /// What the head is compared with; `None`: with thresholds alone.
    pub(crate) base: Option<PathBuf>,
    /// What is judged.
    pub(crate) head: PathBuf,
    /// Metrics to tell of, the first of them in detail; empty: all.
    pub(crate) metrics: Vec<String>,
    /// Limits beyond which the exit code is 3.
    pub(crate) fail_on: Vec<Limit>,
    /// Limits beyond which a warning is given.
    pub(crate) warn_on: Vec<Limit>,
    /// Directories in which the recorded files are looked for, to name addresses that have no names; empty: such addresses stay what they are.
    pub(crate) symbol_dirs: Vec<PathBuf>,
    /// File of thresholds.
    pub(crate) thresholds: Option<PathBuf>,
    /// Whether that file takes the head's values.
    pub(crate) update: bool,
    /// Name of the case of two single files, and of the comment.
    pub(crate) name: Option<String>,
    /// Format on standard output.
    pub(crate) format: DiffFormat,
    /// Files to write instead, each with its format.
    pub(crate) outputs: Vec<(PathBuf, DiffFormat)>,
    /// Say nothing beyond the report.
    pub(crate) quiet: bool,
}

/// How a difference is reported.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum DiffFormat {
    /// For a terminal
    Text,
    /// A comment for a pull request, with a marker by which the next run finds it
    Markdown,
    /// For scripts
    Json,
    /// github-action-benchmark's customSmallerIsBetter
    BenchmarkAction,
    /// Bencher's metric format
    Bmf,
    /// A flame graph, red where the head has more and blue where it has less
    Svg,
    /// A page with tables and the flame graph
    Html,
}

pub(super) const EXAMPLES: &str = "\
Examples:
  profrec diff base.pb.gz head.pb.gz                                who allocates more, and on which line
  profrec diff base.pb.gz head.pb.gz --fail-on allocs=+0            exit code 3 if there is one allocation more
  profrec diff base/ head/ --fail-on 'allocs=+2%|+10' -o comment.md -o diff.html
  profrec diff base.json head.json --fail-on bytes=+4KiB            counters that 'stat --json' wrote
  profrec diff base.profrec head.profrec --symbols ./builds         of recordings made with --symbols none
  profrec diff head.pb.gz --thresholds limits.json                  against numbers in the repository
  profrec diff head.pb.gz --thresholds limits.json --update         which this command writes

Metrics: allocs, bytes, live, live-objects, temporary, cpu, samples; of counters also peak and the functions (malloc, free ...).
A LIMIT is METRIC=+N, METRIC=+N%, METRIC=+4KiB, METRIC=N (at most), or several with '|' between them, any of which allows.
A sampled metric exceeds a limit only with its whole 95 % confidence interval.

Exit code: 0 within the limits, 1 something could not be read or written, 2 wrong usage, 3 a limit is exceeded.";

#[derive(Debug, Args)]
pub(super) struct TypedDiff {
    /// The profile before and the profile after: .profrec, pprof, perf script, collapsed stacks, .col, DHAT, counters of 'stat --json', or directories of such files; after alone with --thresholds
    #[arg(value_names = ["BASE", "HEAD"], required = true, num_args = 1..=2)]
    inputs: Vec<PathBuf>,
    /// Tell of this metric alone; can be given several times, and the first is told in detail
    #[arg(long = "metric", value_name = "METRIC", value_delimiter = ',')]
    metrics: Vec<String>,
    /// Exit with 3 beyond this, like allocs=+0 or bytes=+2%; can be given several times
    #[arg(long, value_name = "LIMIT")]
    fail_on: Vec<Limit>,
    /// Warn beyond this, and exit with 0
    #[arg(long, value_name = "LIMIT")]
    warn_on: Vec<Limit>,
    /// Find names for profiles that carry none: the recorded files lie here, of both sides; can be given several times
    #[arg(long = "symbols", value_name = "DIR")]
    symbol_dirs: Vec<PathBuf>,
    /// Hold the head against the limits in this file, too
    #[arg(long, value_name = "FILE")]
    thresholds: Option<PathBuf>,
    /// Write the head's values into the file of thresholds
    #[arg(long, requires = "thresholds")]
    update: bool,
    /// Name of the case, in thresholds and reports, and of the marker in the comment
    #[arg(long, value_name = "NAME")]
    name: Option<String>,
    /// How to report [default: text; of a FILE by its extension]
    #[arg(long, value_name = "FORMAT", value_enum)]
    format: Option<DiffFormat>,
    /// Write the report here instead of standard output; can be given several times, as .txt .md .json .svg .html
    #[arg(short, long = "output", value_name = "FILE")]
    outputs: Vec<PathBuf>,
    /// Print no warnings beyond the report
    #[arg(short, long)]
    quiet: bool,
}

impl TypedDiff {
    pub(super) fn understand(self) -> Result<Diff, Error> {
        let (base, head) = match <[PathBuf; 2]>::try_from(self.inputs) {
            Ok([base, head]) => (Some(base), head),
            Err(mut one) => (None, one.pop().unwrap_or_default()),
        };
        if base.is_none() && self.thresholds.is_none() {
            return Err(Error::usage("there is nothing to compare with; name BASE and HEAD, or --thresholds FILE"));
        }
        let needy = self.fail_on.iter().chain(&self.warn_on).find(|limit| base.is_none() && limit.needs_base());
        if let Some(limit) = needy {
            return Err(Error::usage(format!("'{limit}' is a limit on what is more than BASE, which is not given")));
        }
        let outputs = self.outputs.into_iter().map(|path| match self.format.or_else(|| DiffFormat::of(&path)) {
            Some(format) => Ok((path, format)),
            None => Err(Error::usage(format!(
                "no report is known by the file name '{}', known are .txt, .md, .json, .svg, .html; or name a --format",
                path.display()
            ))),
        });
        let outputs: Vec<(PathBuf, DiffFormat)> = outputs.collect::<Result<_, _>>()?;
        if let Some((twice, _)) = (1..outputs.len())
            .filter_map(|i| outputs.get(i))
            .zip(1..)
            .find_map(|(output, i)| outputs.iter().take(i).any(|(earlier, _)| earlier == &output.0).then_some(output))
        {
            return Err(Error::usage(format!(
                "'{}' is given twice as an output; name each file once",
                twice.display()
            )));
        }
        super::convert::check_directories(&self.symbol_dirs)?;
        Ok(Diff {
            base,
            head,
            metrics: self.metrics.iter().map(|name| canonical_metric(name)).collect(),
            fail_on: self.fail_on,
            warn_on: self.warn_on,
            symbol_dirs: self.symbol_dirs,
            thresholds: self.thresholds,
            update: self.update,
            name: self.name,
            format: self.format.unwrap_or(DiffFormat::Text),
            outputs,
            quiet: self.quiet,
        })
    }
}

impl DiffFormat {
    fn of(path: &Path) -> Option<Self> {
        Some(match path.extension()?.to_str()? {
            "txt" => Self::Text,
            "md" => Self::Markdown,
            "json" => Self::Json,
            "svg" => Self::Svg,
            "html" => Self::Html,
            _ => return None,
        })
    }
}
