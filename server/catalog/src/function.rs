//! Functions and aggregates whose bodies are SQL expressions, as the catalog has them.

use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::{self, Expr, VisitorMut};
use datafusion::sql::sqlparser::dialect::PostgreSqlDialect;
use datafusion::sql::sqlparser::parser::Parser;
use millrace_functions::sql::{named_types, rewrite};
use millrace_parser::walk::Walk;
use millrace_postgres::error::{SqlError, SqlResult};
use millrace_postgres::types::named::TypeNames;
use millrace_sql::SqlFunction;
use serde::{Deserialize, Serialize};

/// See the module.
#[derive(Debug, Clone)]
pub struct FunctionDef {
    /// Whether it is computed from the rows of a group.
    pub is_aggregate: bool,
    /// Names, folded, and types.
    pub parameters: Vec<(String, ast::DataType)>,
    pub returns: ast::DataType,
    /// The columns of its rows, folded, if it gives rows.
    pub rows: Vec<(String, ast::DataType)>,
    pub body: Expr,
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
    body: String,
}

impl FunctionDef {
    /// What calls are replaced by: arguments and result are of the types that were said.
    ///
    /// # Errors
    /// A type does not exist.
    pub fn inlined(&self, names: &dyn TypeNames) -> SqlResult<SqlFunction> {
        let mut body = self.body.clone();
        // It never breaks off.
        let _ = body.walk_mut(&mut Typed(&self.parameters));
        let mut body = match self.rows.is_empty() {
            true => cast(body, &self.returns),
            false => self.rows_of(body)?,
        };
        named_types::resolve(&mut body, names)?;
        rewrite::expression(&mut body)?;
        Ok(SqlFunction {
            parameters: self.parameters.iter().map(|(name, _)| name.clone()).collect(),
            gives_rows: !self.rows.is_empty(),
            body,
        })
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
        let text = format!(
            "(SELECT {} FROM ({query}) AS \"rows of a function\" ({}))",
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
            body: self.body.to_string(),
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
            body: millrace_parser::parse_expression(&stored.body).map_err(|error| error.message)?,
        })
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
