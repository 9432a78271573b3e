//! Limits on what functions make, and on how long they take.
//!
//! DataFusion makes a whole batch of values at once, and takes the memory that it needs for it. A server that runs out of memory
//! there is dead, with everybody's sessions: so the size of each result is known, or bounded from above, before it is made. What
//! is too large is refused with 54000, what there is no memory for with 53200.
//!
//! | module | what |
//! |---|---|
//! | `limited` | the function that asks first: it stands around every other one |
//! | `growth` | how large a result is, by the name of the function; the sum of the arguments for those that it does not name |
//! | `sizes` | how large the arguments are |
//! | [`work`] | functions that take longer than their arguments are long |
//! | `stand_in` | `||` and large constants, which are no functions in DataFusion |
//! | [`aggregates`] | aggregates whose values grow with the rows |
//!
//! # Where limits are put
//! Twice, and in this order:
//! 1. Around the functions of the registry ([`register`]). Names in a statement find only these, so what the planner works out by
//!    itself (the arguments of a table function) has limits.
//! 2. Around the calls of a bound plan or expression (`Limits`, one of DataFusion's function rewrites). The analyzer runs it
//!    before anything is folded: for queries, for views, and for expressions that become physical ones (defaults, generated
//!    columns, parameters). It finds the functions that expression planners construct by themselves (arrays, subscripts), `||`,
//!    and literals; and it sees which calls have constant arguments.
//!
//! What a function's `simplify` puts in its place goes through the same.
//!
//! A constant of more than `limited::FOLDED_BYTES_MAX` is never folded: plans are copied many times, and a literal becomes as many
//! values as a batch has rows wherever a function or an operator wants an array. It is worked out with each batch, as the result
//! of a call, which knows the number of rows.
//!
//! In a view, where a failing row is NULL, the limit of a value is the same for a row whichever rows come with it; that of a batch
//! makes the view evaluate row by row.

pub mod aggregates;
mod growth;
mod limited;
mod sizes;
mod stand_in;
pub mod work;

use std::sync::Arc;

use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::common::{DFSchema, DataFusionError, Result};
use datafusion::execution::memory_pool::{MemoryConsumer, MemoryPool, MemoryReservation};
use datafusion::execution::{FunctionRegistry, SessionState};
use datafusion::logical_expr::expr::ScalarFunction;
use datafusion::logical_expr::expr_rewriter::FunctionRewrite;
use datafusion::logical_expr::simplify::SimplifyContext;
use datafusion::logical_expr::{BinaryExpr, Expr, ExprSchemable, Operator, ScalarUDF};
use datafusion::optimizer::simplify_expressions::ExprSimplifier;
use datafusion::physical_expr::PhysicalExpr;
use millrace_postgres::error::{SqlError, SqlResult, SqlState};
use millrace_resource::memory::Memory;
use millrace_sql::in_turn::in_turn;
use millrace_sql::postgres::records::{NAMED_ROW, ROW};

use crate::names;

use self::limited::{FOLDED_BYTES_MAX, limited, limited_call, once};

/// The largest value that a function makes, in bytes.
pub const VALUE_BYTES_MAX: u64 = 256 << 20;
/// The most that it makes for the rows of one batch together, in bytes.
pub const BATCH_BYTES_MAX: u64 = 1 << 30;
/// Calls that take more ask for memory first.
const ASKED_BYTES: u64 = 1 << 20;
/// How often what a call makes is in memory soon: in its result, while that grows, and in what rows and batches are made of it.
const COPIES: usize = 4;

/// Functions without limits: DataFusion knows them by what they are, and they hand on what they are given.
const EXEMPT: [&str; 8] = [
    "get_field",
    "named_struct",
    "struct",
    ROW,
    NAMED_ROW,
    "input_file_name",
    "file_row_index",
    "json_get",
];

fn is_exempt(name: &str) -> bool {
    EXEMPT.contains(&name)
}

/// The memory that calls may take: those that take much ask for it.
#[derive(Clone)]
pub struct MemoryBudget {
    memory: Arc<Memory>,
    pool: Arc<dyn MemoryPool>,
}

impl std::fmt::Debug for MemoryBudget {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("MemoryBudget")
    }
}

impl MemoryBudget {
    /// Memory, and a pool over it for what is held during calls.
    pub fn new(memory: &Arc<Memory>, pool: Arc<dyn MemoryPool>) -> MemoryBudget {
        MemoryBudget {
            memory: Arc::clone(memory),
            pool,
        }
    }

