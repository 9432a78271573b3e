//! Conditions of which one decides whether another is computed at all, as PostgreSQL's users write them: `b <> 0 AND 10 / b > 1`,
//! `kind = 'n' AND value::int > 5`. DataFusion computes both for all rows, so that a row that the first one excludes could fail the
//! query, or show in its error what the filter of a view hides.
//!
//! What may fail is computed last, and only for the rows that the conditions before it have left. `OR` likewise, and both within
//! other expressions in the order in which they are written. CASE does so by itself.

use std::fmt::{self, Display, Formatter};
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use arrow::array::{Array, AsArray, BooleanArray, RecordBatch};
use arrow::compute::{and_kleene, filter_record_batch, or_kleene};
use arrow::datatypes::{DataType, FieldRef, Schema};
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::common::{ScalarValue, internal_err};
use datafusion::error::Result;
use datafusion::logical_expr::{ColumnarValue, Operator};
use datafusion::physical_expr::expressions::{
    BinaryExpr, CaseExpr, CastExpr, Column, DynamicFilterPhysicalExpr, InListExpr, IsNotNullExpr, IsNullExpr,
    LikeExpr, Literal, NotExpr,
};
use datafusion::physical_expr::utils::collect_columns;
use datafusion::physical_expr::{PhysicalExpr, split_conjunction};
use datafusion::physical_expr_common::utils::scatter;

/// A condition of which only counts where it is true: what may fail goes behind all else, and is computed for the rows that are left.
/// `None`: it stays as it is.
///
/// # Errors
/// As [`in_turn`].
pub fn condition(
    predicate: &Arc<dyn PhysicalExpr>,
    schema: &Schema,
) -> Result<Option<Arc<dyn PhysicalExpr>>> {
    let mut is_changed = false;
    let (mut safe, mut failing) = (vec![], vec![]);
    for part in split_conjunction(predicate) {
        let part = in_turn(Arc::clone(part), schema)?;
        is_changed |= part.transformed;
        match may_fail(&part.data, schema) {
            true => failing.push(part.data),
            false => safe.push(part.data),
        }
    }
    if safe.len() + failing.len() < 2 || failing.is_empty() {
        return match is_changed {
            true => in_turn(Arc::clone(predicate), schema).map(|expr| Some(expr.data)),
            false => Ok(None),
        };
    }
    let parts = safe.into_iter().map(|part| (part, false));
    let parts = parts.chain(failing.into_iter().map(|part| (part, true)));
    let mut all: Option<Arc<dyn PhysicalExpr>> = None;
    for (part, fails) in parts {
        all = Some(match all {
            None => part,
            Some(before) if fails => Arc::new(InTurn::new(before, Operator::And, part, true)),
            Some(before) => Arc::new(BinaryExpr::new(before, Operator::And, part)),
        });
    }
    Ok(all)
}

/// An expression in which nothing that may fail is computed where what stands before it, by AND or OR, has decided.
///
/// # Errors
/// An expression refuses its new parts, which only wrong ones bring about.
pub fn in_turn(
    expression: Arc<dyn PhysicalExpr>,
    schema: &Schema,
) -> Result<Transformed<Arc<dyn PhysicalExpr>>> {
    expression.transform_up(|node| {
        Ok(match node.downcast_ref::<BinaryExpr>() {
            Some(binary)
                if matches!(binary.op(), Operator::And | Operator::Or)
                    && may_fail(binary.right(), schema) =>
            {
                let (left, right) = (Arc::clone(binary.left()), Arc::clone(binary.right()));
                Transformed::yes(Arc::new(InTurn::new(left, *binary.op(), right, false)) as _)
            }
            _ => Transformed::no(node),
        })
    })
}

/// Whether computing it may fail for some row.
fn may_fail(expression: &Arc<dyn PhysicalExpr>, schema: &Schema) -> bool {
    let any = expression.as_ref();
    if any.is::<Column>() || any.is::<Literal>() || any.is::<DynamicFilterPhysicalExpr>() {
        return false;
    }
    let is_safe = if let Some(binary) = any.downcast_ref::<BinaryExpr>() {
        matches!(
            binary.op(),
            Operator::And
                | Operator::Or
                | Operator::Eq
                | Operator::NotEq
                | Operator::Lt
                | Operator::LtEq
                | Operator::Gt
                | Operator::GtEq
                | Operator::IsDistinctFrom
                | Operator::IsNotDistinctFrom
        )
    } else if let Some(cast) = any.downcast_ref::<CastExpr>() {
        let from = cast.expr().data_type(schema);
        from.is_ok_and(|from| always_fits(&from, cast.cast_type()))
    } else {
        any.is::<InTurn>()
            || any.is::<IsNullExpr>()
            || any.is::<IsNotNullExpr>()
            || any.is::<NotExpr>()
            || any.is::<InListExpr>()
            || any.is::<LikeExpr>()
            || any.is::<CaseExpr>()
    };
    !is_safe || any.children().into_iter().any(|child| may_fail(child, schema))
}

/// Whether every value of a type is one of the other.
fn always_fits(from: &DataType, to: &DataType) -> bool {
    let is_text = |of: &DataType| of.is_string();
    match (from, to) {
        (DataType::Null, _) => true,
        (from, to) if from == to || (is_text(from) && is_text(to)) => true,
        (from, to) if from.is_integer() && to.is_integer() => {
            from.is_signed_integer() == to.is_signed_integer()
                && from.primitive_width() <= to.primitive_width()
        }
        (from, to) => from.is_integer() && to.is_floating(),
    }
}

