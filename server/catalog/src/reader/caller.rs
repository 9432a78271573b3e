//! What the query of a view or the body of a function asks about whoever reads: `current_user` and its like, `current_setting(..)`.
//!
//! In a statement itself the session answers before the statement is bound. What stands in a view is bound for each statement anew, and
//! means whoever gives that, as in PostgreSQL, also where the rights are those of the view's owner. A materialized view is read by
//! everybody, so that nothing of one reader can be in it.

use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::{Expr, Function, Select, SelectItem, Value, VisitorMut};
use millrace_functions::sql::column_names;
use millrace_functions::syntax::{self, arguments, literal_text, name_of, number};
use millrace_parser::walk::Walk;
use millrace_postgres::error::{SqlError, SqlResult, SqlState};

use super::Reader;
use crate::scope::Scope;

/// Those that a materialized view has no answer to.
const OF_READER: [&str; 5] = [
    "current_user",
    "user",
    "current_role",
    "session_user",
    "current_setting",
];
/// Those that the parser takes for names, where they are no calls.
const SPELLED: [&str; 2] = ["current_role", "current_schema"];

impl Reader<'_> {
    /// Puts what a part of a view or function asks about whoever reads in place of the question.
    ///
    /// # Errors
    /// 0A000: the view is kept for everybody. There is no such setting.
    pub(super) fn answer_for_caller(&self, node: &mut impl Walk) -> SqlResult<()> {
        match node.walk_mut(&mut Answers(self)) {
            ControlFlow::Continue(()) => Ok(()),
            ControlFlow::Break(error) => Err(*error),
        }
    }

    /// The answer; `None`: something else is asked.
    fn answer(&self, function: &Function) -> SqlResult<Option<Expr>> {
        let Some(name) = name_of(function) else {
            return Ok(None);
        };
        if self.plans_view {
            return match OF_READER.contains(&name.as_str()) {
                true => Err(SqlError::unsupported(format!(
                    "{name} is not supported in a materialized view or subscription"
                ))
                .with_detail("Its rows are kept, and are the same for everybody who reads them.")
                .with_hint("Use it in a view over the materialized view.")),
                false => Ok(None),
            };
        }
        let Some(scope) = self.scope else {
            return Ok(None);
        };
        if let Some(answer) = of_caller(scope, &name) {
            self.is_of_statement.set(true);
            return Ok(Some(answer));
        }
        let answer = match name.as_str() {
            "current_setting" => {
                let arguments = arguments(function);
                let Some(setting) = arguments.first().and_then(|argument| literal_text(argument)) else {
                    return Err(SqlError::unsupported(
                        "current_setting() in a view or function is supported only with a name that is a constant",
                    ));
                };
                let known = match self.system.server_setting(&setting) {
                    Some(value) => Ok(value),
                    None => scope.settings.get(&setting),
                };
                match known {
                    Ok(value) => syntax::text(&value),
                    Err(error) if error.code == SqlState::UndefinedObject && arguments.len() > 1 => {
                        Expr::value(Value::Null)
                    }
                    Err(error) => return Err(error),
                }
            }
            _ => return Ok(None),
        };
        self.is_of_statement.set(true);
        Ok(Some(answer))
    }
}

/// What a function without arguments tells of whoever asks; `None`: it is none of these.
pub fn of_caller(scope: &Scope, name: &str) -> Option<Expr> {
    let identity = scope.settings.identity();
    Some(match name {
        "current_user" | "user" | "current_role" => {
            syntax::text(&scope.catalog.role_name(identity.current_user()))
        }
        "session_user" => syntax::text(&scope.catalog.role_name(identity.session_user)),
        "current_schema" => {
            let mut path = scope.search_path.iter();
            let first = path.find(|schema| scope.catalog.has_schema(&scope.database, schema));
            first.map_or(Expr::value(Value::Null), |schema| syntax::text(schema))
        }
        "pg_backend_pid" => number(scope.session?.to_string()),
        _ => return None,
    })
}

struct Answers<'a, 'b>(&'a Reader<'b>);

impl VisitorMut for Answers<'_, '_> {
    type Break = Box<SqlError>;

    // A column is named after its function, which is gone afterwards.
    fn pre_visit_select(&mut self, select: &mut Select) -> ControlFlow<Self::Break> {
        for item in &mut select.projection {
            if let SelectItem::UnnamedExpr(expr) = item {
                call_of_name(expr);
            }
        }
        column_names::name_columns(select);
        ControlFlow::Continue(())
    }

    fn post_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<Self::Break> {
        call_of_name(expr);
        let Expr::Function(function) = expr else {
            return ControlFlow::Continue(());
        };
        match self.0.answer(function) {
            Ok(Some(answer)) => *expr = answer,
            Ok(None) => {}
            Err(error) => return ControlFlow::Break(Box::new(error)),
        }
        ControlFlow::Continue(())
    }
}

/// Makes a call of what the parser has for a name.
pub fn call_of_name(expr: &mut Expr) {
    let Expr::Identifier(name) = &*expr else {
        return;
    };
    let called = SPELLED
        .iter()
        .find(|spelled| name.value.eq_ignore_ascii_case(spelled));
    if let (Some(called), None) = (called, name.quote_style) {
        *expr = syntax::call(called, vec![]);
    }
}