    /// Takes what a call will have at its end, and again while it grows, and for the copies that are made of it next. What other calls
    /// made that is still there shows in the size of the process: it is measured again.
    fn ask(&self, name: &str, bytes: u64) -> Result<Option<MemoryReservation>> {
        if bytes < ASKED_BYTES {
            return Ok(None);
        }
        self.memory.look();
        let reservation = MemoryConsumer::new(format!("{name}()")).register(&self.pool);
        let bytes = usize::try_from(bytes).unwrap_or(usize::MAX);
        reservation.try_grow(bytes.saturating_mul(COPIES))?;
        Ok(Some(reservation))
    }
}

/// Puts limits on the functions that are registered by now, and on calls in plans.
///
/// # Errors
/// The registry refuses a function.
pub fn register(state: &mut SessionState, budget: &MemoryBudget) -> Result<()> {
    // The registry has a function under each of its names. One that was replaced may still be there under another name of its own:
    // it comes first, so that it takes nothing back; and names come after other names.
    let known = state.scalar_functions();
    let order = |function: &Arc<ScalarUDF>| match known.get(function.name()) {
        Some(named) if Arc::ptr_eq(named, function) => 1 + usize::from(function.aliases().is_empty()),
        _ => 0,
    };
    let mut functions: Vec<(usize, Arc<ScalarUDF>)> = known
        .values()
        .map(|function| (order(function), Arc::clone(function)))
        .collect();
    functions.sort_by_key(|(order, _)| *order);
    for (_, function) in functions {
        state.register_udf(limited(&function, budget))?;
    }
    state.register_function_rewrite(Arc::new(Limits {
        budget: budget.clone(),
    }))
}

/// An expression ready to run. `now()` and its like are values from then on: one for the whole statement.
///
/// # Errors
/// Its types do not fit, or it computes more than it may.
pub fn physical(state: &SessionState, expression: Expr, schema: &DFSchema) -> Result<Arc<dyn PhysicalExpr>> {
    let context = SimplifyContext::builder()
        .with_schema(Arc::new(schema.clone()))
        .with_config_options(Arc::clone(state.config_options()))
        .with_query_execution_start_time(state.execution_props().query_execution_start_time)
        .build();
    let simplifier = ExprSimplifier::new(context);
    let coerced = simplifier.coerce(in_expression(state, expression, schema)?, schema)?;
    let expression = state.create_physical_expr(simplifier.simplify(coerced)?, schema)?;
    Ok(in_turn(expression, schema.as_arrow())?.data)
}

/// An expression whose calls have limits, before it is simplified. (The analyzer does it for plans.)
///
/// # Errors
/// Its types do not fit.
pub fn in_expression(state: &SessionState, expression: Expr, schema: &DFSchema) -> Result<Expr> {
    let rewrites = state.analyzer().function_rewrites().iter();
    rewrites.into_iter().try_fold(expression, |expression, rewrite| {
        let rewritten = expression.transform_up(|node| rewrite.rewrite(node, schema, state.config_options()));
        Ok(rewritten?.data)
    })
}

/// Puts limits on the calls of plans.
#[derive(Debug)]
struct Limits {
    budget: MemoryBudget,
}

/// The text and the pattern of a comparison. A pattern that is short and known is compared as it is; else the time that it
/// takes is looked at first.
fn with_pattern(text: Expr, pattern: Expr, budget: &MemoryBudget) -> (Expr, Expr) {
    let is_short = match &pattern {
        Expr::Literal(value, _) => value
            .try_as_str()
            .flatten()
            .is_none_or(|pattern| work::states(pattern) <= work::STATES_SHORT),
        _ => false,
    };
    let is_looked_at = matches!(&text, Expr::ScalarFunction(call) if call.func.name() == names::MATCHED);
    if is_short || is_looked_at {
        return (text, pattern);
    }
    let call = ScalarFunction::new_udf(stand_in::matched(), vec![text, pattern.clone()]);
    (Expr::ScalarFunction(limited_call(call, budget)), pattern)
}

/// A comparison with a pattern, with limits; any other expression as it is.
fn pattern_matched(expr: Expr, budget: &MemoryBudget) -> Expr {
    match expr {
        Expr::BinaryExpr(BinaryExpr { left, op, right })
            if matches!(
                op,
                Operator::RegexMatch
                    | Operator::RegexIMatch
                    | Operator::RegexNotMatch
                    | Operator::RegexNotIMatch
            ) =>
        {
            let (left, right) = with_pattern(*left, *right, budget);
            Expr::BinaryExpr(BinaryExpr::new(Box::new(left), op, Box::new(right)))
        }
        Expr::Like(mut like) => {
            let (text, pattern) = with_pattern(plain(*like.expr), plain(*like.pattern), budget);
            like.expr = Box::new(text);
            like.pattern = Box::new(pattern);
            Expr::Like(like)
        }
        other => other,
    }
}

