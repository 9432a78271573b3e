//! What the server publishes of the tables that are followed.

use std::collections::{BTreeMap, BTreeSet};

use millrace_catalog::connector::postgres::PostgresDef;
use tokio_postgres::error::SqlState;

use super::{STATEMENT, Server, at, literal, message, of_client, quoted, silent_for};
use crate::source::ConnectorError;

/// A table that is followed, as it was when it was copied.
#[derive(Debug, Clone)]
pub struct Followed {
    pub schema: String,
    pub name: String,
    /// The columns that are taken over.
    pub columns: Vec<String>,
    /// Whether its changes are needed: it was copied.
    pub is_copied: bool,
    /// Which table was copied; none: a server of before did that, and did not say.
    pub oid: Option<u32>,
}

/// A name with its schema.
type Name = (String, String);

/// What the server says of these tables.
#[derive(Debug, Default)]
struct Found {
    /// Whether the publication has all kinds of changes, and calls partitions by the name of their table; none: there is no publication.
    kinds: Option<(bool, bool)>,
    /// Which tables there are.
    tables: BTreeMap<Name, Table>,
    published: BTreeMap<Name, Published>,
}

#[derive(Debug)]
struct Table {
    oid: u32,
    is_partitioned: bool,
    columns: Vec<String>,
}

#[derive(Debug)]
struct Published {
    has_filter: bool,
    /// None: all.
    columns: Option<Vec<String>>,
}

impl Followed {
    fn full(&self) -> Name {
        (self.schema.clone(), self.name.clone())
    }

    fn quoted(&self) -> String {
        format!("{}.{}", quoted(&self.schema), quoted(&self.name))
    }
}

/// Whether all changes of the tables come, of those that are needed; tables that are not published, and are yet to be copied.
///
/// # Errors
/// What is left out, and what to do. What a publication leaves out would be missed in silence.
fn missing<'f>(
    def: &PostgresDef,
    found: &Found,
    followed: &'f [Followed],
) -> Result<Vec<&'f Followed>, ConnectorError> {
    let lacking = |what: &str| {
        ConnectorError::lasting(
            format!("publication \"{}\" of {} {what}", def.publication, at(&def.place)),
            "Choose another publication.name, or have one made by leaving it away. Tables that were followed meanwhile lack changes: \
             drop them and create them again.",
        )
    };
    if let Some((false, _)) = found.kinds {
        return Err(lacking(
            "does not publish all of insert, update, delete and truncate",
        ));
    }
    let mut missing = vec![];
    for table in followed {
        let name = table.full();
        if let Some(error) = replaced(table, found.tables.get(&name).map(|table| table.oid)) {
            return Err(error);
        }
        let there = found.tables.get(&name);
        let is_partitioned = there.is_some_and(|table| table.is_partitioned);
        // One that is not there any more is told of with the next change.
        let is_there = |column: &&String| there.is_some_and(|table| table.columns.contains(column));
        if is_partitioned && matches!(found.kinds, Some((_, false))) {
            return Err(lacking(
                "publishes partitions by their own names (publish_via_partition_root)",
            ));
        }
        match found.published.get(&name) {
            Some(published) if published.has_filter => {
                return Err(lacking("publishes some rows of a table alone (WHERE)"));
            }
            Some(Published {
                columns: Some(columns),
                ..
            }) if (table.columns.iter().filter(is_there)).any(|column| !columns.contains(column)) => {
                return Err(lacking(&format!(
                    "publishes some columns of {} alone",
                    table.quoted()
                )));
            }
            Some(_) => {}
            None if table.is_copied => {
                return Err(lacking(&format!("does not publish {} any more", table.quoted())));
            }
            None => missing.push(table),
        }
    }
    Ok(missing)
}

/// The names in an array of JSON, if there is one.
fn names_in(cell: Option<&Option<String>>) -> Option<Vec<String>> {
    serde_json::from_str(cell?.as_deref()?).ok()
}

/// Why a table is not the one any more that was copied, if it is not. `now`: which table has its name.
fn replaced(table: &Followed, now: Option<u32>) -> Option<ConnectorError> {
    let is_same = match (now, table.oid) {
        (Some(now), Some(copied)) => now == copied,
        (Some(_), None) => true,
        (None, _) => false,
    };
    (table.is_copied && !is_same).then(|| made_again(&table.schema, &table.name))
}

/// The table that was copied is not the one of this name any more.
pub fn made_again(schema: &str, name: &str) -> ConnectorError {
    ConnectorError::lasting(
        format!("table {schema}.{name} was dropped, renamed or recreated upstream"),
        "Rows already read are kept. To follow the table that has the name now, drop the table here, RESUME the source, and create the table again.",
    )
}

