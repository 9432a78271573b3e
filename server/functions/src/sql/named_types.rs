//! The types in a statement that somebody made: names become what says all of them.
//!
//! `x::mood` has a type then that needs no catalog; a cast to a domain becomes one to what the domain is made of, inside of
//! `pg_domain(..)`, which looks at the value (see [`crate::domain`]).

use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::{self, Expr, Value, VisitorMut};
use millrace_parser::walk::{Walk, walk_expressions_mut};
use millrace_postgres::error::{SqlError, SqlResult};
use millrace_postgres::types::named::{Domain, TypeNames, qualified, resolved};

use crate::{domain, syntax};

/// Replaces the names in what is walked through.
///
/// # Errors
/// A name cannot be looked up; an array of a domain is meant.
pub fn resolve(node: &mut impl Walk, names: &dyn TypeNames) -> SqlResult<()> {
    ended(node.walk_mut(&mut Resolver(names)))
}

/// Makes the names complete, so that they mean the same wherever they are read.
///
/// # Errors
/// A name cannot be looked up.
pub fn qualify(node: &mut impl Walk, names: &dyn TypeNames) -> SqlResult<()> {
    ended(walk_expressions_mut(node, |expr| {
        let (Expr::Cast { data_type, .. } | Expr::TypedString(ast::TypedString { data_type, .. })) = expr
        else {
            return ControlFlow::Continue(());
        };
        match qualified(data_type, names) {
            Ok(complete) => {
                *data_type = complete;
                ControlFlow::Continue(())
            }
            Err(error) => ControlFlow::Break(Box::new(error)),
        }
    }))
}

fn ended(flow: ControlFlow<Box<SqlError>>) -> SqlResult<()> {
    match flow {
        ControlFlow::Continue(()) => Ok(()),
        ControlFlow::Break(error) => Err(*error),
    }
}

struct Resolver<'a>(&'a dyn TypeNames);

impl VisitorMut for Resolver<'_> {
    type Break = Box<SqlError>;

    fn post_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<Self::Break> {
        match one(expr, self.0) {
            Ok(()) => ControlFlow::Continue(()),
            Err(error) => ControlFlow::Break(Box::new(error)),
        }
    }
}

fn one(expr: &mut Expr, names: &dyn TypeNames) -> SqlResult<()> {
    let (Expr::Cast { data_type, .. } | Expr::TypedString(ast::TypedString { data_type, .. })) = expr else {
        return Ok(());
    };
    let known = resolved(data_type, names)?;
    *data_type = known.data_type;
    for domain in known.domains.iter().rev() {
        *expr = checked(std::mem::replace(expr, Expr::value(Value::Null)), domain, names)?;
    }
    Ok(())
}

/// A value that is of a domain's base type, once it was looked at.
///
/// # Errors
/// A type in a CHECK cannot be looked up.
pub fn checked(value: Expr, of: &Domain, names: &dyn TypeNames) -> SqlResult<Expr> {
    let mut arguments = vec![
        value.clone(),
        syntax::text(&of.shown()),
        Expr::value(Value::Boolean(of.not_null)),
    ];
    for (name, check) in &of.checks {
        arguments.push(syntax::text(name));
        arguments.push(condition(check, &value, names)?);
    }
    Ok(syntax::call(domain::NAME, arguments))
}

/// The condition of a CHECK on a value.
///
/// # Errors
/// A type in it cannot be looked up.
pub fn condition(check: &Expr, value: &Expr, names: &dyn TypeNames) -> SqlResult<Expr> {
    let mut condition = check.clone();
    resolve(&mut condition, names)?;
    let _ = walk_expressions_mut(&mut condition, |expr| {
        let is_value = matches!(expr, Expr::Identifier(name) if name.quote_style.is_none() && name.value.eq_ignore_ascii_case("value"));
        if is_value {
            *expr = Expr::Nested(Box::new(value.clone()));
        }
        ControlFlow::<()>::Continue(())
    });
    Ok(condition)
}
