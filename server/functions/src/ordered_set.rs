//! The ordered-set aggregates of PostgreSQL that DataFusion has not: `mode()`, `percentile_disc(fraction)`, and those of an array of
//! fractions, all WITHIN GROUP (ORDER BY x). NULLs do not count; over nothing the answer is NULL.

use std::hash::{Hash, Hasher};
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, Float64Array, UInt64Array, new_empty_array};
use arrow::compute::{SortOptions, cast, concat, is_not_null, partition, sort, take};
use arrow::datatypes::{DataType, Field, FieldRef, Float64Type};
use datafusion::common::{Result, plan_err};
use datafusion::logical_expr::function::{AccumulatorArgs, StateFieldsArgs};
use datafusion::logical_expr::utils::format_state_name;
use datafusion::logical_expr::{Accumulator, AggregateUDF, AggregateUDFImpl, Signature, Volatility};
use datafusion::physical_expr::expressions::Literal;
use datafusion::scalar::ScalarValue;

use millrace_postgres::error::{SqlError, SqlResult, SqlState};

use crate::arguments::no_such;
use crate::bounded::{MemoryBudget, aggregates};

/// The functions. What they hold is taken from the budget.
pub fn udafs(budget: &MemoryBudget) -> [Arc<AggregateUDF>; 3] {
    [Kind::Mode, Kind::PercentileDisc, Kind::EachPercentileCont].map(|kind| {
        Arc::new(AggregateUDF::from(OrderedSet {
            kind,
            signature: Signature::any(kind.arguments(), Volatility::Immutable),
            budget: budget.clone(),
        }))
    })
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Kind {
    /// The most frequent value, the first one in the order of several.
    Mode,
    /// The first value that at least the fraction of all precede or equal.
    PercentileDisc,
    /// What lies between two values as the fraction says, for each of an array of fractions.
    EachPercentileCont,
}

/// `percentile_cont` of an array of fractions.
pub const EACH_PERCENTILE_CONT: &str = "percentile_cont_each";

impl Kind {
    fn name(self) -> &'static str {
        match self {
            Kind::Mode => "mode",
            Kind::PercentileDisc => "percentile_disc",
            Kind::EachPercentileCont => EACH_PERCENTILE_CONT,
        }
    }

    /// The value ordered by, and the function's own.
    fn arguments(self) -> usize {
        match self {
            Kind::Mode => 1,
            Kind::PercentileDisc | Kind::EachPercentileCont => 2,
        }
    }
}

#[derive(Debug)]
struct OrderedSet {
    kind: Kind,
    signature: Signature,
    budget: MemoryBudget,
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
        let is_list = matches!(argument_types.get(1), Some(DataType::List(_)));
        Ok(match (self.kind, &argument_types[0]) {
            (Kind::EachPercentileCont, given) if given.is_numeric() && is_list => {
                DataType::new_list(DataType::Float64, true)
            }
            (Kind::EachPercentileCont, _) => return Err(no_such("percentile_cont", argument_types).into()),
            (_, given) if is_list => DataType::new_list(given.clone(), true),
            (_, given) => given.clone(),
        })
    }

    fn return_field(&self, arguments: &[FieldRef]) -> Result<FieldRef> {
        let types: Vec<DataType> = arguments
            .iter()
            .map(|argument| argument.data_type().clone())
            .collect();
        let field = Field::new(self.name(), self.return_type(&types)?, true);
        Ok(Arc::new(match field.data_type() == &types[0] {
            true => field.with_metadata(arguments[0].metadata().clone()),
            false => field,
        }))
    }

    fn state_fields(&self, arguments: StateFieldsArgs) -> Result<Vec<FieldRef>> {
        let given = arguments.input_fields[0].data_type().clone();
        let element = Arc::new(Field::new_list_field(given, true));
        Ok(vec![Arc::new(Field::new(
            format_state_name(arguments.name, "values"),
            DataType::List(element),
            true,
        ))])
    }

    fn accumulator(&self, arguments: AccumulatorArgs) -> Result<Box<dyn Accumulator>> {
        let fractions = match self.kind {
            Kind::Mode => vec![],
            Kind::PercentileDisc | Kind::EachPercentileCont => {
                let literal = arguments.exprs[1].downcast_ref::<Literal>();
                match literal.and_then(|literal| fractions(literal.value())) {
                    Some(fractions) => fractions?,
                    None => return plan_err!("percentile_disc needs a constant between 0 and 1"),
                }
            }
        };
        let values = Box::new(Values {
            kind: self.kind,
            fractions,
            result: arguments.return_field.data_type().clone(),
            descending: arguments
                .order_bys
                .first()
                .is_some_and(|sort| sort.options.descending),
            data_type: arguments.expr_fields[0].data_type().clone(),
            batches: vec![],
        });
        Ok(aggregates::of_rows(self.kind.name(), values, self.budget.clone()))
    }

    fn supports_within_group_clause(&self) -> bool {
        true
    }
}

