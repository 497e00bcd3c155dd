//! How it looks on the terminal.

use super::snapshot::Snapshot;
use super::state::{KEYS, State};
use super::table::{Row, Table};
use super::text;
use crate::args::By;
use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Block, Clear, Paragraph};

/// Notes below the summary; the others are counted.
const NOTES: usize = 2;
/// Lines around the rows: title, summary, what is shown, heading, keys.
const AROUND: usize = 5;
const FOOTER: &str = "q quit  ? help  m mode  v metric  f functions/stacks  s sort  / filter  Space pause  Enter stack";

/// What is to be seen.
pub(super) struct View<'a> {
    pub(super) title: &'a str,
    pub(super) state: &'a State,
    /// The newest answer, and its rows.
    pub(super) answer: Option<(&'a Snapshot, &'a Table)>,
    /// Those of the rows that are shown, in order.
    pub(super) rows: &'a [&'a Row],
    /// Position of the first row on the screen.
    pub(super) first: usize,
    /// The stack behind the chosen row, its leaf first.
    pub(super) stack: &'a [String],
    /// Why there is no newer answer.
    pub(super) trouble: Option<&'a str>,
    pub(super) colors: bool,
}

impl View<'_> {
    /// How many rows a terminal of this height has room for.
    pub(super) fn page(&self, height: u16) -> usize {
        usize::from(height).saturating_sub(AROUND + self.notes().len() + usize::from(self.stack_height(height)))
    }

    fn stack_height(&self, height: u16) -> u16 {
        let wanted = u16::try_from(self.stack.len()).unwrap_or(u16::MAX).saturating_add(2);
        if self.state.detail { wanted.min(height / 2) } else { 0 }
    }

    fn notes(&self) -> Vec<String> {
        let mut notes: Vec<String> = self.trouble.map(str::to_owned).into_iter().collect();
        notes.extend(self.answer.iter().flat_map(|(snapshot, table)| text::notes(snapshot, table)));
        let more = notes.len().saturating_sub(NOTES);
        notes.truncate(NOTES);
        if let (Some(last), 1..) = (notes.last_mut(), more) {
            last.push_str(&format!(" (and {more} more)"));
        }
        notes
    }

    /// Draws it.
    pub(super) fn draw(&self, frame: &mut Frame<'_>) {
        let notes = self.notes();
        let areas = Layout::vertical([
            Constraint::Length(3),
            Constraint::Length(u16::try_from(notes.len()).unwrap_or(0)),
            Constraint::Length(1),
            Constraint::Min(0),
            Constraint::Length(self.stack_height(frame.area().height)),
            Constraint::Length(1),
        ]);
        let [top, told, heading, rows, stack, keys] = areas.areas(frame.area());
        frame.render_widget(Paragraph::new(self.top()), top);
        let told_lines: Vec<Line<'_>> =
            notes.into_iter().map(|note| Line::styled(note, self.color(Color::Red))).collect();
        frame.render_widget(Paragraph::new(told_lines), told);
        frame.render_widget(self.heading(), heading);
        frame.render_widget(Paragraph::new(self.table(rows.height)), rows);
        if stack.height != 0 {
            let name = self.rows.get(self.state.selected).map_or("", |row| &row.name);
            let of =
                if self.state.by == By::Function { format!(" heaviest stack of {name} ") } else { " stack ".into() };
            let levels: Vec<Line<'_>> = self.stack.iter().map(|name| Line::raw(name.as_str())).collect();
            frame.render_widget(Paragraph::new(levels).block(Block::bordered().title(of)), stack);
        }
        frame.render_widget(Line::styled(FOOTER, Modifier::DIM), keys);
        if self.state.help {
            self.help(frame);
        }
    }

    fn top(&self) -> Vec<Line<'_>> {
        let summary = match self.answer {
            Some((snapshot, table)) => text::summary(snapshot, table),
            None => format!("{}: measuring {} s", self.state.question.mode.name(), self.state.question.seconds),
        };
        let State { by, sort, reversed, filter, typing, paused, question, .. } = self.state;
        let mut shown = format!(
            "{} {}, by {}{}, every {} s",
            self.rows.len(),
            if *by == By::Function { "functions" } else { "stacks" },
            sort.name(),
            if *reversed { " upwards" } else { "" },
            question.seconds
        );
        let mut line = vec![];
        if *typing || !filter.is_empty() {
            shown.push_str(&format!(", filter: {filter}{}", if *typing { "_" } else { "" }));
        }
        line.push(Span::raw(shown));
        if *paused {
            line.push(Span::styled("  PAUSED ", self.color(Color::Yellow).add_modifier(Modifier::BOLD)));
        }
        vec![Line::styled(self.title, Modifier::BOLD), Line::raw(summary), Line::from(line)]
    }

    /// The heading, with the column that the rows are sorted by.
    fn heading(&self) -> Line<'static> {
        let style = Style::new().add_modifier(Modifier::UNDERLINED);
        let sorted = self.state.sort.name();
        let (before, after) = text::HEADING.split_once(sorted).unwrap_or((text::HEADING, ""));
        let sorted = Span::styled(sorted, style.add_modifier(Modifier::BOLD | Modifier::REVERSED));
        Line::from(vec![Span::styled(before, style), sorted, Span::styled(after, style)])
    }

    fn table(&self, height: u16) -> Vec<Line<'_>> {
        let Some((_, table)) = self.answer else { return Vec::new() };
        let rows = self.rows.iter().enumerate().skip(self.first).take(height.into());
        rows.map(|(position, row)| {
            // What is no function of the program.
            let mut style = if row.name.starts_with('[') { self.color(Color::Red) } else { Style::new() };
            if position == self.state.selected {
                style = style.add_modifier(Modifier::REVERSED);
            }
            Line::styled(text::line(table, row), style)
        })
        .collect()
    }

    fn help(&self, frame: &mut Frame<'_>) {
        let lines: Vec<Line<'_>> = KEYS.iter().map(|(key, what)| Line::raw(format!(" {key:<21} {what}"))).collect();
        let widest = lines.iter().map(Line::width).max().unwrap_or(0) + 3;
        let area = centred(frame.area(), widest, lines.len() + 2);
        frame.render_widget(Clear, area);
        frame.render_widget(Paragraph::new(lines).block(Block::bordered().title(" keys ")), area);
    }

    fn color(&self, color: Color) -> Style {
        if self.colors { Style::new().fg(color) } else { Style::new() }
    }
}

