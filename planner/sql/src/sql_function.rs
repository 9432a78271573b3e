//! Functions whose bodies are SQL expressions: calls are replaced by the bodies before anything is bound.
//!
//! So a query that calls one is planned and maintained as if it had been written out, an aggregate of aggregates too.

use std::ops::ControlFlow;

use datafusion::error::{DataFusionError, Result};
use datafusion::sql::sqlparser::ast::{
    Expr, Function, FunctionArg, FunctionArgExpr, FunctionArguments, Ident, Query, SelectItem, SetExpr,
    TableAlias, TableAliasColumnDef, TableFactor, Visitor, VisitorMut,
};
use millrace_parser::walk::{Walk, walk_expressions};

use crate::called::Called;
use crate::catalog::{CatalogReader, SqlFunction};
use crate::error::{Fault, Faulty};
use crate::template::{self, call};

/// Functions that call functions: more than this may be a circle, which a replaced function can make.
const DEPTH_MAX: usize = 32;
/// Expressions that one call may become. One that uses its argument twice doubles it, and calls nest.
const EXPRESSIONS_MAX: usize = 10_000;

/// Replaces the calls of SQL functions in a statement or an expression.
///
/// # Errors
/// A call does not fit its function.
pub fn expand(node: &mut impl Walk, catalog: &dyn CatalogReader) -> Result<()> {
    expand_at(node, catalog, 0)
}

fn expand_at(node: &mut impl Walk, catalog: &dyn CatalogReader, depth: usize) -> Result<()> {
    match node.walk_mut(&mut Expander { catalog, depth }) {
        ControlFlow::Continue(()) => Ok(()),
        ControlFlow::Break(error) => Err(*error),
    }
}

struct Expander<'a> {
    catalog: &'a dyn CatalogReader,
    depth: usize,
}

impl VisitorMut for Expander<'_> {
    type Break = Box<DataFusionError>;

    fn pre_visit_table_factor(&mut self, factor: &mut TableFactor) -> ControlFlow<Self::Break> {
        match self.relation(factor) {
            Ok(Some(derived)) => {
                *factor = derived;
                ControlFlow::Continue(())
            }
            Ok(None) => ControlFlow::Continue(()),
            Err(error) => ControlFlow::Break(Box::new(error)),
        }
    }

    /// Arguments were expanded before the call that they are in.
    fn post_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<Self::Break> {
        let Expr::Function(call) = expr else {
            return ControlFlow::Continue(());
        };
        let expanded = match self.catalog.function(&call.name) {
            Ok(Some(function)) if function.gives_rows => Err(DataFusionError::NotImplemented(format!(
                "function {} gives rows: it can be called only in FROM",
                call.name
            ))),
            Ok(Some(function)) if function.is_reducer => self.reducer(call, &function),
            Ok(Some(function)) => self.body(call, &function),
            Ok(None) => return ControlFlow::Continue(()),
            Err(error) => Err(error),
        };
        match expanded {
            Ok(body) => {
                *expr = body;
                ControlFlow::Continue(())
            }
            Err(error) => ControlFlow::Break(Box::new(error)),
        }
    }
}

