//! Results as psql aligns them.

use comfy_table::{CellAlignment, ContentArrangement, ContentLineStyle, LineStyle, Table, TableStyle};

/// Lines between columns, one below the header, and none around.
const PSQL: TableStyle = TableStyle::new()
    .header_lines(ContentLineStyle::none().junction('|'))
    .header_separator(LineStyle::none().fill('-').junction('+'))
    .content_lines(ContentLineStyle::none().junction('|'));

/// One result: its columns, and its rows as text, `None` for NULL.
#[derive(Debug, Default)]
pub struct ResultTable {
    /// The names of the columns.
    pub columns: Vec<String>,
    /// The rows.
    pub rows: Vec<Vec<Option<String>>>,
}

impl ResultTable {
    /// The aligned table with the number of rows below it.
    pub fn render(&self) -> String {
        let mut table = Table::new();
        table
            .load_style(PSQL)
            .set_content_arrangement(ContentArrangement::Disabled);
        table.set_header(self.columns.clone());
        for row in &self.rows {
            table.add_row(row.iter().map(|value| value.clone().unwrap_or_default()));
        }
        for index in 0..self.columns.len() {
            if let Some(column) = table.column_mut(index)
                && self.is_numeric(index)
            {
                column.set_cell_alignment(CellAlignment::Right);
            }
        }
        let rows = if self.rows.len() == 1 { "row" } else { "rows" };
        let lines: Vec<String> = table.lines().map(|line| line.trim_end().to_owned()).collect();
        format!("{}\n({} {rows})\n", lines.join("\n"), self.rows.len())
    }

    /// Whether a column is one of numbers. The protocol gives texts without types: it is one that looks like it.
    pub(crate) fn is_numeric(&self, index: usize) -> bool {
        let mut values = self
            .rows
            .iter()
            .filter_map(|row| row.get(index)?.as_deref())
            .peekable();
        values.peek().is_some() && values.all(|value| value.parse::<f64>().is_ok())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_looks_as_in_psql() {
        let table = ResultTable {
            columns: vec!["id".into(), "name".into()],
            rows: vec![
                vec![Some("1".into()), Some("millrace".into())],
                vec![Some("20".into()), None],
            ],
        };
        assert_eq!(
            table.render(),
            " id | name\n----+----------\n  1 | millrace\n 20 |\n(2 rows)\n"
        );
    }
}
