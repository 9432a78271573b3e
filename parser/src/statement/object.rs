//! Kinds of objects and `IF [NOT] EXISTS`, as DROP, ALTER, SHOW CREATE and the jobs' statements name them.

use crate::ast::ObjectKind;
use crate::reader::{Parse, Reader};

/// Reads a kind of object if one is next.
pub(super) fn kind(reader: &mut Reader<'_>) -> Option<ObjectKind> {
    if reader.take(&["MATERIALIZED", "VIEW"]) {
        return Some(ObjectKind::MaterializedView);
    }
    if reader.take(&["EXTERNAL", "TABLE"]) {
        return Some(ObjectKind::Table);
    }
    let word = reader.take_one_of(&[
        "STREAM",
        "SOURCE",
        "TABLE",
        "VIEW",
        "SINK",
        "INDEX",
        "SCHEMA",
        "DATABASE",
        "SUBSCRIPTION",
        "FUNCTION",
        "AGGREGATE",
        "REDUCER",
        "SEQUENCE",
        "SECRET",
        "TYPE",
        "DOMAIN",
    ])?;
    Some(match word {
        "STREAM" | "SOURCE" => ObjectKind::Stream,
        "TABLE" => ObjectKind::Table,
        "VIEW" => ObjectKind::View,
        "SINK" => ObjectKind::Sink,
        "INDEX" => ObjectKind::Index,
        "SCHEMA" => ObjectKind::Schema,
        "DATABASE" => ObjectKind::Database,
        "SUBSCRIPTION" => ObjectKind::Subscription,
        "SEQUENCE" => ObjectKind::Sequence,
        "SECRET" => ObjectKind::Secret,
        "TYPE" => ObjectKind::Type,
        "DOMAIN" => ObjectKind::Domain,
        _ => ObjectKind::Function,
    })
}

/// Reads a kind of object, which must be next.
pub(super) fn need_kind(reader: &mut Reader<'_>) -> Parse<ObjectKind> {
    let failure =
        reader.unexpected("STREAM, TABLE, VIEW, MATERIALIZED VIEW, SINK, INDEX or another kind of object");
    kind(reader).ok_or(failure)
}

/// `[IF NOT EXISTS]`.
pub(super) fn if_not_exists(reader: &mut Reader<'_>) -> bool {
    reader.take(&["IF", "NOT", "EXISTS"])
}

/// `[IF EXISTS]`.
pub(super) fn if_exists(reader: &mut Reader<'_>) -> bool {
    reader.take(&["IF", "EXISTS"])
}
