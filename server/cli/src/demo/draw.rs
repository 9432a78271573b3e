//! The screen: a [`Frame`] on a terminal of any size. Pure: what it draws on is given.
//!
//! ```text
//!   millrace demo   2013-01-03 09:15   2,160 of 27,004 flights
//!   views  UPDATE  heavy SELECTs  kill -9  yours
//!   title and words of the act
//!   narrow: the act's SQL | its view, or what came of it        wide: the same, and all four views with their SQL
//!   freshness as a line
//!   psql ...   the console
//! ```

mod chart;
mod text;

use millrace_console::flights::VIEWS;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Style, Stylize};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Block, Borders, Paragraph, Wrap};

use self::text::{folded, sql_lines, table_lines, table_width};
use super::acts::{ACTS, Event, STEPS};
use super::frame::{Beside, Frame, Outcome, in_few_digits};

/// From this size on all views are shown at once.
const WIDE: (u16, u16) = (140, 40);
/// Below this size there are only words.
const SMALLEST: (u16, u16) = (50, 18);
/// Columns between an act's SQL and what is beside it.
const GAP: usize = 2;
/// Rows of a view that are shown at least.
const ROWS_LEAST: usize = 2;
/// What is lit.
const ACCENT: Color = Color::Cyan;

/// Draws what is shown now.
pub fn draw(shown: &Frame, target: &mut ratatui::Frame<'_>) {
    let area = target.area();
    if area.width < SMALLEST.0 || area.height < SMALLEST.1 {
        target.render_widget(small(shown), area);
        return;
    }
    let is_wide = area.width >= WIDE.0 && area.height >= WIDE.1;
    let [head, steps, words, body, chart, foot] = Layout::vertical([
        Constraint::Length(1),
        Constraint::Length(1),
        Constraint::Length(4),
        Constraint::Min(0),
        Constraint::Length(if is_wide { 12 } else { 6 }),
        Constraint::Length(2),
    ])
    .areas(area);
    let title = Line::from(vec![
        "millrace demo".bold(),
        Span::raw(format!("   {}", shown.progress())),
    ]);
    target.render_widget(title, head);
    target.render_widget(step_line(shown), steps);
    target.render_widget(act_words(shown), words);
    if is_wide {
        draw_wide(shown, target, body);
    } else {
        draw_act(shown, target, body);
    }
    chart::draw(shown, target, chart);
    target.render_widget(foot_lines(shown), foot);
}

/// What fits on any screen, the most important first: the end may be cut.
fn small(shown: &Frame) -> Paragraph<'static> {
    let mut lines = vec![
        Line::from(ACTS[shown.act].title.bold()),
        Line::raw(shown.progress()),
    ];
    if let Some([median, _]) = shown.freshness(Beside::Nothing) {
        lines.push(Line::raw(format!("fresh after {}", in_few_digits(median))));
    }
    lines.extend(changed_line(shown));
    lines.push(Line::from(shown.addresses.psql().bold()));
    lines.push(Line::from(shown.addresses.console().bold()));
    lines.push(Line::from(
        "Enter goes on, q ends; a larger window shows more".dim(),
    ));
    Paragraph::new(lines).wrap(Wrap { trim: true })
}

/// The names of what others have changed.
fn changed_line(shown: &Frame) -> Option<Line<'static>> {
    let names: Vec<&str> = shown
        .changed
        .iter()
        .filter_map(|line| line.split(':').next())
        .collect();
    let text = format!("changed by you: {}", names.join(", "));
    (!names.is_empty()).then(|| Line::from(text.fg(Color::Yellow)))
}

fn step_line(shown: &Frame) -> Line<'static> {
    if let Some(line) = changed_line(shown) {
        return line;
    }
    let act = shown.act;
    let mut spans = vec![];
    for (index, step) in STEPS.iter().enumerate() {
        let text = format!(" {} {step} ", index + 1);
        spans.push(if index == ACTS[act].step {
            Span::styled(text, Style::new().fg(Color::Black).bg(ACCENT))
        } else {
            Span::raw(text).dim()
        });
    }
    Line::from(spans)
}

/// The title and the words; after something happened, what came of it.
fn act_words(shown: &Frame) -> Paragraph<'static> {
    let act = &ACTS[shown.act];
    let words = match (act.event, &shown.outcome) {
        (Event::Rename, Some(Outcome::Renamed(renamed))) => {
            format!(
                "{} Nothing was rebuilt, and no job ran again.",
                renamed.sentence()
            )
        }
        (Event::Kill, Some(Outcome::Killed(killed, checked))) => killed.sentence(checked),
        _ => act.words_on_screen(),
    };
    Paragraph::new(vec![Line::from(act.title.bold()), Line::raw(words)]).wrap(Wrap { trim: true })
}

fn foot_lines(shown: &Frame) -> Paragraph<'static> {
    Paragraph::new(vec![
        Line::from(vec!["paste  ".dim(), shown.addresses.psql().bold()]),
        Line::from(vec![
            "open   ".dim(),
            shown.addresses.console().bold(),
            "   Enter goes on, q ends".dim(),
        ]),
    ])
}

