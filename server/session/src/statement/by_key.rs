//! UPDATE and DELETE of rows by equality of columns, `UPDATE t SET a = 1, n = n + 1 WHERE k = 7`: an index has the rows, and what is assigned is
//! computed of them without a plan.

use std::sync::Arc;

use arrow::array::{RecordBatch, UInt32Array};
use arrow::compute::take;
use arrow::datatypes::{Field, FieldRef, Schema};
use datafusion::common::DFSchema;
use datafusion::sql::sqlparser::ast::{BinaryOperator, Expr, Ident, UnaryOperator, Value};
use millrace_catalog::Relation;
use millrace_catalog::scope::Scope;
use millrace_functions::bounded::physical;
use millrace_functions::own;
use millrace_functions::sql::rewrite;
use millrace_functions::syntax::cast_literal;
use millrace_planner::Binder;
use millrace_postgres::error::SqlResult;
use millrace_postgres::from_internal;
use millrace_postgres::from_internal::df;
use millrace_postgres::types::pg_type;
use postgres_types::Type;

use crate::key_select::{Wanted, wanted_by};
use crate::session::Session;
use crate::statement::insert::literal_rows;
use crate::write::WriteScope;

/// What a statement does with the rows of a table.
pub(crate) struct Change<'a> {
    pub relation: &'a Relation,
    /// What the table is called in it.
    pub called: &'a str,
    pub condition: Option<&'a Expr>,
    /// The columns that are assigned, to what, and the same as their columns take it.
    pub assigned: Vec<(usize, &'a Expr, Expr)>,
}

/// The rows that are changed, with the assigned values behind their columns. None: a plan has to find them.
///
/// # Errors
/// A value cannot be computed; the table was dropped.
pub(crate) async fn rows(
    session: &Session,
    scope: &Scope,
    change: &Change<'_>,
    write: &WriteScope,
) -> SqlResult<Option<Vec<RecordBatch>>> {
    let schema = change.relation.schema();
    let wanted = change
        .condition
        .and_then(|condition| wanted_by(condition, change.called, schema));
    let Some(Wanted::Rows(equal)) = wanted else {
        return Ok(None);
    };
    let mut literals = vec![];
    for (column, value, _) in &change.assigned {
        let one = [(*value).clone()];
        let literal = literal_rows(&[&one], change.relation, &[*column])?;
        let to_integer = is_integer_column(change.relation.schema().field(*column));
        if literal.is_none() && !(to_integer && is_integer(value, change)) {
            return Ok(None);
        }
        literals.push(literal);
    }
    // A plan looks at what is assigned even if there is no row.
    let found = write.look_up(&equal).await?;
    let Some(found) = found.filter(|found| !found.is_empty()) else {
        return Ok(None);
    };
    found
        .into_iter()
        .map(|rows| with_assigned(session, scope, change, &literals, rows))
        .collect()
}

/// Whether a value is computed of integers by plain arithmetic: what a plan makes of it is what the expression makes by itself.
fn is_integer(value: &Expr, change: &Change<'_>) -> bool {
    let is_column = |name: &Ident| {
        let field = change
            .relation
            .schema()
            .field_with_name(&millrace_parser::fold(name));
        field.is_ok_and(is_integer_column)
    };
    match value {
        Expr::Value(value) => {
            matches!(&value.value, Value::Number(digits, false) if digits.parse::<i64>().is_ok())
        }
        Expr::Identifier(name) => is_column(name),
        Expr::CompoundIdentifier(names) => {
            matches!(names.as_slice(), [table, name] if millrace_parser::fold(table) == change.called && is_column(name))
        }
        Expr::Function(_) => cast_literal(value)
            .is_some_and(|(text, name)| text.is_some() && matches!(name, "smallint" | "integer" | "bigint")),
        Expr::Nested(inner)
        | Expr::UnaryOp {
            op: UnaryOperator::Minus,
            expr: inner,
        } => is_integer(inner, change),
        Expr::BinaryOp {
            left,
            op: BinaryOperator::Plus | BinaryOperator::Minus | BinaryOperator::Multiply,
            right,
        } => is_integer(left, change) && is_integer(right, change),
        _ => false,
    }
}

fn is_integer_column(field: &Field) -> bool {
    matches!(pg_type(field), Type::INT2 | Type::INT4 | Type::INT8)
}

/// Rows, and behind them what is assigned. None: a plan has to compute it.
fn with_assigned(
    session: &Session,
    scope: &Scope,
    change: &Change<'_>,
    literals: &[Option<RecordBatch>],
    rows: RecordBatch,
) -> SqlResult<Option<RecordBatch>> {
    let count = rows.num_rows();
    let mut fields: Vec<FieldRef> = rows.schema().fields().iter().cloned().collect();
    let mut columns = rows.columns().to_vec();
    for ((_, _, as_column), literal) in change.assigned.iter().zip(literals) {
        if let Some(literal) = literal {
            let places = UInt32Array::from(vec![0; count]);
            fields.push(Arc::clone(&literal.schema().fields()[0]));
            columns.push(take(literal.column(0), &places, None).map_err(from_internal::arrow)?);
            continue;
        }
        let known = df(DFSchema::try_from_qualified_schema(
            change.called,
            change.relation.schema(),
        ))?;
        let mut expression = as_column.clone();
        own::mark(&mut expression);
        rewrite::expression(&mut expression)?;
        let reader = session.database().reader(scope);
        let state = session.database().statement_state();
        // What does not bind, the plan says in its own words.
        let Ok(bound) = Binder::new(&state, &reader).expression(&expression, &known) else {
            return Ok(None);
        };
        let physical = df(physical(&state, bound, &known))?;
        let field = df(physical.return_field(&rows.schema()))?;
        let computed = df(physical
            .evaluate(&rows)
            .and_then(|computed| computed.into_array(count)))?;
        fields.push(Arc::new(
            Field::new(field.name(), computed.data_type().clone(), true)
                .with_metadata(field.metadata().clone()),
        ));
        columns.push(computed);
    }
    RecordBatch::try_new(Arc::new(Schema::new(fields)), columns)
        .map(Some)
        .map_err(from_internal::arrow)
}
