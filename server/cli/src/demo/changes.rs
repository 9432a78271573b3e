//! What others change of the demo's stream, tables and views, over the line that the demo asks to paste: it is told, and the demo
//! goes on with what is left.

use std::cmp::Ordering;
use std::collections::BTreeMap;

use millrace_console::flights::{VIEWS, View};

use super::DemoError;
use super::client::Client;
use crate::table::ResultTable;

/// The queries of the views as the server tells them, right after they were made; and what others have changed since.
#[derive(Debug, Default)]
pub struct Changes {
    made: BTreeMap<String, String>,
    /// By name, in a few words.
    found: BTreeMap<&'static str, String>,
}

const DEFINITIONS: &str = "SELECT matviewname, definition FROM pg_matviews";

async fn definitions(client: &Client) -> Result<BTreeMap<String, String>, DemoError> {
    let rows = client.rows(DEFINITIONS).await?.rows;
    let pairs = rows.into_iter().filter_map(|row| match row.as_slice() {
        [Some(name), Some(definition)] => Some((name.clone(), definition.clone())),
        _ => None,
    });
    Ok(pairs.collect())
}

impl Changes {
    /// Nothing is changed: everything was made just now.
    ///
    /// # Errors
    /// The server failed.
    pub async fn none(client: &Client) -> Result<Changes, DemoError> {
        Ok(Changes {
            made: definitions(client).await?,
            found: BTreeMap::new(),
        })
    }

    /// Keeps that something was changed, and how; the first word of it counts.
    pub fn note(&mut self, name: &'static str, how: impl Into<String>) {
        self.found.entry(name).or_insert_with(|| how.into());
    }

    /// Whether that is known of this relation.
    pub fn has(&self, name: &str) -> bool {
        self.found.contains_key(name)
    }

    /// What was changed, a line each.
    pub fn lines(&self) -> Vec<String> {
        let line = |(name, how): (&&str, &String)| format!("{name}: changed by you ({how})");
        self.found.iter().map(line).collect()
    }

    /// Whether a view still has the query that the demo gave it. One that has not is noted.
    ///
    /// # Errors
    /// The server failed.
    pub async fn is_as_made(&mut self, client: &Client, view: &View) -> Result<bool, DemoError> {
        let now = definitions(client).await?;
        let how = match (now.get(view.name), self.made.get(view.name)) {
            (None, _) => "it is gone",
            (Some(now), Some(made)) if now == made => return Ok(true),
            (Some(_), _) => "it has another query",
        };
        self.note(view.name, how);
        Ok(false)
    }
}

/// A view as the screen has it.
#[derive(Debug)]
pub enum Seen {
    /// Its rows, the ones that matter most first.
    Rows(ResultTable),
    /// It cannot be read as the demo made it.
    Changed,
}

/// Reads the views for the screen, all of them in one SELECT: of one moment, as no others could be.
pub struct Looker {
    client: Client,
    /// The columns of each view; `None` of one that cannot be read.
    columns: Option<Vec<Option<Vec<String>>>>,
    looks: u32,
}

/// After so many looks one that could not be read is tried again.
const TRY_AGAIN: u32 = 20;

impl Looker {
    /// One that does not know yet what there is.
    pub fn new(client: Client) -> Looker {
        Looker {
            client,
            columns: None,
            looks: 0,
        }
    }

    /// Looks at all views.
    ///
    /// # Errors
    /// The server failed.
    pub async fn look(&mut self) -> Result<Vec<Seen>, DemoError> {
        self.looks += 1;
        let columns = match self.columns.take() {
            Some(columns) if !self.looks.is_multiple_of(TRY_AGAIN) || columns.iter().all(Option::is_some) => {
                columns
            }
            _ => self.columns_of_each().await?,
        };
        let seen = match one_select(&columns) {
            None => VIEWS.iter().map(|_| Seen::Changed).collect(),
            Some(select) => match self.client.rows(&select).await {
                Ok(table) => apart(table.rows, &columns),
                // The next look finds out which it is.
                Err(DemoError::Changed(_)) => return Ok(VIEWS.iter().map(|_| Seen::Changed).collect()),
                Err(error) => return Err(error),
            },
        };
        self.columns = Some(columns);
        Ok(seen)
    }

    async fn columns_of_each(&self) -> Result<Vec<Option<Vec<String>>>, DemoError> {
        let mut columns = vec![];
        for view in &VIEWS {
            columns.push(match self.client.rows(view.show).await {
                Ok(table) => Some(table.columns),
                Err(DemoError::Changed(_)) => None,
                Err(error) => return Err(error),
            });
        }
        Ok(columns)
    }
}

