//! The columns in which a map stage sends what it knows of a group, and in which a reduce stage keeps it.

use std::sync::Arc;

use arrow::datatypes::{DataType, Field, Schema, SchemaRef};

use super::aggregation::{AggregateCall, AggregateForm};

/// Group columns, then the state columns of each aggregate (their meaning is the runtime's aggregate operator's).
pub(crate) fn partial_schema(input: &SchemaRef, group_columns: usize, calls: &[AggregateCall]) -> SchemaRef {
    let mut fields: Vec<Arc<Field>> = input.fields()[..group_columns].to_vec();
    // Whether the group has rows at all: the sum of weights.
    fields.push(Arc::new(Field::new("rows", DataType::Int64, false)));
    for (index, call) in calls.iter().enumerate() {
        let argument = call
            .arguments
            .first()
            .map(|column| input.field(*column).data_type().clone());
        for (name, data_type) in call.form.state(argument) {
            fields.push(Arc::new(Field::new(format!("{name}{index}"), data_type, true)));
        }
    }
    Arc::new(Schema::new(fields))
}

impl AggregateForm {
    /// Names and types of the partial state's columns; empty for a form that has none.
    pub fn state(self, argument: Option<DataType>) -> Vec<(&'static str, DataType)> {
        let argument = argument.unwrap_or(DataType::Null);
        // A floating sum is exact to twice the precision, so that what was added can be taken away, and keeps apart
        // what has no inverse: NaN and the infinities are counted.
        let float_sum = || {
            vec![
                ("high", DataType::Float64),
                ("low", DataType::Float64),
                ("nan", DataType::Int64),
                ("inf", DataType::Int64),
                ("neginf", DataType::Int64),
            ]
        };
        match self {
            AggregateForm::Count => vec![("count", DataType::Int64)],
            AggregateForm::Sum | AggregateForm::Average => {
                let mut state = vec![("count", DataType::Int64)];
                match argument {
                    DataType::Float64 => state.extend(float_sum()),
                    // Wide enough that a sum which leaves the type's range can come back into it.
                    DataType::Int64 | DataType::UInt64 => state.push(("sum", DataType::Decimal128(38, 0))),
                    other => state.push(("sum", other)),
                }
                state
            }
            AggregateForm::Variance { .. } | AggregateForm::StandardDeviation { .. } => {
                let mut state = vec![("count", DataType::Int64)];
                state.extend(float_sum());
                state.extend([
                    ("squares_high", DataType::Float64),
                    ("squares_low", DataType::Float64),
                ]);
                state
            }
            AggregateForm::BoolAnd | AggregateForm::BoolOr => {
                vec![("true", DataType::Int64), ("false", DataType::Int64)]
            }
            AggregateForm::MinAppendOnly | AggregateForm::MaxAppendOnly => vec![("value", argument)],
            AggregateForm::ApproxDistinct => vec![("registers", DataType::LargeBinary)],
            AggregateForm::Reducer { append_only: true } => vec![("state", DataType::Binary)],
            AggregateForm::Min
            | AggregateForm::Max
            | AggregateForm::Reducer { .. }
            | AggregateForm::Values => vec![],
        }
    }
}
