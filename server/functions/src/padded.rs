//! char(n), which is held without its padding: where PostgreSQL sees the padding, it is put on, and where a text is compared
//! with such a value, the text loses the spaces at its end.
//!
//! The padding counts for LIKE, regular expressions, `octet_length`, `concat` and `format`; it does not for comparisons,
//! `length`, `||`, and a cast to another text.

use std::sync::Arc;

use arrow::array::{AsArray, StringArray};
use arrow::compute::cast;
use arrow::datatypes::DataType;
use datafusion::common::tree_node::Transformed;
use datafusion::common::{DFSchema, Result, exec_datafusion_err};
use datafusion::logical_expr::expr::{InList, Like, ScalarFunction};
use datafusion::logical_expr::{
    Between, BinaryExpr, ColumnarValue, Expr, ExprSchemable, Operator, ScalarFunctionArgs, ScalarUDF,
    ScalarUDFImpl, Signature, Volatility, lit,
};
use datafusion::scalar::ScalarValue;
use millrace_postgres::types::padding::{length, pad};

use crate::arguments::on_arrays;
use crate::regex;

/// Functions of any values or of texts that see the padding.
const SEES_PADDING: [&str; 14] = [
    "octet_length",
    "concat",
    "concat_ws",
    "format",
    regex::LIKE,
    regex::MATCHES,
    regex::SIMILAR,
    "regexp_match",
    "regexp_count",
    "regexp_instr",
    "regexp_substr",
    "regexp_replace",
    "regexp_split_to_array",
    "to_jsonb",
];

/// The padded text of a char(n), to so many characters.
pub fn udf() -> Arc<ScalarUDF> {
    Arc::new(ScalarUDF::from(Padded {
        signature: Signature::any(2, Volatility::Immutable),
    }))
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct Padded {
    signature: Signature,
}

impl ScalarUDFImpl for Padded {
    fn name(&self) -> &str {
        "char_padded"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _arg_types: &[DataType]) -> Result<DataType> {
        Ok(DataType::Utf8)
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let Some(ColumnarValue::Scalar(ScalarValue::Int64(Some(length)))) = args.args.get(1) else {
            return Err(exec_datafusion_err!("char_padded takes a text and a length"));
        };
        let length = usize::try_from(*length).unwrap_or_default();
        on_arrays(&args, |arrays, _| {
            let texts = cast(&arrays[0], &DataType::Utf8)?;
            let padded: StringArray = texts
                .as_string::<i32>()
                .iter()
                .map(|text| text.map(|text| pad(text, length)))
                .collect();
            Ok(Arc::new(padded))
        })
    }
}

/// The length of an expression that is a char(n).
fn length_of(expr: &Expr, schema: &DFSchema) -> Option<usize> {
    let (_, field) = expr.to_field(schema).ok()?;
    length(&field)
}

fn padded(expr: &Expr, schema: &DFSchema) -> Option<Expr> {
    let length = i64::try_from(length_of(expr, schema)?).ok()?;
    Some(udf().call(vec![expr.clone(), lit(length)]))
}

/// A text literal without spaces at its end.
fn trimmed(expr: &Expr) -> Option<Expr> {
    match expr {
        Expr::Literal(ScalarValue::Utf8(Some(text)), metadata) if text.ends_with(' ') => Some(Expr::Literal(
            ScalarValue::Utf8(Some(text.trim_end_matches(' ').to_string())),
            metadata.clone(),
        )),
        _ => None,
    }
}

/// An expression of a bound plan with what is to be done about char(n).
pub(crate) fn replaced(mut expr: Expr, schema: &DFSchema) -> Transformed<Expr> {
    let mut changed = false;
    let mut put = |place: &mut Expr, new: Option<Expr>| {
        if let Some(new) = new {
            *place = new;
            changed = true;
        }
    };
    match &mut expr {
        Expr::BinaryExpr(BinaryExpr {
            left,
            op:
                Operator::Eq
                | Operator::NotEq
                | Operator::Lt
                | Operator::LtEq
                | Operator::Gt
                | Operator::GtEq
                | Operator::IsDistinctFrom
                | Operator::IsNotDistinctFrom,
            right,
        }) => {
            let sides = (length_of(left, schema), length_of(right, schema));
            if sides.0.is_some() {
                let new = trimmed(right);
                put(right, new);
            } else if sides.1.is_some() {
                let new = trimmed(left);
                put(left, new);
            }
        }
        Expr::InList(InList { expr, list, .. }) if length_of(expr, schema).is_some() => {
            for item in list {
                let new = trimmed(item);
                put(item, new);
            }
        }
        Expr::Between(Between { expr, low, high, .. }) if length_of(expr, schema).is_some() => {
            for bound in [low, high] {
                let new = trimmed(bound);
                put(bound, new);
            }
        }
        Expr::Like(Like { expr, .. }) => {
            let new = padded(expr, schema);
            put(expr, new);
        }
        Expr::ScalarFunction(ScalarFunction { func, args }) if SEES_PADDING.contains(&func.name()) => {
            for argument in args {
                let new = padded(argument, schema);
                put(argument, new);
            }
        }
        _ => {}
    }
    if changed {
        Transformed::yes(expr)
    } else {
        Transformed::no(expr)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use datafusion::logical_expr::col;
    use millrace_postgres::types::SqlType;

    #[test]
    fn the_padding_counts_where_postgresql_sees_it() {
        let field = SqlType::annotated(DataType::Utf8, "char(3)").field("c", true);
        let schema = DFSchema::try_from(arrow::datatypes::Schema::new(vec![field])).unwrap();
        let shown = |expr: Expr| replaced(expr, &schema).data.to_string();
        assert_eq!(shown(col("c").eq(lit("a  "))), "c = Utf8(\"a\")");
        assert_eq!(
            shown(col("c").like(lit("a"))),
            "char_padded(c, Int64(3)) LIKE Utf8(\"a\")"
        );
        assert_eq!(shown(lit("b ").eq(lit("b"))), "Utf8(\"b \") = Utf8(\"b\")");
        assert_eq!(pad("ä", 3), "ä  ");
    }
}
