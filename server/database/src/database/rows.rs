//! From what a statement gives to whole rows of a relation: types, defaults, generated columns, NOT NULL.

use std::cell::LazyCell;
use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, AsArray, Int64Array, RecordBatch, RecordBatchOptions, TimestampMicrosecondArray,
};
use arrow::datatypes::{DataType, Field, Schema};
use datafusion::common::DFSchema;
use datafusion::physical_expr::PhysicalExpr;
use datafusion::sql::sqlparser::ast::{Expr, Ident};
use millrace_catalog::scope::Scope;
use millrace_catalog::{ColumnDef, Reader, Relation};
use millrace_engine::Runtime;
use millrace_functions::bounded::physical;
use millrace_functions::cast;
use millrace_functions::domain;
use millrace_functions::sql::{named_types, rewrite, zoned_cast};
use millrace_planner::Binder;
use millrace_postgres::error::{SqlError, SqlResult, SqlState};
use millrace_postgres::from_internal::{self, df};
use millrace_postgres::names::did_you_mean;
use millrace_postgres::types::enumeration::is_enum;
use millrace_postgres::types::named::{Domain, NamedType, resolved};
use millrace_postgres::types::{SqlType, digits, output, parse};

use millrace_storage::ObjectId;

use crate::database::Database;
use crate::database::sequences::Sequences;

/// Where a column's values come from.
enum Source {
    /// What the statement gives, by position.
    Given(usize),
    /// The next values of a sequence.
    Sequence(ObjectId),
    /// The column's default.
    Default(Arc<dyn PhysicalExpr>),
    /// NULL: there is no default.
    Null,
    /// The time at which the row arrives.
    Now,
    /// An expression over the other columns.
    Generated(Arc<dyn PhysicalExpr>),
}

/// A row that does not fit its relation.
#[derive(Debug)]
pub struct RowError {
    /// The row, the first being 0; `None`: it cannot be told which.
    pub row: Option<usize>,
    /// What is wrong.
    pub error: Box<SqlError>,
}

impl RowError {
    /// The error, with the text of its row if that is what is wrong.
    fn of_text(mut self, values: &ArrayRef, target: &Field) -> Self {
        if let (Some(row), Some(texts)) = (self.row, values.as_string_opt::<i32>())
            && !target.data_type().is_string()
            && texts.is_valid(row)
        {
            *self.error = self.error.of_literal(texts.value(row));
        }
        self
    }

    fn unknown(error: SqlError) -> Self {
        RowError {
            row: None,
            error: Box::new(error),
        }
    }
}

/// Makes whole rows of a relation from the columns that a statement gives.
pub struct RowBuilder {
    name: String,
    /// The schema of the relation.
    of_schema: String,
    schema: Arc<Schema>,
    sources: Vec<Source>,
    /// What no row may make false, by the names of the constraints.
    checks: Vec<(String, Arc<dyn PhysicalExpr>)>,
    /// What the values of columns must be that are of a domain.
    domains: Vec<OfDomain>,
    /// The zone in which texts are assigned to timestamptz, if it is not UTC.
    zone: Option<millrace_postgres::types::zone::Zone>,
    /// Tells when rows arrive.
    runtime: Runtime,
    sequences: Arc<Sequences>,
    /// Whose rows they are.
    session: Option<i32>,
}

/// What the values of a column must be.
struct OfDomain {
    column: usize,
    /// The domain's name.
    shown: String,
    not_null: bool,
    /// What no value may make false, by the names of the constraints.
    conditions: Vec<(String, Arc<dyn PhysicalExpr>)>,
}

/// An expression of the catalog, as it is bound.
fn rewritten(expression: &Expr, reader: &Reader<'_>) -> SqlResult<Expr> {
    let mut expression = expression.clone();
    named_types::resolve(&mut expression, reader)?;
    rewrite::expression(&mut expression)?;
    Ok(expression)
}

/// A domain, and those that it is made of.
fn domains(scope: &Scope, domain: Option<ObjectId>, reader: &Reader<'_>) -> SqlResult<Vec<Domain>> {
    let object = domain.and_then(|domain| scope.catalog.object(domain));
    let Some(NamedType::Domain(domain)) = object.and_then(|object| object.named_type()) else {
        return Ok(vec![]);
    };
    let below = resolved(&domain.base, reader)?;
    Ok([vec![*domain], below.domains].concat())
}

