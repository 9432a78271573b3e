//! Every aggregate that DataFusion has, as a view under insertions, updates and deletions, grouped and not, with DISTINCT
//! and FILTER where they parse: all of them equal the batch answer.

use std::collections::BTreeSet;

use datafusion::functions_aggregate::all_default_aggregate_functions;

use super::*;

/// A function and calls of it over `t`, whose answers do not depend on the order in which rows came.
const CALLS: &[(&str, &[&str])] = &[
    ("any_value", &["any_value(k)"]),
    (
        "array_agg",
        &[
            "array_agg(v ORDER BY id)",
            "array_agg(v ORDER BY v DESC NULLS LAST, id)",
            "array_agg(name ORDER BY name, id)",
            "array_agg(DISTINCT v ORDER BY v)",
        ],
    ),
    (
        "first_value",
        &[
            "first_value(v ORDER BY id)",
            "first_value(name ORDER BY v DESC, id)",
        ],
    ),
    (
        "last_value",
        &["last_value(v ORDER BY id)", "last_value(d ORDER BY f, id)"],
    ),
    (
        "nth_value",
        &["nth_value(v, 2 ORDER BY id)", "nth_value(name, -1 ORDER BY id)"],
    ),
    ("covar_samp", &["covar_samp(v, f)"]),
    ("covar_pop", &["covar_pop(v, f)"]),
    ("corr", &["corr(v, f)"]),
    ("sum", &["sum(v)", "sum(f)", "sum(d)", "sum(v * 2 + 1)"]),
    ("min", &["min(v)", "min(f)", "min(d)", "min(b)", "min(name)"]),
    ("max", &["max(v)", "max(f)", "max(d)", "max(b)", "max(name)"]),
    ("median", &["median(v)", "median(f)", "median(d)"]),
    ("count", &["count(*)", "count(v)", "count(name)", "count(b, v)"]),
    ("regr_slope", &["regr_slope(v, f)"]),
    ("regr_intercept", &["regr_intercept(v, f)"]),
    ("regr_count", &["regr_count(v, f)"]),
    ("regr_r2", &["regr_r2(v, f)"]),
    ("regr_avgx", &["regr_avgx(v, f)"]),
    ("regr_avgy", &["regr_avgy(v, f)"]),
    ("regr_sxx", &["regr_sxx(v, f)"]),
    ("regr_syy", &["regr_syy(v, f)"]),
    ("regr_sxy", &["regr_sxy(v, f)"]),
    ("var", &["var(v)", "var_samp(f)", "var_samp(d)"]),
    ("var_pop", &["var_pop(v)", "var_pop(f)"]),
    ("stddev", &["stddev(v)", "stddev_samp(f)"]),
    ("stddev_pop", &["stddev_pop(f)"]),
    ("approx_median", &["approx_median(v)"]),
    (
        "approx_distinct",
        &["approx_distinct(name)", "approx_distinct(v)"],
    ),
    (
        "approx_percentile_cont",
        &["approx_percentile_cont(0.5) WITHIN GROUP (ORDER BY f)"],
    ),
    (
        "approx_percentile_cont_with_weight",
        &["approx_percentile_cont_with_weight(1, 0.5) WITHIN GROUP (ORDER BY f)"],
    ),
    (
        "percentile_cont",
        &[
            "percentile_cont(0.25) WITHIN GROUP (ORDER BY f)",
            "percentile_cont(0.75) WITHIN GROUP (ORDER BY v DESC)",
        ],
    ),
    (
        "string_agg",
        &[
            "string_agg(name, ',' ORDER BY id)",
            "string_agg(DISTINCT name, '|' ORDER BY name)",
        ],
    ),
    ("bit_and", &["bit_and(v)"]),
    ("bit_or", &["bit_or(v)"]),
    ("bit_xor", &["bit_xor(v)"]),
    ("bool_and", &["bool_and(b)", "bool_and(v > 2)"]),
    ("bool_or", &["bool_or(b)"]),
    ("avg", &["avg(v)", "avg(f)", "avg(d)"]),
    ("grouping", &[]),
];

/// The call with DISTINCT and with FILTER too.
fn variants(call: &str) -> Vec<String> {
    let mut variants = vec![
        call.to_owned(),
        format!("{call} FILTER (WHERE v IS NULL OR v > 0)"),
    ];
    // With DISTINCT the order must be of the arguments.
    if !["DISTINCT", "*", "ORDER BY"]
        .iter()
        .any(|part| call.contains(part))
    {
        variants.push(call.replacen('(', "(DISTINCT ", 1));
    }
    variants
}

/// Whether a query's answer is the same for the same rows in any order, as plain DataFusion computes it.
fn is_definite(call: &str) -> bool {
    // Any value will do, but a view's and a batch's may be two.
    !call.starts_with("any_value(") || call.contains("(k)") && !call.contains("FILTER")
}

#[test]
fn no_aggregate_is_left_out() {
    let known: BTreeSet<&str> = CALLS.iter().map(|(name, _)| *name).collect();
    let all = all_default_aggregate_functions();
    let missing: Vec<&str> = all
        .iter()
        .map(|function| function.name())
        .filter(|name| !known.contains(name))
        .collect();
    assert!(missing.is_empty(), "{missing:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_aggregate_equals_the_batch_answer_under_deletion() {
    let only = std::env::var("MILLRACE_ORACLE_ONLY").unwrap_or_default();
    let mut queries = vec![
        "SELECT k, b, grouping(k) + 2 * grouping(b) AS g, count(*) AS n FROM t GROUP BY GROUPING SETS ((k, b), (k), ())".to_owned(),
    ];
    for call in CALLS.iter().flat_map(|(_, calls)| *calls) {
        for variant in variants(call).into_iter().filter(|call| is_definite(call)) {
            // A group of `any_value(k)` has one.
            queries.push(format!("SELECT k, {variant} AS x FROM t GROUP BY k"));
            if !variant.starts_with("any_value") {
                queries.push(format!("SELECT {variant} AS x FROM t"));
            }
        }
    }
    queries.retain(|sql| sql.contains(&only));
    for (number, queries) in queries.chunks(40).enumerate() {
        let mut random = StdRng::seed_from_u64(3_000_000 + number as u64);
        let mut fixture = Fixture::new().await;
        let mut after = millrace_engine::WriteToken::default();
        // Some of what plain DataFusion cannot do shows only over rows.
        for _ in 0..6 {
            after.merge(&fixture.change(&mut random).await);
        }
        for sql in queries {
            // What plain DataFusion cannot answer is no query.
            if let Err(error) = fixture.answer(sql).await {
                assert!(sql.contains("DISTINCT"), "{sql}: {error}");
                continue;
            }
            fixture.create_view(sql).await;
        }
        for step in 0..12 {
            after.merge(&fixture.change(&mut random).await);
            fixture
                .check(&after, &format!("chunk {number}, step {step}"))
                .await;
        }
        fixture.runtime.shutdown().await;
    }
}
