//! The `profrec` executable.
#![forbid(unsafe_code)]

mod agent;
mod args;
mod convert;
mod diff;
mod ending;
mod error;
mod found;
mod manual;
mod numbers;
mod output;
mod outputs;
mod pending;
mod preload;
mod record;
mod recorders;
mod run;
mod signals;
mod stat;
mod status;
mod store;
mod summary;
mod taking;
mod target;
mod top;
mod view;

use args::Invocation;
use ending::Ending;

fn main() {
    let ending = match args::parse() {
        Ok(Invocation::Record(options)) => record::record(&options),
        Ok(Invocation::Stat(options)) => stat::stat(&options),
        Ok(Invocation::Convert(options)) => convert::convert(&options),
        Ok(Invocation::Diff(options)) => diff::diff(&options),
        Ok(Invocation::View(options)) => view::view(&options),
        Ok(Invocation::Sample(options)) => recorders::sample(&options),
        Ok(Invocation::Top(options)) => top::top(&options),
        Ok(Invocation::List(options)) => recorders::list(&options),
        Ok(Invocation::Agent(options)) => agent::agent(&options),
        Ok(Invocation::Push(options)) => agent::push(&options),
        Ok(Invocation::Completions(options)) => manual::completions(&options),
        Ok(Invocation::Man(options)) => manual::man(&options),
        Err(error) => Err(error),
    };
    ending
        .unwrap_or_else(|error| {
            error::print(&error);
            Ending::Code(error.exit_code())
        })
        .end()
}
