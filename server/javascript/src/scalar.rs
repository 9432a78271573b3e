//! Functions in JavaScript as DataFusion sees them.

use std::any::Any;
use std::hash::Hash;
use std::sync::Arc;

use arrow::datatypes::{DataType, FieldRef};
use datafusion::error::{DataFusionError, Result};
use datafusion::logical_expr::{
    ColumnarValue, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};

use crate::engine::Engine;
#[cfg(feature = "engine")]
use crate::program::single;
use crate::program::{Keyed, Program};

/// What the results for one batch of rows may take, in bytes.
#[cfg(feature = "engine")]
const BATCH_BYTES_MAX: usize = 256 << 20;

#[derive(Debug)]
struct JavascriptFunction {
    keyed: Keyed,
    engine: Arc<Engine>,
    signature: Signature,
    #[cfg(feature = "engine")]
    constants: constants::Constants,
}

impl PartialEq for JavascriptFunction {
    fn eq(&self, other: &Self) -> bool {
        self.keyed == other.keyed
    }
}

impl Eq for JavascriptFunction {}

impl Hash for JavascriptFunction {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        self.keyed.hash(state);
    }
}

/// A program that gives a value, or rows, of each row.
pub fn function(program: Program, engine: &Arc<Engine>) -> ScalarUDF {
    ScalarUDF::from(JavascriptFunction {
        signature: match program.parameters.is_empty() {
            true => Signature::nullary(Volatility::Immutable),
            false => Signature::any(program.parameters.len(), Volatility::Immutable),
        },
        keyed: Keyed::new(program),
        engine: Arc::clone(engine),
        #[cfg(feature = "engine")]
        constants: constants::Constants::default(),
    })
}

/// Whether a function is one in JavaScript.
pub fn is_javascript(function: &ScalarUDF) -> bool {
    let function: &dyn Any = function.inner().as_ref();
    function.is::<JavascriptFunction>()
}

impl ScalarUDFImpl for JavascriptFunction {
    fn name(&self) -> &str {
        &self.keyed.program.name
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(self.keyed.program.value_type())
    }

    fn return_field_from_args(&self, _: ReturnFieldArgs) -> Result<FieldRef> {
        let field = self.keyed.program.value_field();
        Ok(Arc::new(field.with_name(self.name()).with_nullable(true)))
    }

    #[cfg(not(feature = "engine"))]
    fn invoke_with_args(&self, _: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let _ = &self.engine;
        Err(DataFusionError::from(crate::engine::without_engine()))
    }

    #[cfg(feature = "engine")]
    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let is_one = args
            .args
            .iter()
            .all(|value| matches!(value, ColumnarValue::Scalar(_)));
        let rows = if is_one { 1 } else { args.number_rows };
        if is_one && let Some(known) = self.constants.get(&args.args, &self.engine.limits()) {
            return known;
        }
        let made = self.called(&args, rows);
        if is_one {
            self.constants.put(&args.args, &self.engine.limits(), &made);
        }
        made
    }
}

#[cfg(feature = "engine")]
impl JavascriptFunction {
    /// The values of so many rows.
    fn called(&self, args: &ScalarFunctionArgs, rows: usize) -> Result<ColumnarValue> {
        use millrace_resource::step;

        let is_one = args
            .args
            .iter()
            .all(|value| matches!(value, ColumnarValue::Scalar(_)));
        let arrays = args.args.iter().map(|value| match value {
            ColumnarValue::Array(array) => Ok(Arc::clone(array)),
            ColumnarValue::Scalar(value) => value.to_array_of_size(rows),
        });
        let arrays = arrays.collect::<Result<Vec<_>>>()?;
        let made = self.engine.with(&self.keyed, |machine, limits| {
            machine.column(&self.keyed.program, limits, &arrays, rows, BATCH_BYTES_MAX)
        })?;
        if !step::allows(made.get_array_memory_size(), rows) {
            let message = format!("{} makes too much of {rows} rows in one step", self.name());
            return Err(DataFusionError::ResourcesExhausted(message));
        }
        match is_one {
            true => single(&made).map(ColumnarValue::Scalar),
            false => Ok(ColumnarValue::Array(made)),
        }
    }
}

#[cfg(feature = "engine")]
mod constants {
    //! Calls of constants: the planner tries one again and again, and one that fails takes its whole time whenever it does.

    use datafusion::common::ScalarValue;
    use datafusion::error::{DataFusionError, Result};
    use datafusion::logical_expr::ColumnarValue;
    use millrace_postgres::error::SqlError;
    use parking_lot::Mutex;

    use crate::limits::Limits;

    /// Calls that are kept.
    const CALLS_MAX: usize = 16;
    /// Of arguments and results of one call, in bytes.
    const BYTES_MAX: usize = 16 << 10;

    /// What a call came to.
    #[derive(Debug, Clone)]
    enum Known {
        Value(ScalarValue),
        Error(SqlError),
        Exhausted(String),
    }

    /// See the module.
    #[derive(Debug, Default)]
    pub struct Constants(Mutex<Vec<(Vec<ScalarValue>, Limits, Known)>>);

    fn scalars(args: &[ColumnarValue]) -> Vec<ScalarValue> {
        let each = args.iter().filter_map(|value| match value {
            ColumnarValue::Scalar(value) => Some(value.clone()),
            ColumnarValue::Array(_) => None,
        });
        each.collect()
    }

    impl Constants {
        pub fn get(&self, args: &[ColumnarValue], limits: &Limits) -> Option<Result<ColumnarValue>> {
            let args = scalars(args);
            let known = self.0.lock();
            let found = known
                .iter()
                .find(|(given, under, _)| *given == args && under == limits);
            found.map(|(_, _, known)| match known.clone() {
                Known::Value(value) => Ok(ColumnarValue::Scalar(value)),
                Known::Error(error) => Err(error.into()),
                Known::Exhausted(message) => Err(DataFusionError::ResourcesExhausted(message)),
            })
        }

        pub fn put(&self, args: &[ColumnarValue], limits: &Limits, made: &Result<ColumnarValue>) {
            let made = match made {
                Ok(ColumnarValue::Scalar(value)) if value.size() <= BYTES_MAX => Known::Value(value.clone()),
                Err(DataFusionError::ResourcesExhausted(message)) => Known::Exhausted(message.clone()),
                Err(DataFusionError::External(error)) => match error.downcast_ref::<SqlError>() {
                    // Who cancels a statement says nothing of the next one.
                    Some(error) if error.code != millrace_postgres::error::SqlState::QueryCanceled => {
                        Known::Error(error.clone())
                    }
                    _ => return,
                },
                _ => return,
            };
            let args = scalars(args);
            if args.iter().map(ScalarValue::size).sum::<usize>() > BYTES_MAX {
                return;
            }
            let mut known = self.0.lock();
            if known.len() >= CALLS_MAX {
                known.remove(0);
            }
            known.push((args, limits.clone(), made));
        }
    }
}
