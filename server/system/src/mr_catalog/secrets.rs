//! `mr_catalog.secrets`: the secrets that connectors use, without their values.

use std::sync::Arc;

use arrow::array::TimestampMicrosecondArray;
use millrace_catalog::{Definition, Object};
use millrace_database::Database;

use super::{Columns, texts};

/// One row a secret.
pub(super) fn columns(database: &Database) -> Columns {
    let catalog = database.catalog();
    let all: Vec<(&Arc<Object>, &'static str)> = catalog
        .objects()
        .filter_map(|object| match &object.definition {
            Definition::Secret(def) => Some((object, database.secrets().state(object.id, def))),
            _ => None,
        })
        .collect();
    let objects = || all.iter().map(|(object, _)| object);
    let used_by = objects().map(|object| {
        let users = catalog.dependents(&[object.id].into());
        let users: Vec<String> = users.iter().map(|user| user.described()).collect();
        users.join(", ")
    });
    let created = objects().map(|object| object.created_at_ms.saturating_mul(1_000));
    vec![
        ("database", texts(objects().map(|object| object.database.clone()))),
        ("schema", texts(objects().map(|object| object.schema.clone()))),
        ("name", texts(objects().map(|object| object.name.clone()))),
        (
            "owner",
            texts(objects().map(|object| catalog.role_name(object.rights.owner()))),
        ),
        ("state", texts(all.iter().map(|(_, state)| (*state).to_owned()))),
        ("used_by", texts(used_by)),
        (
            "created_at",
            Arc::new(TimestampMicrosecondArray::from_iter_values(created).with_timezone("UTC")),
        ),
    ]
}
