//! The keys that filters name: what an index is asked for instead of reading all rows.

use std::collections::HashSet;

use arrow::array::{ArrayRef, new_empty_array};
use arrow::datatypes::{DataType, SchemaRef};
use datafusion::common::ScalarValue;
use datafusion::error::Result;
use datafusion::logical_expr::{BinaryExpr, Expr, Operator};

/// The most keys that are looked up one by one: of more, all rows are read.
const KEYS_MAX: usize = 4096;

/// A column's name, and a value that it is to have.
type Equality = (String, ScalarValue);

/// The values that the columns of an index may have, an array for each column: each row that the filters let pass has those of one
/// place. None: they let others pass too, or name too many.
///
/// They are found in `a = 1`, `a IN (1, 2)`, and `a = 1 AND b = 2 OR a = 3 AND b = 4`.
pub(super) fn keys_of(
    filters: &[Expr],
    schema: &SchemaRef,
    columns: &[usize],
) -> Result<Option<Vec<ArrayRef>>> {
    // Whoever knows a table as it was before a column was added does not know that column.
    if columns.iter().any(|column| *column >= schema.fields().len()) {
        return Ok(None);
    }
    let conjuncts: Vec<&Expr> = filters.iter().flat_map(conjuncts).collect();
    let names: Vec<&str> = columns
        .iter()
        .map(|column| schema.field(*column).name().as_str())
        .collect();
    let Some(keys) = combined(&conjuncts, &names).or_else(|| listed(&conjuncts, &names)) else {
        return Ok(None);
    };
    let types: Vec<&DataType> = columns
        .iter()
        .map(|column| schema.field(*column).data_type())
        .collect();
    // As values of the column's type two of them may be one.
    let keys = keys.into_iter().map(|key| {
        let values = key.iter().zip(&types).map(|(value, of)| value.cast_to(of));
        values.collect::<Result<Vec<ScalarValue>>>()
    });
    let keys = distinct(keys.collect::<Result<Vec<_>>>()?);
    let arrays = types.iter().enumerate().map(|(place, of)| match keys.is_empty() {
        true => Ok(new_empty_array(of)),
        false => ScalarValue::iter_to_array(keys.iter().map(|key| key[place].clone())),
    });
    arrays.collect::<Result<Vec<ArrayRef>>>().map(Some)
}

/// Each column's values by themselves, each with each of the others.
fn combined(conjuncts: &[&Expr], names: &[&str]) -> Option<Vec<Vec<ScalarValue>>> {
    let mut keys: Vec<Vec<ScalarValue>> = vec![vec![]];
    for name in names {
        let values = conjuncts.iter().filter_map(|conjunct| values_of(conjunct, name));
        let values = distinct(values.min_by_key(Vec::len)?);
        if keys.len() * values.len() > KEYS_MAX {
            return None;
        }
        keys = keys
            .iter()
            .flat_map(|key| {
                values
                    .iter()
                    .map(|value| key.iter().chain([value]).cloned().collect())
            })
            .collect();
    }
    Some(keys)
}

/// Keys that are listed, each with all of its values or with some that are the same for all.
fn listed(conjuncts: &[&Expr], names: &[&str]) -> Option<Vec<Vec<ScalarValue>>> {
    let same: Vec<Equality> = conjuncts
        .iter()
        .filter_map(|conjunct| equality(conjunct))
        .collect();
    let value_of = |alternative: &[Equality], name: &str| {
        let mut all = alternative.iter().chain(&same);
        all.find(|(column, _)| column == name)
            .map(|(_, value)| value.clone())
    };
    conjuncts.iter().find_map(|conjunct| {
        let alternatives = disjuncts(conjunct);
        if alternatives.len() > KEYS_MAX {
            return None;
        }
        let keys = alternatives.into_iter().map(|alternative| {
            let own: Vec<Equality> = self::conjuncts(alternative)
                .into_iter()
                .filter_map(equality)
                .collect();
            names.iter().map(|name| value_of(&own, name)).collect()
        });
        keys.collect::<Option<Vec<_>>>()
    })
}

/// Each once: rows are found as often as their key is looked up.
fn distinct<T: Clone + Eq + std::hash::Hash>(values: Vec<T>) -> Vec<T> {
    let mut seen = HashSet::with_capacity(values.len());
    values
        .into_iter()
        .filter(|value| seen.insert(value.clone()))
        .collect()
}

fn of_operator<'a>(expr: &'a Expr, operator: Operator) -> Vec<&'a Expr> {
    // Chains of thousands lean to the left.
    let (mut right_sides, mut rest) = (vec![], expr);
    while let Expr::BinaryExpr(BinaryExpr { left, op, right }) = rest
        && *op == operator
    {
        right_sides.push(right.as_ref());
        rest = left;
    }
    let nested = |expr: &'a Expr| match expr {
        Expr::BinaryExpr(BinaryExpr { op, .. }) if *op == operator => of_operator(expr, operator),
        other => vec![other],
    };
    let rights = right_sides.into_iter().rev().flat_map(nested);
    std::iter::once(rest).chain(rights).collect()
}

fn conjuncts(filter: &Expr) -> Vec<&Expr> {
    of_operator(filter, Operator::And)
}

fn disjuncts(filter: &Expr) -> Vec<&Expr> {
    of_operator(filter, Operator::Or)
}

