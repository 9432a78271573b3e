//! `ARRAY[]`: an array of no elements has the type that it is cast to, and none without a cast.

use datafusion::sql::sqlparser::ast::{Array, DataType, Expr};
use millrace_postgres::error::{SqlError, SqlResult, SqlState};

use crate::syntax::text;

/// Makes `'{}'` of one that is cast.
///
/// # Errors
/// 42P18: it is not cast.
pub(crate) fn typed(expr: &mut Expr) -> SqlResult<()> {
    match expr {
        Expr::Cast {
            expr: inner,
            data_type: DataType::Array(_),
            ..
        } if is_empty(inner) => {
            **inner = text("{}");
            Ok(())
        }
        Expr::Array(Array { elem, .. }) if elem.is_empty() => Err(SqlError::new(
            SqlState::IndeterminateDatatype,
            "cannot determine type of empty array",
        )
        .with_hint("Explicitly cast to the desired type, for example ARRAY[]::integer[].")),
        _ => Ok(()),
    }
}

fn is_empty(expr: &Expr) -> bool {
    match expr {
        Expr::Nested(inner) => is_empty(inner),
        Expr::Array(Array { elem, .. }) => elem.iter().all(is_empty),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cast_tells_the_type() {
        let typed_as = |sql: &str| {
            let mut expr = millrace_parser::parse_expression(sql).unwrap();
            typed(&mut expr).map(|()| expr.to_string())
        };
        assert_eq!(typed_as("ARRAY[]::int[]").unwrap(), "'{}'::INT[]");
        assert_eq!(typed_as("(ARRAY[ARRAY[]])::int[]").unwrap(), "'{}'::INT[]");
        assert_eq!(
            typed_as("ARRAY[]").expect_err("no type").code,
            SqlState::IndeterminateDatatype
        );
    }
}
