//! Sequences in statements: which one a name means, and the columns that take their values from one.

use std::sync::Arc;

use datafusion::sql::sqlparser::ast::{DataType, Expr, Function, Value};
use millrace_catalog::rights::Privileges;
use millrace_catalog::scope::Scope;
use millrace_catalog::sequence::{ColumnSequence, SequenceDef, Takes};
use millrace_catalog::{ColumnDef, Definition, Object};
use millrace_database::database::rows::domain_default;
use millrace_functions::cast;
use millrace_functions::own::{self, SEQUENCE_CURRENT, SEQUENCE_LAST, SEQUENCE_NEXT, SEQUENCE_SET};
use millrace_functions::syntax::{self, arguments, literal_text, number};
use millrace_parser::ast::ColumnDefinition;
use millrace_postgres::error::{SqlError, SqlResult, SqlState};
use millrace_storage::ObjectId;
use millrace_system::pg_catalog::serial_sequence;

use crate::object_names;
use crate::session::Session;
use crate::transaction::read_only;

/// A column that is to get a sequence of its own.
#[derive(Debug)]
pub(crate) struct OwnSequence {
    /// Its position.
    pub column: usize,
    pub definition: SequenceDef,
    pub takes: Takes,
}

/// Takes `serial` and IDENTITY out of columns: they are integers with a sequence.
///
/// # Errors
/// A column has a default as well, or the options of its sequence are wrong.
pub(crate) fn taken_from(columns: &mut [ColumnDefinition]) -> SqlResult<Vec<OwnSequence>> {
    let mut sequences = vec![];
    for (position, column) in columns.iter_mut().enumerate() {
        let (options, takes) = match (column.identity.take(), serial(&column.data_type)) {
            (Some(identity), None) if identity.always => (identity.options, Takes::IdentityAlways),
            (Some(identity), None) => (identity.options, Takes::IdentityByDefault),
            (None, Some(data_type)) => {
                column.data_type = data_type;
                (vec![], Takes::Default)
            }
            (None, None) => continue,
            (Some(_), Some(_)) => return Err(twice(column)),
        };
        if column.default.is_some() || column.generated.is_some() {
            return Err(twice(column));
        }
        let definition = SequenceDef::new(Some(&column.data_type), &options).map_err(|error| {
            match (error.code, takes) {
                (SqlState::InvalidParameterValue, Takes::IdentityAlways | Takes::IdentityByDefault)
                    if error.message.starts_with("sequence type") =>
                {
                    SqlError::new(
                        SqlState::InvalidParameterValue,
                        "identity column type must be smallint, integer, or bigint",
                    )
                }
                _ => error,
            }
        })?;
        column.not_null = true;
        sequences.push(OwnSequence {
            column: position,
            definition,
            takes,
        });
    }
    Ok(sequences)
}

fn twice(column: &ColumnDefinition) -> SqlError {
    SqlError::new(
        SqlState::SyntaxError,
        format!(
            "multiple default values specified for column \"{}\"",
            millrace_parser::fold(&column.name)
        ),
    )
}

/// Whether a type is a `serial`.
pub(crate) fn is_serial(data_type: &DataType) -> bool {
    serial(data_type).is_some()
}

/// The integers that a `serial` is.
fn serial(data_type: &DataType) -> Option<DataType> {
    let DataType::Custom(name, _) = data_type else {
        return None;
    };
    Some(match name.to_string().to_lowercase().as_str() {
        "serial" | "serial4" => DataType::Integer(None),
        "bigserial" | "serial8" => DataType::BigInt(None),
        "smallserial" | "serial2" => DataType::SmallInt(None),
        _ => return None,
    })
}

/// The sequence that a name or an oid means.
///
/// # Errors
/// There is none.
fn named(session: &Session, text: &str) -> SqlResult<Arc<Object>> {
    let object = object_names::object(session, text)?;
    match object.definition {
        Definition::Sequence(_) => Ok(object),
        _ => Err(SqlError::new(
            SqlState::WrongObjectType,
            format!("\"{}\" is not a sequence", object.name),
        )),
    }
}

/// The sequence of which a default is the next value; `None`: it is another expression.
///
/// # Errors
/// There is no such sequence.
pub(crate) fn of_default(session: &Session, default: &Expr) -> SqlResult<Option<ColumnSequence>> {
    let Expr::Function(function) = default else {
        return Ok(None);
    };
    let name = function.name.to_string().to_lowercase();
    if name.trim_start_matches("pg_catalog.") != "nextval" {
        return Ok(None);
    }
    let arguments = arguments(function);
    let [argument] = arguments.as_slice() else {
        return Ok(None);
    };
    let Some(text) = literal_text(argument) else {
        return Err(not_constant("nextval"));
    };
    let object = named(session, &text)?;
    session
        .scope()
        .check_any(&object, Privileges::USAGE | Privileges::UPDATE)?;
    let id = object.id;
    let takes = Takes::Default;
    Ok(Some(ColumnSequence { id, takes }))
}

/// What DEFAULT stands for in a column: the next value of its sequence (which is to be marked as the server's own), its default, or
/// NULL.
///
/// # Errors
/// A type that its domain is made of is not there.
pub(crate) fn default_of(
    session: &Session,
    scope: &Scope,
    column: &ColumnDef,
    counts_for: Option<i32>,
) -> SqlResult<Expr> {
    if let Some(sequence) = column.sequence {
        let counts_for = counts_for.map_or(Expr::value(Value::Null), |session| number(session.to_string()));
        let arguments = vec![counts_for, number(sequence.id.0.to_string())];
        return Ok(syntax::call(SEQUENCE_NEXT, arguments));
    }
    let default = match &column.default {
        Some(default) => Some(default.clone()),
        None => domain_default(scope, column, &session.database().reader(scope))?,
    };
    Ok(default.unwrap_or(Expr::value(Value::Null)))
}