/// AND or OR, whose right side is computed for the rows alone for which the left side has not decided.
#[derive(Debug, Eq)]
struct InTurn {
    left: Arc<dyn PhysicalExpr>,
    op: Operator,
    right: Arc<dyn PhysicalExpr>,
    /// Only what is true counts: where the left side is NULL, so is the whole.
    only_true: bool,
    /// The columns that the right side reads, and the right side over them alone.
    columns: Vec<usize>,
    narrow: Arc<dyn PhysicalExpr>,
}

impl InTurn {
    fn new(left: Arc<dyn PhysicalExpr>, op: Operator, right: Arc<dyn PhysicalExpr>, only_true: bool) -> Self {
        let mut columns: Vec<usize> = collect_columns(&right).iter().map(Column::index).collect();
        columns.sort_unstable();
        columns.dedup();
        let narrow = Arc::clone(&right).transform_up(|node| {
            Ok(match node.downcast_ref::<Column>() {
                Some(column) => {
                    let place = columns.iter().position(|index| *index == column.index());
                    let place = place.unwrap_or(column.index());
                    Transformed::yes(Arc::new(Column::new(column.name(), place)) as _)
                }
                None => Transformed::no(node),
            })
        });
        // What refuses other columns reads all of them.
        let (columns, narrow) = match narrow {
            Ok(narrow) => (columns, narrow.data),
            Err(_) => (vec![], Arc::clone(&right)),
        };
        InTurn {
            left,
            op,
            right,
            only_true,
            columns,
            narrow,
        }
    }

    /// Whether the left side alone says what the whole is.
    fn decides(&self, left: Option<bool>) -> bool {
        match left {
            Some(left) => left == (self.op == Operator::Or),
            None => self.only_true && self.op == Operator::And,
        }
    }

    fn both(&self, left: &BooleanArray, right: &dyn Array) -> Result<ColumnarValue> {
        let right = right.as_boolean();
        let both = match self.op {
            Operator::And => and_kleene(left, right)?,
            Operator::Or => or_kleene(left, right)?,
            op => return internal_err!("{op} is computed in turn"),
        };
        Ok(ColumnarValue::Array(Arc::new(both)))
    }
}

impl PartialEq for InTurn {
    fn eq(&self, other: &Self) -> bool {
        self.left.eq(&other.left)
            && self.op == other.op
            && self.right.eq(&other.right)
            && self.only_true == other.only_true
    }
}

impl Hash for InTurn {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.left.hash(state);
        self.op.hash(state);
        self.right.hash(state);
        self.only_true.hash(state);
    }
}

/// As DataFusion writes it.
impl Display for InTurn {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        BinaryExpr::new(Arc::clone(&self.left), self.op, Arc::clone(&self.right)).fmt(f)
    }
}

impl PhysicalExpr for InTurn {
    fn data_type(&self, _: &Schema) -> Result<DataType> {
        Ok(DataType::Boolean)
    }

    fn nullable(&self, schema: &Schema) -> Result<bool> {
        Ok(self.left.nullable(schema)? || self.right.nullable(schema)?)
    }

    fn return_field(&self, schema: &Schema) -> Result<FieldRef> {
        BinaryExpr::new(Arc::clone(&self.left), self.op, Arc::clone(&self.right)).return_field(schema)
    }

    fn evaluate(&self, batch: &RecordBatch) -> Result<ColumnarValue> {
        let rows = batch.num_rows();
        let left = self.left.evaluate(batch)?;
        if let ColumnarValue::Scalar(ScalarValue::Boolean(value)) = left
            && self.decides(value)
        {
            return Ok(left);
        }
        let left = left.into_array(rows)?;
        let left = left.as_boolean();
        let open: BooleanArray = left.iter().map(|value| Some(!self.decides(value))).collect();
        match open.true_count() {
            0 => Ok(ColumnarValue::Array(Arc::new(left.clone()))),
            all if all == rows => {
                let right = self.right.evaluate(batch)?.into_array(rows)?;
                self.both(left, &right)
            }
            some => {
                let right = if self.columns.is_empty() {
                    let kept = filter_record_batch(batch, &open)?;
                    self.right.evaluate(&kept)?
                } else {
                    let kept = filter_record_batch(&batch.project(&self.columns)?, &open)?;
                    self.narrow.evaluate(&kept)?
                };
                let right = scatter(&open, &right.into_array(some)?)?;
                self.both(left, &right)
            }
        }
    }

    fn children(&self) -> Vec<&Arc<dyn PhysicalExpr>> {
        vec![&self.left, &self.right]
    }

    fn with_new_children(
        self: Arc<Self>,
        children: Vec<Arc<dyn PhysicalExpr>>,
    ) -> Result<Arc<dyn PhysicalExpr>> {
        match <[_; 2]>::try_from(children) {
            Ok([left, right]) => Ok(Arc::new(InTurn::new(left, self.op, right, self.only_true))),
            Err(_) => internal_err!("AND and OR have two sides"),
        }
    }

    fn fmt_sql(&self, f: &mut Formatter<'_>) -> fmt::Result {
        BinaryExpr::new(Arc::clone(&self.left), self.op, Arc::clone(&self.right)).fmt_sql(f)
    }
}
