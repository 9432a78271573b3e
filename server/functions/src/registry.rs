//! Which functions there are: the one list of them.

use std::sync::Arc;

use datafusion::error::Result;
use datafusion::execution::FunctionRegistry;

use crate::bounded::MemoryBudget;
use crate::sql::quantified;
use crate::{
    alike, arithmetic, arrays, average, buckets, by_pattern, by_row, bytes, cast, clock, date_bin, date_part,
    date_trunc, datetime, domain, encoding, enums, format, integers, jsonb, length, made_times, numeric,
    operators, ordered_set, ranking, records, regex, scale, series, shifted, spread, sum, system, text,
    text_or_bytes, trigonometry, trim_array, without, zoned_shift,
};

/// Registers all of them. Aggregates whose values grow take memory from the budget.
///
/// # Errors
/// The registry refuses a function.
pub fn register(registry: &mut dyn FunctionRegistry, budget: &MemoryBudget) -> Result<()> {
    // The first planner that knows an operator has it.
    registry.register_expr_planner(Arc::new(operators::PgOperators))?;
    datafusion_functions_json::register_all(registry)?;
    registry.register_expr_planner(Arc::new(arithmetic::CheckedIntegers::default()))?;
    for function in cast::udfs() {
        registry.register_udf(function)?;
    }
    for function in jsonb::udfs()
        .into_iter()
        .chain(datetime::udfs())
        .chain([date_bin::udf(), date_trunc::udf()])
        .chain(date_part::udfs())
        .chain(length::udfs())
        .chain(by_pattern::udfs())
        .chain(arithmetic::udfs())
        .chain(quantified::udfs())
        .chain(system::udfs())
        .chain(format::udfs())
        .chain(numeric::udfs())
        .chain(integers::udfs())
        .chain(text::udfs())
        .chain(text_or_bytes::udfs())
        .chain(encoding::udfs())
        .chain(regex::udfs())
        .chain(arrays::udfs())
        .chain(alike::udfs())
        .chain(trigonometry::udfs())
        .chain(made_times::udfs())
        .chain(enums::udfs())
        .chain(bytes::udfs())
        .chain(by_row::udfs())
        .chain(scale::udfs())
        .chain(records::udfs())
        .chain([
            zoned_shift::series(),
            series::udf(),
            domain::udf(),
            buckets::udf(),
            trim_array::udf(),
        ])
        .chain(clock::udfs())
    {
        registry.register_udf(function)?;
    }
    for function in ranking::udwfs().into_iter().chain(shifted::udwfs()) {
        registry.register_udwf(function)?;
    }
    registry.register_udaf(sum::udaf())?;
    registry.register_udaf(average::udaf())?;
    for function in spread::udafs() {
        registry.register_udaf(function)?;
    }
    for function in without::udafs(budget)
        .into_iter()
        .chain(ordered_set::udafs(budget))
    {
        registry.register_udaf(function)?;
    }
    Ok(())
}
