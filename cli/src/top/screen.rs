//! The table on the terminal: keys in, answers in, pictures out; and the terminal as it was, whatever ends it.

use super::draw::View;
use super::snapshot::Snapshot;
use super::source::{Source, Told};
use super::state::{Act, State};
use super::table::{self, Row, Table};
use super::{column, title};
use crate::args::Top;
use crate::ending::Ending;
use crate::error::Error;
use crate::pending::reason;
use ::agent::recorders::Address;
use ratatui::DefaultTerminal;
use ratatui::crossterm::event::{self, Event, KeyEventKind};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGTSTP};
use signal_hook::iterator::Signals;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, Ordering};
use std::thread;
use std::time::Duration;

/// How long a key or an answer may wait.
const TICK: Duration = Duration::from_millis(50);

/// The terminal while it is ours. Dropping it gives the terminal back, and so does a panic.
struct Screen(DefaultTerminal);

impl Screen {
    fn open() -> io::Result<Self> {
        ratatui::try_init().map(Self)
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        // A terminal that is gone needs nothing.
        let _ = ratatui::try_restore();
    }
}

/// Says which signal came, if one came that ends this process; and ends it a moment later if nobody has: where the terminal was closed, the reader of keys reads its end
/// over and over, and does not come back.
fn signals() -> io::Result<Arc<AtomicI32>> {
    let mut signals = Signals::new([SIGTERM, SIGHUP, SIGINT])?;
    let came = Arc::new(AtomicI32::new(0));
    let told = Arc::clone(&came);
    let work = move || {
        if let Some(signal) = signals.forever().next() {
            told.store(signal, Ordering::Relaxed);
            thread::sleep(10 * TICK);
            let _ = ratatui::try_restore();
            Ending::Signal(signal).end();
        }
    };
    thread::Builder::new().name("profrec-signals".to_owned()).spawn(work)?;
    Ok(came)
}

/// Shows the table until a key, a signal or the end of the target.
pub(super) fn run(top: &Top, address: Address) -> Result<Ending, Error> {
    let cannot = |e: io::Error| Error::failure(format!("cannot use the terminal: {}; try --once", reason(&e)));
    let ended = signals().map_err(cannot)?;
    let colors = top.color.applies(std::env::var_os("NO_COLOR").as_deref());
    let mut shown = Shown::new(top, address, colors)?;
    let mut screen = Screen::open().map_err(cannot)?;
    loop {
        if shown.changed {
            shown.draw(&mut screen.0).map_err(cannot)?;
        }
        while event::poll(if shown.changed { Duration::ZERO } else { TICK }).map_err(cannot)? {
            let act = shown.take(&event::read().map_err(cannot)?)?;
            match act {
                Act::Quit => return Ok(Ending::Code(0)),
                Act::Suspend => {
                    drop(screen);
                    let _ = signal_hook::low_level::emulate_default_handler(SIGTSTP);
                    screen = Screen::open().map_err(cannot)?;
                }
                _ => {}
            }
        }
        match ended.load(Ordering::Relaxed) {
            0 => {}
            signal => return Ok(Ending::Signal(signal)),
        }
        while let Some(told) = shown.source.told() {
            shown.hear(told)?;
        }
    }
}

/// What is on the screen, and where it comes from.
struct Shown {
    address: Address,
    state: State,
    source: Source,
    /// The newest answer to the question in force, and the one before.
    newest: Option<Snapshot>,
    before: Option<Snapshot>,
    table: Option<Table>,
    /// Position of the first row on the screen, and how many there is room for.
    first: usize,
    page: usize,
    trouble: Option<String>,
    /// Who answered, once somebody has.
    title: String,
    answered: bool,
    colors: bool,
    changed: bool,
}

