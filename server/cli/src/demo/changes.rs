//! What the user has changed of what the demo made: everybody is asked to try it out. A relation is known by its id, the rows of the
//! tables by what was loaded; so the demo tells its own mistakes from somebody's statements, and says which these were.

use std::collections::BTreeMap;

use millrace_console::flights::VIEWS;

use super::DemoError;
use super::client::Client;
use super::schema::{RENAMED, RENAMED_FROM_TO};
use crate::table::ResultTable;

const IDS: &str =
    "SELECT name, id FROM mr_catalog.relations WHERE schema = 'public' AND database = current_database()";
const AIRLINES: &str = "SELECT carrier, name FROM airlines";
/// Of each other table something that most changes change.
const OTHERS: [(&str, &str); 2] = [
    ("airports", "SELECT count(*), sum(length(name)) FROM airports"),
    ("planes", "SELECT count(*), sum(length(manufacturer)), sum(seats) FROM planes"),
];
/// What is fed and loaded.
const SOURCES: [&str; 4] = ["flights", "airlines", "airports", "planes"];
/// The columns of each view's `show`, in the order of [`VIEWS`].
const SHOWN: [&[&str]; 4] = [
    &["carrier", "departed", "delay", "late"],
    &["airline", "departed", "delay"],
    &["class", "airlines", "departed"],
    &["maker", "flights", "planes", "miles"],
];

/// What is wrong with each relation that somebody has changed.
pub type Changes = BTreeMap<&'static str, String>;

/// What the demo made, as it was then.
#[derive(Debug, Clone, Default)]
pub struct Made {
    ids: BTreeMap<String, String>,
    airlines: BTreeMap<String, String>,
    others: BTreeMap<&'static str, String>,
}

impl Made {
    /// Takes down what there is.
    ///
    /// # Errors
    /// The server failed.
    pub async fn now(client: &Client) -> Result<Made, DemoError> {
        let mut others = BTreeMap::new();
        for (table, query) in OTHERS {
            others.insert(table, client.rows(query).await?.render());
        }
        Ok(Made {
            ids: pairs(client.rows(IDS).await?),
            airlines: pairs(client.rows(AIRLINES).await?),
            others,
        })
    }

    /// What is not as it was made.
    ///
    /// # Errors
    /// The connection is lost, or the catalog cannot be read.
    pub async fn changes(&self, client: &Client) -> Result<Changes, DemoError> {
        let mut changes = self.other_relations(&pairs(client.rows(IDS).await?));
        if !changes.contains_key("airlines") {
            let said = match client.rows(AIRLINES).await {
                Ok(rows) => rows_changed(&self.airlines, &pairs(rows)),
                Err(error) => Some(error.refusal()?),
            };
            changes.extend(said.map(|said| ("airlines", said)));
        }
        for (table, query) in OTHERS {
            if changes.contains_key(table) {
                continue;
            }
            let said = match client.rows(query).await {
                Ok(rows) if Some(&rows.render()) == self.others.get(table) => None,
                Ok(_) => Some("other rows".to_owned()),
                Err(error) => Some(error.refusal()?),
            };
            changes.extend(said.map(|said| (table, said)));
        }
        Ok(changes)
    }

    /// Whether these relations are still those that were made.
    ///
    /// # Errors
    /// As [`Made::changes`].
    pub async fn are_there(&self, client: &Client, relations: &[&str]) -> Result<bool, DemoError> {
        let others = self.other_relations(&pairs(client.rows(IDS).await?));
        Ok(!relations.iter().any(|name| others.contains_key(name)))
    }

    /// The relations that are gone, or that are others under the same name.
    fn other_relations(&self, now: &BTreeMap<String, String>) -> Changes {
        let names = SOURCES.into_iter().chain(VIEWS.iter().map(|view| view.name));
        names
            .filter_map(|name| match (self.ids.get(name), now.get(name)) {
                (then, now) if then == now => None,
                (_, None) => Some((name, "dropped or renamed".to_owned())),
                _ => Some((name, "made anew".to_owned())),
            })
            .collect()
    }
}

/// The first two columns.
fn pairs(table: ResultTable) -> BTreeMap<String, String> {
    let text = |value: Option<String>| value.unwrap_or_default();
    let rows = table.rows.into_iter().filter_map(|row| {
        let mut row = row.into_iter();
        Some((text(row.next()?), text(row.next()?)))
    });
    rows.collect()
}

