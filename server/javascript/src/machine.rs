//! One QuickJS with one program in its sandbox. It is used by one thread at a time, and thrown away after anything unusual.

mod reducing;
mod thrown;
mod watch;

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use arrow::array::ArrayRef;
use datafusion::error::DataFusionError;
use millrace_postgres::error::{SqlError, SqlResult, SqlState};
use rquickjs::context::EvalOptions;
use rquickjs::context::intrinsic::{Date, Eval, Json, MapSet, Promise, RegExp, RegExpCompiler, TypedArrays};
use rquickjs::function::Args;
use rquickjs::{Context, Ctx, Function, Object, Runtime, Value};

use self::thrown::thrown;
use self::watch::{TIMED_OUT, UNWANTED, Watch};
use crate::fault::{Fault, Outcome};
use crate::limits::Limits;
use crate::program::{Form, Program};
use crate::values::{Budget, Given, Kind, column, read};

/// What every machine runs first; its value are the helpers.
const SANDBOX: &str = include_str!("sandbox.js");
/// What errors call the text of the user, to find its lines in what QuickJS says.
const FILE: &str = "body";
/// Of the stack, by calls within calls.
const STACK_BYTES: usize = 512 << 10;
/// For making a machine, and for looking at an error.
const OWN_TIME: Duration = Duration::from_secs(2);

/// See the module.
pub struct Machine {
    context: Context,
    runtime: Runtime,
    watch: Arc<Watch>,
}

impl Machine {
    /// A machine for a program, which was checked before.
    ///
    /// # Errors
    /// There is no memory, or the text does not parse.
    pub fn new(program: &Program, limits: &Limits) -> Result<Machine, DataFusionError> {
        let machine = Machine::empty(limits)?;
        let source = wrapped(program, Wrapper::Function);
        machine.within(program, limits, |ctx, _| {
            let main: Function = eval(ctx, source)?;
            ctx.store_userdata(main).map_err(|_| rquickjs::Error::Unknown)?;
            Ok(())
        })?;
        Ok(machine)
    }

    /// One without a program.
    fn empty(limits: &Limits) -> Result<Machine, DataFusionError> {
        let failed = |error: rquickjs::Error| {
            DataFusionError::ResourcesExhausted(format!("no engine for JavaScript can be made: {error}"))
        };
        let runtime = Runtime::new().map_err(failed)?;
        runtime.set_memory_limit(limits.memory_bytes);
        runtime.set_max_stack_size(STACK_BYTES);
        let watch = Arc::new(Watch::default());
        let asked = Arc::clone(&watch);
        runtime.set_interrupt_handler(Some(Box::new(move || asked.is_over())));
        let builder = Context::builder();
        let builder = builder.with::<(
            Date,
            Eval,
            RegExpCompiler,
            RegExp,
            Json,
            MapSet,
            TypedArrays,
            Promise,
        )>();
        let context = builder.build(&runtime).map_err(failed)?;
        watch.begin(OWN_TIME);
        let prepared: Result<(), String> = context.with(|ctx| {
            let shown = |error: rquickjs::Error| format!("{error}: {:?}", ctx.catch());
            let helpers: Object = ctx.eval(SANDBOX).map_err(shown)?;
            ctx.store_userdata(helpers).map_err(|_| "in use".to_owned())?;
            Ok(())
        });
        prepared.map_err(DataFusionError::ResourcesExhausted)?;
        Ok(Machine {
            context,
            runtime,
            watch,
        })
    }

    /// What the engine holds, in bytes. It looks at all of it.
    pub fn memory_bytes(&self) -> usize {
        usize::try_from(self.runtime.memory_usage().malloc_size).unwrap_or(0)
    }

    /// Frees what nothing holds but itself.
    pub fn collect(&self) {
        self.runtime.run_gc();
    }

