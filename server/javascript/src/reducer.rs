//! Reducers in JavaScript as the planner sees them.
//!
//! What a reducer keeps for a key is the text of its state; each batch of a key's rows makes an object of it and a text again. So it is
//! the same before and after a checkpoint, and its size is known.

use std::sync::Arc;

use arrow::array::ArrayRef;
use arrow::datatypes::{DataType, FieldRef};
use datafusion::common::ScalarValue;
use datafusion::error::Result;
use datafusion::logical_expr::AggregateUDF;
use millrace_planner::reducer::{self, Reducer, ReducerState};
use millrace_postgres::error::{SqlError, SqlState};

use crate::engine::Engine;
#[cfg(feature = "engine")]
use crate::program::single;
use crate::program::{Keyed, Program};

/// Which parts it has beside `process`.
#[derive(Debug, Clone, Copy, Default)]
struct Parts {
    retract: bool,
    merge: bool,
    timer: bool,
}

/// A reducer with its engine.
#[derive(Debug, Clone)]
struct Javascript {
    keyed: Keyed,
    engine: Arc<Engine>,
    parts: Parts,
}

/// A program as an aggregate.
///
/// # Errors
/// There is no memory for its engine, or this build has none.
pub fn aggregate(program: Program, engine: &Arc<Engine>) -> Result<AggregateUDF> {
    let keyed = Keyed::new(program);
    let parts = parts(&keyed, engine)?;
    Ok(reducer::aggregate(Arc::new(Javascript {
        keyed,
        engine: Arc::clone(engine),
        parts,
    })))
}

#[cfg(feature = "engine")]
fn parts(keyed: &Keyed, engine: &Arc<Engine>) -> Result<Parts> {
    let parts = engine.with(keyed, |machine, limits| machine.parts(&keyed.program, limits))?;
    Ok(Parts {
        retract: parts.contains(&"retract"),
        merge: parts.contains(&"merge"),
        timer: parts.contains(&"timer"),
    })
}

#[cfg(not(feature = "engine"))]
fn parts(_: &Keyed, _: &Arc<Engine>) -> Result<Parts> {
    Err(crate::engine::without_engine().into())
}

impl Reducer for Javascript {
    fn name(&self) -> &str {
        &self.keyed.program.name
    }

    fn identity(&self) -> u64 {
        self.keyed.key
    }

    fn return_type(&self, arguments: &[DataType]) -> Result<DataType> {
        let wanted = self.keyed.program.parameters.len();
        if arguments.len() != wanted {
            let message = format!(
                "reducer {} takes {wanted} arguments, not {}",
                self.name(),
                arguments.len()
            );
            return Err(SqlError::new(SqlState::UndefinedFunction, message).into());
        }
        Ok(self.keyed.program.value_type())
    }

    fn return_field(&self, arguments: &[DataType]) -> Result<FieldRef> {
        self.return_type(arguments)?;
        let field = self.keyed.program.value_field();
        Ok(Arc::new(field.with_name(self.name()).with_nullable(true)))
    }

    fn is_incremental(&self) -> bool {
        self.parts.merge || self.parts.retract || self.parts.timer
    }

    fn merges(&self) -> bool {
        self.parts.merge
    }

    fn init(&self) -> Box<dyn ReducerState> {
        Box::new(State {
            reducer: self.clone(),
            text: None,
        })
    }

    fn retracts(&self) -> bool {
        self.parts.retract
    }

    fn is_timed(&self) -> bool {
        self.parts.timer
    }
}

/// What is kept for a key.
#[derive(Debug)]
struct State {
    reducer: Javascript,
    /// None: nothing came yet.
    text: Option<String>,
}

#[cfg(feature = "engine")]
impl State {
    fn run<T>(
        &self,
        run: impl FnOnce(&crate::machine::Machine, &Program, &crate::Limits, Option<&str>) -> Result<T>,
    ) -> Result<T> {
        let keyed = &self.reducer.keyed;
        (self.reducer.engine).with(keyed, |machine, limits| {
            run(machine, &keyed.program, limits, self.text.as_deref())
        })
    }

    fn step(&mut self, part: &str, values: &[ArrayRef]) -> Result<()> {
        let made =
            self.run(|machine, program, limits, state| machine.reduce(program, limits, state, part, values))?;
        self.text = Some(made);
        Ok(())
    }
}

#[cfg(feature = "engine")]
impl ReducerState for State {
    fn reduce(&mut self, values: &[ArrayRef]) -> Result<()> {
        self.step("process", values)
    }

    fn retract(&mut self, values: &[ArrayRef]) -> Result<()> {
        self.step("retract", values)
    }

    fn on_timer(&mut self, now: i64) -> Result<()> {
        let made = self.run(|machine, program, limits, state| machine.timer(program, limits, state, now))?;
        self.text = Some(made);
        Ok(())
    }

    fn value(&self) -> Result<ScalarValue> {
        let made = self.run(|machine, program, limits, state| machine.value(program, limits, state))?;
        single(&made)
    }

    fn save(&self) -> Result<Vec<u8>> {
        Ok(self.text.clone().unwrap_or_default().into_bytes())
    }

    fn merge(&mut self, saved: &[u8]) -> Result<()> {
        let Some(other) = std::str::from_utf8(saved).ok().filter(|text| !text.is_empty()) else {
            return Ok(());
        };
        self.text = Some(match &self.text {
            Some(text) => {
                self.run(|machine, program, limits, _| machine.merge(program, limits, text, other))?
            }
            None => other.to_owned(),
        });
        Ok(())
    }
}

#[cfg(not(feature = "engine"))]
impl ReducerState for State {
    fn reduce(&mut self, _: &[ArrayRef]) -> Result<()> {
        Err(crate::engine::without_engine().into())
    }

    fn value(&self) -> Result<ScalarValue> {
        let _ = (&self.reducer.engine, &self.text);
        Err(crate::engine::without_engine().into())
    }

    fn save(&self) -> Result<Vec<u8>> {
        Err(crate::engine::without_engine().into())
    }

    fn merge(&mut self, _: &[u8]) -> Result<()> {
        Err(crate::engine::without_engine().into())
    }
}