/// What a column has by the domain that it is of, where no value is given and it has no default of its own.
///
/// # Errors
/// A type that the domain is made of is not there.
pub fn domain_default(scope: &Scope, column: &ColumnDef, reader: &Reader<'_>) -> SqlResult<Option<Expr>> {
    let domains = domains(scope, column.domain, reader)?;
    Ok(domains.into_iter().find_map(|domain| domain.default))
}

impl RowBuilder {
    /// A builder for statements that give the columns at `given`, in that order.
    ///
    /// # Errors
    /// A default or generated column cannot be planned, or a generated column is given.
    pub fn new(db: &Database, scope: &Scope, relation: &Relation, given: &[usize]) -> SqlResult<Self> {
        let schema = Arc::clone(relation.schema());
        let reader = db.reader(scope);
        let binder = Binder::new(db.state(), &reader);
        // Most columns have nothing that is computed.
        let state = LazyCell::new(|| db.statement_state());
        let empty = DFSchema::empty();
        let whole = df(DFSchema::try_from(schema.as_ref().clone()))?;
        let mut sources = Vec::with_capacity(relation.columns.len());
        let mut domains_of = vec![];
        for column in &relation.columns {
            domains_of.push(domains(scope, column.domain, &reader)?);
        }
        for (position, column) in relation.columns.iter().enumerate() {
            let source = match given.iter().position(|given| *given == position) {
                Some(_) if column.generated.is_some() || column.proctime => {
                    return Err(SqlError::new(
                        SqlState::GeneratedAlways,
                        format!(
                            "cannot insert a non-DEFAULT value into column \"{}\"",
                            column.field.name()
                        ),
                    )
                    .with_detail(format!(
                        "Column \"{}\" is a generated column.",
                        column.field.name()
                    )));
                }
                Some(at) => Source::Given(at),
                None if column.proctime => Source::Now,
                None if column.sequence.is_some() => Source::Sequence(
                    column
                        .sequence
                        .map(|sequence| sequence.id)
                        .expect("it was asked whether it is there"),
                ),
                None => match (&column.generated, &column.default) {
                    (Some(expression), _) => {
                        let expression = rewritten(expression, &reader)?;
                        let bound = df(binder.expression(&expression, &whole))?;
                        Source::Generated(df(physical(&state, bound, &whole))?)
                    }
                    (None, Some(expression)) => {
                        let expression = rewritten(expression, &reader)?;
                        let bound = df(binder.expression(&expression, &empty))?;
                        Source::Default(df(physical(&state, bound, &empty))?)
                    }
                    (None, None) => match domains_of[position]
                        .iter()
                        .find_map(|domain| domain.default.as_ref())
                    {
                        Some(expression) => {
                            let bound = df(binder.expression(&rewritten(expression, &reader)?, &empty))?;
                            Source::Default(df(physical(&state, bound, &empty))?)
                        }
                        None => Source::Null,
                    },
                },
            };
            sources.push(source);
        }
        let mut checks = vec![];
        for check in &relation.checks {
            let expression = rewritten(&check.expression, &reader)?;
            let bound = df(binder.expression(&expression, &whole))?;
            checks.push((check.name.clone(), df(physical(&state, bound, &whole))?));
        }
        let mut domains = vec![];
        for (position, _) in relation.columns.iter().enumerate() {
            for domain in &domains_of[position] {
                let mut conditions = vec![];
                for (name, check) in &domain.checks {
                    let column = Ident::with_quote('"', whole.field(position).name());
                    let check = named_types::condition(check, &Expr::Identifier(column), &reader)?;
                    let bound = df(binder.expression(&rewritten(&check, &reader)?, &whole))?;
                    conditions.push((name.clone(), df(physical(&state, bound, &whole))?));
                }
                domains.push(OfDomain {
                    column: position,
                    shown: domain.shown(),
                    not_null: domain.not_null,
                    conditions,
                });
            }
        }
        Ok(RowBuilder {
            name: relation.info.name.clone(),
            of_schema: (scope.catalog)
                .object(ObjectId(relation.info.id.0))
                .map(|object| object.schema.clone())
                .unwrap_or_default(),
            schema,
            sources,
            checks,
            domains,
            zone: scope.zone,
            runtime: db.runtime().clone(),
            sequences: Arc::clone(db.sequences()),
            session: scope.session,
        })
    }

