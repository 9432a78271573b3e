//! SQL and tables as lines of the screen.

use std::time::Duration;

use ratatui::style::{Color, Modifier, Style, Stylize};
use ratatui::text::{Line, Span};

use super::super::lights::{Light, Lights};
use crate::table::ResultTable;

/// Between the columns of a table.
const GAP: &str = "  ";

/// SQL in lines of at most so many columns, broken between words.
pub fn folded(sql: &str, width: usize) -> Vec<String> {
    let mut folded: Vec<String> = vec![];
    for line in sql.lines() {
        let mut last = String::new();
        for word in line.split_inclusive(' ') {
            let length = last.chars().count() + word.trim_end().chars().count();
            if length > width && !last.trim().is_empty() {
                folded.push(last.trim_end().to_owned());
                last.clear();
            }
            last.push_str(word);
        }
        folded.push(last.trim_end().to_owned());
    }
    folded
}

/// Lines of SQL with the keywords coloured: the words of capital letters.
pub fn sql_lines(lines: &[String]) -> Vec<Line<'static>> {
    let word = |text: &str| {
        let is_keyword = text.len() > 1 && text.chars().all(|letter| letter.is_ascii_uppercase());
        if is_keyword {
            Span::styled(text.to_owned(), Style::new().fg(Color::Cyan))
        } else {
            Span::raw(text.to_owned())
        }
    };
    lines
        .iter()
        .map(|line| {
            Line::from_iter(line.split_inclusive([' ', '(', ')', ',']).flat_map(|part| {
                let end = part.trim_end_matches([' ', '(', ')', ',']).len();
                [word(&part[..end]), Span::raw(part[end..].to_owned())]
            }))
        })
        .collect()
}

/// The columns that a table takes.
pub fn table_width(table: &ResultTable) -> usize {
    let widths = widths(table);
    widths.iter().sum::<usize>() + GAP.len() * widths.len().saturating_sub(1)
}

/// A table with its names underlined and what changed of late lit, cut to so many lines.
pub fn table_lines(
    table: &ResultTable,
    lights: Option<&Lights>,
    now: Duration,
    lines_max: usize,
) -> Vec<Line<'static>> {
    let widths = widths(table);
    let right: Vec<bool> = (0..widths.len()).map(|column| table.is_numeric(column)).collect();
    let padded = |column: usize, text: &str| {
        let width = widths[column];
        if right[column] {
            format!("{text:>width$}")
        } else {
            format!("{text:<width$}")
        }
    };
    let join = |cells: Vec<Span<'static>>| {
        let mut spans = vec![];
        for (column, cell) in cells.into_iter().enumerate() {
            if column > 0 {
                spans.push(Span::raw(GAP));
            }
            spans.push(cell);
        }
        Line::from(spans)
    };
    let names = table.columns.iter().enumerate();
    let mut lines = vec![join(
        names
            .map(|(column, name)| padded(column, name).add_modifier(Modifier::UNDERLINED))
            .collect(),
    )];
    for row in &table.rows {
        let key = row.first().cloned().flatten().unwrap_or_default();
        let cells = row.iter().enumerate().map(|(column, value)| {
            let light = lights.map_or(Light::Off, |lights| lights.light(&key, column, now));
            Span::styled(padded(column, value.as_deref().unwrap_or_default()), style(light))
        });
        lines.push(join(cells.collect()));
    }
    lines.truncate(lines_max);
    lines
}

fn style(light: Light) -> Style {
    match light {
        Light::Bright => Style::new().fg(Color::Black).bg(Color::Yellow),
        Light::Fading => Style::new().fg(Color::Yellow),
        Light::Off => Style::new(),
    }
}

fn widths(table: &ResultTable) -> Vec<usize> {
    let names = table.columns.iter().map(|name| name.chars().count());
    let mut widths: Vec<usize> = names.collect();
    for row in &table.rows {
        for (width, value) in widths.iter_mut().zip(row) {
            let own = value.as_deref().unwrap_or_default().chars().count();
            *width = own.max(*width);
        }
    }
    widths
}