impl Limits {
    fn call(&self, function: Arc<ScalarUDF>, args: Vec<Expr>) -> Expr {
        // Functions count their constants by themselves, and some want to see them.
        let args = args.into_iter().map(plain).collect();
        Expr::ScalarFunction(limited_call(
            ScalarFunction::new_udf(function, args),
            &self.budget,
        ))
    }
}

/// A constant where none is repeated for each row: a large literal as it was, a call whose result counts once.
fn plain(expr: Expr) -> Expr {
    match expr {
        Expr::ScalarFunction(mut call) if call.func.name() == names::CONSTANT && call.args.len() == 1 => {
            plain(call.args.remove(0))
        }
        Expr::ScalarFunction(call) => Expr::ScalarFunction(once(call)),
        other => other,
    }
}

impl FunctionRewrite for Limits {
    fn name(&self) -> &str {
        "limits"
    }

    fn rewrite(&self, expr: Expr, schema: &DFSchema, _config: &ConfigOptions) -> Result<Transformed<Expr>> {
        Ok(match expr {
            Expr::ScalarFunction(call) if is_exempt(call.func.name()) => {
                Transformed::no(Expr::ScalarFunction(call))
            }
            Expr::ScalarFunction(call) => Transformed::yes(self.call(call.func, call.args)),
            Expr::BinaryExpr(BinaryExpr { left, op, right }) => {
                // A left side that is still a chain is none of texts.
                let is_chain = matches!(&*left, Expr::BinaryExpr(left) if left.op == Operator::StringConcat);
                let is_joined = op == Operator::StringConcat
                    && !is_chain
                    && match (left.get_type(schema), right.get_type(schema)) {
                        (Ok(left), Ok(right)) => stand_in::joined_types(&left, &right).is_some(),
                        // The error is the planner's.
                        _ => false,
                    };
                Transformed::yes(match is_joined {
                    true => self.call(stand_in::joined(), stand_in::sides(*left, *right)),
                    false => {
                        let sides = (Box::new(plain(*left)), Box::new(plain(*right)));
                        let compared = Expr::BinaryExpr(BinaryExpr::new(sides.0, op, sides.1));
                        pattern_matched(compared, &self.budget)
                    }
                })
            }
            // None of these repeats a constant.
            Expr::InList(mut list) => {
                list.expr = Box::new(plain(*list.expr));
                list.list = list.list.into_iter().map(plain).collect();
                Transformed::yes(Expr::InList(list))
            }
            like @ Expr::Like(_) => Transformed::yes(pattern_matched(like, &self.budget)),
            Expr::Literal(value, metadata) if sizes::of_constant(&value) > FOLDED_BYTES_MAX => {
                let call =
                    ScalarFunction::new_udf(stand_in::constant(), vec![Expr::Literal(value, metadata)]);
                Transformed::yes(Expr::ScalarFunction(limited_call(call, &self.budget)))
            }
            other => Transformed::no(other),
        })
    }
}

fn too_large(name: &str, limit: u64, of: &str) -> SqlError {
    SqlError::new(
        SqlState::ProgramLimitExceeded,
        format!(
            "the result of {name} is too large: the limit is {} MB {of}",
            limit >> 20
        ),
    )
}

/// Checks the size of a value of a function that can tell it only while it makes it.
///
/// # Errors
/// It is too large.
pub fn may_be_as_large(name: &str, bytes: usize) -> SqlResult<()> {
    match bytes as u64 <= VALUE_BYTES_MAX {
        true => Ok(()),
        false => Err(too_large(name, VALUE_BYTES_MAX, "for a value")),
    }
}

/// What such a function has made for a batch.
#[derive(Debug)]
pub struct Budget {
    name: &'static str,
    bytes: u64,
}

impl Budget {
    /// Nothing yet.
    pub fn new(name: &'static str) -> Budget {
        Budget { name, bytes: 0 }
    }

    /// One more value.
    ///
    /// # Errors
    /// It is too large, or all of them are.
    pub fn add(&mut self, bytes: usize) -> Result<(), DataFusionError> {
        may_be_as_large(self.name, bytes)?;
        self.bytes += bytes as u64;
        match self.bytes <= BATCH_BYTES_MAX {
            true => Ok(()),
            false => Err(too_large(self.name, BATCH_BYTES_MAX, "for the values of a batch of rows").into()),
        }
    }
}

#[cfg(test)]
mod tests;
