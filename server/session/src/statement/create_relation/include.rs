//! `INCLUDE key AS column`: columns for what stands beside the values of records.

use datafusion::sql::sqlparser::ast::{self, Ident};
use millrace_catalog::connector::encoding::Member;
use millrace_parser::ast::{ColumnDefinition, Include, OptionEntry, Options};
use millrace_postgres::error::{SqlError, SqlResult, SqlState};
use millrace_postgres::names::did_you_mean;

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