    /// Whole rows from the given columns.
    ///
    /// # Errors
    /// A value does not fit its column, or is NULL where it may not be.
    pub fn build(&self, given: &[(Arc<Field>, ArrayRef)], rows: usize) -> Result<RecordBatch, RowError> {
        let nothing = RecordBatch::try_new_with_options(
            Arc::new(Schema::empty()),
            vec![],
            &RecordBatchOptions::new().with_row_count(Some(rows)),
        )
        .map_err(|error| RowError::unknown(from_internal::arrow(error)))?;
        let evaluate = |expression: &Arc<dyn PhysicalExpr>, batch: &RecordBatch, target: &Field| {
            let values = expression
                .evaluate(batch)
                .and_then(|value| value.into_array(rows))?;
            let from = expression.return_field(&batch.schema())?;
            cast::convert(&from, target, &values)
        };
        let fail = |error| RowError::unknown(from_internal::datafusion(error));
        let mut columns: Vec<ArrayRef> = Vec::with_capacity(self.sources.len());
        for (source, field) in self.sources.iter().zip(self.schema.fields()) {
            let column = match source {
                Source::Given(at) => {
                    let (from, values) = &given[*at];
                    convert(from, field, values, self.zone).map_err(|failed| failed.of_text(values, field))?
                }
                Source::Sequence(id) => self.next(*id, field, rows)?,
                Source::Default(expression) => evaluate(expression, &nothing, field).map_err(fail)?,
                Source::Now => now(self.runtime.now(), field, rows).map_err(fail)?,
                // Generated columns are filled in below, once the others are there.
                Source::Null | Source::Generated(_) => arrow::array::new_null_array(field.data_type(), rows),
            };
            columns.push(column);
        }
        if self
            .sources
            .iter()
            .any(|source| matches!(source, Source::Generated(_)))
        {
            let nullable: Vec<Field> = self
                .schema
                .fields()
                .iter()
                .map(|field| field.as_ref().clone().with_nullable(true))
                .collect();
            let nullable = Arc::new(Schema::new(nullable));
            let options = RecordBatchOptions::new().with_row_count(Some(rows));
            let base = RecordBatch::try_new_with_options(nullable, columns.clone(), &options)
                .map_err(|error| RowError::unknown(from_internal::arrow(error)))?;
            for (position, source) in self.sources.iter().enumerate() {
                if let Source::Generated(expression) = source {
                    columns[position] =
                        evaluate(expression, &base, self.schema.field(position)).map_err(fail)?;
                }
            }
        }
        self.check_not_null(&columns)?;
        self.check_domains_not_null(&columns)?;
        let options = RecordBatchOptions::new().with_row_count(Some(rows));
        let whole = RecordBatch::try_new_with_options(Arc::clone(&self.schema), columns, &options)
            .map_err(|error| RowError::unknown(from_internal::arrow(error)))?;
        self.check_domains(&whole)?;
        self.check(&whole)?;
        Ok(whole)
    }

    /// Refuses NULL in columns whose domain does not allow it.
    fn check_domains_not_null(&self, columns: &[ArrayRef]) -> Result<(), RowError> {
        for of in self.domains.iter().filter(|of| of.not_null) {
            let column = &columns[of.column];
            if let Some(row) = (0..column.len()).find(|row| column.is_null(*row)) {
                return Err(RowError {
                    row: Some(row),
                    error: Box::new(domain::is_null(&of.shown)),
                });
            }
        }
        Ok(())
    }

    /// Refuses values that make a condition of their column's domain false.
    fn check_domains(&self, rows: &RecordBatch) -> Result<(), RowError> {
        for of in &self.domains {
            for (name, condition) in &of.conditions {
                if let Some(row) = first_false(condition, rows)? {
                    return Err(RowError {
                        row: Some(row),
                        error: Box::new(domain::violates(&of.shown, name)),
                    });
                }
            }
        }
        Ok(())
    }

    /// Refuses rows that make the expression of a CHECK constraint false.
    fn check(&self, rows: &RecordBatch) -> Result<(), RowError> {
        for (name, expression) in &self.checks {
            let Some(row) = first_false(expression, rows)? else {
                continue;
            };
            let error = SqlError::new(
                SqlState::CheckViolation,
                format!(
                    "new row for relation \"{}\" violates check constraint \"{name}\"",
                    self.name
                ),
            )
            .with_detail(format!(
                "Failing row contains {}.",
                describe_row(&self.schema, rows.columns(), row)
            ))
            .about_constraint(&self.of_schema, &self.name, name);
            return Err(RowError {
                row: Some(row),
                error: Box::new(error),
            });
        }
        Ok(())
    }