impl Shown {
    fn new(top: &Top, address: Address, colors: bool) -> Result<Self, Error> {
        let (state, source) = (State::of(top), Source::new(address.clone()));
        source.ask(state.question)?;
        let title = title(None, &address);
        let (newest, before, table, trouble) = (None, None, None, None);
        let (answered, changed) = (false, true);
        Ok(Self {
            address,
            state,
            source,
            newest,
            before,
            table,
            first: 0,
            page: 1,
            trouble,
            title,
            answered,
            colors,
            changed,
        })
    }

    /// Does what an event of the terminal says.
    fn take(&mut self, event: &Event) -> Result<Act, Error> {
        self.changed = true;
        let Event::Key(key) = event else { return Ok(Act::Draw) };
        if key.kind == KeyEventKind::Release {
            return Ok(Act::Draw);
        }
        let rows = self.rows().len();
        let metrics = self.newest.as_ref().map(Snapshot::metrics).unwrap_or_default();
        let act = self.state.press(*key, rows, self.page, &metrics);
        match act {
            Act::Recount => self.recount()?,
            Act::Ask => {
                (self.newest, self.before, self.table, self.trouble) = (None, None, None, None);
                self.source.ask(self.state.question)?;
            }
            Act::Pause if self.state.paused => self.source.stop(),
            Act::Pause => self.source.ask(self.state.question)?,
            Act::Draw | Act::Suspend | Act::Quit => {}
        }
        Ok(act)
    }

    /// Takes what the target answered. A target that is gone is the end; so is one that refuses from the beginning.
    fn hear(&mut self, told: Told) -> Result<(), Error> {
        self.changed = true;
        match told {
            Told::Answer(snapshot) => {
                self.before = self.newest.replace(*snapshot);
                (self.answered, self.trouble) = (true, None);
                self.title = title(self.newest.as_ref(), &self.address);
                self.recount()
            }
            Told::Refused(error) if self.answered => {
                self.trouble = Some(error.line().to_owned());
                Ok(())
            }
            Told::Refused(error) | Told::Gone(error) => Err(error),
        }
    }

    /// Makes the rows anew of what was answered.
    fn recount(&mut self) -> Result<(), Error> {
        let Some(newest) = &self.newest else { return Ok(()) };
        let column = column(newest, self.state.metric.as_deref())?;
        self.state.metric = newest.metrics().into_iter().nth(column);
        self.table = Some(Table::new(newest, self.before.as_ref(), self.state.by, column));
        Ok(())
    }

    fn rows(&self) -> Vec<&Row> {
        let State { filter, sort, reversed, .. } = &self.state;
        self.table.as_ref().map(|table| table.shown(filter, *sort, *reversed)).unwrap_or_default()
    }

    fn draw(&mut self, terminal: &mut DefaultTerminal) -> io::Result<()> {
        let rows = self.rows();
        let selected = self.state.selected.min(rows.len().saturating_sub(1));
        let stack = self.stack(rows.get(selected).copied());
        let state = State { selected, ..self.state.clone() };
        let mut view = View {
            title: &self.title,
            state: &state,
            answer: self.newest.as_ref().zip(self.table.as_ref()),
            rows: &rows,
            first: 0,
            stack: &stack,
            trouble: self.trouble.as_deref(),
            colors: self.colors,
        };
        let page = view.page(terminal.size()?.height).max(1);
        // The chosen row is in sight, and what is on the screen moves no more than that takes.
        view.first = self.first.clamp((selected + 1).saturating_sub(page), selected);
        terminal.draw(|frame| view.draw(frame))?;
        (self.first, self.page, self.changed) = (view.first, page, false);
        self.state.selected = selected;
        Ok(())
    }

    /// The stack behind a row, if it is looked at.
    fn stack(&self, row: Option<&Row>) -> Vec<String> {
        let (Some(newest), Some(row), true) = (&self.newest, row, self.state.detail) else { return Vec::new() };
        let column = newest.column(self.state.metric.as_deref()).unwrap_or_default();
        table::stack_of(newest, self.state.by, column, &row.name)
    }
}