impl Server {
    /// What there is of these tables, and what is published of them.
    async fn found(&self, def: &PostgresDef, followed: &[Followed]) -> Result<Found, ConnectorError> {
        let mut found = Found::default();
        let publication = literal(&def.publication);
        let is =
            |row: &[Option<String>], at: usize| row.get(at).is_some_and(|cell| cell.as_deref() == Some("t"));
        let sql = format!(
            "SELECT pubinsert AND pubupdate AND pubdelete AND pubtruncate, pubviaroot FROM pg_publication WHERE pubname = {publication}"
        );
        let rows = self.rows(def, &sql).await?;
        found.kinds = rows.first().map(|row| (is(row, 0), is(row, 1)));
        let names: Vec<String> = (followed.iter())
            .map(|table| format!("({}, {})", literal(&table.schema), literal(&table.name)))
            .collect();
        if names.is_empty() {
            return Ok(found);
        }
        let names = names.join(", ");
        let sql = format!(
            "SELECT n.nspname, c.relname, c.oid::text, c.relkind = 'p',
                (SELECT jsonb_agg(attname) FROM pg_attribute WHERE attrelid = c.oid AND attnum > 0 AND NOT attisdropped)
             FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
             WHERE c.relkind IN ('r', 'p') AND (n.nspname, c.relname) IN ({names})"
        );
        let name = |row: &[Option<String>]| Some((row.first()?.clone()?, row.get(1)?.clone()?));
        for row in self.rows(def, &sql).await? {
            if let (Some(name), Some(Some(oid))) = (name(&row), row.get(2)) {
                let table = Table {
                    oid: oid.parse().unwrap_or_default(),
                    is_partitioned: is(&row, 3),
                    columns: names_in(row.get(4)).unwrap_or_default(),
                };
                found.tables.insert(name, table);
            }
        }
        // Older servers have no such columns, and publish all.
        let sql = format!(
            "SELECT schemaname, tablename, to_jsonb(t) ->> 'rowfilter', to_jsonb(t) ->> 'attnames' FROM pg_publication_tables t
             WHERE pubname = {publication} AND (schemaname, tablename) IN ({names})"
        );
        for row in self.rows(def, &sql).await? {
            let published = Published {
                has_filter: row.get(2).is_some_and(Option::is_some),
                columns: names_in(row.get(3)),
            };
            found.published.extend(name(&row).map(|name| (name, published)));
        }
        Ok(found)
    }

    /// Looks whether all changes of the tables still come.
    ///
    /// # Errors
    /// They do not; the server does not answer.
    pub async fn check(&self, def: &PostgresDef, followed: &[Followed]) -> Result<(), ConnectorError> {
        let found = self.found(def, followed).await?;
        missing(def, &found, followed).map(drop)
    }

    /// Has the publication publish these tables.
    ///
    /// # Errors
    /// It does not, and may not be changed.
    pub async fn publish(&self, def: &PostgresDef, followed: &[Followed]) -> Result<(), ConnectorError> {
        let found = self.found(def, followed).await?;
        let missing: BTreeSet<String> = (missing(def, &found, followed)?.into_iter())
            .map(Followed::quoted)
            .collect();
        let missing: Vec<String> = missing.into_iter().collect();
        let publication = quoted(&def.publication);
        let statement = match (found.kinds.is_some(), missing.is_empty()) {
            (true, true) => return Ok(()),
            (true, false) => format!("ALTER PUBLICATION {publication} ADD TABLE {}", missing.join(", ")),
            (false, true) => {
                format!("CREATE PUBLICATION {publication} WITH (publish_via_partition_root = true)")
            }
            (false, false) => format!(
                "CREATE PUBLICATION {publication} FOR TABLE {} WITH (publish_via_partition_root = true)",
                missing.join(", ")
            ),
        };
        let refused = |why: String| {
            ConnectorError::lasting(
                format!(
                    "publication \"{}\" of {} does not exist or lacks tables that are followed{why}",
                    def.publication,
                    at(&def.place)
                ),
                format!("Have an upstream role with the privilege run: {statement}"),
            )
        };
        if !def.publishes {
            return Err(refused(String::new()));
        }
        let altering = tokio::time::timeout(STATEMENT, self.client.batch_execute(&statement)).await;
        let Err(error) = altering.map_err(|_| silent_for(&def.place, STATEMENT))? else {
            return Ok(());
        };
        match error.code() {
            // Somebody was quicker, perhaps an attempt of ours that was broken off.
            Some(&SqlState::DUPLICATE_OBJECT | &SqlState::UNIQUE_VIOLATION) | None => {
                Err(of_client(&def.place, &error))
            }
            Some(_) => Err(refused(format!(": {}", message(&error)))),
        }
    }
}