    /// The next values of a sequence, as the column has them.
    fn next(&self, id: ObjectId, field: &Field, rows: usize) -> Result<ArrayRef, RowError> {
        let values = self
            .sequences
            .take(id, rows, self.session)
            .map_err(RowError::unknown)?;
        let values: ArrayRef = Arc::new(Int64Array::from(values));
        let from = Field::new("", DataType::Int64, false);
        cast::convert(&from, field, &values)
            .map_err(|error| RowError::unknown(from_internal::datafusion(error)))
    }

    fn check_not_null(&self, columns: &[ArrayRef]) -> Result<(), RowError> {
        for (field, column) in self.schema.fields().iter().zip(columns) {
            if field.is_nullable() || column.null_count() == 0 {
                continue;
            }
            let row = (0..column.len())
                .find(|row| column.is_null(*row))
                .unwrap_or_default();
            let error = SqlError::new(
                SqlState::NotNullViolation,
                format!(
                    "null value in column \"{}\" of relation \"{}\" violates not-null constraint",
                    field.name(),
                    self.name
                ),
            )
            .with_detail(format!(
                "Failing row contains {}.",
                describe_row(&self.schema, columns, row)
            ))
            .about_column(&self.of_schema, &self.name, field.name());
            return Err(RowError {
                row: Some(row),
                error: Box::new(error),
            });
        }
        Ok(())
    }
}

/// The first row for which a condition is false.
fn first_false(condition: &Arc<dyn PhysicalExpr>, rows: &RecordBatch) -> Result<Option<usize>, RowError> {
    let values = condition
        .evaluate(rows)
        .and_then(|value| value.into_array(rows.num_rows()))
        .map_err(|error| RowError::unknown(from_internal::datafusion(error)))?;
    let values = values.as_boolean();
    Ok((0..values.len()).find(|row| values.is_valid(*row) && !values.value(*row)))
}

/// A given column as the relation's: texts are read by the type's input, so that the row of a bad one is known.
fn convert(
    from: &Field,
    to: &Field,
    values: &ArrayRef,
    zone: Option<millrace_postgres::types::zone::Zone>,
) -> Result<ArrayRef, RowError> {
    let in_zone = zone.is_some() && matches!(to.data_type(), DataType::Timestamp(_, Some(_)));
    if let Some(texts) = values.as_string_opt::<i32>()
        && !is_enum(from)
        && SqlType::of(from) != SqlType::of(to)
        && !in_zone
    {
        return parse::column(to, texts).map_err(|cell| RowError {
            row: Some(cell.row),
            error: cell.error,
        });
    }
    zoned_cast::assigned(from, to, values, zone)
        .map_err(|error| RowError::unknown(from_internal::datafusion(error)))
}

/// A row as PostgreSQL shows it in details: `(1, abc, null)`.
pub fn describe_row(schema: &Schema, columns: &[ArrayRef], row: usize) -> String {
    let values: Vec<String> = schema
        .fields()
        .iter()
        .zip(columns)
        .map(|(field, column)| output::text(field, column, row))
        .collect();
    format!("({})", values.join(", "))
}

fn now(instant: i64, field: &Field, rows: usize) -> datafusion::error::Result<ArrayRef> {
    let values: ArrayRef =
        Arc::new(TimestampMicrosecondArray::from_value(instant, rows).with_timezone("UTC"));
    let values = arrow::compute::cast(&values, field.data_type())?;
    Ok(digits::rounded(field, values))
}

/// The positions of columns by name; all of them that can be given when no names are.
///
/// # Errors
/// A name is unknown or comes twice.
pub fn positions(relation: &Relation, names: &[String]) -> SqlResult<Vec<usize>> {
    if names.is_empty() {
        return Ok(relation
            .columns
            .iter()
            .enumerate()
            .filter(|(_, column)| column.generated.is_none() && !column.proctime)
            .map(|(position, _)| position)
            .collect());
    }
    let mut found = vec![];
    for name in names {
        let position = relation
            .columns
            .iter()
            .position(|column| column.field.name() == name)
            .ok_or_else(|| {
                let known = relation.columns.iter().map(|column| column.field.name().as_str());
                SqlError::new(
                    SqlState::UndefinedColumn,
                    format!(
                        "column \"{name}\" of relation \"{}\" does not exist",
                        relation.info.name
                    ),
                )
                .with_hint_opt(did_you_mean(name, known))
            })?;
        if found.contains(&position) {
            return Err(SqlError::new(
                SqlState::DuplicateColumn,
                format!("column \"{name}\" specified more than once"),
            ));
        }
        found.push(position);
    }
    Ok(found)
}
