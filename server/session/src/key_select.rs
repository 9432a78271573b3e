//! SELECTs of one relation's rows by equality of columns: `SELECT a, b FROM t WHERE k = $1`. What applications send most often, and what an index
//! answers without a plan (see [`crate::look_up`]).

use std::sync::Arc;

use arrow::datatypes::{DataType, Schema, SchemaRef};
use datafusion::logical_expr::{Expr as Bound, LogicalPlan};
use datafusion::scalar::ScalarValue;
use datafusion::sql::sqlparser::ast::{
    self, BinaryOperator, Expr, Ident, LimitClause, SetExpr, TableFactor, Value,
};
use millrace_catalog::settings::Settings;
use millrace_functions::syntax::cast_literal;
use millrace_planner::RelationId;
use millrace_planner::relation::{RelationInfo, RelationKind, relation_of};
use millrace_postgres::types;
use parking_lot::Mutex;
use postgres_types::Type;

use crate::output_columns::OutputColumns;

/// Under what names and rights were looked at: what was found out then holds for as long as it is the same.
#[derive(Debug, Clone)]
pub(crate) struct Understanding {
    /// The catalog's version.
    pub catalog: u64,
    /// The session's settings.
    pub settings: Settings,
    /// Whether rights are checked.
    pub is_checked: bool,
}

impl Understanding {
    /// Whether the same is found out now.
    pub fn is_still(&self, now: &Understanding) -> bool {
        self.catalog == now.catalog
            && self.is_checked == now.is_checked
            && self.settings.is_same(&now.settings)
    }
}

/// Where a value comes from.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Operand {
    /// A parameter, from 0.
    Parameter(usize),
    /// A constant, and its type. A quoted text is `text`.
    Constant(ScalarValue, Type),
}

impl Operand {
    fn of(expr: &Expr) -> Option<Operand> {
        let value = match expr {
            Expr::Value(value) => value,
            Expr::Function(_) => return Operand::of_parameter(expr),
            _ => return None,
        };
        match &value.value {
            Value::Placeholder(name) => {
                let number: usize = name.strip_prefix('$')?.parse().ok()?;
                Some(Operand::Parameter(number.checked_sub(1)?))
            }
            Value::Number(digits, false) => {
                let number = digits.parse().ok()?;
                Some(Operand::Constant(ScalarValue::Int64(Some(number)), Type::INT8))
            }
            Value::SingleQuotedString(text) | Value::EscapedStringLiteral(text) => Some(Operand::Constant(
                ScalarValue::Utf8(Some(text.clone())),
                Type::TEXT,
            )),
            _ => None,
        }
    }

    /// The value of a parameter, as it is put into a statement by a cast.
    fn of_parameter(expr: &Expr) -> Option<Operand> {
        let (text, name) = cast_literal(expr)?;
        let (integer, pg) = match name {
            "smallint" => (true, Type::INT2),
            "integer" => (true, Type::INT4),
            "bigint" => (true, Type::INT8),
            "uuid" => (false, Type::UUID),
            _ => return None,
        };
        let value = match (text, integer) {
            (Some(text), true) => ScalarValue::Int64(Some(text.parse().ok()?)),
            (text, false) => ScalarValue::Utf8(text.map(str::to_owned)),
            (None, true) => ScalarValue::Int64(None),
        };
        Some(Operand::Constant(value, pg))
    }

    /// Whether its value can be one of a column of this type, so that what is equal to it is what PostgreSQL takes for equal.
    fn fits(&self, column: &Type, parameters: &[Type]) -> bool {
        let is_integer = |pg: &Type| matches!(*pg, Type::INT2 | Type::INT4 | Type::INT8);
        let is_text = |pg: &Type| matches!(*pg, Type::TEXT | Type::VARCHAR);
        let own = match self {
            Operand::Parameter(number) => parameters.get(*number),
            Operand::Constant(_, pg) => Some(pg),
        };
        own.is_some_and(|pg| {
            (is_integer(column) && is_integer(pg))
                || (is_text(column) && is_text(pg))
                || (*column == Type::UUID && *pg == Type::UUID)
        })
    }

    /// Its value.
    pub fn value(&self, parameters: &[ScalarValue]) -> Option<ScalarValue> {
        match self {
            Operand::Parameter(number) => parameters.get(*number).cloned(),
            Operand::Constant(value, _) => Some(value.clone()),
        }
    }
}