/// The fractions of a constant; `None`: it has no numbers.
fn fractions(value: &ScalarValue) -> Option<SqlResult<Vec<Option<f64>>>> {
    let all = match value {
        ScalarValue::List(list) => cast(&list.value(0), &DataType::Float64).ok()?,
        one => cast(&one.to_array().ok()?, &DataType::Float64).ok()?,
    };
    let all = all.as_primitive::<Float64Type>();
    let wrong = all
        .iter()
        .flatten()
        .find(|fraction| !(0.0..=1.0).contains(fraction));
    Some(match wrong {
        None => Ok(all.iter().collect()),
        Some(wrong) => {
            let message = format!("percentile value {wrong} is not between 0 and 1");
            Err(SqlError::new(SqlState::NumericValueOutOfRange, message))
        }
    })
}

/// Where the first value is that at least the fraction of so many precede or equal.
fn place(fraction: f64, count: usize) -> usize {
    let place = (fraction * count as f64).ceil() as usize;
    place.clamp(1, count) - 1
}

/// What lies where the fraction says, between two values.
fn between(fraction: f64, sorted: &[f64]) -> f64 {
    let place = fraction * (sorted.len() - 1) as f64;
    let (low, high) = (sorted[place.floor() as usize], sorted[place.ceil() as usize]);
    match low == high {
        true => low,
        false => low + (place - place.floor()) * (high - low),
    }
}

fn list(values: ArrayRef) -> Result<ScalarValue> {
    let field = Arc::new(Field::new_list_field(values.data_type().clone(), true));
    let offsets = arrow::buffer::OffsetBuffer::from_lengths([values.len()]);
    let list = arrow::array::ListArray::try_new(field, offsets, values, None)?;
    Ok(ScalarValue::List(Arc::new(list)))
}

/// All values that are not NULL.
#[derive(Debug)]
struct Values {
    kind: Kind,
    fractions: Vec<Option<f64>>,
    /// The type of the answer.
    result: DataType,
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
            return ScalarValue::try_from(&self.result);
        }
        match self.kind {
            Kind::Mode => {
                let runs = partition(std::slice::from_ref(&sorted))?.ranges();
                let mut best = 0..0;
                for run in runs {
                    if run.len() > best.len() {
                        best = run;
                    }
                }
                ScalarValue::try_from_array(&sorted, best.start)
            }
            Kind::PercentileDisc if self.result == self.data_type => match self.fractions.first() {
                Some(Some(fraction)) => ScalarValue::try_from_array(&sorted, place(*fraction, sorted.len())),
                _ => ScalarValue::try_from(&self.result),
            },
            Kind::PercentileDisc => {
                let places = self.fractions.iter();
                let places = places.map(|fraction| Some(place((*fraction)?, sorted.len()) as u64));
                list(take(&sorted, &places.collect::<UInt64Array>(), None)?)
            }
            Kind::EachPercentileCont => {
                let sorted = cast(&sorted, &DataType::Float64)?;
                let sorted = sorted.as_primitive::<Float64Type>().values();
                let fractions = self.fractions.iter();
                let between = fractions.map(|fraction| Some(between((*fraction)?, sorted)));
                list(Arc::new(between.collect::<Float64Array>()))
            }
        }
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
        Ok(vec![list(self.all()?)?])
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
