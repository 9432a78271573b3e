//! What calls of functions are called as columns.

use std::fmt::Write;

use datafusion::common::Result;
use datafusion::logical_expr::Expr;

/// What stands for `||`.
pub(crate) const JOINED: &str = "textcat";
/// What a large constant is in.
pub(crate) const CONSTANT: &str = "constant";
/// What a text is in that is compared with a pattern.
pub(crate) const MATCHED: &str = "pattern_match";

/// The functions whose calls are named in a way of their own, as `a[1]` is.
const NAMED_OTHERWISE: [&str; 6] = [
    CONSTANT,
    JOINED,
    MATCHED,
    "array_element",
    "array_slice",
    "get_field",
];

/// The name of a call as a column: `f(g(a,b),c)`, as DataFusion names it.
///
/// DataFusion makes it whenever it asks for the type of a call, at each level anew of what the level below has made. Here what is
/// called within the first argument, as in a long sum, is written in one go.
///
/// # Errors
/// A name cannot be made, which a function would have to say of itself.
pub(crate) fn called(name: &str, args: &[Expr]) -> Result<String> {
    let mut out = format!("{name}(");
    let mut others = vec![];
    let mut args = args;
    let innermost = loop {
        let Some((first, rest)) = args.split_first() else {
            break None;
        };
        others.push(rest);
        match first {
            Expr::ScalarFunction(call) if !has_own_name(call.func.name()) => {
                write!(out, "{}(", call.func.name())?;
                args = &call.args;
            }
            other => break Some(other),
        }
    };
    match innermost {
        Some(innermost) => write!(out, "{}", innermost.schema_name())?,
        // Of a call without arguments there is nothing else.
        None => out.push(')'),
    }
    for rest in others.iter().rev() {
        for arg in *rest {
            write!(out, ",{}", arg.schema_name())?;
        }
        out.push(')');
    }
    Ok(out)
}

/// Whether calls of a function are not named by the function and its arguments.
pub(crate) fn has_own_name(function: &str) -> bool {
    NAMED_OTHERWISE.contains(&function)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use datafusion::functions::expr_fn::{abs, get_field, now, power};
    use datafusion::functions_nested::expr_fn::{array_element, array_slice};
    use datafusion::logical_expr::{ScalarUDF, col, lit};

    use super::*;

    /// The name is DataFusion's, whatever is called within what.
    #[test]
    fn names_are_as_datafusion_makes_them() {
        let calls: [Expr; 9] = [
            abs(col("a")),
            now(),
            abs(now()),
            power(power(col("a"), lit(2)), lit(3)),
            abs(power(abs(power(abs(col("t.a")), lit(2))), abs(col("b")))),
            abs(col("a") + power(col("b"), lit(1))),
            abs(array_element(abs(col("a")), lit(1))),
            abs(get_field(abs(col("a")), "x")),
            power(
                abs(array_slice(col("a"), lit(1), lit(2), None)).alias("n"),
                abs(lit("x")),
            ),
        ];
        for call in calls {
            let Expr::ScalarFunction(call) = &call else {
                panic!("{call} is a call");
            };
            let function: &Arc<ScalarUDF> = &call.func;
            let expected = function.schema_name(&call.args).unwrap();
            assert_eq!(called(function.name(), &call.args).unwrap(), expected);
        }
    }
}
