//! The views whose maintenance is measured, one for each family of operators.

use super::workload::Table;

/// A view, and what is known of it.
#[derive(Debug, Clone, Copy)]
pub struct View {
    /// Names it on the command line and in the figures.
    pub name: &'static str,
    /// What it shows, for the report.
    pub about: &'static str,
    pub select: &'static str,
    /// The tables that it reads. Most changes go to the first.
    pub tables: &'static [Table],
    /// The rows that it must remember beside its contents.
    pub remembers: Remembers,
}

/// What an operator has to keep to be able to go on.
#[derive(Debug, Clone, Copy)]
pub enum Remembers {
    /// One row a group, which is as large as a row of the contents.
    Groups,
    /// These columns of every row of these tables.
    Rows(&'static [(Table, &'static [&'static str])]),
    /// Those, and the contents once more.
    RowsAndContents(&'static [(Table, &'static [&'static str])]),
}

/// Every view, simplest first.
pub const VIEWS: &[View] = &[
    View {
        name: "grouped-sum",
        about: "sum and count per key, ten rows a key",
        select: "SELECT k, sum(v) AS total, count(*) AS n FROM fact GROUP BY k",
        tables: &[Table::Fact],
        remembers: Remembers::Groups,
    },
    View {
        name: "grouped-max",
        about: "maximum per key of rows that are also deleted, ten rows a key",
        select: "SELECT k, max(v) AS highest FROM fact GROUP BY k",
        tables: &[Table::Fact],
        remembers: Remembers::Rows(&[(Table::Fact, &["k", "v"])]),
    },
    View {
        name: "distinct",
        about: "distinct pairs of two columns, about seven for ten rows",
        select: "SELECT DISTINCT k, g FROM fact",
        tables: &[Table::Fact],
        remembers: Remembers::Groups,
    },
    View {
        name: "join-2",
        about: "every row with the label of its key; a tenth of the changes are of labels, each shown by ten rows",
        select: "SELECT f.id, f.v, d.label FROM fact f JOIN dim d ON f.k = d.k",
        tables: &[Table::Fact, Table::Dim],
        remembers: Remembers::Rows(&[(Table::Fact, &["id", "k", "v"]), (Table::Dim, &["k", "label"])]),
    },
    View {
        name: "join-3",
        about: "as join-2, with the title of the label's region",
        select: "SELECT f.id, f.v, d.label, r.title FROM fact f JOIN dim d ON f.k = d.k \
                 JOIN region r ON d.region = r.r",
        tables: &[Table::Fact, Table::Dim, Table::Region],
        // Either join comes first; what is between the two is the larger of the ways that the planner may take.
        remembers: Remembers::Rows(&[
            (Table::Fact, &["id", "k", "v"]),
            (Table::Fact, &["id", "v", "k"]),
            (Table::Dim, &["k", "region", "label"]),
            (Table::Region, &["r", "title"]),
        ]),
    },
    View {
        name: "outer-join",
        about: "as join-2, and one key in ten has no label",
        select: "SELECT f.id, f.v, d.label FROM fact f LEFT JOIN dim d ON f.k = d.k",
        tables: &[Table::Fact, Table::Dim],
        remembers: Remembers::Rows(&[(Table::Fact, &["id", "k", "v"]), (Table::Dim, &["k", "label"])]),
    },
    View {
        name: "top-n",
        about: "the hundred highest of all rows",
        select: "SELECT id, v, name FROM fact ORDER BY v DESC, id LIMIT 100",
        tables: &[Table::Fact],
        remembers: Remembers::Rows(&[(Table::Fact, &["id", "v", "name"])]),
    },
    View {
        name: "row-number",
        about: "the place of every row among the ten of its key",
        select: "SELECT id, k, v, row_number() OVER (PARTITION BY k ORDER BY v DESC, id) AS place FROM fact",
        tables: &[Table::Fact],
        remembers: Remembers::Rows(&[(Table::Fact, &["id", "k", "v"])]),
    },
    View {
        name: "row-number-top",
        about: "the three highest rows of every key",
        select: "SELECT id, k, v FROM (SELECT id, k, v, row_number() OVER (PARTITION BY k ORDER BY v DESC, id) \
                 AS place FROM fact) AS placed WHERE place <= 3",
        tables: &[Table::Fact],
        remembers: Remembers::Rows(&[(Table::Fact, &["id", "k", "v"])]),
    },
    View {
        name: "reachability",
        about: "which node of a graph reaches which, over edges in small components, some of them cyclic",
        select: "WITH RECURSIVE reach (a, b) AS (SELECT a, b FROM edges \
                 UNION SELECT r.a, e.b FROM reach r JOIN edges e ON r.b = e.a) SELECT a, b FROM reach",
        tables: &[Table::Edges],
        // Besides the edges every pair that was found, by which the next ones are.
        remembers: Remembers::RowsAndContents(&[(Table::Edges, &["a", "b"])]),
    },
];

/// The view of this name.
pub fn find(name: &str) -> Option<&'static View> {
    VIEWS.iter().find(|view| view.name == name)
}
