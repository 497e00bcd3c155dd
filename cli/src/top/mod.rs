//! `profrec top`: what a running recorder sees, as a table that is made anew every few seconds.

mod draw;
mod question;
mod screen;
mod snapshot;
mod source;
mod state;
mod table;
mod text;

use crate::args::Top;
use crate::ending::Ending;
use crate::error::Error;
use crate::output::to_standard_output;
use ::agent::recorders::Address;
use question::Question;
use snapshot::Snapshot;
use table::{Sort, Table};
use text::Printed;

/// Shows the table until the person at the terminal has seen enough; prints it once if there is none.
pub(crate) fn top(top: &Top) -> Result<Ending, Error> {
    let address = Address::of(&top.target)?;
    if top.once { once(top, &address) } else { screen::run(top, address) }
}

fn once(top: &Top, address: &Address) -> Result<Ending, Error> {
    let question = Question::of(top);
    let mut before = None;
    let mut snapshot = Snapshot::ask(address, question)?;
    if !question.mode.is_time() {
        std::thread::sleep(question.pause());
        before = Some(std::mem::replace(&mut snapshot, Snapshot::ask(address, question)?));
    }
    let column = column(&snapshot, top.metric.as_deref())?;
    let table = Table::new(&snapshot, before.as_ref(), top.by, column);
    let rows = table.shown(&top.filter, Sort::first(question.mode), false);
    let title = title(Some(&snapshot), address);
    let most = if top.lines == 0 { usize::MAX } else { top.lines };
    let printed = Printed { title: &title, snapshot: &snapshot, table: &table, rows: &rows, most };
    to_standard_output(|out| printed.write(out))?;
    Ok(Ending::Code(0))
}

/// Who is looked at, and where it listens.
fn title(snapshot: Option<&Snapshot>, address: &Address) -> String {
    let process = snapshot.and_then(Snapshot::process);
    process.map_or_else(|| address.to_string(), |process| format!("{process} at {address}"))
}

/// The column of the metric that was asked for.
fn column(snapshot: &Snapshot, metric: Option<&str>) -> Result<usize, Error> {
    snapshot.column(metric).ok_or_else(|| {
        let (mode, known) = (snapshot.question.mode.name(), snapshot.metrics().join(", "));
        Error::usage(format!("mode {mode} has no metric '{}'; it has {known}", metric.unwrap_or_default()))
    })
}