impl Expander<'_> {
    /// The query that a function in FROM is; `None`: it is another relation.
    fn relation(&self, factor: &TableFactor) -> Result<Option<TableFactor>> {
        let Some(called) = Called::of(factor) else {
            return Ok(None);
        };
        let (name, alias) = (called.name, called.alias);
        let Some(function) = self.catalog.function(name)? else {
            return Ok(None);
        };
        if function.is_reducer {
            let message = format!("reducer {name} cannot be called in FROM");
            return Err(DataFusionError::NotImplemented(message));
        }
        if called.with_ordinality {
            let message = format!("function {name} WITH ORDINALITY is not supported");
            return Err(DataFusionError::NotImplemented(message));
        }
        let Expr::Function(mut written) = call("f", vec![]) else {
            return Ok(None);
        };
        written.name = name.clone();
        if let FunctionArguments::List(list) = &mut written.args {
            list.args = called.arguments.to_vec();
        }
        let body = self.body(&written, &function)?;
        let last = name.0.last().and_then(|part| part.as_ident().cloned());
        let own_name = last.unwrap_or_else(|| Ident::new("f"));
        let query = match body {
            Expr::Nested(inner) if function.gives_rows => match *inner {
                Expr::Subquery(query) => query,
                other => {
                    return Err(DataFusionError::Internal(format!("{other} is no query")));
                }
            },
            // Its value is a row of one column.
            value => {
                let mut query = template::parse("SELECT 1")
                    .map_err(|error| DataFusionError::SQL(Box::new(error), None))?;
                if let SetExpr::Select(select) = query.body.as_mut() {
                    let alias = match &function.column {
                        Some(column) => Ident::with_quote('"', column),
                        None => alias.map_or(own_name.clone(), |alias| alias.name.clone()),
                    };
                    select.projection = vec![SelectItem::ExprWithAlias { expr: value, alias }];
                }
                Box::new(query)
            }
        };
        let mut shown = alias.cloned().unwrap_or_else(|| TableAlias {
            explicit: true,
            name: own_name.clone(),
            columns: vec![],
            at: None,
        });
        // A column that is called after the function is called after its alias.
        if let SetExpr::Select(select) = query.body.as_ref()
            && let [SelectItem::ExprWithAlias { alias: column, .. }] = select.projection.as_slice()
            && folded(column) == folded(&own_name)
            && shown.columns.is_empty()
        {
            shown.columns.push(TableAliasColumnDef {
                name: shown.name.clone(),
                data_type: None,
            });
        }
        Ok(Some(TableFactor::Derived {
            lateral: true,
            subquery: query,
            alias: Some(shown),
            sample: None,
        }))
    }

    /// The same call, of the aggregate behind a reducer.
    fn reducer(&self, call: &Function, function: &SqlFunction) -> Result<Expr> {
        if call.over.is_some() || !call.within_group.is_empty() {
            let message = format!("reducer {} cannot be called with OVER or WITHIN GROUP", call.name);
            return Err(DataFusionError::NotImplemented(message));
        }
        let mut plain = call.clone();
        plain.filter = None;
        if let FunctionArguments::List(list) = &mut plain.args {
            list.duplicate_treatment = None;
            list.clauses.clear();
        }
        let Expr::Nested(body) = self.body(&plain, function)? else {
            return Err(DataFusionError::Internal("a reducer is no call".into()));
        };
        let Expr::Function(body) = *body else {
            return Err(DataFusionError::Internal("a reducer is no call".into()));
        };
        let mut made = call.clone();
        made.name = body.name;
        if let (FunctionArguments::List(list), FunctionArguments::List(given)) = (&mut made.args, body.args) {
            list.args = given.args;
        }
        Ok(Expr::Function(made))
    }

    fn body(&self, call: &Function, function: &SqlFunction) -> Result<Expr> {
        let wrong = |fault: Fault, message: String| -> DataFusionError { Faulty { fault, message }.into() };
        if self.depth >= DEPTH_MAX {
            let message = format!(
                "functions call each other more than {DEPTH_MAX} deep, or in a circle: {} is one of them",
                call.name
            );
            return Err(wrong(Fault::TooComplex, message));
        }
        let is_plain = call.over.is_none() && call.filter.is_none() && call.within_group.is_empty();
        let arguments = arguments(call).filter(|_| is_plain).ok_or_else(|| {
            let message = format!(
                "function {} takes expressions only, and cannot be called with DISTINCT, FILTER or OVER",
                call.name
            );
            wrong(Fault::UndefinedFunction, message)
        })?;
        let Some(arguments) = placed(arguments, function) else {
            let message = format!(
                "function {} takes {} arguments, not {}",
                call.name,
                function.parameters.len(),
                count(call)
            );
            return Err(wrong(Fault::UndefinedFunction, message));
        };
        // What reads relations would take the columns of an argument for theirs.
        if function.reads_relations && has_query(&function.body) && arguments.iter().any(names_columns) {
            return Err(DataFusionError::NotImplemented(format!(
                "an argument of function {} that names columns is not supported, because its body reads relations",
                call.name
            )));
        }
        let mut body = function.body.clone();
        expand_at(&mut body, self.catalog, self.depth + 1)?;
        let mut substitution = Substitution {
            parameters: &function.parameters,
            sizes: arguments.iter().map(size).collect(),
            arguments: &arguments,
            size: size(&body),
        };
        match body.walk_mut(&mut substitution) {
            ControlFlow::Continue(()) if substitution.size <= EXPRESSIONS_MAX => {
                Ok(Expr::Nested(Box::new(body)))
            }
            _ => {
                let message = format!(
                    "a call of function {} expands to more than {EXPRESSIONS_MAX} expressions",
                    call.name
                );
                Err(wrong(Fault::TooComplex, message))
            }
        }
    }
}