/// As much of this size as fits.
fn centred(area: Rect, width: usize, height: usize) -> Rect {
    let fitting = |wanted: usize, most: u16| u16::try_from(wanted).unwrap_or(most).min(most);
    let (width, height) = (fitting(width, area.width), fitting(height, area.height));
    Rect::new(area.x + (area.width - width) / 2, area.y + (area.height - height) / 2, width, height)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::top::state::tests::state;
    use crate::top::table::tests::answer;
    use profile::Mode;
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;
    use std::time::Instant;

    /// What is on a terminal of this size, line by line, and whether any cell has a colour.
    fn drawn(view: &View<'_>, width: u16, height: u16) -> (Vec<String>, bool) {
        let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
        terminal.draw(|frame| view.draw(frame)).unwrap();
        let buffer = terminal.backend().buffer();
        let cells = |y: u16| (0..width).map(move |x| &buffer[(x, y)]);
        let lines = (0..height).map(|y| cells(y).map(|cell| cell.symbol()).collect::<String>().trim_end().to_owned());
        let colored = (0..height).any(|y| cells(y).any(|cell| (cell.fg, cell.bg) != (Color::Reset, Color::Reset)));
        (lines.collect(), colored)
    }

    fn with_view(state: &State, colors: bool, check: impl FnOnce(&View<'_>)) {
        let stacks: [(&[&'static str], i64); 4] =
            [(&["main", "f"], 60), (&["main", "g"], 30), (&["main", "h"], 9), (&["[lost: full]"], 1)];
        let snapshot = answer(state.question.mode, Instant::now(), &stacks);
        let table = Table::new(&snapshot, None, state.by, 1);
        let rows = table.shown(&state.filter, state.sort, false);
        let stack = ["f".to_owned(), "main".to_owned()];
        check(&View {
            title: "app (7) at /run/app.sock",
            state,
            answer: Some((&snapshot, &table)),
            rows: &rows,
            first: 0,
            stack: &stack,
            trouble: Some("it answers 409"),
            colors,
        });
    }

    #[test]
    fn the_screen_says_who_what_and_how_much() {
        let mut state = state(Mode::Cpu);
        (state.filter, state.paused) = ("f".to_owned(), true);
        with_view(&state, true, |view| {
            let (lines, colored) = drawn(view, 100, 12);
            assert_eq!(lines[0], "app (7) at /run/app.sock");
            assert_eq!(lines[1], "cpu, cpu: 0 us in 2.0 s, 0 us/s, 4 samples");
            assert_eq!(lines[2], "2 functions, by self, every 2 s, filter: f  PAUSED");
            assert_eq!(lines[3..5], ["it answers 409", "not recorded in full: 0 us (1.0%) without a stack"]);
            assert_eq!(lines[5], text::HEADING);
            assert!(lines[6].ends_with("  f") && lines[6].contains("60.0%"), "{}", lines[6]);
            assert!(lines[7].ends_with("[lost: full]"), "{}", lines[7]);
            assert!(lines[11].starts_with("q quit"));
            assert!(colored);
        });
    }

    #[test]
    fn without_colours_nothing_has_one() {
        let state = state(Mode::Cpu);
        with_view(&state, false, |view| assert!(!drawn(view, 100, 12).1));
    }

    #[test]
    fn the_stack_and_the_help_have_their_places() {
        let mut state = state(Mode::Heap);
        state.detail = true;
        with_view(&state, true, |view| {
            assert_eq!(view.page(20), 20 - 5 - 2 - 4);
            let (lines, _) = drawn(view, 80, 20);
            assert!(lines[15].contains("heaviest stack of f") && lines[16].contains('f') && lines[17].contains("main"));
        });
        state.help = true;
        with_view(&state, true, |view| {
            let (lines, _) = drawn(view, 80, 20);
            for (key, what) in KEYS {
                assert!(lines.iter().any(|line| line.contains(key) && line.contains(what)), "{key} in {lines:#?}");
            }
        });
    }

    #[test]
    fn a_terminal_of_any_size_is_drawn_on() {
        let mut state = state(Mode::Cpu);
        (state.help, state.detail) = (true, true);
        with_view(&state, true, |view| {
            for (width, height) in [(1, 1), (3, 2), (20, 5), (300, 100)] {
                drawn(view, width, height);
                assert!(view.page(height) <= usize::from(height));
            }
        });
    }
}
