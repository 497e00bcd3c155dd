//! What the person at the terminal chose, and what each key does to it.

use super::question::Question;
use super::table::Sort;
use crate::args::{By, Top};
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

/// Everything that keys change.
#[derive(Clone, Debug)]
pub(super) struct State {
    pub(super) question: Question,
    pub(super) by: By,
    /// The metric that was asked for; `None`: the one that the answer shows first.
    pub(super) metric: Option<String>,
    pub(super) sort: Sort,
    pub(super) reversed: bool,
    pub(super) filter: String,
    /// Whether keys go into the filter.
    pub(super) typing: bool,
    pub(super) paused: bool,
    /// Position of the chosen row among those shown.
    pub(super) selected: usize,
    /// Whether the stack behind the chosen row is shown.
    pub(super) detail: bool,
    pub(super) help: bool,
}

/// What is to be done after a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Act {
    /// Show it.
    Draw,
    /// Make the rows anew of what was answered.
    Recount,
    /// Ask another question.
    Ask,
    /// Stop asking, or go on.
    Pause,
    /// Give the terminal back for a while.
    Suspend,
    /// End.
    Quit,
}

/// The keys, for the help.
pub(super) const KEYS: [(&str, &str); 14] = [
    ("q, Ctrl-C", "quit"),
    ("?", "this help"),
    ("Space, p", "stop and go on; nothing is measured meanwhile"),
    ("m", "next mode: cpu, wall, offcpu, allocs, heap, threads"),
    ("v", "next metric of the mode: bytes, allocs, live ..."),
    ("f", "rows are functions, or stacks"),
    ("s, r", "sort by the next column; the other way round"),
    ("/", "type a filter; Enter keeps it, Esc clears it"),
    ("Esc", "clear the filter, close what is open"),
    ("Up, Down, j, k", "choose a row"),
    ("PgUp, PgDn, Home, End", "choose a row far away"),
    ("Enter", "the stack behind the row"),
    ("+, -", "measure longer, shorter"),
    ("Ctrl-Z", "back to the shell, until 'fg'"),
];

impl State {
    /// As the command line wants it.
    pub(super) fn of(top: &Top) -> Self {
        let question = Question::of(top);
        Self {
            question,
            by: top.by,
            metric: top.metric.clone(),
            sort: Sort::first(question.mode),
            reversed: false,
            filter: top.filter.clone(),
            typing: false,
            paused: false,
            selected: 0,
            detail: false,
            help: false,
        }
    }

    /// Does what a key says. `rows` is how many are shown, `page` how many of them at a time, `metrics` what the answer has.
    pub(super) fn press(&mut self, key: KeyEvent, rows: usize, page: usize, metrics: &[String]) -> Act {
        if key.modifiers.contains(KeyModifiers::CONTROL) {
            return match key.code {
                KeyCode::Char('c') => Act::Quit,
                KeyCode::Char('z') => Act::Suspend,
                _ => Act::Draw,
            };
        }
        if self.typing {
            self.edit(key.code);
            return Act::Draw;
        }
        let page = page.max(1);
        match key.code {
            KeyCode::Char('q') => return Act::Quit,
            KeyCode::Char('?' | 'h') => self.help = !self.help,
            KeyCode::Esc => self.close(),
            KeyCode::Enter => self.detail = !self.detail,
            KeyCode::Char('/') => (self.typing, self.help) = (true, false),
            KeyCode::Char('r') => self.reversed = !self.reversed,
            KeyCode::Char('s') => self.sort = next(&Sort::ALL, &self.sort),
            KeyCode::Up | KeyCode::Char('k') => self.selected = self.selected.saturating_sub(1),
            KeyCode::Down | KeyCode::Char('j') => self.selected = self.selected.saturating_add(1),
            KeyCode::PageUp => self.selected = self.selected.saturating_sub(page),
            KeyCode::PageDown => self.selected = self.selected.saturating_add(page),
            KeyCode::Home => self.selected = 0,
            KeyCode::End => self.selected = usize::MAX,
            KeyCode::Char(' ' | 'p') => {
                self.paused = !self.paused;
                return Act::Pause;
            }
            KeyCode::Char('f' | 't') => {
                self.by = if self.by == By::Function { By::Stack } else { By::Function };
                self.selected = 0;
                return Act::Recount;
            }
            KeyCode::Char('v') if !metrics.is_empty() => {
                let shown = self.metric.clone().unwrap_or_default();
                self.metric = Some(next(metrics, &shown));
                return Act::Recount;
            }
            KeyCode::Char('m') => {
                (self.metric, self.selected) = (None, 0);
                let next = self.question.next_mode();
                self.sort = Sort::first(next.mode);
                return self.ask(next);
            }
            KeyCode::Char('+' | '=') => return self.ask(self.question.longer()),
            KeyCode::Char('-') => return self.ask(self.question.shorter()),
            _ => {}
        }
        self.selected = self.selected.min(rows.saturating_sub(1));
        Act::Draw
    }

    /// Another question ends a pause: it has no answer yet.
    fn ask(&mut self, question: Question) -> Act {
        if question == self.question {
            return Act::Draw;
        }
        (self.question, self.paused) = (question, false);
        Act::Ask
    }

