//! Functions, aggregates and reducers as the catalog has them: bodies are SQL expressions, or texts in JavaScript.

use std::ops::ControlFlow;
use std::sync::Arc;

use arrow::datatypes::FieldRef;
use datafusion::sql::sqlparser::ast::{self, Expr, VisitorMut};
use datafusion::sql::sqlparser::dialect::PostgreSqlDialect;
use datafusion::sql::sqlparser::parser::Parser;
use millrace_functions::sql::{named_types, rewrite};
use millrace_functions::syntax;
use millrace_javascript::{Form, Program};
use millrace_parser::ast::FunctionBody;
use millrace_parser::walk::{Walk, walk_expressions_mut};
use millrace_postgres::error::{SqlError, SqlResult};
use millrace_postgres::types;
use millrace_postgres::types::named::{TypeNames, resolved};
use millrace_sql::SqlFunction;
use millrace_sql::template::ROWS_OF_FUNCTION;
use serde::{Deserialize, Serialize};

/// See the module.
#[derive(Debug, Clone)]
pub struct FunctionDef {
    /// Whether it is computed from the rows of a group.
    pub is_aggregate: bool,
    /// Names, folded, and types.
    pub parameters: Vec<(String, ast::DataType)>,
    /// Of the last parameters, what they are if a call does not give them.
    pub defaults: Vec<Expr>,
    pub returns: ast::DataType,
    /// The columns of its rows, folded, if it gives rows.
    pub rows: Vec<(String, ast::DataType)>,
    /// Whether a row is a value, not an object by the columns' names (`SETOF`).
    pub is_setof: bool,
    /// Whether the columns of `rows` are OUT parameters: it gives one row, or the value of the only one.
    pub is_row: bool,
    /// Whether a NULL among the arguments makes NULL.
    pub strict: bool,
    pub body: FunctionBody,
}

/// The lasting form.
#[derive(Debug, Serialize, Deserialize)]
pub struct StoredFunction {
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    aggregate: bool,
    parameters: Vec<(String, String)>,
    returns: String,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    rows: Vec<(String, String)>,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    setof: bool,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    row: bool,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    defaults: Vec<String>,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    strict: bool,
    /// None: SQL.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    language: Option<String>,
    body: String,
}

/// The language of [`StoredFunction`].
const JAVASCRIPT: &str = "javascript";

impl FunctionDef {
    /// Whether the body is a text in JavaScript.
    pub fn is_javascript(&self) -> bool {
        matches!(self.body, FunctionBody::Javascript(_))
    }

    /// The expression of a body in SQL.
    pub fn expression(&self) -> Option<&Expr> {
        match &self.body {
            FunctionBody::Sql(body) => Some(body.as_ref()),
            FunctionBody::Javascript(_) => None,
        }
    }

    /// What a body in JavaScript is to its engine.
    ///
    /// # Errors
    /// A type does not exist; or the body is SQL.
    pub fn program(&self, name: &str, names: &dyn TypeNames) -> SqlResult<Program> {
        let FunctionBody::Javascript(text) = &self.body else {
            return Err(SqlError::internal("the body of a function is not in JavaScript"));
        };
        let field = |name: &str, data_type: &ast::DataType| {
            let data_type = types::from_sql(&resolved(data_type, names)?.data_type)?;
            Ok(data_type.field(name, true))
        };
        let parameters = self.parameters.iter();
        let parameters = parameters.map(|(name, data_type)| Ok(FieldRef::new(field(name, data_type)?)));
        let columns = self.rows.iter().map(|(name, data_type)| field(name, data_type));
        let returns = match self.rows.is_empty() || self.is_setof {
            true => Arc::new(field("item", &self.returns)?),
            false => Program::record(columns.collect::<SqlResult<_>>()?),
        };
        Ok(Program {
            name: name.to_owned(),
            form: match (self.is_aggregate, self.rows.is_empty()) {
                (true, _) => Form::Reducer,
                (false, true) => Form::Scalar,
                (false, false) => Form::Rows,
            },
            parameters: parameters.collect::<SqlResult<_>>()?,
            returns,
            gives_rows: !self.rows.is_empty(),
            strict: self.strict,
            body: text.clone(),
        })
    }