/// A column, with the name in front of it, and what it is to be equal to.
type Equality = (Option<String>, String, Operand);

/// What the text of such a SELECT says; the names in it are not looked up yet.
#[derive(Debug)]
pub(crate) struct Shape {
    /// The query without its conditions and its limit.
    pub bare: ast::Query,
    /// What the table is called in it.
    called: String,
    equal: Vec<Equality>,
    limit: Option<Operand>,
    /// How it was understood the last time. Nobody looks before it runs for the second time.
    understood: Mutex<Runs>,
}

/// What such a SELECT means.
#[derive(Debug)]
pub(crate) enum Meaning {
    /// It is not known yet.
    NotKnown,
    /// It has to be planned.
    Nothing,
    /// An index may have its rows.
    Select(Arc<KeySelect>),
}

#[derive(Debug, Default)]
enum Runs {
    #[default]
    Never,
    Once,
    Understood(Understanding, Option<Arc<KeySelect>>),
}

impl Shape {
    /// The shape of a query, if it has this one.
    pub fn of(query: &ast::Query) -> Option<Shape> {
        let (SetExpr::Select(select), None, None, None, []) = (
            query.body.as_ref(),
            &query.with,
            &query.order_by,
            &query.fetch,
            query.locks.as_slice(),
        ) else {
            return None;
        };
        let [from] = select.from.as_slice() else {
            return None;
        };
        let TableFactor::Table {
            name,
            alias,
            args: None,
            version: None,
            sample: None,
            ..
        } = &from.relation
        else {
            return None;
        };
        if !from.joins.is_empty() || !query.pipe_operators.is_empty() {
            return None;
        }
        let called = match alias {
            Some(alias) if alias.columns.is_empty() => millrace_parser::fold(&alias.name),
            Some(_) => return None,
            None => millrace_parser::fold(name.0.last()?.as_ident()?),
        };
        let limit = match &query.limit_clause {
            None => None,
            Some(LimitClause::LimitOffset {
                limit: Some(limit),
                offset: None,
                limit_by,
            }) if limit_by.is_empty() => Some(Operand::of(limit)?),
            Some(_) => return None,
        };
        let mut equal = vec![];
        conditions(select.selection.as_ref()?, &mut equal)?;
        let mut bare = query.clone();
        bare.limit_clause = None;
        if let SetExpr::Select(select) = bare.body.as_mut() {
            select.selection = None;
        }
        Some(Shape {
            bare,
            called,
            equal,
            limit,
            understood: Mutex::default(),
        })
    }

    /// What the names in it mean now, if they were understood before. At the first run nobody asks: it may be the last.
    pub fn meaning(&self, now: &Understanding) -> Meaning {
        let mut runs = self.understood.lock();
        match &*runs {
            Runs::Never => {
                *runs = Runs::Once;
                Meaning::Nothing
            }
            Runs::Understood(then, select) if then.is_still(now) => match select {
                Some(select) => Meaning::Select(Arc::clone(select)),
                None => Meaning::Nothing,
            },
            Runs::Once | Runs::Understood(..) => Meaning::NotKnown,
        }
    }

    /// Keeps what the names in it were found to mean.
    pub fn mean(&self, now: Understanding, select: Option<Arc<KeySelect>>) {
        *self.understood.lock() = Runs::Understood(now, select);
    }

    /// It is known that it runs again.
    pub fn comes_again(&self) {
        let mut runs = self.understood.lock();
        if matches!(*runs, Runs::Never) {
            *runs = Runs::Once;
        }
    }

    /// The SELECT, by the plan of [`Shape::bare`]. None: it is another one, such as of a stream or of an expression.
    pub fn select(
        &self,
        plan: &LogicalPlan,
        output: OutputColumns,
        parameters: &[Type],
    ) -> Option<KeySelect> {
        let LogicalPlan::Projection(projection) = plan else {
            return None;
        };
        let info = scanned(&projection.input)?;
        let below = projection.input.schema();
        let place = |expr: &Bound| match expr {
            Bound::Column(column) => below.index_of_column(column).ok(),
            _ => None,
        };
        let columns = projection.expr.iter().map(|expr| match expr {
            Bound::Alias(alias) => place(&alias.expr),
            other => place(other),
        });
        let columns = columns.collect::<Option<Vec<usize>>>()?;
        let equal = named(&self.equal, &self.called, &info.schema, parameters)?;
        if self
            .limit
            .as_ref()
            .is_some_and(|limit| !limit.fits(&Type::INT8, parameters))
        {
            return None;
        }
        let is_equal = |column: &usize| equal.iter().any(|(named, _, _)| named == column);
        let one_row = info
            .key
            .as_ref()
            .is_some_and(|key| !key.is_empty() && key.iter().all(is_equal));
        let schema = Schema::new(plan.schema().fields().clone());
        Some(KeySelect {
            relation: info.id,
            equal,
            columns,
            limit: self.limit.clone(),
            schema: Arc::new(schema),
            output,
            one_row,
        })
    }
}

