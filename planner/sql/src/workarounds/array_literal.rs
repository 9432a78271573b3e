//! `ARRAY[x]` whose elements name columns of a query outside, or of a relation to the left: DataFusion looks for them in the
//! innermost query alone. As arguments of a call they are found.

use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::{Expr, Statement};
use millrace_parser::walk::walk_expressions_mut;

use crate::template::call;

/// Makes a call of every array that is written with its elements.
pub(crate) fn as_calls(statement: &mut Statement) {
    let _ = walk_expressions_mut(statement, |expr| {
        if let Expr::Array(array) = expr
            && !array.elem.is_empty()
        {
            *expr = call("make_array", std::mem::take(&mut array.elem));
        }
        ControlFlow::<()>::Continue(())
    });
}
