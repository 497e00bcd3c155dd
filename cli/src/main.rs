//! The `profrec` executable.
#![forbid(unsafe_code)]

mod args;
mod diff;
mod ending;
mod error;
mod numbers;
mod outputs;
mod pending;
mod preload;
mod record;
mod run;
mod signals;
mod stat;
mod store;
mod summary;
mod target;

use args::Invocation;
use ending::Ending;

fn main() {
    let ending = match args::parse() {
        Ok(Invocation::Record(options)) => record::record(&options),
        Ok(Invocation::Stat(options)) => stat::stat(&options),
        Ok(Invocation::Diff(options)) => diff::diff(&options),
        Err(error) => Err(error),
    };
    ending
        .unwrap_or_else(|error| {
            error.print();
            Ending::Code(error.exit_code())
        })
        .end()
}