    /// Runs something in the engine; what fails becomes an error of the program.
    fn within<T>(
        &self,
        program: &Program,
        limits: &Limits,
        run: impl FnOnce(&Ctx<'_>, &Watch) -> Outcome<T>,
    ) -> Result<T, DataFusionError> {
        let made = self.context.with(|ctx| {
            self.watch.begin(limits.call_time);
            run(&ctx, &self.watch).map_err(|fault| self.error(&ctx, program, limits, fault))
        })?;
        if self.runtime.is_job_pending() {
            let message = format!(
                "{}: nothing can be done later: there are no promises",
                program.described()
            );
            return Err(SqlError::new(SqlState::ExternalRoutineException, message).into());
        }
        Ok(made)
    }

    /// What a fault is called.
    fn error(&self, ctx: &Ctx<'_>, program: &Program, limits: &Limits, fault: Fault) -> DataFusionError {
        let name = program.described();
        let error = match fault {
            Fault::Column(error) => return error,
            Fault::Sql(mut error) => {
                error.message = format!("{name}: {}", error.message);
                return error.into();
            }
            Fault::Js(error) => error,
        };
        match self.watch.stopped.load(Ordering::Relaxed) {
            TIMED_OUT => {
                ctx.catch();
                let ms = limits.call_time.as_millis();
                return DataFusionError::ResourcesExhausted(format!(
                    "{name} ran for longer than javascript_call_timeout allows ({ms} ms)"
                ));
            }
            UNWANTED => {
                ctx.catch();
                let message = "canceling statement due to user request";
                return SqlError::new(SqlState::QueryCanceled, message).into();
            }
            _ => {}
        }
        let caught = ctx.catch();
        self.watch.begin(OWN_TIME);
        let (what, line) = thrown(&caught).unwrap_or_else(|| (error.to_string(), None));
        if what == "InternalError: out of memory" || matches!(error, rquickjs::Error::Allocation) {
            let mib = limits.memory_bytes >> 20;
            return DataFusionError::ResourcesExhausted(format!(
                "{name} needs more memory than javascript_memory allows ({mib} MB)"
            ));
        }
        let state = match what.starts_with("SyntaxError: ") && line.is_some() {
            true => SqlState::SyntaxError,
            false => SqlState::ExternalRoutineException,
        };
        let place = line.map_or_else(String::new, |line| format!(" (line {line})"));
        SqlError::new(state, format!("{name}: {what}{place}")).into()
    }

    /// The results for some rows.
    ///
    /// # Errors
    /// A call throws, ends too late, or gives what does not fit.
    pub fn column(
        &self,
        program: &Program,
        limits: &Limits,
        arguments: &[ArrayRef],
        rows: usize,
        bytes_max: usize,
    ) -> Result<ArrayRef, DataFusionError> {
        let given = program.parameters.iter().zip(arguments);
        let given = given.map(|(field, array)| Given::new(field, array));
        let given = given.collect::<Result<Vec<_>, _>>()?;
        let field = program.value_field();
        let kind = Kind::of(&field);
        let mut budget = Budget { left: bytes_max };
        let made = self.within(program, limits, |ctx, watch| {
            let main = userdata::<Function>(ctx)?;
            let helpers = userdata::<Object>(ctx)?;
            let rows_of: Function = helpers.get("rows")?;
            let mut made = Vec::with_capacity(rows);
            for row in 0..rows {
                if program.strict && given.iter().any(|column| column.is_null(row)) {
                    made.push(crate::values::Made::Null);
                    continue;
                }
                watch.begin(limits.call_time);
                let mut args = Args::new(ctx.clone(), given.len() + 1);
                if program.form == Form::Rows {
                    args.push_arg(main.clone())?;
                }
                for column in &given {
                    args.push_arg(column.value(ctx, &helpers, row)?)?;
                }
                let called = if program.form == Form::Rows {
                    &rows_of
                } else {
                    &main
                };
                let value: Value = called.call_arg(args)?;
                made.push(read(ctx, &helpers, &value, &kind, &field, &mut budget)?);
            }
            Ok(made)
        })?;
        column(&field, &kind, made).map_err(|mut error| {
            error.message = format!("{}: {}", program.described(), error.message);
            error.into()
        })
    }

    /// Refuses a text that is none.
    ///
    /// # Errors
    /// It does not parse, closes the braces around it, or lacks what it must have.
    pub fn check(program: &Program, limits: &Limits) -> SqlResult<()> {
        let plain = |error: DataFusionError| match error {
            DataFusionError::External(error) => match error.downcast::<SqlError>() {
                Ok(error) => *error,
                Err(error) => SqlError::internal(error.to_string()),
            },
            other => SqlError::new(SqlState::InvalidFunctionDefinition, other.strip_backtrace()),
        };
        let invalid = |message: String| SqlError::new(SqlState::InvalidFunctionDefinition, message);
        for parameter in &program.parameters {
            let name = parameter.name();
            let is_word = name
                .chars()
                .all(|c| c.is_alphanumeric() || matches!(c, '_' | '$'))
                && !name.starts_with(|c: char| c.is_numeric());
            let named = Program {
                body: String::new(),
                parameters: vec![parameter.clone()],
                form: Form::Scalar,
                ..program.clone()
            };
            if !is_word
                || Machine::empty(limits)
                    .and_then(|machine| machine.eval(&named, limits, Wrapper::Function))
                    .is_err()
            {
                return Err(invalid(format!(
                    "parameter \"{name}\" cannot be a name in JavaScript"
                )));
            }
        }
        // What a text runs that closes the braces, it runs in machines that nobody uses again.
        let wrappers = [Wrapper::Function, Wrapper::Method, Wrapper::Static];
        for wrapper in wrappers {
            Machine::empty(limits)
                .and_then(|machine| machine.eval(program, limits, wrapper))
                .map_err(plain)
                // Only what stands outside of the braces runs here.
                .map_err(|error| match error.code {
                    SqlState::ExternalRoutineException => SqlError {
                        code: SqlState::SyntaxError,
                        ..error
                    },
                    _ => error,
                })?;
        }
        if program.form == Form::Reducer {
            let machine = Machine::new(program, limits).map_err(plain)?;
            let parts = machine.parts(program, limits).map_err(plain)?;
            if let Some(part) = NOT_CALLED.iter().find(|part| parts.contains(part)) {
                let message = format!(
                    "{} has a function {part}(), which is not supported",
                    program.described()
                );
                let hint = "What leaves a window that slides on now() goes through retract(); a state takes nothing that would have to be released.";
                return Err(SqlError::unsupported(message).with_hint(hint));
            }
            if !parts.contains(&"process") {
                let message = format!("{} has no function process(state, ..)", program.described());
                return Err(invalid(message));
            }
            // So that a reducer without a state to begin with is refused here and not by its view.
            machine
                .reduce(program, limits, None, "process", &[])
                .map_err(plain)?;
        }
        Ok(())
    }

    fn eval(&self, program: &Program, limits: &Limits, wrapper: Wrapper) -> Result<(), DataFusionError> {
        let source = wrapped(program, wrapper);
        self.within(program, limits, |ctx, _| {
            let _: Value = eval(ctx, source)?;
            Ok(())
        })
    }
}

/// What stands around a text. One that closes the braces of one of them does not parse in another.
#[derive(Debug, Clone, Copy)]
enum Wrapper {
    Function,
    Method,
    Static,
}

/// What a reducer may define.
pub const PARTS: [&str; 6] = ["init", "process", "value", "retract", "merge", "timer"];
/// Parts that StreamMapReduce has and nobody would call here: they are refused by name.
const NOT_CALLED: [&str; 2] = ["expire", "destroy"];

/// The text as a function of its parameters; that of a reducer as one that gives its parts. It begins in the first line, so that lines have the user's numbers.
fn wrapped(program: &Program, wrapper: Wrapper) -> String {
    let names: Vec<&str> = match program.form {
        Form::Reducer => vec![],
        Form::Scalar | Form::Rows => program
            .parameters
            .iter()
            .map(|field| field.name().as_str())
            .collect(),
    };
    let names = names.join(", ");
    let star = if program.form == Form::Rows { "*" } else { "" };
    let mut body = program.body.clone();
    if program.form == Form::Reducer {
        let parts = PARTS.iter().chain(&NOT_CALLED);
        let parts: Vec<String> = parts
            .map(|part| format!("{part}: typeof {part} === 'function' ? {part} : undefined"))
            .collect();
        body = format!("{body}\nreturn {{ {} }};", parts.join(", "));
    }
    match wrapper {
        Wrapper::Function => format!("(function{star} ({names}) {{ {body}\n}})"),
        Wrapper::Method => format!("({{ {star}body({names}) {{ {body}\n}} }})"),
        Wrapper::Static => format!("(class {{ static {star}body({names}) {{ {body}\n}} }})"),
    }
}

fn eval<'js, V: rquickjs::FromJs<'js>>(ctx: &Ctx<'js>, source: String) -> rquickjs::Result<V> {
    let mut options = EvalOptions::default();
    options.strict = true;
    options.filename = Some(FILE.to_owned());
    ctx.eval_with_options(source, options)
}

fn userdata<'js, T>(ctx: &Ctx<'js>) -> rquickjs::Result<T>
where
    T: rquickjs::JsLifetime<'js> + Clone,
    T::Changed<'static>: std::any::Any,
{
    ctx.userdata::<T>()
        .map(|known| (*known).clone())
        .ok_or(rquickjs::Error::Unknown)
}