/// The columns of a table that is called so, and their types.
fn named(
    equal: &[Equality],
    called: &str,
    schema: &Schema,
    parameters: &[Type],
) -> Option<Vec<(usize, DataType, Operand)>> {
    let mut columns: Vec<(usize, DataType, Operand)> = vec![];
    for (qualifier, name, operand) in equal {
        if qualifier.as_ref().is_some_and(|name| name != called) {
            return None;
        }
        let column = schema.index_of(name).ok()?;
        let field = schema.field(column);
        let is_twice = columns.iter().any(|(known, _, _)| *known == column);
        if is_twice || !operand.fits(&types::pg_type(field), parameters) {
            return None;
        }
        columns.push((column, field.data_type().clone(), operand.clone()));
    }
    Some(columns)
}

/// What the conditions of an UPDATE or DELETE look up in its table, which it calls so. None: they are others than equalities with
/// constants, or the planner has to say what is wrong with them.
pub(crate) fn wanted_by(condition: &Expr, called: &str, schema: &Schema) -> Option<Wanted> {
    let mut equal = vec![];
    conditions(condition, &mut equal)?;
    values_of(&named(&equal, called, schema, &[])?, &[])
}

/// `a = $1 AND t.b = 2`, in any order.
fn conditions(expr: &Expr, equal: &mut Vec<Equality>) -> Option<()> {
    match expr {
        Expr::Nested(inner) => conditions(inner, equal),
        Expr::BinaryOp {
            left,
            op: BinaryOperator::And,
            right,
        } => {
            conditions(left, equal)?;
            conditions(right, equal)
        }
        Expr::BinaryOp {
            left,
            op: BinaryOperator::Eq,
            right,
        } => {
            let (name, value) = match Operand::of(right) {
                Some(value) => (left, value),
                None => (right, Operand::of(left)?),
            };
            let name: Vec<String> = match name.as_ref() {
                // What PostgreSQL takes for the value of a session is no column.
                Expr::Identifier(name)
                    if name.quote_style.is_none() && name.value.eq_ignore_ascii_case("current_schema") =>
                {
                    return None;
                }
                Expr::Identifier(name) => [name].into_iter().map(millrace_parser::fold).collect(),
                Expr::CompoundIdentifier(names) => names
                    .iter()
                    .map(|name: &Ident| millrace_parser::fold(name))
                    .collect(),
                _ => return None,
            };
            match name.as_slice() {
                [column] => equal.push((None, column.clone(), value)),
                [table, column] => equal.push((Some(table.clone()), column.clone(), value)),
                _ => return None,
            }
            Some(())
        }
        _ => None,
    }
}

/// The table or view of which a plan reads all columns and rows.
fn scanned(plan: &LogicalPlan) -> Option<RelationInfo> {
    match plan {
        LogicalPlan::SubqueryAlias(alias) => scanned(&alias.input),
        LogicalPlan::TableScan(scan)
            if scan.projection.is_none() && scan.filters.is_empty() && scan.fetch.is_none() =>
        {
            relation_of(scan).filter(|info| !matches!(info.kind, RelationKind::Stream))
        }
        _ => None,
    }
}

/// Such a SELECT, understood.
#[derive(Debug)]
pub(crate) struct KeySelect {
    pub relation: RelationId,
    /// Columns, their types, and what they are to be equal to.
    equal: Vec<(usize, DataType, Operand)>,
    /// The columns that it shows.
    pub columns: Vec<usize>,
    limit: Option<Operand>,
    /// The columns of the plan.
    pub schema: SchemaRef,
    /// What they are called.
    pub output: OutputColumns,
    /// Whether it has one row at most.
    pub one_row: bool,
}

/// What is looked up in one run.
pub(crate) enum Wanted {
    /// No row has these values.
    Nothing,
    /// Rows with these values.
    Rows(Vec<(usize, ScalarValue)>),
}

