//! What depends on the session, put into a statement before it is bound: `current_user`, `current_database()`,
//! `current_setting(..)`, `pg_backend_pid()`, `pg_sleep(..)`.

use std::ops::ControlFlow;
use std::time::Duration;

use datafusion::sql::sqlparser::ast::{Expr, Function, Select, SelectItem, UnaryOperator, Value, VisitorMut};
use millrace_catalog::reader::{call_of_name, of_caller};
use millrace_catalog::settings;
use millrace_catalog::temporary::is_temporary;
use millrace_functions::cast;
use millrace_functions::sql::column_names;
use millrace_functions::syntax::{self, arguments, literal_text, name_of, number};
use millrace_parser::walk::Walk;
use millrace_postgres::error::{SqlError, SqlResult, SqlState};
use millrace_postgres::types::parse;

use crate::advisory;
use crate::news;
use crate::object_names;
use crate::sequences;
use crate::session::Session;

/// What a statement asked of the session beside its values.
#[derive(Debug, Default)]
pub struct Effects {
    /// How long `pg_sleep` wants to wait.
    pub sleep: Duration,
    /// The advisory locks for which it wants to wait.
    pub locks: Vec<advisory::Wanted>,
}

impl Effects {
    /// Refuses a statement that would wait for advisory locks, and does not.
    ///
    /// # Errors
    /// 0A000.
    pub fn check_locks(&self) -> SqlResult<()> {
        match self.locks.is_empty() {
            true => Ok(()),
            false => Err(SqlError::unsupported(
                "waiting for an advisory lock is supported only in a SELECT by itself",
            )),
        }
    }
}

/// Replaces the session's functions in a statement by their values.
///
/// # Errors
/// A setting does not exist or does not take the value.
pub fn replace(session: &Session, node: &mut impl Walk) -> SqlResult<Effects> {
    let mut replacer = Replacer {
        session,
        effects: Effects::default(),
        acts: true,
    };
    match node.walk_mut(&mut replacer) {
        ControlFlow::Continue(()) => Ok(replacer.effects),
        ControlFlow::Break(error) => Err(*error),
    }
}

/// As [`replace`], but nothing of the session changes.
///
/// # Errors
/// As [`replace`].
pub fn replace_for_description(session: &Session, node: &mut impl Walk) -> SqlResult<()> {
    let mut replacer = Replacer {
        session,
        effects: Effects::default(),
        acts: false,
    };
    match node.walk_mut(&mut replacer) {
        ControlFlow::Continue(()) => Ok(()),
        ControlFlow::Break(error) => Err(*error),
    }
}

struct Replacer<'a> {
    session: &'a Session,
    effects: Effects,
    /// Whether `set_config` sets.
    acts: bool,
}

impl VisitorMut for Replacer<'_> {
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

    fn pre_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<Self::Break> {
        match object_names::replaced(self.session, expr) {
            Ok(Some(value)) => *expr = value,
            Ok(None) => {}
            Err(error) => return ControlFlow::Break(Box::new(error)),
        }
        ControlFlow::Continue(())
    }

    fn post_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<Self::Break> {
        call_of_name(expr);
        let Expr::Function(function) = expr else {
            return ControlFlow::Continue(());
        };
        match self.value_of(function) {
            Ok(Some(value)) => {
                *expr = value;
                ControlFlow::Continue(())
            }
            Ok(None) => ControlFlow::Continue(()),
            Err(error) => ControlFlow::Break(Box::new(error)),
        }
    }
}

