//! Functions that PostgreSQL has and DataFusion has not, and the rewriting of PostgreSQL's spellings into DataFusion's.
//!
//! | module | what |
//! |---|---|
//! | [`rewrite`] | the AST, before it is bound: casts, operators and names of functions, names of columns |
//! | [`cast`] | `pg_cast`: casts with PostgreSQL's inputs, rounding and errors |
//! | [`jsonb`] | `jsonb_contains`, `jsonb_typeof`, `jsonb_pretty` and their like |
//! | [`system`] | `version()`, `pg_typeof`, `pg_sleep`, the visibility and size functions that clients ask |
//! | [`arithmetic`] | integer operators that fail on overflow |
//! | [`format`] | `to_char` |
//!
//! Not there yet: `age`, `to_number`, `to_char` of numbers, the `*_populate_record` and `jsonb_path_*` families, text
//! search, ranges, and functions over large objects.

pub mod arithmetic;
pub mod cast;
pub mod format;
pub mod jsonb;
pub mod rewrite;
pub mod system;

use datafusion::error::Result;
use datafusion::execution::FunctionRegistry;

/// Registers all of them.
///
/// # Errors
/// The registry refuses a function.
pub fn register(registry: &mut dyn FunctionRegistry) -> Result<()> {
    datafusion_functions_json::register_all(registry)?;
    registry.register_expr_planner(std::sync::Arc::new(arithmetic::CheckedIntegers::default()))?;
    registry.register_udf(cast::udf())?;
    for function in jsonb::udfs()
        .into_iter()
        .chain(arithmetic::udfs())
        .chain(system::udfs())
        .chain(format::udfs())
    {
        registry.register_udf(function)?;
    }
    Ok(())
}