/// `nextval`, `currval`, `setval` and `lastval` as what knows the session and the sequence; `None`: another function. Unless it
/// `acts`, the statement is only described.
///
/// # Errors
/// There is no such sequence, or whoever acts may not use it.
pub(crate) fn call(
    session: &Session,
    name: &str,
    function: &Function,
    acts: bool,
) -> SqlResult<Option<Expr>> {
    let caller = number(session.id().to_string());
    let arguments = arguments(function);
    let (called, more) = match (name, arguments.as_slice()) {
        ("lastval", []) => {
            let scope = session.scope();
            let last = session.database().sequences().last_of(session.id());
            if let Some(sequence) = last.and_then(|id| scope.catalog.object(id)) {
                scope.check_any(sequence, Privileges::USAGE | Privileges::SELECT)?;
            }
            return Ok(Some(own::call(SEQUENCE_LAST, vec![caller])));
        }
        ("nextval", [_]) => (SEQUENCE_NEXT, vec![]),
        ("currval", [_]) => (SEQUENCE_CURRENT, vec![]),
        ("setval", [_, value]) => (
            SEQUENCE_SET,
            vec![(*value).clone(), Expr::value(Value::Boolean(true))],
        ),
        ("setval", [_, value, is_called]) => (SEQUENCE_SET, vec![(*value).clone(), (*is_called).clone()]),
        _ => return Ok(None),
    };
    let Some(text) = name_text(session, arguments[0])? else {
        // A parameter that has no value yet.
        let null = Expr::value(Value::Null);
        return match acts {
            true => Err(not_constant(name)),
            false => Ok(Some(syntax::call(cast::NAME, vec![null, syntax::text("bigint")]))),
        };
    };
    if acts && session.is_read_only() && matches!(name, "nextval" | "setval") {
        return Err(read_only(&format!("{name}()")));
    }
    let object = named(session, &text)?;
    session.scope().check_any(
        &object,
        match name {
            "nextval" => Privileges::USAGE | Privileges::UPDATE,
            "currval" => Privileges::USAGE | Privileges::SELECT,
            _ => Privileges::UPDATE,
        },
    )?;
    let sequence = number(object.id.0.to_string());
    Ok(Some(own::call(called, [vec![caller, sequence], more].concat())))
}

/// The name that an argument is: quoted, or that of the sequence of a column by `pg_get_serial_sequence('t', 'c')`; `None`: it is not known.
///
/// # Errors
/// There is no such table, or the column has no sequence.
fn name_text(session: &Session, argument: &Expr) -> SqlResult<Option<String>> {
    let called = match argument {
        Expr::Function(function) => function,
        Expr::Cast { expr, .. } => return name_text(session, expr),
        Expr::Nested(inner) => return name_text(session, inner),
        other => return Ok(literal_text(other)),
    };
    let given = arguments(called);
    // A cast that was rewritten.
    if let (Some(cast::NAME), [value, ..]) = (syntax::name_of(called).as_deref(), given.as_slice()) {
        return match literal_text(argument) {
            Some(text) => Ok(Some(text)),
            None => name_text(session, value),
        };
    }
    let name = called.name.to_string().to_lowercase();
    let (true, [table, column]) = (
        name.trim_start_matches("pg_catalog.") == "pg_get_serial_sequence",
        given.as_slice(),
    ) else {
        return Ok(literal_text(argument));
    };
    let (Some(table), Some(column)) = (literal_text(table), literal_text(column)) else {
        return Ok(None);
    };
    let table = object_names::object(session, &table)?;
    let sequence = serial_sequence(&session.scope().catalog, &table, &column);
    sequence.map(Some).ok_or_else(|| {
        SqlError::new(
            SqlState::UndefinedObject,
            format!(
                "column \"{column}\" of relation \"{}\" has no sequence",
                table.name
            ),
        )
    })
}

fn not_constant(name: &str) -> SqlError {
    SqlError::unsupported(format!("{name}() is supported only with the name of a sequence"))
}

/// Refuses to drop a sequence from which a column takes its values.
///
/// # Errors
/// 2BP01.
pub(crate) fn check_unused(
    catalog: &millrace_catalog::CatalogSnapshot,
    gone: &std::collections::BTreeSet<ObjectId>,
) -> SqlResult<()> {
    let left = catalog.objects().filter(|object| !gone.contains(&object.id));
    for object in left {
        let columns = object.relation().map(|relation| relation.columns.as_slice());
        for column in columns.unwrap_or_default() {
            let sequence = column.sequence.filter(|sequence| gone.contains(&sequence.id));
            if let Some(sequence) = sequence.and_then(|sequence| catalog.object(sequence.id)) {
                return Err(SqlError::new(
                    SqlState::DependentObjectsStillExist,
                    format!(
                        "cannot drop {} because other objects depend on it",
                        sequence.described()
                    ),
                )
                .with_detail(format!(
                    "default value for column {} of {} depends on {}",
                    column.field.name(),
                    object.described(),
                    sequence.described()
                ))
                .with_hint("Use ALTER TABLE .. ALTER COLUMN .. DROP DEFAULT before, or drop the table."));
            }
        }
    }
    Ok(())
}