/// One SELECT over all views of which the columns are known: the number of the view, and the values as texts, in no order. `None` if
/// there is none.
fn one_select(columns: &[Option<Vec<String>>]) -> Option<String> {
    let width = columns.iter().flatten().map(Vec::len).max()?;
    let parts = columns.iter().enumerate().filter_map(|(number, columns)| {
        let columns = columns.as_ref()?;
        let values: Vec<String> = (0..width)
            .map(|column| match columns.get(column) {
                Some(name) => format!("{name}::text AS c{column}"),
                None => format!("NULL::text AS c{column}"),
            })
            .collect();
        Some(format!(
            "SELECT {number} AS view, {} FROM ({}) AS v{number}",
            values.join(", "),
            shown_and_order(number).0
        ))
    });
    Some(parts.collect::<Vec<_>>().join("\nUNION ALL "))
}

/// What shows a view without its order, and that order.
fn shown_and_order(number: usize) -> (&'static str, &'static str) {
    let show = VIEWS[number].show;
    let (rows, order) = show.rsplit_once("ORDER BY").unwrap_or((show, ""));
    (rows.trim(), order.trim())
}

/// The rows of that SELECT, by view, each in the order in which it is shown: to have the server number the rows would take half as
/// long again as to read them.
fn apart(rows: Vec<Vec<Option<String>>>, columns: &[Option<Vec<String>>]) -> Vec<Seen> {
    let tables = columns.iter().map(|columns| {
        columns.as_ref().map(|columns| ResultTable {
            columns: columns.clone(),
            rows: vec![],
        })
    });
    let mut tables: Vec<Option<ResultTable>> = tables.collect();
    for row in rows {
        let number = row
            .first()
            .and_then(|number| number.as_deref()?.parse::<usize>().ok());
        if let Some(Some(table)) = number.and_then(|number| tables.get_mut(number)) {
            let values = row.into_iter().skip(1).take(table.columns.len());
            table.rows.push(values.collect());
        }
    }
    let seen = tables.into_iter().enumerate().map(|(number, table)| match table {
        Some(mut table) => {
            sort(&mut table, shown_and_order(number).1);
            Seen::Rows(table)
        }
        None => Seen::Changed,
    });
    seen.collect()
}

/// Sorts as `a DESC, b` says: numbers as numbers.
fn sort(table: &mut ResultTable, order: &str) {
    let terms = order.split(',').filter_map(|term| {
        let name = term.split_whitespace().next()?;
        let column = table.columns.iter().position(|column| column == name)?;
        Some((column, term.trim_end().ends_with(" DESC")))
    });
    let terms: Vec<(usize, bool)> = terms.collect();
    let compared = |one: &Option<String>, other: &Option<String>| match (one, other) {
        (Some(one), Some(other)) => match (one.parse::<f64>(), other.parse::<f64>()) {
            (Ok(one), Ok(other)) => one.total_cmp(&other),
            _ => one.cmp(other),
        },
        _ => one.cmp(other),
    };
    table.rows.sort_by(|one, other| {
        terms
            .iter()
            .fold(Ordering::Equal, |so_far, (column, is_descending)| {
                so_far.then_with(|| match (one.get(*column), other.get(*column)) {
                    (Some(one), Some(other)) if *is_descending => compared(other, one),
                    (Some(one), Some(other)) => compared(one, other),
                    _ => Ordering::Equal,
                })
            })
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(names: &[&str]) -> Option<Vec<String>> {
        Some(names.iter().map(|name| (*name).to_owned()).collect())
    }

    #[test]
    fn all_views_are_one_select() {
        let columns = [names(&["carrier", "departed"]), None, names(&["class"]), None];
        assert_eq!(
            one_select(&columns).unwrap(),
            "SELECT 0 AS view, carrier::text AS c0, departed::text AS c1 \
             FROM (SELECT carrier, departed, round(mean_delay::numeric, 1) AS delay, late\nFROM carrier_delays) AS v0\n\
             UNION ALL SELECT 2 AS view, class::text AS c0, NULL::text AS c1 \
             FROM (SELECT class, airlines, departed FROM punctuality) AS v2"
        );
        assert_eq!(one_select(&[None, None]), None);
    }

    #[test]
    fn its_rows_are_those_of_the_views() {
        let row = |values: &[&str]| values.iter().map(|value| Some((*value).to_owned())).collect();
        let columns = [names(&["carrier", "departed"]), None, names(&["class"])];
        let seen = apart(
            vec![
                row(&["0", "B6", "7"]),
                row(&["2", "late", ""]),
                row(&["0", "UA", "10"]),
                row(&["0", "AA", "7"]),
            ],
            &columns,
        );
        let [Seen::Rows(first), Seen::Changed, Seen::Rows(third)] = &seen[..] else {
            panic!("{seen:?}");
        };
        let expected: [Vec<Option<String>>; 3] = [row(&["UA", "10"]), row(&["AA", "7"]), row(&["B6", "7"])];
        assert_eq!(first.rows, expected);
        assert_eq!(third.rows, [row(&["late"])] as [Vec<Option<String>>; 1]);
    }

    #[test]
    fn what_was_changed_first_is_told() {
        let mut changes = Changes::default();
        changes.note("flights", "rows are gone");
        changes.note("flights", "it is gone");
        assert!(changes.has("flights") && !changes.has("airlines"));
        assert_eq!(changes.lines(), ["flights: changed by you (rows are gone)"]);
    }
}