    /// What calls of a function in JavaScript are replaced by: a call of a function that the binder knows by `name`, with arguments
    /// and a result of the types that were said. `written`: what it is called in messages.
    ///
    /// # Errors
    /// A type does not exist.
    pub fn called(&self, name: &str, written: &str, names: &dyn TypeNames) -> SqlResult<SqlFunction> {
        let quoted = millrace_parser::quote_identifier;
        let parameters: Vec<String> = self.parameters.iter().map(|(name, _)| quoted(name)).collect();
        let call = format!("\"{name}\"({})", parameters.join(", "));
        let text = match self.rows.is_empty() {
            true => call,
            false => {
                let columns = self.rows.iter().map(|(name, data_type)| match self.is_setof {
                    true => format!("CAST(\"row\" AS {data_type}) AS {}", quoted(name)),
                    false => {
                        let key = name.replace('\'', "''");
                        format!(
                            "CAST(get_field(\"row\", '{key}') AS {data_type}) AS {}",
                            quoted(name)
                        )
                    }
                });
                let columns: Vec<String> = columns.collect();
                format!(
                    "(SELECT {} FROM UNNEST({call}) AS \"{ROWS_OF_FUNCTION}\" (\"row\"))",
                    columns.join(", ")
                )
            }
        };
        let mut body = millrace_parser::parse_expression(&text)?;
        // It never breaks off.
        let _ = body.walk_mut(&mut Typed(&self.parameters));
        if self.rows.is_empty() && !self.is_aggregate {
            body = cast(body, &self.returns);
        }
        named_types::resolve(&mut body, names)?;
        rewrite::expression(&mut body)?;
        self.mark_arguments(&mut body, written);
        Ok(SqlFunction {
            parameters: self.parameters.iter().map(|(name, _)| name.clone()).collect(),
            defaults: vec![],
            column: None,
            gives_rows: !self.rows.is_empty(),
            reads_relations: false,
            is_reducer: self.is_aggregate,
            body,
        })
    }

    /// What calls are replaced by: arguments and result are of the types that were said. `written`: what it is called in messages.
    ///
    /// # Errors
    /// A type does not exist; or the body is in JavaScript.
    pub fn inlined(&self, written: &str, names: &dyn TypeNames) -> SqlResult<SqlFunction> {
        let Some(body) = self.expression() else {
            return Err(SqlError::internal("the body of a function is not in SQL"));
        };
        let mut body = body.clone();
        // It never breaks off.
        let _ = body.walk_mut(&mut Typed(&self.parameters));
        let mut body = match self.gives_rows() {
            false => self.unless_null(cast(body, &self.returns))?,
            true => self.rows_of(body)?,
        };
        named_types::resolve(&mut body, names)?;
        rewrite::expression(&mut body)?;
        self.mark_arguments(&mut body, written);
        let mut defaults = self.defaults.clone();
        for default in &mut defaults {
            named_types::resolve(default, names)?;
            rewrite::expression(default)?;
        }
        let column = self.rows.first().filter(|_| self.is_row && !self.gives_rows());
        Ok(SqlFunction {
            parameters: self.parameters.iter().map(|(name, _)| name.clone()).collect(),
            defaults,
            column: column.map(|(name, _)| name.clone()),
            gives_rows: self.gives_rows(),
            reads_relations: true,
            is_reducer: false,
            body,
        })
    }

    /// Whether it stands in FROM only.
    pub fn gives_rows(&self) -> bool {
        match self.is_row {
            true => self.rows.len() > 1,
            false => !self.rows.is_empty(),
        }
    }

    /// The value, or NULL where an argument of a strict function is.
    fn unless_null(&self, value: Expr) -> SqlResult<Expr> {
        let parameters = self.parameters.iter().filter(|_| self.strict);
        let is_null = parameters
            .map(|(name, _)| Expr::IsNull(Box::new(Expr::Identifier(ast::Ident::with_quote('"', name)))));
        let any = is_null.reduce(|left, right| Expr::BinaryOp {
            left: Box::new(left),
            op: ast::BinaryOperator::Or,
            right: Box::new(right),
        });
        match any {
            None => Ok(value),
            Some(any) => {
                let text = format!("CASE WHEN {any} THEN NULL ELSE {value} END");
                Ok(millrace_parser::parse_expression(&text)?)
            }
        }
    }

    /// Tells the casts of arguments whose they are: an argument is cast only to what its type becomes without being asked.
    fn mark_arguments(&self, body: &mut Expr, written: &str) {
        let _ = walk_expressions_mut(body, |expr| {
            if let Expr::Function(call) = expr
                && call.name.to_string() == millrace_functions::cast::NAME
                && let ast::FunctionArguments::List(list) = &mut call.args
                && let [value, _] = list.args.as_slice()
                && self.is_parameter(value)
            {
                let written = ast::FunctionArgExpr::Expr(syntax::text(written));
                list.args.push(ast::FunctionArg::Unnamed(written));
            }
            ControlFlow::<()>::Continue(())
        });
    }

    fn is_parameter(&self, argument: &ast::FunctionArg) -> bool {
        let ast::FunctionArg::Unnamed(ast::FunctionArgExpr::Expr(Expr::Identifier(name))) = argument else {
            return false;
        };
        let name = millrace_parser::fold(name);
        self.parameters.iter().any(|(parameter, _)| *parameter == name)
    }

