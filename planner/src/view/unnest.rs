//! UNNEST: each row by itself, so weights pass through and nothing is kept. Of a text that is cut into pieces no list is made:
//!
//! ```text
//!  Unnest: (words)                                                  Unnest: pieces of text between ' '
//!    Project: string_to_array(text, ' ') as words            ==>      Project: text as words
//! ```
//!
//! Rows that may be taken back are brought together with what takes them back before they are multiplied: so what comes out can
//! go on in batches (see [`super::faucet`]).

use std::sync::Arc;

use arrow::datatypes::{DataType, Schema};

use datafusion::common::NullHandling;
use datafusion::logical_expr::Unnest;
use datafusion::physical_expr::expressions::Literal;
use datafusion::physical_expr::{PhysicalExpr, ScalarFunctionExpr};

use super::fragment::{Fragment, Part, Placement, placement_after};
use super::lower::{Lowering, arrow_schema};
use crate::error::{PlanError, Result};
use crate::stage::aggregation::{Aggregation, ExchangeForm};
use crate::stage::operator::Operator;
use crate::stage::partial_aggregate::PartialAggregate;
use crate::stage::project::Project;
use crate::stage::unnest::UnnestColumn;
use crate::stage::{Output, unnest};
use crate::watermark::{Bound, ColumnWatermark};

impl Lowering {
    pub(super) fn unnest(&mut self, unnest: &Unnest) -> Result<Fragment> {
        if !unnest.struct_type_columns.is_empty() {
            return Err(PlanError::not_incremental(
                "unnest of a struct",
                "list the fields that are needed",
            ));
        }
        if unnest.list_type_columns.iter().any(|(_, list)| list.depth != 1) {
            return Err(PlanError::not_incremental(
                "unnest of an unnest",
                "unnest the inner arrays in an outer query",
            ));
        }
        let null_handling: NullHandling = unnest.options.null_handling;
        let mut fragment = self.node(&unnest.input)?;
        let lists: Vec<usize> = unnest.list_type_columns.iter().map(|(index, _)| *index).collect();
        if !fragment.append_only && self.options.flow.batches > 0 {
            let parts = std::mem::take(&mut fragment.parts);
            let parts = parts.into_iter().map(|part| match is_of_windows(&part, &lists) {
                true => part,
                false => self.settled(part),
            });
            fragment.parts = parts.collect();
        }
        let columns: Vec<UnnestColumn> = unnest
            .dependency_indices
            .iter()
            .map(|index| {
                if lists.contains(index) {
                    UnnestColumn::Elements(*index)
                } else {
                    UnnestColumn::Kept(*index)
                }
            })
            .collect();
        let schema = arrow_schema(&unnest.schema);
        let kept = |wanted: usize| {
            columns
                .iter()
                .position(|column| *column == UnnestColumn::Kept(wanted))
        };
        let parts = fragment
            .parts
            .into_iter()
            .map(|part| {
                let placement = match part.placement {
                    Placement::Hash(hashed) => hashed
                        .into_iter()
                        .map(kept)
                        .collect::<Option<_>>()
                        .map_or(Placement::Keyed, Placement::Hash),
                    other => other,
                };
                let (input, columns) = match (lists.as_slice(), null_handling) {
                    ([list], NullHandling::Drop) => cut(part.operator, *list, columns.clone()),
                    _ => (part.operator, columns.clone()),
                };
                let operator = Operator::Unnest(unnest::Unnest {
                    input: Box::new(input),
                    columns,
                    null_handling,
                    schema: schema.clone(),
                });
                Part { operator, placement }
            })
            .collect();
        let watermarks = fragment
            .watermarks
            .into_iter()
            .filter_map(|ColumnWatermark { column, bound }| {
                let elements = UnnestColumn::Elements(column);
                if let Some(column) = columns.iter().position(|column| *column == elements) {
                    let bound = Bound::FirstOf(Box::new(bound));
                    return Some(ColumnWatermark { column, bound });
                }
                kept(column).map(|column| ColumnWatermark { column, bound })
            })
            .collect();
        Ok(Fragment {
            parts,
            append_only: fragment.append_only,
            key: None,
            watermarks,
            schema,
        })
    }
}

