//! What the columns of a query's answer are announced as, where DataFusion's types forget it.
//!
//! A type that Arrow has not is noted beside the field (see [`millrace_postgres::types`]), and CASE, COALESCE, a scalar subquery,
//! `array_agg` and their like give a field without the note. What clients are told is found here from where a column's values
//! come from, through the whole plan. [`noted`] writes it into the plan, for what looks at the fields: what is compared as a uuid or
//! shown as one by a view over it.

mod system_columns;

use std::collections::HashMap;
use std::sync::Arc;

use arrow::datatypes::{DataType, Field};
use datafusion::common::metadata::FieldMetadata;
use datafusion::common::tree_node::Transformed;
use datafusion::common::{Column, DFSchema, Result, ScalarValue};
use datafusion::logical_expr::{
    Distinct, Expr, ExprSchemable, JoinType, LogicalPlan, Projection, ScalarUDF, lit,
};
use millrace_postgres::types::{
    ANNOTATION, composite, digits, element, enumeration, is_text, pg_type, sql_name,
};

use crate::{cast as pg_cast, enums};

/// The notes of a column.
pub type Notes = HashMap<String, String>;

/// The field of an expression over columns of a schema, also of a CASE.
///
/// # Errors
/// The expression has no type there.
pub fn field_of(expr: &Expr, schema: &DFSchema) -> Result<Field> {
    let columns = schema.fields().iter().map(|field| field.metadata().clone());
    let input = Input {
        schema,
        columns: columns.collect(),
    };
    let (_, field) = expr.to_field(schema)?;
    Ok(field.as_ref().clone().with_metadata(input.notes(expr)))
}

/// Whether only clients are told this: names, and elements of an array.
pub fn is_told_only(note: &str) -> bool {
    note.ends_with("[]") || matches!(note, "name" | "\"char\"")
}

/// The plan with the notes of its projections' columns in its fields.
///
/// # Errors
/// A schema cannot be made, which would be a fault of the plan.
pub fn noted(plan: LogicalPlan) -> Result<LogicalPlan> {
    let mut found = false;
    let changed = plan.clone().transform_up_with_subqueries(|node| {
        let LogicalPlan::Projection(projection) = node else {
            let node = node.recompute_schema()?;
            return match with_types(&node)? {
                Some(noted) => {
                    found = true;
                    Ok(Transformed::yes(noted))
                }
                None => Ok(Transformed::yes(node)),
            };
        };
        let input = Input::new(&projection.input);
        let expressions = projection.expr.into_iter().map(|expr| {
            if let Some(array) = input.array_of_composites(&expr) {
                found = true;
                let (relation, name) = expr.qualified_name();
                return array.alias_qualified(relation, name);
            }
            let notes = input.notes(&expr);
            let note = notes.get(ANNOTATION);
            if note.is_none_or(|note| is_told_only(note)) || notes == input.own(&expr) {
                return expr;
            }
            found = true;
            let (relation, name) = expr.qualified_name();
            expr.unalias()
                .alias_qualified_with_metadata(relation, name, Some(FieldMetadata::from(notes)))
        });
        let expressions: Vec<Expr> = expressions.collect();
        let projection = Projection::try_new(expressions, projection.input)?;
        Ok(Transformed::yes(LogicalPlan::Projection(projection)))
    })?;
    Ok(if found { changed.data } else { plan })
}

/// A node whose columns are enums and do not say so, or are of another type than PostgreSQL's, with a projection over it that
/// says it; `None`: it has none.
fn with_types(node: &LogicalPlan) -> Result<Option<LogicalPlan>> {
    if !matches!(
        node,
        LogicalPlan::Aggregate(_) | LogicalPlan::Window(_) | LogicalPlan::Unnest(_)
    ) {
        return Ok(None);
    }
    let mut found = false;
    let columns = node.schema().iter().zip(of_plan(node));
    let expressions = columns.enumerate().map(|(index, ((relation, field), notes))| {
        let column = Expr::Column(Column::new(relation.cloned(), field.name()));
        if let Some((function, target)) = result_type(node, index) {
            found = true;
            let result = function.call(vec![column, lit(target)]);
            return result.alias_qualified(relation.cloned(), field.name());
        }
        if !of_somebody(&notes) || *field.metadata() == notes {
            return column;
        }
        found = true;
        column.alias_qualified_with_metadata(
            relation.cloned(),
            field.name(),
            Some(FieldMetadata::from(notes)),
        )
    });
    let expressions: Vec<Expr> = expressions.collect();
    match found {
        true => Ok(Some(LogicalPlan::Projection(Projection::try_new(
            expressions,
            Arc::new(node.clone()),
        )?))),
        false => Ok(None),
    }
}