/// How many arguments a call has.
fn count(call: &Function) -> usize {
    match &call.args {
        FunctionArguments::List(list) => list.args.len(),
        _ => 0,
    }
}

/// The arguments in the order of the parameters, with the defaults of those that are not given; `None`: they do not fit.
fn placed(given: Vec<(Option<String>, Expr)>, function: &SqlFunction) -> Option<Vec<Expr>> {
    let count = function.parameters.len();
    let mut places: Vec<Option<Expr>> = vec![None; count];
    for (at, (name, value)) in given.into_iter().enumerate() {
        let place = match name {
            Some(name) => function
                .parameters
                .iter()
                .position(|parameter| *parameter == name)?,
            None => at,
        };
        let free = places.get_mut(place).filter(|place| place.is_none())?;
        *free = Some(value);
    }
    let required = count - function.defaults.len();
    let or_default = |(at, value): (usize, Option<Expr>)| {
        value.or_else(|| function.defaults.get(at.checked_sub(required)?).cloned())
    };
    places.into_iter().enumerate().map(or_default).collect()
}

/// The arguments of a call that is nothing but a call, with their names.
fn arguments(call: &Function) -> Option<Vec<(Option<String>, Expr)>> {
    match &call.args {
        FunctionArguments::None => Some(vec![]),
        FunctionArguments::List(list) if list.duplicate_treatment.is_none() && list.clauses.is_empty() => {
            let plain = |argument: &FunctionArg| match argument {
                FunctionArg::Unnamed(FunctionArgExpr::Expr(expr)) => Some((None, expr.clone())),
                FunctionArg::Named {
                    name,
                    arg: FunctionArgExpr::Expr(expr),
                    ..
                } => Some((Some(folded(name)), expr.clone())),
                _ => None,
            };
            list.args.iter().map(plain).collect()
        }
        _ => None,
    }
}

/// Whether there is a query in an expression.
fn has_query(expr: &Expr) -> bool {
    struct Queries;
    impl Visitor for Queries {
        type Break = ();

        fn pre_visit_query(&mut self, _: &Query) -> ControlFlow<()> {
            ControlFlow::Break(())
        }
    }
    expr.walk(&mut Queries).is_break()
}

fn names_columns(expr: &Expr) -> bool {
    let found = walk_expressions(expr, |expr| match expr {
        Expr::Identifier(_) | Expr::CompoundIdentifier(_) => ControlFlow::Break(()),
        _ => ControlFlow::Continue(()),
    });
    found.is_break()
}

/// How many expressions it is made of.
fn size(expr: &Expr) -> usize {
    struct Count(usize);
    impl Visitor for Count {
        type Break = ();

        fn pre_visit_expr(&mut self, _: &Expr) -> ControlFlow<()> {
            self.0 += 1;
            ControlFlow::Continue(())
        }
    }
    let mut count = Count(0);
    // It never breaks off.
    let _ = expr.walk(&mut count);
    count.0
}

/// Puts arguments in the place of parameters, until there is too much.
struct Substitution<'a> {
    parameters: &'a [String],
    arguments: &'a [Expr],
    /// Of the arguments.
    sizes: Vec<usize>,
    /// Of what becomes of the body.
    size: usize,
}

impl VisitorMut for Substitution<'_> {
    type Break = ();

    fn post_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<()> {
        if let Expr::Identifier(name) = expr
            && let Some(position) = self
                .parameters
                .iter()
                .position(|parameter| *parameter == folded(name))
        {
            self.size += self.sizes[position];
            if self.size > EXPRESSIONS_MAX {
                return ControlFlow::Break(());
            }
            *expr = Expr::Nested(Box::new(self.arguments[position].clone()));
        }
        ControlFlow::Continue(())
    }
}

fn folded(name: &Ident) -> String {
    match name.quote_style {
        Some(_) => name.value.clone(),
        None => name.value.to_lowercase(),
    }
}