impl Lowering {
    /// Rows that were spread by arrival, by a hash instead, and with one change for all of an epoch's changes of equal rows. The
    /// projection that makes the lists comes after that, so that the lists are not sent.
    fn settled(&mut self, part: Part) -> Part {
        let read = match &part.operator {
            Operator::Project(Project { input, .. }) => input.schema(),
            other => other.schema(),
        };
        // Of rows without columns there is nothing to go by.
        if part.placement != Placement::Arrival
            || part.operator.reads_working_table()
            || read.fields().is_empty()
        {
            return part;
        }
        let (rows, projection) = match part.operator {
            Operator::Project(Project {
                input,
                expressions,
                schema,
            }) => (*input, Some((expressions, schema))),
            other => (other, None),
        };
        let schema = Arc::clone(rows.schema());
        let fields = schema.fields().iter().enumerate();
        let plain = fields.filter(|(_, field)| !field.data_type().is_nested());
        let columns: Vec<usize> = plain.map(|(column, _)| column).collect();
        let of_one = |operator, placement| Fragment {
            parts: vec![Part { operator, placement }],
            append_only: false,
            key: None,
            watermarks: vec![],
            schema: Arc::clone(&schema),
        };
        let output = match columns.is_empty() {
            true => Output::Single,
            false => Output::Hash(columns),
        };
        let placement = placement_after(&output);
        let input = self.stages.exchange(of_one(rows, Placement::Arrival), output);
        let operator = Operator::PartialAggregate(Box::new(PartialAggregate(Aggregation {
            input,
            group_columns: 0,
            calls: vec![],
            exchange: ExchangeForm::Rows,
            input_append_only: false,
            closes: None,
            timer: None,
            schema: Arc::clone(&schema),
        })));
        match projection {
            None => Part { operator, placement },
            Some((expressions, projected)) => {
                let mut placed = of_one(operator, placement).project(expressions, projected);
                placed.parts.swap_remove(0)
            }
        }
    }
}

/// Whether the lists are those of the windows of a row, of which there are few, and which sliding aggregates take elsewhere.
fn is_of_windows(part: &Part, lists: &[usize]) -> bool {
    let Operator::Project(Project { expressions, .. }) = &part.operator else {
        return false;
    };
    let call = |list: &usize| expressions[*list].downcast_ref::<ScalarFunctionExpr>();
    (lists.iter().filter_map(call)).any(|call| matches!(call.fun().name(), "$hop" | "$cumulate"))
}

/// The operator below an UNNEST of one list, without the list where it is made of a text there; and the columns then.
fn cut(operator: Operator, list: usize, columns: Vec<UnnestColumn>) -> (Operator, Vec<UnnestColumn>) {
    let Operator::Project(Project {
        input,
        mut expressions,
        schema,
    }) = operator
    else {
        return (operator, columns);
    };
    let Some((text, delimiter)) = cut_text(&expressions[list], input.schema()) else {
        let operator = Operator::Project(Project {
            input,
            expressions,
            schema,
        });
        return (operator, columns);
    };
    expressions[list] = text;
    let mut fields = schema.fields().to_vec();
    fields[list] = Arc::new(schema.field(list).clone().with_data_type(DataType::Utf8));
    let operator = Operator::Project(Project {
        input,
        expressions,
        schema: Arc::new(Schema::new(fields)),
    });
    let columns = columns.into_iter().map(|column| match column {
        UnnestColumn::Elements(column) => UnnestColumn::Pieces {
            column,
            delimiter: delimiter.clone(),
        },
        other => other,
    });
    (operator, columns.collect())
}

/// The text that is cut, and by what, if the expression is a call of `string_to_array` with a constant delimiter.
fn cut_text(expression: &Arc<dyn PhysicalExpr>, input: &Schema) -> Option<(Arc<dyn PhysicalExpr>, String)> {
    let call = expression.downcast_ref::<ScalarFunctionExpr>()?;
    let [text, delimiter] = call.args() else {
        return None;
    };
    let delimiter = delimiter.downcast_ref::<Literal>()?.value().try_as_str()??;
    let is_text = text.data_type(input).ok()? == DataType::Utf8;
    let is_cut = call.fun().name() == "string_to_array" && is_text && !delimiter.is_empty();
    is_cut.then(|| (Arc::clone(text), delimiter.to_owned()))
}
