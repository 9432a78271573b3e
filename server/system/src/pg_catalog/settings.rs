//! `pg_settings`: all settings, as they are in the session that asks.

use std::sync::Arc;

use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use datafusion::catalog::TableProvider;
use millrace_catalog::settings::{Settings, Shown};
use millrace_database::Database;
use millrace_postgres::error::SqlResult;

use super::table::{Row, provider};

/// One row for each setting. Limits of values, units, and where a value was set are not known: NULL.
///
/// # Errors
/// The rows could not be put together.
pub fn relation(database: &Database, settings: &Settings) -> SqlResult<Arc<dyn TableProvider>> {
    let tuning = database.tuning();
    let rows = settings.all().into_iter().map(|mut shown| {
        if let Some(of_server) = tuning.get(&shown.name) {
            shown.reset.clone_from(&of_server);
            shown.value = of_server;
        }
        row(shown)
    });
    provider(&schema(), &rows.collect::<Vec<Row>>())
}

fn schema() -> SchemaRef {
    let text = |name: &str| Field::new(name, DataType::Utf8, true);
    let texts = [
        "name",
        "setting",
        "unit",
        "category",
        "short_desc",
        "extra_desc",
        "context",
        "vartype",
        "source",
        "min_val",
        "max_val",
    ];
    let words = Field::new_list_field(DataType::Utf8, true);
    let mut fields: Vec<Field> = texts.map(text).to_vec();
    fields.push(Field::new("enumvals", DataType::List(Arc::new(words)), true));
    fields.extend(["boot_val", "reset_val", "sourcefile"].map(text));
    fields.push(Field::new("sourceline", DataType::Int32, true));
    fields.push(Field::new("pending_restart", DataType::Boolean, false));
    Arc::new(Schema::new(fields))
}

fn row(shown: Shown) -> Row {
    let Shown {
        name,
        value,
        reset,
        known,
    } = shown;
    let source = if value == reset { "default" } else { "session" };
    let mut row = Row::from([
        ("name", name),
        ("setting", value),
        ("reset_val", reset),
        ("source", source.to_owned()),
    ]);
    match known {
        Some(known) => {
            row.insert("boot_val", known.default.to_owned());
            row.insert("short_desc", known.description.to_owned());
            row.insert("category", known.category().to_owned());
            row.insert("context", known.context().to_owned());
            row.insert("vartype", known.vartype().to_owned());
            if let Some(words) = known.words() {
                let words = words.iter().map(|word| format!("\"{word}\""));
                row.insert("enumvals", format!("{{{}}}", words.collect::<Vec<_>>().join(",")));
            }
        }
        None => {
            row.insert("category", "Customized Options".to_owned());
            row.insert("context", "user".to_owned());
            row.insert("vartype", "string".to_owned());
        }
    }
    row
}