/// What stands above a view that others have changed.
fn changed_title(name: &str) -> String {
    format!("{name}: changed by you")
}

/// The act's SQL, and its view or what came of it: beside it, or below it where the SQL needs the whole width.
fn draw_act(shown: &Frame, target: &mut ratatui::Frame<'_>, area: Rect) {
    let act = &ACTS[shown.act];
    let view = &VIEWS[act.view];
    let panel = &shown.panels[act.view];
    let heavy;
    let changed = changed_title(view.name);
    let (name, table, lights) = match (act.event, &shown.outcome) {
        (Event::Rename, Some(Outcome::Renamed(renamed))) => {
            heavy = renamed.table();
            (view.name, &heavy, None)
        }
        (Event::Kill, Some(Outcome::Killed(killed, _))) => {
            heavy = killed.table();
            ("what came of it", &heavy, None)
        }
        (Event::Alone | Event::Heavy(_), _) => {
            heavy = shown.comparison();
            ("from sending to reading", &heavy, None)
        }
        _ if panel.is_changed => (changed.as_str(), &panel.table, None),
        _ => (view.name, &panel.table, Some(&panel.lights)),
    };
    let (width, height) = (usize::from(area.width), usize::from(area.height));
    let right = table_width(table).max(name.len() + 3).min(width * 3 / 4);
    let beside = folded(&act.sql(), width.saturating_sub(right + GAP));
    let whole = folded(&act.sql(), width);
    // Of a view the first rows do; what came of something is told whole. Both have a line above them.
    let rows = table.rows.len();
    let least = 1 + if lights.is_some() {
        rows.min(ROWS_LEAST)
    } else {
        rows
    };
    let is_below = beside.len() + 1 > height && whole.len() + least + 2 <= height;
    let length = |size| Constraint::Length(u16::try_from(size).unwrap_or(u16::MAX));
    let (sql, [sql_area, gap, table_area]) = if is_below {
        let parts = [length(whole.len() + 1), Constraint::Length(0), Constraint::Min(0)];
        (whole, Layout::vertical(parts).areas(area))
    } else {
        let parts = [Constraint::Min(0), length(GAP), length(right)];
        (beside, Layout::horizontal(parts).areas(area))
    };
    let block = |title: &str| {
        Block::new()
            .borders(Borders::TOP)
            .border_style(Style::new().dim())
            .title(format!(" {title} "))
    };
    target.render_widget(block(""), gap);
    let sql = Paragraph::new(sql_lines(&sql));
    let sql_title = if act.event == Event::Watch {
        view.kind
    } else {
        "SQL"
    };
    target.render_widget(sql.block(block(sql_title)), sql_area);
    let lines = table_lines(
        table,
        lights,
        shown.elapsed,
        usize::from(table_area.height).saturating_sub(1),
    );
    target.render_widget(Paragraph::new(lines).block(block(name)), table_area);
}

/// The act's SQL and what came of it, if something happens in it, and all views.
fn draw_wide(shown: &Frame, target: &mut ratatui::Frame<'_>, area: Rect) {
    let act = &ACTS[shown.act];
    let happens = if act.event == Event::Watch { 0 } else { 8 };
    let [banner, upper, lower] = Layout::vertical([
        Constraint::Length(happens),
        Constraint::Fill(1),
        Constraint::Fill(1),
    ])
    .areas(area);
    if happens > 0 {
        draw_act(shown, target, banner);
    }
    let halves = |row| Layout::horizontal([Constraint::Fill(1), Constraint::Fill(1)]).areas::<2>(row);
    let places = [upper, lower].into_iter().flat_map(halves);
    for (index, place) in places.enumerate().take(VIEWS.len()) {
        let (view, panel) = (&VIEWS[index], &shown.panels[index]);
        let is_told = index == act.view && act.event == Event::Watch;
        let border = if is_told {
            Style::new().fg(ACCENT)
        } else {
            Style::new().dim()
        };
        let block = Block::bordered()
            .border_style(border)
            .title(match panel.is_changed {
                true => format!(" {} ", changed_title(view.name)),
                false => format!(" {}: {} ", view.name, view.kind),
            });
        let inner = block.inner(place);
        target.render_widget(block, place);
        let sql = folded(&format!("{};", view.create()), usize::from(inner.width));
        let height = u16::try_from(sql.len() + 1).unwrap_or(inner.height);
        let [above, below] = Layout::vertical([Constraint::Length(height), Constraint::Min(0)]).areas(inner);
        target.render_widget(Paragraph::new(sql_lines(&sql)), above);
        let lines = table_lines(
            &panel.table,
            Some(&panel.lights),
            shown.elapsed,
            usize::from(below.height),
        );
        target.render_widget(Paragraph::new(lines), below);
    }
}

#[cfg(test)]
mod tests;
