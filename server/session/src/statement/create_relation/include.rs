//! `INCLUDE key AS column`: columns for what stands beside the values of records.

use datafusion::sql::sqlparser::ast::{self, Ident};
use millrace_catalog::connector::ConnectorDef;
use millrace_catalog::connector::encoding::Member;
use millrace_database::database::sources::known_columns;
use millrace_parser::ast::{ColumnDefinition, FormatEncode, Include, OptionEntry, Options, Statement};
use millrace_postgres::error::{SqlError, SqlResult, SqlState};
use millrace_postgres::from_internal;
use millrace_postgres::names::did_you_mean;

use crate::session::Session;

/// Puts the columns that records have in the place of `*`, or of no columns at all.
///
/// # Errors
/// Nobody says what they are.
pub(super) async fn all_columns(
    session: &Session,
    is_asked_for: bool,
    options: &Options,
    format: Option<&FormatEncode>,
    columns: &mut Vec<ColumnDefinition>,
) -> SqlResult<()> {
    let mut known = None;
    if (is_asked_for || columns.is_empty())
        && let Some(connector) = ConnectorDef::new(&mut options.clone())?
    {
        // Options that are not the connector's are told apart later.
        let connector = connector.with_secrets(session.database().secrets_for("the columns of a schema"));
        known = known_columns(&connector.with_format(format)?).await?;
    }
    let Some(known) = known else {
        return match is_asked_for {
            true => Err(SqlError::new(
                SqlState::InvalidTableDefinition,
                "* stands for the columns of a schema, but there is none",
            )
            .with_hint(
                "Write the columns. With ENCODE AVRO and PROTOBUF the registry must have a schema of the topic.",
            )),
            false => Ok(()),
        };
    };
    let given = std::mem::take(columns);
    let quoted = |name: &str| format!("\"{}\"", name.replace('"', "\"\""));
    let is_given = |name: &str| {
        given
            .iter()
            .any(|column| millrace_parser::fold(&column.name) == name)
    };
    // What is written is as one wants it.
    let elements: Vec<String> = (known.iter())
        .filter(|(name, _)| !is_given(name))
        .map(|(name, sql)| format!("{} {sql}", quoted(name)))
        .collect();
    if !elements.is_empty() {
        let text = format!("CREATE STREAM s ({})", elements.join(", "));
        let parsed = millrace_parser::parse(&text).map_err(from_internal::parse)?;
        for parsed in parsed {
            if let Statement::CreateStream(stream) = parsed.statement {
                *columns = stream.columns;
            }
        }
    }
    columns.extend(given);
    Ok(())
}

/// Says `INCLUDE member AS column` as a column, and an option that names it.
pub(super) fn include(
    include: Vec<Include>,
    columns: &mut Vec<ColumnDefinition>,
    options: &mut Options,
) -> SqlResult<()> {
    for Include { member, column } in include {
        let name = millrace_parser::fold(&member);
        let known = Member::ALL.into_iter().find(|(known, _)| *known == name);
        let Some((name, member)) = known else {
            let known = Member::ALL.map(|(known, _)| known);
            return Err(SqlError::new(
                SqlState::SyntaxError,
                format!("a record has nothing called \"{name}\" to include"),
            )
            .with_detail(format!("It has {}.", known.join(", ")))
            .with_hint_opt(did_you_mean(&name, known)));
        };
        options.0.push(OptionEntry {
            name: Ident::new(Member::option(name)),
            value: millrace_parser::fold(&column),
        });
        columns.push(ColumnDefinition {
            name: column,
            data_type: match member {
                Member::Key => ast::DataType::Bytea,
                Member::Partition => ast::DataType::Integer(None),
                Member::Offset => ast::DataType::BigInt(None),
                Member::Timestamp => ast::DataType::Timestamp(None, ast::TimezoneInfo::WithTimeZone),
                Member::Headers => ast::DataType::JSONB,
                Member::File => ast::DataType::Text,
            },
            not_null: false,
            primary_key: false,
            default: None,
            generated: None,
            identity: None,
            proctime: false,
            comment: None,
        });
    }
    Ok(())
}
