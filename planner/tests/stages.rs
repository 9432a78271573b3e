//! Plans of views, held by snapshots: what is cut where, what is combined in the map stage, what is known to only grow.

#![allow(clippy::unwrap_used)]

use std::sync::Arc;

use arrow::datatypes::{DataType, Field, Schema, TimeUnit};
use datafusion::catalog::TableProvider;
use datafusion::common::TableReference;
use datafusion::error::{DataFusionError, Result};
use datafusion::prelude::{SessionConfig, SessionContext};
use datafusion::sql::sqlparser::dialect::{Dialect, MsSqlDialect, PostgreSqlDialect};
use datafusion::sql::sqlparser::parser::Parser;
use millrace_planner::state_identity::{state_difference, state_identity};
use millrace_planner::{
    Binder, PlanError, RelationId, RelationInfo, RelationKind, RelationTable, StageGraph, ViewOptions,
    explain, plan_view,
};
use millrace_sql::CatalogReader;

struct Flights;

impl CatalogReader for Flights {
    fn table(&self, name: &TableReference) -> Result<Arc<dyn TableProvider>> {
        let (id, kind, fields, key) = match name.table() {
            "flights" => (
                1,
                RelationKind::Stream,
                vec![
                    Field::new(
                        "sched_dep",
                        DataType::Timestamp(TimeUnit::Microsecond, None),
                        true,
                    ),
                    Field::new("carrier", DataType::Utf8, false),
                    Field::new("tailnum", DataType::Utf8, true),
                    Field::new("origin", DataType::Utf8, true),
                    Field::new("dep_delay", DataType::Int64, true),
                    Field::new("distance", DataType::Int64, true),
                ],
                None,
            ),
            "airlines" => (
                2,
                RelationKind::Table,
                vec![
                    Field::new("carrier", DataType::Utf8, false),
                    Field::new("name", DataType::Utf8, true),
                ],
                Some(vec![0]),
            ),
            _ => {
                return Err(DataFusionError::Plan(format!(
                    "relation \"{name}\" does not exist"
                )));
            }
        };
        Ok(Arc::new(RelationTable::new(RelationInfo {
            id: RelationId(id),
            name: name.table().to_owned(),
            kind,
            schema: Arc::new(Schema::new(fields)),
            key,
            append_only: kind == RelationKind::Stream,
            watermarks: vec![],
        })))
    }
}

fn plan(sql: &str) -> std::result::Result<StageGraph, PlanError> {
    // PostgreSQL's dialect has no FOR SYSTEM_TIME.
    let dialect: &dyn Dialect = if sql.contains("SYSTEM_TIME") {
        &MsSqlDialect {}
    } else {
        &PostgreSqlDialect {}
    };
    let config = SessionConfig::new()
        .with_target_partitions(1)
        .set_bool("datafusion.sql_parser.map_string_types_to_utf8view", false);
    let state = SessionContext::new_with_config(config).state();
    let statement = Parser::parse_sql(dialect, sql).unwrap().remove(0);
    let plan = Binder::new(&state, &Flights).statement(&statement)?;
    plan_view(&state, plan, ViewOptions::new(4))
}

fn stages(sql: &str) -> String {
    explain::stages(&plan(sql).unwrap())
}

#[test]
fn a_grouped_stream_is_combined_in_the_map_stage() {
    insta::assert_snapshot!(stages(
        "SELECT carrier, count(*) AS n, avg(dep_delay) AS delay, max(distance) AS far
         FROM flights WHERE dep_delay IS NOT NULL GROUP BY carrier"
    ));
}

#[test]
fn a_join_of_a_stream_with_a_table_is_exchanged_by_its_key() {
    insta::assert_snapshot!(stages(
        "SELECT a.name, sum(f.distance) AS miles FROM flights f JOIN airlines a ON f.carrier = a.carrier GROUP BY a.name"
    ));
}

#[test]
fn distinct_counts_need_their_values() {
    insta::assert_snapshot!(stages(
        "SELECT origin, count(DISTINCT tailnum) AS planes FROM flights GROUP BY origin"
    ));
}

#[test]
fn an_aggregate_without_groups_has_one_partition() {
    insta::assert_snapshot!(stages(
        "SELECT count(*) AS n, min(dep_delay) AS least FROM flights"
    ));
}

#[test]
fn a_filtered_stream_needs_no_exchange() {
    insta::assert_snapshot!(stages(
        "SELECT carrier, distance * 2 AS both FROM flights WHERE distance > 1000"
    ));
}

#[test]
fn a_filtered_table_is_placed_by_its_key() {
    insta::assert_snapshot!(stages("SELECT * FROM airlines WHERE name LIKE 'A%'"));
}

