//! The ordered-set aggregates of PostgreSQL that DataFusion has not: `mode()` and `percentile_disc(fraction)`, both
//! WITHIN GROUP (ORDER BY x). NULLs do not count; over nothing the answer is NULL.

use std::hash::{Hash, Hasher};
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, new_empty_array};
use arrow::compute::{SortOptions, concat, is_not_null, partition, sort};
use arrow::datatypes::{DataType, Field, FieldRef};
use datafusion::common::{Result, plan_err};
use datafusion::logical_expr::function::{AccumulatorArgs, StateFieldsArgs};
use datafusion::logical_expr::utils::format_state_name;
use datafusion::logical_expr::{Accumulator, AggregateUDF, AggregateUDFImpl, Signature, Volatility};
use datafusion::physical_expr::expressions::Literal;
use datafusion::scalar::ScalarValue;

use crate::bounded::{Room, aggregates};

/// The functions. What they hold is asked for in the room.
pub fn udafs(room: &Room) -> [Arc<AggregateUDF>; 2] {
    [Kind::Mode, Kind::PercentileDisc].map(|kind| {
        Arc::new(AggregateUDF::from(OrderedSet {
            kind,
            signature: Signature::any(kind.arguments(), Volatility::Immutable),
            room: room.clone(),
        }))
    })
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Kind {
    /// The most frequent value, the first one in the order of several.
    Mode,
    /// The first value that at least the fraction of all precede or equal.
    PercentileDisc,
}

impl Kind {
    fn name(self) -> &'static str {
        match self {
            Kind::Mode => "mode",
            Kind::PercentileDisc => "percentile_disc",
        }
    }

    /// The value ordered by, and the function's own.
    fn arguments(self) -> usize {
        match self {
            Kind::Mode => 1,
            Kind::PercentileDisc => 2,
        }
    }
}

#[derive(Debug)]
struct OrderedSet {
    kind: Kind,
    signature: Signature,
    room: Room,
}

impl PartialEq for OrderedSet {
    fn eq(&self, other: &OrderedSet) -> bool {
        self.kind == other.kind
    }
}

impl Eq for OrderedSet {}

impl Hash for OrderedSet {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.kind.hash(state);
    }
}

impl AggregateUDFImpl for OrderedSet {
    fn name(&self) -> &'static str {
        self.kind.name()
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, argument_types: &[DataType]) -> Result<DataType> {
        Ok(argument_types[0].clone())
    }

    fn return_field(&self, arguments: &[FieldRef]) -> Result<FieldRef> {
        let field = Field::new(self.name(), arguments[0].data_type().clone(), true);
        Ok(Arc::new(field.with_metadata(arguments[0].metadata().clone())))
    }

    fn state_fields(&self, arguments: StateFieldsArgs) -> Result<Vec<FieldRef>> {
        let element = Arc::new(Field::new_list_field(arguments.return_type().clone(), true));
        Ok(vec![Arc::new(Field::new(
            format_state_name(arguments.name, "values"),
            DataType::List(element),
            true,
        ))])
    }

    fn accumulator(&self, arguments: AccumulatorArgs) -> Result<Box<dyn Accumulator>> {
        let fraction = match self.kind {
            Kind::Mode => 0.0,
            Kind::PercentileDisc => {
                let literal = arguments.exprs[1].downcast_ref::<Literal>();
                match literal.map(|literal| literal.value().cast_to(&DataType::Float64)) {
                    Some(Ok(ScalarValue::Float64(Some(fraction)))) if (0.0..=1.0).contains(&fraction) => {
                        fraction
                    }
                    _ => return plan_err!("percentile_disc needs a constant between 0 and 1"),
                }
            }
        };
        let values = Box::new(Values {
            kind: self.kind,
            fraction,
            descending: arguments
                .order_bys
                .first()
                .is_some_and(|sort| sort.options.descending),
            data_type: arguments.return_field.data_type().clone(),
            batches: vec![],
        });
        Ok(aggregates::of_rows(self.kind.name(), values, self.room.clone()))
    }

    fn supports_within_group_clause(&self) -> bool {
        true
    }
}

/// All values that are not NULL.
#[derive(Debug)]
struct Values {
    kind: Kind,
    fraction: f64,
    descending: bool,
    data_type: DataType,
    batches: Vec<ArrayRef>,
}

impl Values {
    fn all(&self) -> Result<ArrayRef> {
        if self.batches.is_empty() {
            return Ok(new_empty_array(&self.data_type));
        }
        let batches: Vec<&dyn Array> = self.batches.iter().map(AsRef::as_ref).collect();
        Ok(concat(&batches)?)
    }

    fn keep(&mut self, values: &ArrayRef) -> Result<()> {
        let present = arrow::compute::filter(values, &is_not_null(values)?)?;
        if !present.is_empty() {
            self.batches.push(present);
        }
        Ok(())
    }
}

impl Accumulator for Values {
    fn update_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        self.keep(&values[0])
    }

    fn evaluate(&mut self) -> Result<ScalarValue> {
        let options = SortOptions {
            descending: self.descending,
            nulls_first: false,
        };
        let sorted = sort(&self.all()?, Some(options))?;
        if sorted.is_empty() {
            return ScalarValue::try_from(&self.data_type);
        }
        let position = match self.kind {
            Kind::PercentileDisc => {
                let position = (self.fraction * sorted.len() as f64).ceil() as usize;
                position.clamp(1, sorted.len()) - 1
            }
            Kind::Mode => {
                let runs = partition(std::slice::from_ref(&sorted))?.ranges();
                let mut best = 0..0;
                for run in runs {
                    if run.len() > best.len() {
                        best = run;
                    }
                }
                best.start
            }
        };
        ScalarValue::try_from_array(&sorted, position)
    }

    fn size(&self) -> usize {
        let values: usize = self
            .batches
            .iter()
            .map(|batch| batch.get_array_memory_size())
            .sum();
        size_of_val(self) + values
    }

    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        let values = self.all()?;
        let field = Arc::new(Field::new_list_field(self.data_type.clone(), true));
        let offsets = arrow::buffer::OffsetBuffer::from_lengths([values.len()]);
        let list = arrow::array::ListArray::try_new(field, offsets, values, None)?;
        Ok(vec![ScalarValue::List(Arc::new(list))])
    }

    fn merge_batch(&mut self, states: &[ArrayRef]) -> Result<()> {
        let lists = states[0].as_list::<i32>();
        for row in 0..lists.len() {
            if lists.is_valid(row) {
                self.keep(&lists.value(row))?;
            }
        }
        Ok(())
    }
}
