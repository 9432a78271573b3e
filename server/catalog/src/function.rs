//! Functions and aggregates whose bodies are SQL expressions, as the catalog has them.

use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::{self, Expr, VisitorMut};
use datafusion::sql::sqlparser::dialect::PostgreSqlDialect;
use datafusion::sql::sqlparser::parser::Parser;
use millrace_functions::sql::{named_types, rewrite};
use millrace_parser::walk::Walk;
use millrace_postgres::error::SqlResult;
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
    pub body: Expr,
}

/// The lasting form.
#[derive(Debug, Serialize, Deserialize)]
pub struct StoredFunction {
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    aggregate: bool,
    parameters: Vec<(String, String)>,
    returns: String,
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
        let mut body = cast(body, &self.returns);
        named_types::resolve(&mut body, names)?;
        rewrite::expression(&mut body)?;
        Ok(SqlFunction {
            parameters: self.parameters.iter().map(|(name, _)| name.clone()).collect(),
            body,
        })
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
