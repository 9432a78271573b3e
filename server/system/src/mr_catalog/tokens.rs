//! `mr_catalog.tokens`: the tokens that there are, without their secrets, which nobody keeps.

use std::sync::Arc;

use arrow::array::TimestampMicrosecondArray;
use millrace_catalog::role::TokenDef;
use millrace_database::Database;

use super::{Columns, texts};

/// One row a token.
pub(super) fn columns(database: &Database) -> Columns {
    let catalog = database.catalog();
    let mut all: Vec<(TokenDef, String)> = catalog
        .roles()
        .flat_map(|role| {
            let tokens = role.role().map(|role| role.tokens.clone());
            let name = role.name.clone();
            let with_name = move |token| (token, name.clone());
            tokens.unwrap_or_default().into_iter().map(with_name)
        })
        .collect();
    all.sort_by(|one, other| one.0.name.cmp(&other.0.name));
    let created = all
        .iter()
        .map(|(token, _)| token.created_at_ms.saturating_mul(1_000));
    let ends = all.iter().map(|(token, _)| token.valid_until_us);
    vec![
        ("name", texts(all.iter().map(|(token, _)| token.name.clone()))),
        ("role", texts(all.iter().map(|(_, role)| role.clone()))),
        (
            "created_at",
            Arc::new(TimestampMicrosecondArray::from_iter_values(created).with_timezone("UTC")),
        ),
        (
            "valid_until",
            Arc::new(TimestampMicrosecondArray::from_iter(ends).with_timezone("UTC")),
        ),
    ]
}