fn values_of(equal: &[(usize, DataType, Operand)], parameters: &[ScalarValue]) -> Option<Wanted> {
    let (mut values, mut nothing) = (Vec::with_capacity(equal.len()), false);
    for (column, data_type, operand) in equal {
        let value = operand.value(parameters)?;
        match value.cast_to(data_type) {
            Ok(value) if !value.is_null() => values.push((*column, value)),
            _ if value.is_null() => nothing = true,
            // An integer that the column's type has not.
            _ if value.data_type().is_integer() => nothing = true,
            _ => return None,
        }
    }
    Some(match nothing {
        true => Wanted::Nothing,
        false => Wanted::Rows(values),
    })
}

impl KeySelect {
    /// The values that are looked up. None: the planner has to say what is wrong with them.
    pub fn wanted(&self, parameters: &[ScalarValue]) -> Option<Wanted> {
        values_of(&self.equal, parameters)
    }

    /// How many rows there are to be at most. None: the planner has to say what is wrong with it.
    pub fn limit(&self, parameters: &[ScalarValue]) -> Option<usize> {
        let Some(limit) = &self.limit else {
            return Some(usize::MAX);
        };
        let value = limit.value(parameters)?;
        if value.is_null() {
            return Some(usize::MAX);
        }
        match value.cast_to(&DataType::Int64) {
            Ok(ScalarValue::Int64(Some(limit))) => usize::try_from(limit).ok(),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shape(sql: &str) -> Option<Shape> {
        let parsed = millrace_parser::parse(sql).unwrap().remove(0);
        match parsed.statement {
            millrace_parser::ast::Statement::Sql(sql) => match *sql {
                ast::Statement::Query(query) => Shape::of(&query),
                _ => None,
            },
            _ => None,
        }
    }

    #[test]
    fn equalities_of_one_table() {
        let shape =
            shape("SELECT * FROM s.t AS x WHERE (x.a = $2 AND 7 = b) AND \"C\" = 'c' LIMIT 3").unwrap();
        assert_eq!(shape.called, "x");
        let equal: Vec<String> = shape.equal.iter().map(|equal| format!("{equal:?}")).collect();
        assert_eq!(
            equal,
            [
                "(Some(\"x\"), \"a\", Parameter(1))",
                "(None, \"b\", Constant(Int64(7), Int8))",
                "(None, \"C\", Constant(Utf8(\"c\"), Text))",
            ]
        );
        assert_eq!(
            shape.limit,
            Some(Operand::Constant(ScalarValue::Int64(Some(3)), Type::INT8))
        );
        assert_eq!(shape.bare.to_string(), "SELECT * FROM s.t AS x");
    }

    #[test]
    fn anything_else_is_planned() {
        for other in [
            "SELECT a FROM t",
            "SELECT a FROM t WHERE a > 1",
            "SELECT a FROM t WHERE a = b",
            "SELECT a FROM t WHERE a = 1 OR a = 2",
            "SELECT a FROM t WHERE NOT a = 1",
            "SELECT a FROM t WHERE a = 1.5",
            "SELECT a FROM t WHERE a = -1",
            "SELECT a FROM t WHERE a = NULL",
            "SELECT a FROM t WHERE a = $1 + 1",
            "SELECT a FROM t WHERE a + 1 = $1",
            "SELECT a FROM t WHERE (t).a = $1",
            "SELECT a FROM t, u WHERE a = 1",
            "SELECT a FROM t JOIN u ON true WHERE a = 1",
            "SELECT a FROM t AS x(b) WHERE a = 1",
            "SELECT a FROM f(1) WHERE a = 1",
            "SELECT a FROM t WHERE a = 1 ORDER BY a",
            "SELECT a FROM t WHERE a = 1 FOR UPDATE",
            "SELECT a FROM t WHERE a = 1 LIMIT 1 OFFSET 1",
            "SELECT a FROM t WHERE a = 1 FETCH FIRST 1 ROW ONLY",
            "WITH t AS (SELECT 1 AS a) SELECT a FROM t WHERE a = 1",
            "SELECT a FROM t WHERE a = 1 UNION ALL SELECT 1",
            "SELECT a FROM (SELECT 1 AS a) t WHERE a = 1",
        ] {
            assert!(shape(other).is_none(), "{other}");
        }
    }
}