/// How rows differ, but for what the demo itself changes.
fn rows_changed(then: &BTreeMap<String, String>, now: &BTreeMap<String, String>) -> Option<String> {
    let is_other = |(key, name): &(&String, &String)| match now.get(*key) {
        Some(_) if *key == RENAMED => !RENAMED_FROM_TO.contains(&now[*key].as_str()),
        Some(now) => now != *name,
        None => false,
    };
    let counts = [
        (then.keys().filter(|key| !now.contains_key(*key)).count(), "deleted"),
        (now.keys().filter(|key| !then.contains_key(*key)).count(), "added"),
        (then.iter().filter(is_other).count(), "changed"),
    ];
    let said: Vec<String> = counts
        .iter()
        .filter(|(count, _)| *count > 0)
        .map(|(count, what)| format!("{count} {} {what}", if *count == 1 { "row" } else { "rows" }))
        .collect();
    (!said.is_empty()).then(|| said.join(", "))
}

/// A statement that reads these views for showing, all as of one moment: each row with the number of its view, its place and its
/// columns as texts.
fn of_one_moment(views: &[usize]) -> String {
    let width = SHOWN.iter().map(|columns| columns.len()).max().unwrap_or(0);
    let parts = views.iter().map(|index| {
        let (rows, order) = VIEWS[*index].show.split_once(" ORDER BY ").unwrap_or_default();
        let columns = (0..width).map(|column| match SHOWN[*index].get(column) {
            Some(name) => format!("{name}::text AS c{column}"),
            None => format!("NULL::text AS c{column}"),
        });
        format!(
            "SELECT {index} AS view, row_number() OVER (ORDER BY {order}) AS place, {} FROM ({rows}) AS s",
            columns.collect::<Vec<_>>().join(", ")
        )
    });
    format!("{}\nORDER BY 1, 2", parts.collect::<Vec<_>>().join("\nUNION ALL "))
}

/// Reads these views for showing, all as of one moment.
///
/// # Errors
/// The server failed, or one of the views is not there.
pub async fn read_views(client: &Client, views: &[usize]) -> Result<Vec<ResultTable>, DemoError> {
    let mut tables: Vec<ResultTable> = views.iter().map(|index| empty(*index)).collect();
    if views.is_empty() {
        return Ok(tables);
    }
    for row in client.rows(&of_one_moment(views)).await?.rows {
        let index = row.first().cloned().flatten().and_then(|text| text.parse().ok());
        if let Some(at) = views.iter().position(|view| Some(*view) == index) {
            let cells = row.into_iter().skip(2).take(tables[at].columns.len());
            tables[at].rows.push(cells.collect());
        }
    }
    Ok(tables)
}

fn empty(view: usize) -> ResultTable {
    ResultTable {
        columns: SHOWN[view].iter().map(|name| (*name).to_owned()).collect(),
        rows: vec![],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
        let pairs = pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned()));
        pairs.collect()
    }

    #[test]
    fn relations_are_known_by_their_ids() {
        let names = ["flights", "airlines", "airports", "planes"];
        let views = VIEWS.iter().map(|view| view.name);
        let ids: Vec<(&str, &str)> = names.into_iter().chain(views).map(|name| (name, "1")).collect();
        let made = Made {
            ids: map(&ids),
            ..Made::default()
        };
        let mut now = map(&ids);
        assert_eq!(made.other_relations(&now), Changes::new());
        now.insert("mine".into(), "9".into());
        now.insert("planes".into(), "8".into());
        now.remove("maker_miles");
        let expected = [("maker_miles", "dropped or renamed"), ("planes", "made anew")];
        let expected = expected.map(|(name, what)| (name, what.to_owned()));
        assert_eq!(made.other_relations(&now), Changes::from(expected));
    }

    #[test]
    fn rows_are_told_apart_but_for_the_demos_own_change() {
        let then = map(&[("US", RENAMED_FROM_TO[0]), ("UA", "United"), ("B6", "JetBlue")]);
        let mut now = then.clone();
        assert_eq!(rows_changed(&then, &now), None);
        now.insert("US".into(), RENAMED_FROM_TO[1].into());
        assert_eq!(rows_changed(&then, &now), None);
        now.insert("US".into(), "Mine".into());
        now.insert("XX".into(), "Mine".into());
        now.remove("UA");
        now.remove("B6");
        let said = rows_changed(&then, &now).unwrap();
        assert_eq!(said, "2 rows deleted, 1 row added, 1 row changed");
    }

    #[test]
    fn the_views_are_read_as_they_are_shown() {
        for (view, columns) in VIEWS.iter().zip(SHOWN) {
            let (list, _) = view.show["SELECT ".len()..].split_once("FROM").unwrap();
            // A comma in `round(x, 1)` is no new column.
            let list = list.replace(", 1)", ")");
            let names = list.split(',').filter_map(|item| item.split_whitespace().last());
            assert_eq!(names.collect::<Vec<_>>(), columns);
        }
        let sql = of_one_moment(&[0, 2]);
        assert_eq!(sql.matches("UNION ALL").count(), 1);
        assert!(sql.contains("OVER (ORDER BY departed DESC, carrier)"), "{sql}");
        assert!(sql.contains("NULL::text AS c3 FROM (SELECT class,"), "{sql}");
    }
}