#[test]
fn a_union_is_exchanged_into_one_stage() {
    insta::assert_snapshot!(stages(
        "SELECT carrier FROM airlines UNION ALL SELECT carrier FROM flights WHERE origin = 'JFK'"
    ));
}

#[test]
fn a_groups_by_of_groups_has_two_exchanges() {
    insta::assert_snapshot!(stages(
        "SELECT n, count(*) AS carriers FROM (SELECT carrier, count(*) AS n FROM flights GROUP BY carrier) c GROUP BY n"
    ));
}

#[test]
fn the_first_rows_are_kept_on_one_partition() {
    insta::assert_snapshot!(stages(
        "SELECT carrier, distance FROM flights ORDER BY distance DESC, carrier LIMIT 3"
    ));
}

#[test]
fn windows_are_exchanged_by_their_partitions() {
    insta::assert_snapshot!(stages(
        "SELECT carrier, rank() OVER (PARTITION BY origin ORDER BY distance) AS place FROM flights"
    ));
}

#[test]
fn a_recursion_reads_its_other_inputs_through_exchanges_and_runs_in_one_task() {
    insta::assert_snapshot!(stages(
        "WITH RECURSIVE r(place, hops) AS (SELECT 'JFK' AS place, 0 AS hops
           UNION SELECT f.tailnum, r.hops + 1 FROM r JOIN flights f ON f.origin = r.place
             WHERE r.hops < 3 AND NOT EXISTS (SELECT 1 FROM airlines a WHERE a.carrier = r.place))
         SELECT place, min(hops) AS hops FROM r GROUP BY place"
    ));
}

#[test]
fn conditions_on_the_time_are_kept_by_row_and_below_the_aggregate() {
    insta::assert_snapshot!(stages(
        "SELECT carrier, count(*) AS n FROM flights
         WHERE sched_dep > now() - INTERVAL '1 hour' AND sched_dep <= now() AND origin = 'JFK' GROUP BY carrier"
    ));
}

#[test]
fn a_recursion_over_what_only_grows_only_grows() {
    insta::assert_snapshot!(stages(
        "WITH RECURSIVE r(n) AS (SELECT origin FROM flights
           UNION ALL SELECT f.tailnum FROM flights f JOIN r ON f.origin = r.n) SELECT * FROM r"
    ));
}

#[test]
fn a_condition_on_the_time_above_an_aggregate_needs_no_exchange() {
    insta::assert_snapshot!(stages(
        "SELECT carrier, max(sched_dep) AS latest FROM flights GROUP BY carrier HAVING max(sched_dep) >= current_date"
    ));
}

#[test]
fn an_asof_join_is_exchanged_by_its_equalities() {
    insta::assert_snapshot!(stages(
        "SELECT f.tailnum, g.origin FROM flights f
         ASOF JOIN flights g MATCH_CONDITION (f.sched_dep > g.sched_dep AND asof_left) ON g.tailnum = f.tailnum AND g.distance > 100"
    ));
}

#[test]
fn a_lookup_by_an_append_only_stream_keeps_the_table_only() {
    insta::assert_snapshot!(stages(
        "SELECT f.tailnum, a.name FROM flights f
         LEFT JOIN airlines FOR SYSTEM_TIME AS OF PROCTIME() AS a ON f.carrier = a.carrier AND f.distance > 100"
    ));
}

#[test]
fn a_bounded_row_number_is_a_top_n_of_each_partition() {
    insta::assert_snapshot!(stages(
        "SELECT carrier, distance FROM (SELECT carrier, distance, row_number() OVER (PARTITION BY origin ORDER BY distance DESC) AS n
         FROM flights) f WHERE n <= 3"
    ));
}

#[test]
fn a_bounded_rank_that_is_shown_is_numbered() {
    insta::assert_snapshot!(stages(
        "SELECT carrier, r FROM (SELECT carrier, origin, rank() OVER (PARTITION BY origin ORDER BY distance) AS r FROM flights) f
         WHERE r BETWEEN 2 AND 3 AND carrier <> 'AA'"
    ));
}

#[test]
fn distinct_on_is_a_top_n() {
    insta::assert_snapshot!(stages(
        "SELECT DISTINCT ON (origin) origin, carrier FROM flights ORDER BY origin, sched_dep"
    ));
}

#[test]
fn lateral_unnest_is_no_join() {
    insta::assert_snapshot!(stages(
        "SELECT carrier, part FROM flights, unnest(string_to_array(tailnum, '-')) AS p(part)"
    ));
}

#[test]
fn a_lateral_limit_by_equality_is_a_top_n_joined_by_its_key() {
    insta::assert_snapshot!(stages(
        "SELECT a.name, l.tailnum FROM airlines a,
         LATERAL (SELECT tailnum FROM flights f WHERE f.carrier = a.carrier ORDER BY distance DESC LIMIT 2) AS l"
    ));
}

