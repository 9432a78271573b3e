//! Columns of text: the first to the left, all others to the right, each as wide as it must be.

/// Spaces between columns.
const GAP: usize = 2;

pub struct Table {
    rows: Vec<Vec<String>>,
}

impl Table {
    pub fn new(head: &[&str]) -> Table {
        Table {
            rows: vec![head.iter().map(|name| (*name).to_owned()).collect()],
        }
    }

    pub fn row(&mut self, cells: Vec<String>) {
        self.rows.push(cells);
    }

    /// The lines. A first column too wide for `width_max` is cut, with an ellipsis.
    pub fn lines(self, indent: usize, width_max: usize) -> Vec<String> {
        let columns = self.rows.iter().map(Vec::len).max().unwrap_or(0);
        let mut widths: Vec<usize> = (0..columns)
            .map(|column| {
                let cells = self.rows.iter().filter_map(|row| row.get(column));
                cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
            })
            .collect();
        let others: usize = widths.iter().skip(1).map(|width| width + GAP).sum();
        if let Some(first) = widths.first_mut() {
            *first = (*first).min(width_max.saturating_sub(indent + others).max(1));
        }
        self.rows
            .iter()
            .map(|row| {
                let mut line = " ".repeat(indent);
                for (column, (cell, width)) in row.iter().zip(&widths).enumerate() {
                    if column == 0 {
                        line.push_str(&format!("{:<width$}", cut(cell, *width)));
                    } else {
                        line.push_str(&format!("{:gap$}{cell:>width$}", "", gap = GAP));
                    }
                }
                line.trim_end().to_owned()
            })
            .collect()
    }
}

/// At most so many characters.
pub fn cut(text: &str, width: usize) -> String {
    if text.chars().count() <= width {
        return text.to_owned();
    }
    let kept: String = text.chars().take(width.saturating_sub(1)).collect();
    format!("{kept}…")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wide_first_columns_are_cut() {
        let mut table = Table::new(&["operator", "rows"]);
        table.row(vec![
            "a very long name of an operator".to_owned(),
            "1,000".to_owned(),
        ]);
        table.row(vec!["short".to_owned(), "1".to_owned()]);
        assert_eq!(
            table.lines(2, 24),
            [
                "  operator          rows",
                "  a very long na…  1,000",
                "  short                1"
            ]
        );
    }
}
