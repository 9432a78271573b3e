//! `ASOF JOIN` and `FOR SYSTEM_TIME AS OF` in the AST, as ordinary joins with a marker in their condition.

use std::ops::ControlFlow;
use std::sync::Arc;

use arrow::datatypes::DataType;
use datafusion::common::{TableReference, internal_err};
use datafusion::error::{DataFusionError, Result};
use datafusion::logical_expr::{
    ColumnarValue, Expr as LogicalExpr, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};
use datafusion::sql::sqlparser::ast::{
    BinaryOperator, Expr, Function, FunctionArgumentList, FunctionArguments, Ident, Join, JoinConstraint,
    JoinOperator, ObjectName, ObjectNamePart, Select, Statement, TableFactor, TableVersion, TableWithJoins,
    VisitorMut,
};
use millrace_parser::walk::Walk;

use super::TimeJoinKind;
use crate::catalog::CatalogReader;

/// The marker of an ASOF join.
const ASOF: &str = "$asof_join";
/// The marker of a lookup join.
const LOOKUP: &str = "$lookup_join";
/// What the parser gives as match condition of `ASOF JOIN t ON ..`: the comparison is in ON.
const NO_MATCH_CONDITION: &str = "asof_inner";
/// The same of `ASOF LEFT JOIN`; beside a written match condition, its last conjunct.
const LEFT: &str = "asof_left";

/// The function by which a condition says that its join is one of ours.
pub fn marker(name: &str) -> Option<Arc<ScalarUDF>> {
    let name = [ASOF, LOOKUP].into_iter().find(|known| *known == name)?;
    Some(Arc::new(ScalarUDF::from(Marker {
        name,
        signature: Signature::nullary(Volatility::Volatile),
    })))
}

/// The kind of join that a condition marks.
pub(super) fn marked(condition: &LogicalExpr) -> Option<TimeJoinKind> {
    match condition {
        LogicalExpr::ScalarFunction(call) if call.func.name() == ASOF => Some(TimeJoinKind::Asof),
        LogicalExpr::ScalarFunction(call) if call.func.name() == LOOKUP => Some(TimeJoinKind::Lookup),
        _ => None,
    }
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct Marker {
    name: &'static str,
    signature: Signature,
}

impl ScalarUDFImpl for Marker {
    fn name(&self) -> &str {
        self.name
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(DataType::Boolean)
    }

    fn invoke_with_args(&self, _: ScalarFunctionArgs) -> Result<ColumnarValue> {
        internal_err!("{} is not a function that can be called", self.name)
    }
}

/// Rewrites the joins of a statement.
///
/// # Errors
/// A form that is not supported, named.
pub(crate) fn rewrite(statement: &mut Statement, catalog: &dyn CatalogReader) -> Result<()> {
    match statement.walk_mut(&mut Rewriter { catalog }) {
        ControlFlow::Continue(()) => Ok(()),
        ControlFlow::Break(error) => Err(*error),
    }
}

struct Rewriter<'a> {
    catalog: &'a dyn CatalogReader,
}

impl VisitorMut for Rewriter<'_> {
    type Break = Box<DataFusionError>;

    fn pre_visit_select(&mut self, select: &mut Select) -> ControlFlow<Self::Break> {
        for from in &mut select.from {
            if let Err(error) = self.joins(from) {
                return ControlFlow::Break(Box::new(error));
            }
        }
        ControlFlow::Continue(())
    }

    fn pre_visit_table_factor(&mut self, factor: &mut TableFactor) -> ControlFlow<Self::Break> {
        match factor {
            TableFactor::Table {
                version: Some(version),
                ..
            } => ControlFlow::Break(Box::new(unsupported(format!(
                "{version} is supported only on the right side of JOIN and LEFT JOIN, with ON"
            )))),
            _ => ControlFlow::Continue(()),
        }
    }
}