#[test]
fn not_in_needs_the_match_and_whether_there_are_nulls() {
    insta::assert_snapshot!(stages(
        "SELECT name FROM airlines WHERE carrier NOT IN (SELECT tailnum FROM flights)"
    ));
}

#[test]
fn except_all_counts_copies() {
    insta::assert_snapshot!(stages(
        "SELECT carrier FROM flights EXCEPT ALL SELECT carrier FROM airlines"
    ));
}

#[test]
fn comma_joins_in_a_bad_order_make_no_cross_product() {
    let text = stages(
        "SELECT count(*) AS n FROM airlines a, airlines b, flights f, flights g
         WHERE f.carrier = a.carrier AND g.tailnum = f.tailnum AND b.carrier = g.carrier",
    );
    assert!(!text.contains("on ()"), "{text}");
}

#[test]
fn what_cannot_be_maintained_is_named() {
    for (sql, construct) in [
        (
            "SELECT random() AS r FROM flights",
            "the volatile function random()",
        ),
        (
            "SELECT carrier, now() AS at FROM flights",
            "now() outside of a comparison with columns",
        ),
        (
            "SELECT carrier FROM flights WHERE sched_dep > now() OR distance > 10",
            "now() outside of a comparison with columns",
        ),
        (
            "SELECT carrier FROM flights WHERE sched_dep > now() - INTERVAL '1 month'",
            "now() plus or minus months",
        ),
        (
            "WITH RECURSIVE r(n) AS (SELECT 1 UNION SELECT m FROM (SELECT max(n) AS m FROM (SELECT n FROM r) y) x) SELECT * FROM r",
            "an aggregate without GROUP BY over recursive query \"r\" in its own recursive term",
        ),
        (
            "WITH RECURSIVE r(t) AS (SELECT sched_dep FROM flights
             UNION SELECT t + INTERVAL '1 day' FROM r WHERE t < now()) SELECT * FROM r",
            "now() over recursive query \"r\" in its own recursive term",
        ),
        (
            "WITH RECURSIVE r(n) AS (SELECT 1 UNION SELECT n FROM (SELECT n FROM r LIMIT 1) x) SELECT * FROM r",
            "LIMIT over recursive query \"r\" in its own recursive term",
        ),
        (
            "WITH RECURSIVE r(n) AS (SELECT 1 UNION (SELECT n + 1 FROM r UNION ALL SELECT 7)) SELECT * FROM r",
            "UNION over recursive query \"r\" in its own recursive term",
        ),
        (
            "SELECT first_value(carrier) FROM flights",
            "first_value without ORDER BY",
        ),
    ] {
        let message = plan(sql).unwrap_err().to_string();
        assert_eq!(
            message,
            format!("{construct} is not supported in a materialized view"),
            "{sql}"
        );
    }
}

#[test]
fn the_identity_of_state_has_operators_keys_and_columns() {
    let graph = plan(
        "SELECT a.name, count(*) AS n, max(f.dep_delay) AS worst FROM flights f JOIN airlines a ON a.carrier = f.carrier \
         WHERE f.distance > 100 GROUP BY a.name",
    )
    .unwrap();
    insta::assert_snapshot!(state_identity(&graph).join("\n"));
}

#[test]
fn words_do_not_change_the_identity_of_state_and_keys_do() {
    let identity = |sql: &str| state_identity(&plan(sql).unwrap());
    let by_carrier =
        identity("SELECT carrier, sum(dep_delay) AS s FROM flights WHERE distance > 5 GROUP BY carrier");
    let in_other_words = identity(
        "SELECT c AS x, sum(d) FROM (SELECT carrier AS c, dep_delay AS d FROM flights f WHERE NOT f.distance <= 5) t GROUP BY c",
    );
    assert_eq!(by_carrier, in_other_words);
    assert_eq!(state_difference(&by_carrier, &in_other_words), None);
    // Columns of the same type.
    let by_origin =
        identity("SELECT origin, sum(dep_delay) AS s FROM flights WHERE distance > 5 GROUP BY origin");
    assert!(
        state_difference(&by_carrier, &by_origin)
            .unwrap()
            .contains("aggregate/1")
    );
    let other_function =
        identity("SELECT carrier, max(dep_delay) AS s FROM flights WHERE distance > 5 GROUP BY carrier");
    assert_ne!(by_carrier, other_function);
    let left =
        identity("SELECT f.tailnum, a.name FROM flights f LEFT JOIN airlines a ON a.carrier = f.carrier");
    let inner = identity("SELECT f.tailnum, a.name FROM flights f JOIN airlines a ON a.carrier = f.carrier");
    assert_ne!(left, inner);
}
