//! What the columns of a query's answer are announced as, where DataFusion's types forget it.
//!
//! A type that Arrow has not is noted beside the field (see [`millrace_postgres::types`]), and CASE, COALESCE, a scalar subquery,
//! `array_agg` and their like give a field without the note. What clients are told is found here from where a column's values
//! come from, through the whole plan. The plan itself is not changed.

mod system_columns;

use std::collections::HashMap;

use arrow::datatypes::{DataType, Field};
use datafusion::common::{Column, DFSchema};
use datafusion::logical_expr::{Distinct, Expr, ExprSchemable, JoinType, LogicalPlan};
use millrace_postgres::types::{ANNOTATION, is_text, pg_type};

/// The notes of a column.
pub type Notes = HashMap<String, String>;

/// The notes of each column of a plan.
pub fn of_plan(plan: &LogicalPlan) -> Vec<Notes> {
    let own: Vec<Notes> = plan
        .schema()
        .fields()
        .iter()
        .map(|field| field.metadata().clone())
        .collect();
    let found = match plan {
        LogicalPlan::Projection(projection) => {
            let input = Input::new(&projection.input);
            projection.expr.iter().map(|expr| input.notes(expr)).collect()
        }
        LogicalPlan::Aggregate(aggregate) => {
            let input = Input::new(&aggregate.input);
            let mut groups = aggregate.group_expr.iter();
            if groups.any(|expr| matches!(expr, Expr::GroupingSet(_))) {
                return own;
            }
            let columns = aggregate.group_expr.iter().chain(&aggregate.aggr_expr);
            columns.map(|expr| input.notes(expr)).collect()
        }
        LogicalPlan::TableScan(scan) => {
            let fields = plan.schema().fields().iter();
            fields
                .map(|field| system_columns::notes(scan.table_name.table(), field))
                .collect()
        }
        LogicalPlan::SubqueryAlias(alias) => of_plan(&alias.input),
        LogicalPlan::Subquery(subquery) => of_plan(&subquery.subquery),
        LogicalPlan::Filter(filter) => of_plan(&filter.input),
        LogicalPlan::Sort(sort) => of_plan(&sort.input),
        LogicalPlan::Limit(limit) => of_plan(&limit.input),
        LogicalPlan::Distinct(Distinct::All(input)) => of_plan(input),
        LogicalPlan::Window(window) => {
            let input = Input::new(&window.input);
            let calls = window.window_expr.iter().map(|expr| input.notes(expr));
            input.columns.iter().cloned().chain(calls).collect()
        }
        LogicalPlan::RecursiveQuery(query) => of_plan(&query.static_term),
        LogicalPlan::Union(union) => {
            let inputs: Vec<Vec<Notes>> = union.inputs.iter().map(|input| of_plan(input)).collect();
            (0..own.len())
                .map(|column| agreed(inputs.iter().filter_map(|input| input.get(column))))
                .collect()
        }
        LogicalPlan::Join(join) => match join.join_type {
            JoinType::LeftSemi | JoinType::LeftAnti => of_plan(&join.left),
            JoinType::RightSemi | JoinType::RightAnti => of_plan(&join.right),
            JoinType::LeftMark | JoinType::RightMark => return own,
            _ => [of_plan(&join.left), of_plan(&join.right)].concat(),
        },
        _ => return own,
    };
    if found.len() != own.len() {
        return own;
    }
    let merged = own.into_iter().zip(found);
    merged
        .map(|(own, found)| if found.is_empty() { own } else { found })
        .collect()
}

/// What all have; nothing if they differ.
fn agreed<'a>(mut notes: impl Iterator<Item = &'a Notes>) -> Notes {
    let Some(first) = notes.next() else {
        return Notes::new();
    };
    let mut all = first.clone();
    for next in notes {
        if *next == all {
            continue;
        }
        let name = |notes: &Notes| notes.get(ANNOTATION).cloned().unwrap_or_default();
        // Of several lengths none is left.
        if name(next).starts_with("varchar") && name(&all).starts_with("varchar") {
            all = Notes::from([(ANNOTATION.to_owned(), "varchar".to_owned())]);
        } else {
            return Notes::new();
        }
    }
    all
}

/// What an expression may read.
struct Input<'a> {
    schema: &'a DFSchema,
    columns: Vec<Notes>,
}

impl<'a> Input<'a> {
    fn new(plan: &'a LogicalPlan) -> Self {
        Input {
            schema: plan.schema(),
            columns: of_plan(plan),
        }
    }

    fn column(&self, column: &Column) -> Notes {
        let index = self.schema.maybe_index_of_column(column);
        let notes = index.and_then(|index| self.columns.get(index));
        notes.cloned().unwrap_or_default()
    }

    fn notes(&self, expr: &Expr) -> Notes {
        match expr {
            Expr::Column(column) => self.column(column),
            Expr::Alias(alias) => self.notes(&alias.expr),
            Expr::Case(case) => {
                let branches = case.when_then_expr.iter().map(|(_, then)| then.as_ref());
                self.agreed(branches.chain(case.else_expr.as_deref()))
            }
            Expr::ScalarFunction(call) => match call.func.name() {
                "coalesce" | "greatest" | "least" => self.agreed(call.args.iter()),
                "nullif" => self.agreed(call.args.iter().take(1)),
                "make_array" => match call.args.first() {
                    Some(element) => self.array_of(element, self.agreed(call.args.iter())),
                    None => Notes::new(),
                },
                _ => self.own(expr),
            },
            Expr::ScalarSubquery(subquery) => {
                let columns = of_plan(&subquery.subquery);
                columns.into_iter().next().unwrap_or_default()
            }
            Expr::AggregateFunction(call) => match (call.func.name(), call.params.args.as_slice()) {
                ("array_agg", [element]) => self.array_of(element, self.notes(element)),
                ("first_value" | "last_value" | "any_value", [value, ..]) => self.notes(value),
                ("min" | "max", [value]) => {
                    let notes = self.notes(value);
                    let is_text = value
                        .get_type(self.schema)
                        .is_ok_and(|data_type| is_text(&data_type));
                    // The least varchar is a text.
                    if is_text { Notes::new() } else { notes }
                }
                _ => self.own(expr),
            },
            _ => self.own(expr),
        }
    }

    fn own(&self, expr: &Expr) -> Notes {
        let field = expr.to_field(self.schema);
        field.map_or_else(|_| Notes::new(), |(_, field)| field.metadata().clone())
    }

    /// What all of them have that are not NULL.
    fn agreed<'e>(&self, expressions: impl Iterator<Item = &'e Expr>) -> Notes {
        let is_null = |expr: &Expr| match expr {
            Expr::Literal(value, _) => value.is_null(),
            Expr::Cast(cast) => matches!(cast.expr.as_ref(), Expr::Literal(value, _) if value.is_null()),
            _ => false,
        };
        let all: Vec<Notes> = expressions
            .filter(|expr| !is_null(expr))
            .map(|expr| self.notes(expr))
            .collect();
        agreed(all.iter())
    }

    /// The notes of an array of elements with these notes.
    fn array_of(&self, element: &Expr, notes: Notes) -> Notes {
        let Ok(data_type) = element.get_type(self.schema) else {
            return Notes::new();
        };
        if notes.is_empty() || matches!(data_type, DataType::List(_)) {
            return Notes::new();
        }
        let name = pg_type(&Field::new("", data_type, true).with_metadata(notes))
            .name()
            .to_owned();
        Notes::from([(ANNOTATION.to_owned(), format!("{name}[]"))])
    }
}
