//! Pieces of syntax trees that rewriting puts in the place of others.

use datafusion::sql::sqlparser::ast::{
    self, Expr, Function, FunctionArg, FunctionArgExpr, FunctionArgumentList, FunctionArguments, Ident,
    ObjectName, ObjectNamePart, Statement, Value,
};
use millrace_parser::string_value;
use millrace_postgres::error::{SqlError, SqlResult};

/// A text of ours as a query.
///
/// # Errors
/// It is none.
pub fn parsed_query(sql: &str) -> SqlResult<Box<ast::Query>> {
    let mut parsed = millrace_parser::parse(sql)?;
    match parsed.pop().map(|parsed| parsed.statement) {
        Some(millrace_parser::ast::Statement::Sql(statement)) => match *statement {
            Statement::Query(query) => Ok(query),
            other => Err(SqlError::internal(format!("{sql} became {other}"))),
        },
        _ => Err(SqlError::internal(format!("{sql} became nothing"))),
    }
}

/// A call of a function.
pub fn call(name: &str, arguments: Vec<Expr>) -> Expr {
    let args = arguments
        .into_iter()
        .map(|argument| FunctionArg::Unnamed(FunctionArgExpr::Expr(argument)))
        .collect();
    Expr::Function(Function {
        name: ObjectName(vec![ObjectNamePart::Identifier(Ident::new(name))]),
        uses_odbc_syntax: false,
        parameters: FunctionArguments::None,
        args: FunctionArguments::List(FunctionArgumentList {
            duplicate_treatment: None,
            args,
            clauses: vec![],
        }),
        filter: None,
        null_treatment: None,
        over: None,
        within_group: vec![],
    })
}

/// The text and the type's name of a cast that stands for the value of a parameter; NULL has no text.
pub fn cast_literal(expr: &Expr) -> Option<(Option<&str>, &str)> {
    let Expr::Function(function) = expr else {
        return None;
    };
    let is_cast = matches!(function.name.0.as_slice(), [only] if only.as_ident().is_some_and(|name| name.value == crate::cast::NAME));
    let [Expr::Value(value), Expr::Value(name)] = arguments(function)[..] else {
        return None;
    };
    match (&value.value, &name.value) {
        _ if !is_cast => None,
        (Value::Null, Value::SingleQuotedString(name) | Value::EscapedStringLiteral(name)) => {
            Some((None, name))
        }
        (
            Value::SingleQuotedString(text) | Value::EscapedStringLiteral(text),
            Value::SingleQuotedString(name) | Value::EscapedStringLiteral(name),
        ) => Some((Some(text), name)),
        _ => None,
    }
}

/// A value as a column of this type and name takes it; of a CASE each branch is, since literals among them are of the column's type.
pub fn assigned(value: &Expr, type_name: &str, column: &str) -> Expr {
    if let Expr::Case {
        case_token,
        end_token,
        operand,
        conditions,
        else_result,
    } = value
    {
        let branch = |result: &Expr| assigned(result, type_name, column);
        return Expr::Case {
            case_token: case_token.clone(),
            end_token: end_token.clone(),
            operand: operand.clone(),
            conditions: (conditions.iter())
                .map(|when| ast::CaseWhen {
                    condition: when.condition.clone(),
                    result: branch(&when.result),
                })
                .collect(),
            else_result: else_result.as_deref().map(|result| Box::new(branch(result))),
        };
    }
    call(
        crate::cast::ASSIGN,
        vec![value.clone(), text(type_name), text(column)],
    )
}

/// A string literal.
pub fn text(value: &str) -> Expr {
    Expr::value(string_value(value))
}

/// A number as it is written.
pub fn number(text: String) -> Expr {
    Expr::value(Value::Number(text, false))
}

/// The name of a function, folded; `None`: it is in another schema than `pg_catalog`.
pub fn name_of(function: &Function) -> Option<String> {
    match function.name.0.as_slice() {
        [ObjectNamePart::Identifier(name)] => Some(millrace_parser::fold(name)),
        [
            ObjectNamePart::Identifier(schema),
            ObjectNamePart::Identifier(name),
        ] if millrace_parser::fold(schema) == "pg_catalog" => Some(millrace_parser::fold(name)),
        _ => None,
    }
}

/// The arguments of a call that have no names and are expressions.
pub fn arguments(function: &Function) -> Vec<&Expr> {
    match &function.args {
        FunctionArguments::List(list) => list
            .args
            .iter()
            .filter_map(|argument| match argument {
                FunctionArg::Unnamed(FunctionArgExpr::Expr(expr)) => Some(expr),
                _ => None,
            })
            .collect(),
        _ => vec![],
    }
}

/// The text of a literal, whatever it is cast to.
pub fn literal_text(expr: &Expr) -> Option<String> {
    match expr {
        Expr::Value(value) => match &value.value {
            Value::SingleQuotedString(text) | Value::EscapedStringLiteral(text) | Value::Number(text, _) => {
                Some(text.clone())
            }
            _ => None,
        },
        Expr::Cast { expr, .. } | Expr::Nested(expr) => literal_text(expr),
        // A parameter's value.
        Expr::Function(function) if name_of(function).as_deref() == Some(crate::cast::NAME) => {
            literal_text(arguments(function).first()?)
        }
        _ => None,
    }
}
