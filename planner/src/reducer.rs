//! Reducers of a program's own: aggregates with a state that the program defines, which SQL calls by name.
//!
//! ```text
//!  batches of a key's values --reduce--> state --value--> the aggregate's value
//!                 (taken away: retract)    ^  `--save, merge--> states of other tasks, checkpoints
//!            a multiple of EMIT EVERY --on_timer
//! ```
//! The same code answers a SELECT, where a state is made for each group, and keeps a view, where each key's state stays and is
//! given only what changed. Row and timer of one key never run at the same time. Values of one key come in batches, and in no
//! order that a program may rely on: states must merge to the same whatever was reduced first.

mod rows;

use std::any::Any;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use arrow::array::{ArrayRef, AsArray};
use arrow::datatypes::{DataType, Field, FieldRef};
use datafusion::common::ScalarValue;
use datafusion::error::{DataFusionError, Result};
use datafusion::logical_expr::function::{AccumulatorArgs, StateFieldsArgs};
use datafusion::logical_expr::{Accumulator, AggregateUDF, AggregateUDFImpl, Signature, Volatility};

/// An aggregate function of a program's own (StreamMapReduce, section 3: stateful reducers).
pub trait Reducer: fmt::Debug + Send + Sync + 'static {
    /// The name by which SQL calls it, in lower case.
    fn name(&self) -> &str;

    /// The type of the value, for arguments of these types.
    ///
    /// # Errors
    /// It does not take such arguments; the message is shown to whoever called it.
    fn return_type(&self, arguments: &[DataType]) -> Result<DataType>;

    /// The column of the value, with what its type alone does not say.
    ///
    /// # Errors
    /// As [`Reducer::return_type`].
    fn return_field(&self, arguments: &[DataType]) -> Result<FieldRef> {
        Ok(Arc::new(Field::new(
            self.name(),
            self.return_type(arguments)?,
            true,
        )))
    }

    /// What tells it from others of its name.
    fn identity(&self) -> u64 {
        0
    }

    /// Whether a view may keep a state for each key and give it what came. If not, as in calls with ORDER BY, the values of a key are
    /// kept, and reduced again, in their order, whenever some of them change. A SELECT does the same.
    fn is_incremental(&self) -> bool {
        true
    }

    /// Whether [`ReducerState::merge`] puts two states together. If not, all values of a key go to one place first.
    fn merges(&self) -> bool {
        true
    }

    /// The state of a key that has no values yet.
    fn init(&self) -> Box<dyn ReducerState>;

    /// Whether [`ReducerState::retract`] takes values away. If not, a view over rows that may be deleted keeps all values of
    /// each key, and reduces them again when some go.
    fn retracts(&self) -> bool {
        false
    }

    /// Whether [`ReducerState::on_timer`] does anything. If so, a view with EMIT EVERY calls it.
    fn is_timed(&self) -> bool {
        false
    }
}

/// What a reducer keeps for one key. A call that fails makes the view or the SELECT fail.
pub trait ReducerState: fmt::Debug + Send + Sync {
    /// Takes in a batch of the key's values: an array for each argument, of one length.
    ///
    /// # Errors
    /// The values cannot be reduced.
    fn reduce(&mut self, values: &[ArrayRef]) -> Result<()>;

    /// Takes away values that were reduced before; asked only of reducers that say that they can.
    ///
    /// # Errors
    /// It cannot.
    fn retract(&mut self, values: &[ArrayRef]) -> Result<()> {
        let _ = values;
        Err(DataFusionError::Internal(
            "this reducer takes nothing back".into(),
        ))
    }

    /// The time is a multiple of the interval of EMIT EVERY, in microseconds since 1970-01-01 00:00 UTC, whether or not
    /// values came since the last one.
    ///
    /// # Errors
    /// It cannot go on.
    fn on_timer(&mut self, now: i64) -> Result<()> {
        let _ = now;
        Ok(())
    }

    /// The aggregate's value, of [`Reducer::return_type`].
    ///
    /// # Errors
    /// There is none.
    fn value(&self) -> Result<ScalarValue>;

    /// The state as bytes: for states of other tasks, and for checkpoints.
    ///
    /// # Errors
    /// It cannot be written.
    fn save(&self) -> Result<Vec<u8>>;

    /// Takes in a state that was saved, into one that may be empty.
    ///
    /// # Errors
    /// The bytes are none.
    fn merge(&mut self, saved: &[u8]) -> Result<()>;
}

/// A reducer as an aggregate function.
pub fn aggregate(reducer: Arc<dyn Reducer>) -> AggregateUDF {
    AggregateUDF::from(ReducerFunction {
        reducer,
        signature: Signature::variadic_any(Volatility::Immutable),
    })
}

/// The reducer behind an aggregate function, if there is one.
pub fn reducer_of(function: &AggregateUDF) -> Option<&Arc<dyn Reducer>> {
    let function: &dyn Any = function.inner().as_ref();
    function
        .downcast_ref::<ReducerFunction>()
        .map(|function| &function.reducer)
}

#[derive(Debug)]
struct ReducerFunction {
    reducer: Arc<dyn Reducer>,
    signature: Signature,
}

impl PartialEq for ReducerFunction {
    fn eq(&self, other: &Self) -> bool {
        self.reducer.name() == other.reducer.name() && self.reducer.identity() == other.reducer.identity()
    }
}

impl Eq for ReducerFunction {}

impl Hash for ReducerFunction {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.reducer.name().hash(state);
    }
}

impl AggregateUDFImpl for ReducerFunction {
    fn name(&self) -> &str {
        self.reducer.name()
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, arg_types: &[DataType]) -> Result<DataType> {
        self.reducer.return_type(arg_types)
    }

    fn return_field(&self, arguments: &[FieldRef]) -> Result<FieldRef> {
        let types: Vec<DataType> = arguments.iter().map(|field| field.data_type().clone()).collect();
        self.reducer.return_field(&types)
    }

    fn accumulator(&self, args: AccumulatorArgs) -> Result<Box<dyn Accumulator>> {
        let is_plain = args.order_bys.is_empty() && !args.is_distinct;
        if !self.reducer.merges() || !self.reducer.is_incremental() || !is_plain {
            return Ok(Box::new(rows::Rows::new(Arc::clone(&self.reducer), &args)));
        }
        Ok(Box::new(ReducerAccumulator {
            state: self.reducer.init(),
            retracts: self.reducer.retracts(),
        }))
    }

    fn state_fields(&self, args: StateFieldsArgs) -> Result<Vec<FieldRef>> {
        Ok(vec![Arc::new(Field::new(args.name, DataType::Binary, true))])
    }
}

#[derive(Debug)]
struct ReducerAccumulator {
    state: Box<dyn ReducerState>,
    retracts: bool,
}

impl Accumulator for ReducerAccumulator {
    fn update_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        self.state.reduce(values)
    }

    fn evaluate(&mut self) -> Result<ScalarValue> {
        self.state.value()
    }

    fn size(&self) -> usize {
        self.state.save().map_or(0, |saved| saved.len())
    }

    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        Ok(vec![ScalarValue::Binary(Some(self.state.save()?))])
    }

    fn merge_batch(&mut self, states: &[ArrayRef]) -> Result<()> {
        for saved in states[0].as_binary::<i32>().iter().flatten() {
            self.state.merge(saved)?;
        }
        Ok(())
    }

    fn retract_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        self.state.retract(values)
    }

    fn supports_retract_batch(&self) -> bool {
        self.retracts
    }
}