/// What makes of a column one of the type that it has, and the type: the sum of reals, which is computed as a double, and an array of
/// enums, which forgets of what it is.
fn result_type(node: &LogicalPlan, column: usize) -> Option<(Arc<ScalarUDF>, String)> {
    let (input, call) = match node {
        LogicalPlan::Aggregate(aggregate) => {
            let groups = node.schema().fields().len() - aggregate.aggr_expr.len();
            (
                &aggregate.input,
                aggregate.aggr_expr.get(column.checked_sub(groups)?)?,
            )
        }
        LogicalPlan::Window(window) => {
            let columns = window.input.schema().fields().len();
            (
                &window.input,
                window.window_expr.get(column.checked_sub(columns)?)?,
            )
        }
        _ => return None,
    };
    let (name, arguments) = match unaliased(call) {
        Expr::AggregateFunction(call) => (call.func.name(), call.params.args.as_slice()),
        Expr::WindowFunction(call) => (call.fun.name(), call.params.args.as_slice()),
        _ => return None,
    };
    let [argument] = arguments else {
        return None;
    };
    match name {
        "sum" if argument.get_type(input.schema()).ok()? == DataType::Float32 => {
            Some((pg_cast::udf(), "real".to_owned()))
        }
        "array_agg" => {
            let input = Input::new(input);
            let (_, field) = argument.to_field(input.schema).ok()?;
            let field = field.as_ref().clone().with_metadata(input.notes(argument));
            of_somebody(field.metadata()).then(|| (enums::held(), format!("{}[]", sql_name(&field))))
        }
        _ => None,
    }
}

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
        // Elements are of the type of their array, which knows more of it.
        LogicalPlan::Unnest(unnest) => {
            let inputs = of_plan(&unnest.input);
            let fields = unnest.input.schema().fields();
            let of = |index: &usize| -> Notes {
                let notes = inputs.get(*index).cloned().unwrap_or_default();
                let is_list = unnest.list_type_columns.iter().any(|(list, _)| list == index);
                let array = fields.get(*index).filter(|_| is_list);
                let array = array.map(|field| field.as_ref().clone().with_metadata(notes.clone()));
                // What the note of an array says that its element does not.
                let told = notes.get(ANNOTATION).and_then(|note| note.strip_suffix("[]"));
                match (array.as_ref().and_then(element), told) {
                    (Some(_), Some(told)) => Notes::from([(ANNOTATION.to_owned(), told.to_owned())]),
                    (Some(element), None) => element.metadata().clone(),
                    (None, _) => notes,
                }
            };
            unnest.dependency_indices.iter().map(of).collect()
        }
        LogicalPlan::RecursiveQuery(query) => of_plan(&query.static_term),
        LogicalPlan::Union(union) => {
            let inputs: Vec<Vec<Notes>> = union.inputs.iter().map(|input| of_plan(input)).collect();
            let of_column = |column: usize| {
                let branches = union.inputs.iter().zip(&inputs);
                let typed = branches.filter(|(branch, _)| !is_null_column(branch, column));
                agreed(typed.filter_map(|(_, notes)| notes.get(column)))
            };
            (0..own.len()).map(of_column).collect()
        }
        LogicalPlan::Join(join) => match join.join_type {
            JoinType::LeftSemi | JoinType::LeftAnti => of_plan(&join.left),
            JoinType::RightSemi | JoinType::RightAnti => of_plan(&join.right),
            JoinType::LeftMark | JoinType::RightMark => return own,
            _ => [of_plan(&join.left), of_plan(&join.right)].concat(),
        },
        _ => return own,
    };
    match found.len() == own.len() {
        true => found,
        false => own,
    }
}

fn of_enum(notes: &Notes) -> bool {
    let note = notes.get(ANNOTATION);
    note.is_some_and(|note| enumeration::named(note).is_some())
}

fn of_composite(notes: &Notes) -> bool {
    let note = notes.get(ANNOTATION);
    note.is_some_and(|note| composite::named(note).is_some())
}

/// Whether it is `char(n)`.
fn is_padded(notes: &Notes) -> bool {
    let note = notes.get(ANNOTATION);
    note.is_some_and(|note| note.starts_with("char("))
}

/// Whether it is a type that somebody made.
fn of_somebody(notes: &Notes) -> bool {
    of_enum(notes) || of_composite(notes)
}

fn is_null(expr: &Expr) -> bool {
    match expr {
        Expr::Literal(value, _) => value.is_null(),
        Expr::Cast(cast) => is_null(&cast.expr),
        Expr::Alias(alias) => is_null(&alias.expr),
        _ => false,
    }
}

fn unaliased(expr: &Expr) -> &Expr {
    match expr {
        Expr::Alias(alias) => unaliased(&alias.expr),
        expr => expr,
    }
}