impl Replacer<'_> {
    fn value_of(&mut self, function: &Function) -> SqlResult<Option<Expr>> {
        let Some(name) = name_of(function) else {
            return Ok(None);
        };
        let session = self.session;
        let called = name.clone();
        Ok(Some(match name.as_str() {
            "current_user" | "user" | "current_role" | "session_user" | "current_schema"
            | "pg_backend_pid" => {
                return Ok(of_caller(&session.scope(), &name));
            }
            "current_database" | "current_catalog" => syntax::text(&session.info().database),
            "current_schemas" => {
                let scope = session.scope();
                let implicit = matches!(arguments(function).first(), Some(Expr::Value(value)) if value.value == Value::Boolean(true));
                let system = implicit.then(|| "pg_catalog".to_string());
                let own = scope
                    .search_path
                    .iter()
                    .filter(|schema| scope.catalog.has_schema(&scope.database, schema));
                let names = system
                    .into_iter()
                    .chain(own.cloned())
                    .map(|schema| syntax::text(&schema))
                    .collect();
                syntax::call("make_array", names)
            }
            "to_regclass" => match arguments(function)
                .first()
                .and_then(|argument| literal_text(argument))
            {
                Some(name) => object_names::to_regclass(session, &name)?,
                None if self.acts => return Ok(None),
                None => Expr::value(Value::Null),
            },
            "to_regrole" => match arguments(function)
                .first()
                .and_then(|argument| literal_text(argument))
            {
                Some(name) => object_names::to_regrole(session, &name),
                None if self.acts => return Ok(None),
                None => Expr::value(Value::Null),
            },
            "to_regtype" => match arguments(function)
                .first()
                .and_then(|argument| literal_text(argument))
            {
                Some(name) => object_names::to_regtype(session, &name)?,
                None if self.acts => return Ok(None),
                None => Expr::value(Value::Null),
            },
            "pg_relation_size" | "pg_total_relation_size" | "pg_table_size" | "pg_indexes_size" => {
                // The name of a relation stands for its oid.
                match arguments(function).as_slice() {
                    [Expr::Value(value), rest @ ..] => match &value.value {
                        Value::SingleQuotedString(name) | Value::EscapedStringLiteral(name) => {
                            let mut all = vec![object_names::regclass(session, name)?];
                            all.extend(rest.iter().map(|argument| (*argument).clone()));
                            syntax::call(&called, all)
                        }
                        _ => return Ok(None),
                    },
                    _ => return Ok(None),
                }
            }
            "nextval" | "currval" | "setval" | "lastval" => {
                return sequences::call(session, &name, function, self.acts);
            }
            "pg_postmaster_start_time" => {
                let milliseconds = session.database().started_at_ms();
                let seconds = format!("{}.{:03}", milliseconds / 1_000, milliseconds % 1_000);
                syntax::call("to_timestamp", vec![number(seconds)])
            }
            "current_setting" => {
                let arguments = arguments(function);
                let Some(name) = arguments.first().and_then(|argument| literal_text(argument)) else {
                    return Ok(self.undone());
                };
                let missing_ok = arguments.len() > 1;
                match session.setting(&name) {
                    Some(value) => syntax::text(&value),
                    None if missing_ok => Expr::value(Value::Null),
                    None => {
                        return Err(SqlError::new(
                            SqlState::UndefinedObject,
                            format!("unrecognized configuration parameter \"{name}\""),
                        ));
                    }
                }
            }
            "set_config" => {
                let arguments = arguments(function);
                let (Some(name), Some(value)) = (
                    arguments.first().and_then(|argument| literal_text(argument)),
                    arguments.get(1).and_then(|argument| literal_text(argument)),
                ) else {
                    return Ok(self.undone());
                };
                let is_local = match arguments.get(2) {
                    Some(Expr::Value(local)) => match &local.value {
                        Value::Boolean(local) => *local,
                        Value::SingleQuotedString(text) | Value::EscapedStringLiteral(text) => {
                            parse::boolean(text).unwrap_or_default()
                        }
                        _ => return Ok(self.undone()),
                    },
                    _ => return Ok(self.undone()),
                };
                if self.acts {
                    session.set_setting(&name, &value, is_local)?;
                }
                syntax::text(&value)
            }
            "pg_sleep" => {
                let Some(seconds) = arguments(function)
                    .first()
                    .and_then(|argument| number_of(argument))
                else {
                    if let Some(text) = self.undone() {
                        return Ok(Some(text));
                    }
                    return Err(SqlError::unsupported("pg_sleep takes only a number"));
                };
                let longest = Duration::from_secs(u64::from(u32::MAX));
                let sleep = Duration::try_from_secs_f64(seconds.max(0.0)).unwrap_or(longest);
                self.effects.sleep = (self.effects.sleep + sleep).min(longest);
                syntax::text("")
            }
            "pg_notify" => {
                let arguments = arguments(function);
                let literals: Vec<Option<String>> =
                    arguments.iter().map(|argument| literal_text(argument)).collect();
                match literals.as_slice() {
                    _ if !self.acts => {}
                    [Some(channel), payload] if payload.is_some() || is_null(arguments[1]) => {
                        news::notify(session, channel, payload.as_deref().unwrap_or_default())?;
                    }
                    _ => {
                        return Err(SqlError::unsupported(
                            "pg_notify() is supported only with texts that are constants",
                        ));
                    }
                }
                syntax::text("")
            }
            "pg_listening_channels" => {
                let channels = session.inbox.channels().into_iter();
                let channels = channels
                    .map(|channel| format!("\"{}\"", channel.replace('\\', "\\\\").replace('"', "\\\"")));
                let list = format!("{{{}}}", channels.collect::<Vec<_>>().join(","));
                let array = syntax::call(cast::NAME, vec![syntax::text(&list), syntax::text("text[]")]);
                syntax::call("unnest", vec![array])
            }
            _ => {
                let locks = &mut self.effects.locks;
                return advisory::value(session, &name, function, self.acts, locks);
            }
        }))
    }
}

fn is_null(expr: &Expr) -> bool {
    matches!(expr, Expr::Value(value) if value.value == Value::Null)
}

impl Replacer<'_> {
    /// What stands for a call whose arguments are parameters while it is only described: a text, which is what it gives.
    fn undone(&self) -> Option<Expr> {
        (!self.acts).then(|| syntax::text(""))
    }
}

fn number_of(expr: &Expr) -> Option<f64> {
    match expr {
        Expr::UnaryOp {
            op: UnaryOperator::Minus,
            expr,
        } => number_of(expr).map(|number| -number),
        other => literal_text(other)?.trim().parse().ok(),
    }
}

/// The search path as it is for a view that is made now: without `"$user"` and without what does not exist.
pub fn lasting_search_path(session: &Session) -> Vec<String> {
    let scope = session.scope();
    let mut path: Vec<String> = scope
        .search_path
        .iter()
        .filter(|schema| is_temporary(schema) || scope.catalog.has_schema(&scope.database, schema))
        .cloned()
        .collect();
    path.dedup();
    if path.is_empty() {
        path = settings::split_list(millrace_catalog::DEFAULT_SCHEMA);
    }
    path
}