#[cfg(test)]
mod tests {
    use millrace_catalog::connector::encoding::SchemaChange;
    use millrace_catalog::connector::postgres::{PostgresPlace, TlsMode};

    use super::*;

    fn def() -> PostgresDef {
        PostgresDef {
            place: PostgresPlace {
                host: "there".to_owned(),
                port: 5432,
                user: "u".to_owned(),
                password: None,
                database: "d".to_owned(),
                tls: TlsMode::Disable,
                tls_roots: None,
            },
            slot: "s".to_owned(),
            publication: "p".to_owned(),
            publishes: true,
            stops_on_error: false,
            schema_change: SchemaChange::Ignore,
        }
    }

    fn found(kinds: Option<(bool, bool)>, oid: Option<u32>, published: Option<Published>) -> Found {
        let name = || ("public".to_owned(), "t".to_owned());
        let table = |oid| Table {
            oid,
            is_partitioned: false,
            columns: ["id", "v", "more"].map(str::to_owned).into(),
        };
        Found {
            kinds,
            tables: oid.map(|oid| (name(), table(oid))).into_iter().collect(),
            published: published
                .map(|published| (name(), published))
                .into_iter()
                .collect(),
        }
    }

    #[test]
    fn what_is_left_out_of_a_table_that_was_copied_is_told() {
        let all = || Published {
            has_filter: false,
            columns: Some(vec!["id".to_owned(), "v".to_owned(), "more".to_owned()]),
        };
        let some_rows = Published {
            has_filter: true,
            ..all()
        };
        let some_columns = Published {
            columns: Some(vec!["id".to_owned()]),
            ..all()
        };
        let sound = Some((true, true));
        for (found, is_copied, expected) in [
            (found(sound, Some(7), Some(all())), true, "well"),
            (found(Some((true, false)), Some(7), Some(all())), true, "well"),
            (found(sound, Some(7), None), false, "missing"),
            (found(None, Some(7), None), false, "missing"),
            (
                found(sound, Some(7), None),
                true,
                "does not publish \"public\".\"t\" any more",
            ),
            (
                found(None, Some(7), None),
                true,
                "does not publish \"public\".\"t\" any more",
            ),
            (
                found(Some((false, true)), Some(7), Some(all())),
                true,
                "does not publish all",
            ),
            (
                found(sound, Some(7), Some(some_rows)),
                true,
                "publishes some rows",
            ),
            (
                found(sound, Some(7), Some(some_columns)),
                true,
                "publishes some columns",
            ),
            (
                found(sound, Some(8), Some(all())),
                true,
                "was dropped, renamed or recreated",
            ),
            (found(sound, Some(8), Some(all())), false, "well"),
            (
                found(sound, None, None),
                true,
                "was dropped, renamed or recreated",
            ),
        ] {
            let followed = [Followed {
                schema: "public".to_owned(),
                name: "t".to_owned(),
                columns: vec!["id".to_owned(), "v".to_owned()],
                is_copied,
                oid: is_copied.then_some(7),
            }];
            let told = match missing(&def(), &found, &followed) {
                Ok(missing) if missing.is_empty() => "well".to_owned(),
                Ok(_) => "missing".to_owned(),
                Err(error) => error.message,
            };
            assert!(told.contains(expected), "{found:?}: {told}");
        }
    }

    #[test]
    fn a_column_that_is_gone_is_not_one_that_is_left_out() {
        let published = Published {
            has_filter: false,
            columns: Some(vec!["id".to_owned()]),
        };
        let mut found = found(Some((true, true)), Some(7), Some(published));
        found
            .tables
            .values_mut()
            .for_each(|table| table.columns.truncate(1));
        let followed = [Followed {
            schema: "public".to_owned(),
            name: "t".to_owned(),
            columns: vec!["id".to_owned(), "v".to_owned()],
            is_copied: true,
            oid: Some(7),
        }];
        assert!(missing(&def(), &found, &followed).unwrap().is_empty());
    }

    #[test]
    fn partitions_are_to_be_called_by_the_name_of_their_table() {
        let mut found = found(Some((true, false)), Some(7), None);
        found
            .tables
            .values_mut()
            .for_each(|table| table.is_partitioned = true);
        let followed = [Followed {
            schema: "public".to_owned(),
            name: "t".to_owned(),
            columns: vec![],
            is_copied: false,
            oid: None,
        }];
        let error = missing(&def(), &found, &followed).unwrap_err();
        assert!(
            error.message.contains("partitions by their own names"),
            "{error:?}"
        );
    }
}