/// Whether a column of a plan is NULL, whose type nobody gave.
fn is_null_column(plan: &LogicalPlan, column: usize) -> bool {
    match plan {
        LogicalPlan::Projection(projection) => match projection.expr.get(column).map(unaliased) {
            // Made where the branches get one type.
            Some(Expr::Column(of)) => {
                let index = projection.input.schema().maybe_index_of_column(of);
                index.is_some_and(|index| is_null_column(&projection.input, index))
            }
            expr => expr.is_some_and(is_null),
        },
        LogicalPlan::SubqueryAlias(alias) => is_null_column(&alias.input, column),
        _ => false,
    }
}

/// A type's notes without its length or its digits.
fn without_length(mut notes: Notes) -> Notes {
    match notes.get(ANNOTATION).map(String::as_str) {
        Some(name) if name.starts_with("varchar") => {
            notes.insert(ANNOTATION.to_owned(), "varchar".to_owned());
        }
        Some(name) if digits::names_a_time(name) => {
            notes.remove(ANNOTATION);
        }
        _ => {}
    }
    notes
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
            all = without_length(all);
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
        notes
            .cloned()
            .unwrap_or_else(|| self.own(&Expr::Column(column.clone())))
    }

    fn notes(&self, expr: &Expr) -> Notes {
        match expr {
            Expr::Column(column) => self.column(column),
            Expr::Alias(alias) => self.notes(&alias.expr),
            // What has become a float is no numeric any more.
            Expr::Cast(cast) if cast.field.data_type().is_floating() => Notes::new(),
            Expr::Case(case) => {
                let branches = case.when_then_expr.iter().map(|(_, then)| then.as_ref());
                let agreed = self.agreed(branches.chain(case.else_expr.as_deref()));
                match case.else_expr {
                    Some(_) => agreed,
                    None => without_length(agreed),
                }
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
                ("first_value" | "last_value" | "any_value", [value, ..]) => {
                    without_length(self.notes(value))
                }
                ("min" | "max", [value]) => {
                    let is_text = value
                        .get_type(self.schema)
                        .is_ok_and(|data_type| is_text(&data_type));
                    let notes = self.notes(value);
                    // The least varchar is a text.
                    match is_text && !of_enum(&notes) && !is_padded(&notes) {
                        true => Notes::new(),
                        false => without_length(notes),
                    }
                }
                _ => self.own(expr),
            },
            Expr::WindowFunction(call) => match (call.fun.name(), call.params.args.as_slice()) {
                (
                    "lag" | "lead" | "first_value" | "last_value" | "nth_value" | "min" | "max",
                    [value, ..],
                ) => {
                    let notes = self.notes(value);
                    match of_somebody(&notes) {
                        true => notes,
                        false => self.own(expr),
                    }
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
        let (nulls, typed): (Vec<&Expr>, Vec<&Expr>) = expressions.partition(|expr| is_null(expr));
        // Each is asked once: expressions nest, and what is asked twice at every level takes twice as long with each.
        let mut typed: Vec<(&Expr, Notes)> = typed.into_iter().map(|expr| (expr, self.notes(expr))).collect();
        // A quoted literal beside an enum is one of its values.
        if typed.iter().any(|(_, notes)| of_enum(notes)) {
            typed.retain(|(expr, _)| !matches!(expr, Expr::Literal(ScalarValue::Utf8(_), None)));
        }
        let agreed = agreed(typed.iter().map(|(_, notes)| notes));
        match nulls.is_empty() {
            true => agreed,
            false => without_length(agreed),
        }
    }

    /// `ARRAY[..]` of values of a composite type as an array whose elements say their type; `None`: it is something else.
    fn array_of_composites(&self, expr: &Expr) -> Option<Expr> {
        let Expr::ScalarFunction(call) = unaliased(expr) else {
            return None;
        };
        let first = call.args.first().filter(|_| call.func.name() == "make_array")?;
        let notes = self.agreed(call.args.iter());
        if !of_composite(&notes) {
            return None;
        }
        let (_, field) = first.to_field(self.schema).ok()?;
        let field = field.as_ref().clone().with_metadata(notes);
        let target = lit(format!("{}[]", sql_name(&field)));
        Some(enums::held().call(vec![unaliased(expr).clone(), target]))
    }

    /// The notes of an array of elements with these notes.
    fn array_of(&self, element: &Expr, notes: Notes) -> Notes {
        let Ok(data_type) = element.get_type(self.schema) else {
            return Notes::new();
        };
        let notes = without_length(notes);
        if of_somebody(&notes) || notes.is_empty() || matches!(data_type, DataType::List(_)) {
            return Notes::new();
        }
        let name = pg_type(&Field::new("", data_type, true).with_metadata(notes))
            .name()
            .to_owned();
        Notes::from([(ANNOTATION.to_owned(), format!("{name}[]"))])
    }
}