/// The values that a filter lets a column have.
fn values_of(filter: &Expr, name: &str) -> Option<Vec<ScalarValue>> {
    match filter {
        Expr::InList(list) if !list.negated && list.list.len() <= KEYS_MAX => match list.expr.as_ref() {
            Expr::Column(column) if column.name == name => {
                let values = list.list.iter().map(|value| match value {
                    Expr::Literal(value, _) => Some(value.clone()),
                    _ => None,
                });
                let values = values.collect::<Option<Vec<_>>>()?;
                Some(values.into_iter().filter(|value| !value.is_null()).collect())
            }
            _ => None,
        },
        Expr::BinaryExpr(BinaryExpr { op: Operator::Or, .. }) => {
            let alternatives = disjuncts(filter);
            if alternatives.len() > KEYS_MAX {
                return None;
            }
            let values = alternatives.into_iter().map(|alternative| match alternative {
                Expr::BinaryExpr(BinaryExpr { op: Operator::Or, .. }) => None,
                other => values_of(other, name),
            });
            Some(values.collect::<Option<Vec<_>>>()?.concat())
        }
        other => equality(other)
            .filter(|(column, _)| column == name)
            .map(|(_, value)| vec![value]),
    }
}

/// `column = literal`, either way round.
fn equality(filter: &Expr) -> Option<Equality> {
    let Expr::BinaryExpr(BinaryExpr {
        left,
        op: Operator::Eq,
        right,
    }) = filter
    else {
        return None;
    };
    match (left.as_ref(), right.as_ref()) {
        (Expr::Column(column), Expr::Literal(value, _)) | (Expr::Literal(value, _), Expr::Column(column)) => {
            (!value.is_null()).then(|| (column.name.clone(), value.clone()))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::array::{Array, AsArray};
    use arrow::datatypes::{Field, Int64Type, Schema};
    use datafusion::logical_expr::{col, lit};

    use super::*;

    /// The keys of an index over the first columns, as sorted text.
    fn found(filter: Expr, columns: &[usize]) -> Option<Vec<String>> {
        let fields = ["a", "b", "c"].map(|name| Field::new(name, DataType::Int64, true));
        let schema = Arc::new(Schema::new(fields.to_vec()));
        let arrays = keys_of(&[filter], &schema, columns).unwrap()?;
        let mut keys: Vec<String> = (0..arrays[0].len())
            .map(|row| {
                let values = arrays
                    .iter()
                    .map(|array| array.as_primitive::<Int64Type>().value(row).to_string());
                values.collect::<Vec<_>>().join(",")
            })
            .collect();
        keys.sort();
        Some(keys)
    }

    fn texts(keys: &[&str]) -> Option<Vec<String>> {
        Some(keys.iter().map(|key| (*key).to_owned()).collect())
    }

    #[test]
    fn one_column() {
        let (a, b) = (|| col("a"), || col("b"));
        assert_eq!(found(a().eq(lit(1_i64)), &[0]), texts(&["1"]));
        assert_eq!(
            found(lit(1_i64).eq(a()).and(b().gt(lit(2_i64))), &[0]),
            texts(&["1"])
        );
        assert_eq!(found(a().eq(lit(1)).or(a().eq(lit(2))), &[0]), texts(&["1", "2"]));
        // Twice the same key finds its rows once; NULL is nobody's.
        let list = vec![lit(3_i64), lit(1_i64), lit(3_i64), lit(ScalarValue::Int64(None))];
        assert_eq!(found(a().in_list(list.clone(), false), &[0]), texts(&["1", "3"]));
        assert_eq!(
            found(a().in_list(vec![lit(ScalarValue::Int64(None))], false), &[0]),
            texts(&[])
        );
        assert_eq!(found(a().in_list(list, true), &[0]), None);
        assert_eq!(found(a().eq(lit(1_i64)).or(b().eq(lit(2_i64))), &[0]), None);
        assert_eq!(found(a().eq(lit(1_i64)).or(a().gt(lit(2_i64))), &[0]), None);
        assert_eq!(found(a().eq(b()), &[0]), None);
        assert_eq!(found(a().not_eq(lit(1_i64)), &[0]), None);
        let mixed = a().in_list(vec![lit(1_i64), b()], false);
        assert_eq!(found(mixed, &[0]), None);
    }

    #[test]
    fn two_columns() {
        let key = |a: i64, b: i64| col("a").eq(lit(a)).and(col("b").eq(lit(b)));
        assert_eq!(found(key(1, 2), &[0, 1]), texts(&["1,2"]));
        assert_eq!(found(key(1, 2), &[1]), texts(&["2"]));
        let listed = key(1, 2).or(key(3, 4)).or(key(1, 2).and(col("c").gt(lit(0_i64))));
        assert_eq!(found(listed, &[0, 1]), texts(&["1,2", "3,4"]));
        let lists = col("a")
            .in_list(vec![lit(1_i64), lit(2_i64)], false)
            .and(col("b").in_list(vec![lit(3_i64), lit(4_i64)], false));
        assert_eq!(found(lists, &[0, 1]), texts(&["1,3", "1,4", "2,3", "2,4"]));
        // The one is the same for all alternatives.
        let same = col("a")
            .eq(lit(7_i64))
            .and(col("b").eq(lit(1_i64)).or(col("b").eq(lit(2_i64))));
        assert_eq!(found(same, &[0, 1]), texts(&["7,1", "7,2"]));
        assert_eq!(found(key(1, 2).or(col("a").eq(lit(3_i64))), &[0, 1]), None);
        assert_eq!(found(col("a").eq(lit(3_i64)), &[0, 1]), None);
    }

    #[test]
    fn too_many_are_not_looked_up() {
        let list = |count: i64| (0..count).map(lit).collect::<Vec<_>>();
        assert_eq!(
            found(col("a").in_list(list(4096), false), &[0]).unwrap().len(),
            4096
        );
        assert_eq!(found(col("a").in_list(list(4097), false), &[0]), None);
        let product = col("a")
            .in_list(list(100), false)
            .and(col("b").in_list(list(100), false));
        assert_eq!(found(product, &[0, 1]), None);
    }
}