impl Rewriter<'_> {
    fn joins(&self, from: &mut TableWithJoins) -> Result<()> {
        if let TableFactor::NestedJoin { table_with_joins, .. } = &mut from.relation {
            self.joins(table_with_joins)?;
        }
        let mut known = named(&from.relation);
        for join in &mut from.joins {
            if let TableFactor::NestedJoin { table_with_joins, .. } = &mut join.relation {
                self.joins(table_with_joins)?;
            }
            self.join(join, &known)?;
            known.extend(named(&join.relation));
        }
        Ok(())
    }

    fn join(&self, join: &mut Join, known: &[Named]) -> Result<()> {
        if let TableFactor::Table { version, .. } = &mut join.relation
            && let Some(TableVersion::ForSystemTimeAsOf(time)) = version
        {
            self.check_proctime(time, known)?;
            let (JoinOperator::Join(constraint)
            | JoinOperator::Inner(constraint)
            | JoinOperator::Left(constraint)
            | JoinOperator::LeftOuter(constraint)) = &mut join.join_operator
            else {
                return Err(unsupported(
                    "FOR SYSTEM_TIME AS OF is supported in JOIN and LEFT JOIN".into(),
                ));
            };
            *version = None;
            let marked = and(condition(constraint, "FOR SYSTEM_TIME AS OF")?, call(LOOKUP));
            *constraint = JoinConstraint::On(marked);
        }
        if let JoinOperator::AsOf {
            match_condition,
            constraint,
        } = &join.join_operator
        {
            let mut on = condition(constraint, "ASOF JOIN")?;
            let (is_left, comparison) = match match_condition {
                Expr::Identifier(ident) if ident.value == NO_MATCH_CONDITION => (false, None),
                Expr::Identifier(ident) if ident.value == LEFT => (true, None),
                Expr::BinaryOp {
                    left,
                    op: BinaryOperator::And,
                    right,
                } if matches!(right.as_ref(), Expr::Identifier(ident) if ident.value == LEFT) => {
                    (true, Some(left.as_ref().clone()))
                }
                comparison => (false, Some(comparison.clone())),
            };
            if let Some(comparison) = comparison {
                on = and(on, comparison);
            }
            let on = JoinConstraint::On(and(on, call(ASOF)));
            join.join_operator = if is_left {
                JoinOperator::LeftOuter(on)
            } else {
                JoinOperator::Inner(on)
            };
        }
        Ok(())
    }

    /// Refuses every time but that of processing.
    fn check_proctime(&self, time: &Expr, known: &[Named]) -> Result<()> {
        let refused = || {
            unsupported(format!(
                "FOR SYSTEM_TIME AS OF {time} is not supported: tables have no versions by event time; with \
                 PROCTIME(), or a column AS PROCTIME(), each row is joined with the table as it is when \
                 the row arrives"
            ))
        };
        match time {
            Expr::Nested(inner) => self.check_proctime(inner, known),
            Expr::Function(function) => {
                let name = function.name.to_string().to_ascii_lowercase();
                if matches!(name.as_str(), "proctime" | "now" | "current_timestamp") {
                    Ok(())
                } else {
                    Err(refused())
                }
            }
            Expr::CompoundIdentifier(parts) => match parts.as_slice() {
                [alias, column] => {
                    let of = known.iter().find(|table| fold(&table.alias) == fold(alias));
                    match of {
                        Some(table) if self.catalog.is_proctime(&table.name, &fold(column)) => Ok(()),
                        _ => Err(refused()),
                    }
                }
                _ => Err(refused()),
            },
            _ => Err(refused()),
        }
    }
}

/// A table of FROM.
struct Named {
    alias: Ident,
    name: TableReference,
}

fn named(factor: &TableFactor) -> Vec<Named> {
    match factor {
        TableFactor::Table { name, alias, .. } => {
            let parts: Option<Vec<&Ident>> = name.0.iter().map(ObjectNamePart::as_ident).collect();
            let Some(parts) = parts else { return vec![] };
            let Some(last) = parts.last() else { return vec![] };
            let folded: Vec<String> = parts.iter().map(|part| fold(part)).collect();
            let name = match folded.as_slice() {
                [table] => TableReference::bare(table.as_str()),
                [schema, table] => TableReference::partial(schema.as_str(), table.as_str()),
                [catalog, schema, table] => {
                    TableReference::full(catalog.as_str(), schema.as_str(), table.as_str())
                }
                _ => return vec![],
            };
            let alias = alias
                .as_ref()
                .map_or_else(|| (*last).clone(), |alias| alias.name.clone());
            vec![Named { alias, name }]
        }
        TableFactor::NestedJoin { table_with_joins, .. } => {
            let joined = table_with_joins
                .joins
                .iter()
                .flat_map(|join| named(&join.relation));
            named(&table_with_joins.relation)
                .into_iter()
                .chain(joined)
                .collect()
        }
        _ => vec![],
    }
}

fn fold(ident: &Ident) -> String {
    match ident.quote_style {
        Some(_) => ident.value.clone(),
        None => ident.value.to_lowercase(),
    }
}

fn condition(constraint: &JoinConstraint, of: &str) -> Result<Expr> {
    match constraint {
        JoinConstraint::On(condition) => Ok(condition.clone()),
        _ => Err(unsupported(format!("{of} needs its condition in ON"))),
    }
}

fn and(left: Expr, right: Expr) -> Expr {
    let side = |expr: Expr| Box::new(Expr::Nested(Box::new(expr)));
    Expr::BinaryOp {
        left: side(left),
        op: BinaryOperator::And,
        right: side(right),
    }
}

fn call(name: &str) -> Expr {
    Expr::Function(Function {
        name: ObjectName::from(vec![Ident::with_quote('"', name)]),
        uses_odbc_syntax: false,
        parameters: FunctionArguments::None,
        args: FunctionArguments::List(FunctionArgumentList {
            duplicate_treatment: None,
            args: vec![],
            clauses: vec![],
        }),
        filter: None,
        null_treatment: None,
        over: None,
        within_group: vec![],
    })
}

fn unsupported(what: String) -> DataFusionError {
    DataFusionError::NotImplemented(what)
}
