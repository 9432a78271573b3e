//! `CREATE STREAM` and its synonym `CREATE SOURCE`.

use super::columns::TableElements;
use super::{CreatePrefix, columns, object, with};
use crate::ast::{CreateStream, Statement};
use crate::error::Failure;
use crate::reader::{Parse, Reader};

/// After `CREATE STREAM`.
pub(super) fn parse(reader: &mut Reader<'_>, prefix: CreatePrefix) -> Parse<Statement> {
    let if_not_exists = object::if_not_exists(reader);
    let name = reader.name()?;
    if reader.at(&["AS"]) {
        let hint = "A stream's rows come from outside. Use CREATE MATERIALIZED VIEW for the rows of a query.";
        return Err(Failure::unsupported(
            "CREATE STREAM AS is not supported",
            reader.here(),
            hint,
        ));
    }
    // Whatever feeds it may know its columns.
    let (elements, include) = match reader.at(&["WITH"]) {
        true => (TableElements::default(), vec![]),
        false => columns::elements(reader, false)?,
    };
    let mut options = with::options(reader)?;
    let format = with::format(reader)?;
    if options.0.is_empty() {
        options = with::options(reader)?;
    }
    Ok(Statement::CreateStream(Box::new(CreateStream {
        name,
        or_replace: prefix.or_replace,
        if_not_exists,
        all_columns: elements.all_columns,
        columns: elements.columns,
        primary_key: elements.primary_key,
        constraints: elements.constraints,
        watermark: elements.watermark,
        include,
        options,
        format,
    })))
}