    /// The query of a body, whose columns are called and typed as it was said.
    fn rows_of(&self, body: Expr) -> SqlResult<Expr> {
        let Expr::Subquery(query) = body else {
            return Err(SqlError::internal(
                "the body of a function that gives rows is no query",
            ));
        };
        let numbers = (1..=self.rows.len()).map(|number| format!("\"{number}\""));
        let columns = self.rows.iter().zip(numbers.clone());
        let columns = columns.map(|((name, data_type), number)| {
            format!(
                "CAST({number} AS {data_type}) AS {}",
                millrace_parser::quote_identifier(name)
            )
        });
        // A row of NULLs if the query has none.
        let is_one = self.is_row && !has_one_row(&query);
        let (inner, on) = match is_one {
            true => (
                format!(
                    "(SELECT 1) AS \"one row\" LEFT JOIN LATERAL (SELECT * FROM ({query}) AS \"all rows\" LIMIT 1)"
                ),
                " ON true",
            ),
            false => (format!("({query})"), ""),
        };
        let text = format!(
            "(SELECT {} FROM {inner} AS \"{ROWS_OF_FUNCTION}\" ({}){on})",
            columns.collect::<Vec<_>>().join(", "),
            numbers.collect::<Vec<_>>().join(", ")
        );
        Ok(millrace_parser::parse_expression(&text)?)
    }

    /// `(integer, text)`: the types that it takes.
    pub fn signature(&self) -> String {
        let types: Vec<String> = self
            .parameters
            .iter()
            .map(|(_, data_type)| data_type.to_string().to_lowercase())
            .collect();
        format!("({})", types.join(", "))
    }

    /// The lasting form.
    pub fn to_stored(&self) -> StoredFunction {
        let parameters = self.parameters.iter();
        StoredFunction {
            aggregate: self.is_aggregate,
            parameters: parameters
                .map(|(name, data_type)| (name.clone(), data_type.to_string()))
                .collect(),
            returns: self.returns.to_string(),
            rows: (self.rows.iter())
                .map(|(name, data_type)| (name.clone(), data_type.to_string()))
                .collect(),
            setof: self.is_setof,
            row: self.is_row,
            defaults: self.defaults.iter().map(ToString::to_string).collect(),
            strict: self.strict,
            language: self.is_javascript().then(|| JAVASCRIPT.to_owned()),
            body: match &self.body {
                FunctionBody::Sql(body) => body.to_string(),
                FunctionBody::Javascript(text) => text.clone(),
            },
        }
    }

    /// From the lasting form.
    ///
    /// # Errors
    /// It does not parse.
    pub fn from_stored(stored: &StoredFunction) -> Result<FunctionDef, String> {
        let data_type = |text: &str| {
            Parser::new(&PostgreSqlDialect {})
                .try_with_sql(text)
                .and_then(|mut parser| parser.parse_data_type())
                .map_err(|error| error.to_string())
        };
        let parameters = stored.parameters.iter();
        Ok(FunctionDef {
            is_aggregate: stored.aggregate,
            parameters: parameters
                .map(|(name, text)| Ok((name.clone(), data_type(text)?)))
                .collect::<Result<_, String>>()?,
            returns: data_type(&stored.returns)?,
            rows: (stored.rows.iter())
                .map(|(name, text)| Ok((name.clone(), data_type(text)?)))
                .collect::<Result<_, String>>()?,
            is_setof: stored.setof,
            is_row: stored.row,
            defaults: (stored.defaults.iter())
                .map(|text| millrace_parser::parse_expression(text).map_err(|error| error.message))
                .collect::<Result<_, String>>()?,
            strict: stored.strict,
            body: match stored.language.as_deref() {
                None => {
                    let body =
                        millrace_parser::parse_expression(&stored.body).map_err(|error| error.message)?;
                    FunctionBody::Sql(Box::new(body))
                }
                Some(JAVASCRIPT) => FunctionBody::Javascript(stored.body.clone()),
                Some(language) => return Err(format!("LANGUAGE {language} is not known")),
            },
        })
    }
}

/// Whether a query has one row, whatever is in relations.
fn has_one_row(query: &ast::Query) -> bool {
    let is_plain = query.with.is_none() && query.limit_clause.is_none() && query.fetch.is_none();
    match query.body.as_ref() {
        ast::SetExpr::Select(select) => is_plain && select.from.is_empty() && select.selection.is_none(),
        _ => false,
    }
}

/// Gives parameters their types.
struct Typed<'a>(&'a [(String, ast::DataType)]);

impl VisitorMut for Typed<'_> {
    type Break = ();

    fn post_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<()> {
        if let Expr::Identifier(name) = expr {
            let name = millrace_parser::fold(name);
            if let Some((_, data_type)) = self.0.iter().find(|(parameter, _)| *parameter == name) {
                *expr = cast(expr.clone(), data_type);
            }
        }
        ControlFlow::Continue(())
    }
}

fn cast(expr: Expr, data_type: &ast::DataType) -> Expr {
    Expr::Cast {
        kind: ast::CastKind::Cast,
        expr: Box::new(expr),
        data_type: data_type.clone(),
        array: false,
        format: None,
    }
}
