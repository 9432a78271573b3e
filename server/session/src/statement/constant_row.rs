//! `SELECT 1`: a row of constants needs no plan. Drivers and pools ask it to learn whether a server is there.

use std::sync::Arc;

use arrow::array::{ArrayRef, RecordBatch, RecordBatchOptions};
use arrow::datatypes::{DataType, Schema};
use datafusion::common::DFSchema;
use datafusion::execution::SendableRecordBatchStream;
use datafusion::logical_expr::{Expr, LogicalPlan};
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use millrace_functions::bounded::physical;
use millrace_functions::cast;
use millrace_postgres::error::SqlResult;
use millrace_postgres::from_internal;
use millrace_postgres::from_internal::df;

use crate::session::Session;

/// To these is cast without a look at the session, and at little cost.
const PLAIN_TYPES: [&str; 7] = [
    "smallint",
    "integer",
    "bigint",
    "real",
    "double precision",
    "boolean",
    "text",
];

/// The answer of a plan that is one row of constants.
///
/// # Errors
/// A constant does not fit the type that it is cast to.
pub(crate) fn answer(session: &Session, plan: &LogicalPlan) -> SqlResult<Option<SendableRecordBatchStream>> {
    let LogicalPlan::Projection(projection) = plan else {
        return Ok(None);
    };
    let LogicalPlan::EmptyRelation(input) = projection.input.as_ref() else {
        return Ok(None);
    };
    if !input.produce_one_row || !projection.expr.iter().all(is_plain) {
        return Ok(None);
    }
    let one_row = RecordBatchOptions::new().with_row_count(Some(1));
    let nothing = RecordBatch::try_new_with_options(Arc::new(Schema::empty()), vec![], &one_row);
    let nothing = nothing.map_err(from_internal::arrow)?;
    let (state, empty) = (session.database().state(), DFSchema::empty());
    let mut columns: Vec<ArrayRef> = vec![];
    for expr in &projection.expr {
        let value = physical(state, expr.clone(), &empty).and_then(|expr| expr.evaluate(&nothing));
        columns.push(df(value.and_then(|value| value.into_array(1)))?);
    }
    let schema = Arc::new(Schema::clone(projection.schema.as_arrow()));
    let row = RecordBatch::try_new_with_options(Arc::clone(&schema), columns, &one_row);
    let rows = futures::stream::iter([Ok(row.map_err(from_internal::arrow)?)]);
    Ok(Some(Box::pin(RecordBatchStreamAdapter::new(schema, rows))))
}

/// Whether an expression is a literal that every session reads alike, or one that is cast to such a type.
fn is_plain(expr: &Expr) -> bool {
    let has_plain_type = |data_type: &DataType| {
        data_type.is_integer()
            || data_type.is_floating()
            || matches!(data_type, DataType::Boolean | DataType::Utf8 | DataType::Null)
    };
    match expr {
        Expr::Literal(value, _) => has_plain_type(&value.data_type()),
        Expr::Alias(alias) => is_plain(&alias.expr),
        Expr::ScalarFunction(call) => {
            let is_plain_name = |name: &Expr| {
                let name = name.as_literal().and_then(|name| name.try_as_str().flatten());
                name.is_some_and(|name| PLAIN_TYPES.contains(&name))
            };
            matches!(call.args.as_slice(), [value, name] if call.name() == cast::NAME && is_plain(value) && is_plain_name(name))
        }
        _ => false,
    }
}
