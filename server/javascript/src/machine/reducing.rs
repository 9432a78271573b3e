//! The parts of a reducer, called on a state that comes and goes as a text.

use std::time::Duration;

use arrow::array::{Array, ArrayRef};
use datafusion::error::DataFusionError;
use rquickjs::function::Args;
use rquickjs::{Ctx, Function, Object, Value};

use super::watch::Watch;
use super::{Machine, NOT_CALLED, PARTS, userdata};
use crate::fault::Outcome;
use crate::limits::Limits;
use crate::program::Program;
use crate::values::{Budget, Given, Kind, column, read};

impl Machine {
    /// Runs calls of the parts of a reducer on a state.
    fn reducing<T>(
        &self,
        program: &Program,
        limits: &Limits,
        run: impl for<'js> FnOnce(&Ctx<'js>, &Reducing<'js, '_>) -> Outcome<T>,
    ) -> Result<T, DataFusionError> {
        self.within(program, limits, |ctx, watch| {
            let reducing = Reducing {
                main: userdata::<Function>(ctx)?,
                helpers: userdata::<Object>(ctx)?,
                watch,
                limit: limits.call_time,
            };
            run(ctx, &reducing)
        })
    }

    /// Which parts a reducer has.
    ///
    /// # Errors
    /// Its text fails.
    pub fn parts(&self, program: &Program, limits: &Limits) -> Result<Vec<&'static str>, DataFusionError> {
        self.reducing(program, limits, |ctx, reducing| {
            let mut parts = vec![];
            for part in PARTS.iter().chain(&NOT_CALLED).copied() {
                let mut args = Args::new(ctx.clone(), 2);
                args.push_arg(reducing.main.clone())?;
                args.push_arg(part)?;
                if reducing.call::<bool>("has", args)? {
                    parts.push(part);
                }
            }
            Ok(parts)
        })
    }

    /// A state (none: a new one) after rows went through `process` or `retract`.
    ///
    /// # Errors
    /// A call fails, or the state cannot be kept.
    pub fn reduce(
        &self,
        program: &Program,
        limits: &Limits,
        state: Option<&str>,
        part: &str,
        arguments: &[ArrayRef],
    ) -> Result<String, DataFusionError> {
        let given = program.parameters.iter().zip(arguments);
        let given = given.map(|(field, array)| Given::new(field, array));
        let given = given.collect::<Result<Vec<_>, _>>()?;
        let rows = arguments.first().map_or(0, |column| column.len());
        self.reducing(program, limits, |ctx, reducing| {
            let mut state = reducing.load(ctx, state)?;
            for row in 0..rows {
                let mut args = Args::new(ctx.clone(), given.len() + 3);
                args.push_arg(reducing.main.clone())?;
                args.push_arg(part)?;
                args.push_arg(state)?;
                for column in &given {
                    args.push_arg(column.value(ctx, &reducing.helpers, row)?)?;
                }
                state = reducing.call("step", args)?;
            }
            reducing.save(ctx, state)
        })
    }

    /// Two states as one.
    ///
    /// # Errors
    /// As [`Machine::reduce`].
    pub fn merge(
        &self,
        program: &Program,
        limits: &Limits,
        state: &str,
        other: &str,
    ) -> Result<String, DataFusionError> {
        self.reducing(program, limits, |ctx, reducing| {
            let (state, other) = (reducing.load(ctx, Some(state))?, reducing.load(ctx, Some(other))?);
            let mut args = Args::new(ctx.clone(), 4);
            args.push_arg(reducing.main.clone())?;
            args.push_arg("merge")?;
            args.push_arg(state)?;
            args.push_arg(other)?;
            let state = reducing.call("step", args)?;
            reducing.save(ctx, state)
        })
    }

    /// A state when it is a time, in microseconds since 1970.
    ///
    /// # Errors
    /// As [`Machine::reduce`].
    pub fn timer(
        &self,
        program: &Program,
        limits: &Limits,
        state: Option<&str>,
        now: i64,
    ) -> Result<String, DataFusionError> {
        self.reducing(program, limits, |ctx, reducing| {
            let state = reducing.load(ctx, state)?;
            let now: Value = reducing
                .helpers
                .get::<_, Function>("date")?
                .call((now.div_euclid(1_000) as f64,))?;
            let mut args = Args::new(ctx.clone(), 4);
            args.push_arg(reducing.main.clone())?;
            args.push_arg("timer")?;
            args.push_arg(state)?;
            args.push_arg(now)?;
            let state = reducing.call("step", args)?;
            reducing.save(ctx, state)
        })
    }

    /// What a state comes to.
    ///
    /// # Errors
    /// `value` fails, or what it gives does not fit.
    pub fn value(
        &self,
        program: &Program,
        limits: &Limits,
        state: Option<&str>,
    ) -> Result<ArrayRef, DataFusionError> {
        let field = program.value_field();
        let kind = Kind::of(&field);
        let made = self.reducing(program, limits, |ctx, reducing| {
            let state = reducing.load(ctx, state)?;
            let mut args = Args::new(ctx.clone(), 2);
            args.push_arg(reducing.main.clone())?;
            args.push_arg(state)?;
            let value: Value = reducing.call("value", args)?;
            let mut budget = Budget {
                left: limits.memory_bytes,
            };
            read(ctx, &reducing.helpers, &value, &kind, &field, &mut budget)
        })?;
        column(&field, &kind, vec![made]).map_err(|mut error| {
            error.message = format!("{}: {}", program.described(), error.message);
            error.into()
        })
    }
}

/// A reducer whose parts are called.
struct Reducing<'js, 'a> {
    main: Function<'js>,
    helpers: Object<'js>,
    watch: &'a Watch,
    limit: Duration,
}

impl<'js> Reducing<'js, '_> {
    /// A helper's call, which has the time of one.
    fn call<T: rquickjs::FromJs<'js>>(&self, helper: &str, args: Args<'js>) -> rquickjs::Result<T> {
        self.watch.begin(self.limit);
        self.helpers.get::<_, Function>(helper)?.call_arg(args)
    }

    /// A state of which this is the text; none: a new one.
    fn load(&self, ctx: &Ctx<'js>, text: Option<&str>) -> rquickjs::Result<Value<'js>> {
        let mut args = Args::new(ctx.clone(), 1);
        match text {
            Some(text) => {
                args.push_arg(text)?;
                self.call("load", args)
            }
            None => {
                args.push_arg(self.main.clone())?;
                self.call("init", args)
            }
        }
    }

    fn save(&self, ctx: &Ctx<'js>, state: Value<'js>) -> Outcome<String> {
        let mut args = Args::new(ctx.clone(), 1);
        args.push_arg(state)?;
        let text: rquickjs::String = self.call("save", args)?;
        Ok(text.to_string()?)
    }
}