    fn edit(&mut self, key: KeyCode) {
        match key {
            KeyCode::Char(c) => self.filter.push(c),
            KeyCode::Backspace => drop(self.filter.pop()),
            KeyCode::Enter => self.typing = false,
            KeyCode::Esc => (self.typing, self.filter) = (false, String::new()),
            _ => {}
        }
        self.selected = 0;
    }

    fn close(&mut self) {
        if self.help || self.detail {
            (self.help, self.detail) = (false, false);
        } else {
            self.filter.clear();
        }
    }
}

/// The one after this, the first after the last. `all` is not empty.
fn next<T: Clone + PartialEq>(all: &[T], this: &T) -> T {
    let after = all.iter().position(|one| one == this).map_or(0, |at| at + 1);
    all.get(after).or(all.first()).unwrap_or(this).clone()
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::top::question::tests::question;
    use profile::Mode;

    pub(in crate::top) fn state(mode: Mode) -> State {
        State {
            question: question(mode),
            by: By::Function,
            metric: None,
            sort: Sort::first(mode),
            reversed: false,
            filter: String::new(),
            typing: false,
            paused: false,
            selected: 0,
            detail: false,
            help: false,
        }
    }

    fn press(state: &mut State, key: KeyCode) -> Act {
        state.press(key.into(), 30, 10, &["samples".to_owned(), "cpu".to_owned()])
    }

    fn type_in(state: &mut State, text: &str) {
        text.chars().for_each(|c| assert_eq!(press(state, KeyCode::Char(c)), Act::Draw));
    }

    #[test]
    fn a_filter_is_typed_and_takes_keys_that_mean_something_else() {
        let mut state = state(Mode::Cpu);
        state.selected = 5;
        type_in(&mut state, "/qm p");
        assert_eq!((state.filter.as_str(), state.typing, state.selected), ("qm p", true, 0));
        press(&mut state, KeyCode::Backspace);
        press(&mut state, KeyCode::Enter);
        assert_eq!((state.filter.as_str(), state.typing), ("qm ", false));
        press(&mut state, KeyCode::Esc);
        assert_eq!(state.filter, "");
        type_in(&mut state, "/x");
        let quit = KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL);
        assert_eq!(state.press(quit, 0, 0, &[]), Act::Quit, "even while typing");
        press(&mut state, KeyCode::Esc);
        assert_eq!((state.filter.as_str(), state.typing), ("", false));
    }

    #[test]
    fn the_chosen_row_stays_among_those_shown() {
        let mut state = state(Mode::Cpu);
        for (key, expected) in [
            (KeyCode::Up, 0),
            (KeyCode::Char('j'), 1),
            (KeyCode::PageDown, 11),
            (KeyCode::End, 29),
            (KeyCode::Down, 29),
            (KeyCode::PageUp, 19),
            (KeyCode::Char('k'), 18),
            (KeyCode::Home, 0),
        ] {
            press(&mut state, key);
            assert_eq!(state.selected, expected, "{key:?}");
        }
        state.press(KeyCode::Down.into(), 0, 0, &[]);
        assert_eq!(state.selected, 0, "no rows");
    }

    #[test]
    fn another_mode_begins_with_its_own_metric_and_order_and_ends_a_pause() {
        let mut state = state(Mode::OffCpu);
        assert_eq!(press(&mut state, KeyCode::Char(' ')), Act::Pause);
        assert_eq!(press(&mut state, KeyCode::Char('v')), Act::Recount);
        assert_eq!((state.metric.as_deref(), state.paused), (Some("samples"), true));
        assert_eq!(press(&mut state, KeyCode::Char('m')), Act::Ask);
        assert_eq!((state.question.mode, state.metric.as_deref(), state.paused), (Mode::Allocs, None, false));
        assert_eq!(state.sort, Sort::PerSecond);
    }

    #[test]
    fn metrics_sorts_and_lengths_go_round_or_stop() {
        let mut state = state(Mode::Cpu);
        let metrics = ["samples", "cpu", "samples"].map(|expected| {
            press(&mut state, KeyCode::Char('v'));
            state.metric.as_deref() == Some(expected)
        });
        assert_eq!(metrics, [true; 3]);
        assert_eq!(state.press(KeyCode::Char('v').into(), 0, 0, &[]), Act::Draw, "there is no answer yet");
        for expected in [Sort::Total, Sort::PerSecond, Sort::Name, Sort::Own] {
            press(&mut state, KeyCode::Char('s'));
            assert_eq!(state.sort, expected);
        }
        assert_eq!(
            (press(&mut state, KeyCode::Char('-')), press(&mut state, KeyCode::Char('-'))),
            (Act::Ask, Act::Draw)
        );
        assert_eq!(state.question.seconds, 1);
    }

    #[test]
    fn escape_closes_what_is_open_before_it_clears_the_filter() {
        let mut state = state(Mode::Cpu);
        state.filter = "f".to_owned();
        type_in(&mut state, "?");
        press(&mut state, KeyCode::Enter);
        assert!(state.help && state.detail);
        press(&mut state, KeyCode::Esc);
        assert!(!state.help && !state.detail && state.filter == "f");
        press(&mut state, KeyCode::Esc);
        assert_eq!(state.filter, "");
    }
}
