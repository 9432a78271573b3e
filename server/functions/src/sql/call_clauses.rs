//! Clauses and arguments of calls that their functions do not take: refused, where DataFusion reads over them or fails in other words.

use datafusion::sql::sqlparser::ast::{
    DuplicateTreatment, Function, FunctionArg, FunctionArgExpr, FunctionArgumentClause, FunctionArguments,
};
use millrace_postgres::error::{SqlError, SqlResult, SqlState};
use millrace_postgres::types::resolution;

use crate::syntax;

/// PostgreSQL's functions of many rows that are aggregates, by `pg_proc.prokind`. Sorted.
const AGGREGATES: [&str; 44] = [
    "array_agg",
    "avg",
    "bit_and",
    "bit_or",
    "bit_xor",
    "bool_and",
    "bool_or",
    "corr",
    "count",
    "covar_pop",
    "covar_samp",
    "cume_dist",
    "dense_rank",
    "every",
    "json_agg",
    "json_object_agg",
    "jsonb_agg",
    "jsonb_object_agg",
    "max",
    "min",
    "mode",
    "percent_rank",
    "percentile_cont",
    "percentile_disc",
    "range_agg",
    "range_intersect_agg",
    "rank",
    "regr_avgx",
    "regr_avgy",
    "regr_count",
    "regr_intercept",
    "regr_r2",
    "regr_slope",
    "regr_sxx",
    "regr_sxy",
    "regr_syy",
    "stddev",
    "stddev_pop",
    "stddev_samp",
    "string_agg",
    "sum",
    "var_pop",
    "var_samp",
    "variance",
];

/// Those that are functions of windows only. Sorted; `rank(x) WITHIN GROUP` and its like are aggregates.
const OF_WINDOWS: [&str; 7] = [
    "first_value",
    "lag",
    "last_value",
    "lead",
    "nth_value",
    "ntile",
    "row_number",
];

/// Refuses a call that cannot be.
///
/// # Errors
/// 42809, 42883, 42601 and 0A000, as PostgreSQL has them.
pub(super) fn check(function: &Function) -> SqlResult<()> {
    let Some(name) = syntax::name_of(function) else {
        return Ok(());
    };
    arguments(function, &name)?;
    if is_plain(&name) {
        return plain(function, &name);
    }
    if function.over.is_none() {
        return Ok(());
    }
    let is_ranking = ["rank", "dense_rank", "percent_rank", "cume_dist"].contains(&name.as_str());
    if function.filter.is_some() && (is_ranking || OF_WINDOWS.binary_search(&name.as_str()).is_ok()) {
        let message = "FILTER is not implemented for non-aggregate window functions";
        return Err(SqlError::unsupported(message));
    }
    if has_order(function) {
        let message = "aggregate ORDER BY is not implemented for window functions";
        return Err(SqlError::unsupported(message));
    }
    Ok(())
}

/// Whether a name is only of functions of single values, or of rows.
pub(super) fn is_plain(name: &str) -> bool {
    resolution::is_function(name) && !is_aggregate(name) && OF_WINDOWS.binary_search(&name).is_err()
}

/// Whether a name is that of an aggregate.
pub(super) fn is_aggregate(name: &str) -> bool {
    AGGREGATES.binary_search(&name).is_ok()
}

/// `sum(*)`, `coalesce()`.
fn arguments(function: &Function, name: &str) -> SqlResult<()> {
    let FunctionArguments::List(list) = &function.args else {
        return Ok(());
    };
    let is_star = |argument: &FunctionArg| {
        matches!(
            argument,
            FunctionArg::Unnamed(FunctionArgExpr::Wildcard | FunctionArgExpr::WildcardWithOptions(_))
        )
    };
    if name != "count" && list.args.iter().any(is_star) {
        let message = format!("function {name}() does not exist");
        let hint = "No function matches the given name and argument types. You might need to add explicit type casts.";
        return Err(SqlError::new(SqlState::UndefinedFunction, message).with_hint(hint));
    }
    match name {
        "coalesce" | "greatest" | "least" if list.args.is_empty() => {
            let message = format!("{name} needs an argument");
            Err(SqlError::new(SqlState::SyntaxError, message))
        }
        _ => Ok(()),
    }
}

/// A function of single values has no clauses.
fn plain(function: &Function, name: &str) -> SqlResult<()> {
    let is_distinct = matches!(&function.args, FunctionArguments::List(list)
        if list.duplicate_treatment == Some(DuplicateTreatment::Distinct));
    let clause = if is_distinct {
        "DISTINCT"
    } else if !function.within_group.is_empty() {
        "WITHIN GROUP"
    } else if has_order(function) {
        "ORDER BY"
    } else if function.filter.is_some() {
        "FILTER"
    } else if function.over.is_some() {
        let message =
            format!("OVER specified, but {name} is not a window function nor an aggregate function");
        return Err(SqlError::new(SqlState::WrongObjectType, message));
    } else {
        return Ok(());
    };
    let message = format!("{clause} specified, but {name} is not an aggregate function");
    Err(SqlError::new(SqlState::WrongObjectType, message))
}

fn has_order(function: &Function) -> bool {
    matches!(&function.args, FunctionArguments::List(list)
        if list.clauses.iter().any(|clause| matches!(clause, FunctionArgumentClause::OrderBy(_))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lists_are_sorted() {
        assert!(AGGREGATES.is_sorted());
        assert!(OF_WINDOWS.is_sorted());
    }

    #[test]
    fn aggregates_and_functions_of_windows_are_not_plain() {
        assert!(is_plain("lower") && is_plain("now"));
        assert!(!is_plain("sum") && !is_plain("lag") && !is_plain("rank") && !is_plain("mine"));
    }
}
