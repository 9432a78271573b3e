//! What plain DataFusion does with the statements for whose sake there are work-arounds. When one of these tests fails, DataFusion
//! has mended the fault: the work-around can go.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use arrow::array::{RecordBatch, TimestampMicrosecondArray};
use arrow::compute::{CastOptions, cast_with_options};
use arrow::datatypes::{DataType, Schema};
use arrow::util::display::array_value_to_string;
use datafusion::common::config::Dialect;
use datafusion::error::{DataFusionError, Result};
use datafusion::logical_expr::{ColumnarValue, Operator};
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::expressions::{CastExpr, binary, lit};
use datafusion::prelude::{SessionConfig, SessionContext};
use datafusion::scalar::ScalarValue;

/// A fault, and a statement on which it shows.
struct Fault {
    /// The work-around, from the folder of the planner.
    file: &'static str,
    /// At apache/datafusion; `None`: none was found.
    issue: Option<u32>,
    sql: &'static str,
    does: Does,
    /// The right answer.
    right: &'static str,
}

/// What DataFusion does.
#[derive(Debug)]
enum Does {
    /// Rows, and columns of a row, with commas and spaces between them.
    Answer(&'static str),
    /// It fails, with these words.
    Fail(&'static str),
    Panic,
}

const FAULTS: &[Fault] = &[
    Fault {
        file: "sql/src/workarounds/counted_sets.rs",
        issue: Some(12956),
        sql: "SELECT * FROM (VALUES (1), (1)) AS t(x) EXCEPT ALL SELECT 1",
        does: Does::Answer(""),
        right: "1",
    },
    Fault {
        file: "sql/src/workarounds/counted_sets.rs",
        issue: Some(12955),
        sql: "SELECT * FROM (VALUES (1), (1)) AS t(x) INTERSECT ALL SELECT 1",
        does: Does::Answer("1, 1"),
        right: "1",
    },
    Fault {
        file: "sql/src/workarounds/unread_clauses.rs",
        issue: Some(13563),
        sql: "SELECT count(*) FROM (VALUES (1), (2)) AS t(x) TABLESAMPLE BERNOULLI (0)",
        does: Does::Answer("2"),
        right: "0",
    },
    Fault {
        file: "sql/src/workarounds/array_literal.rs",
        issue: None,
        sql: "SELECT (SELECT array_length(ARRAY[t.x])) FROM (VALUES (1)) AS t(x)",
        does: Does::Fail("t.x"),
        right: "1",
    },
    Fault {
        file: "sql/src/workarounds/all_subquery.rs",
        issue: None,
        sql: "SELECT 3 > ALL (SELECT * FROM (VALUES (1), (2)) AS t(x))",
        does: Does::Fail("difference in schemas"),
        right: "true",
    },
    Fault {
        file: "sql/src/workarounds/named_windows.rs",
        issue: None,
        sql: "SELECT count(*) OVER (w ORDER BY x) FROM (VALUES (1), (2)) AS t(x) WINDOW w AS (PARTITION BY x)",
        does: Does::Answer("1, 2"),
        right: "1, 1",
    },
    Fault {
        file: "sql/src/workarounds/recursive_numbers.rs",
        issue: None,
        sql: "WITH RECURSIVE r(n) AS (SELECT arrow_cast(1, 'Decimal128(1, 0)') UNION ALL SELECT n * 4 FROM r WHERE n < 10) \
              SELECT max(n) FROM r",
        does: Does::Fail("is too large to store in a Decimal128 of precision 1"),
        right: "16",
    },
    Fault {
        file: "sql/src/workarounds/with_recursive.rs",
        issue: None,
        sql: "WITH RECURSIVE a AS (SELECT 1 AS n UNION ALL SELECT 2 LIMIT 1) SELECT count(*) FROM a",
        does: Does::Answer("2"),
        right: "1",
    },
    Fault {
        file: "sql/src/workarounds/with_recursive.rs",
        issue: None,
        sql: "WITH RECURSIVE a AS (WITH b AS (SELECT 1 AS x) SELECT x FROM b UNION ALL SELECT 1 FROM b) \
              SELECT count(*) FROM a",
        does: Does::Fail("table 'datafusion.public.b' not found"),
        right: "2",
    },
    Fault {
        file: "sql/src/workarounds/aggregate_order.rs",
        issue: None,
        sql: "SELECT k, first_value(v ORDER BY v, v) FROM (VALUES (1, 1), (1, 2)) AS t(k, v) GROUP BY k",
        does: Does::Panic,
        right: "1 1",
    },
    Fault {
        file: "sql/src/workarounds/subquery.rs",
        issue: Some(16137),
        sql: "SELECT x, (SELECT y FROM (VALUES (1), (2)) AS u(y) WHERE y = x) FROM (VALUES (1)) AS t(x)",
        does: Does::Fail("Correlated scalar subquery must be aggregated"),
        right: "1 1",
    },
    Fault {
        file: "sql/src/workarounds/subquery.rs",
        issue: None,
        sql: "SELECT x, x IN (SELECT y FROM (VALUES (1), (2)) AS u(y)) FROM (VALUES (1)) AS t(x)",
        does: Does::Fail("does not support logical expression InSubquery"),
        right: "1 true",
    },
    Fault {
        file: "sql/src/workarounds/subquery.rs",
        issue: Some(23022),
        sql: "SELECT x, EXISTS (SELECT 1 FROM (VALUES (1)) AS u(y) WHERE y = x) FROM (VALUES (1)) AS t(x)",
        does: Does::Fail("does not support logical expression Exists"),
        right: "1 true",
    },
    Fault {
        file: "sql/src/workarounds/subquery.rs",
        issue: None,
        sql: "SELECT x FROM (VALUES (3)) AS t(x) WHERE (x IN (SELECT y FROM (VALUES (1), (NULL)) AS u(y))) IS NULL",
        does: Does::Answer(""),
        right: "3",
    },
    Fault {
        file: "sql/src/workarounds/subquery.rs",
        issue: Some(6140),
        sql: "SELECT x, y FROM (VALUES (3)) AS t(x), \
              LATERAL (SELECT y FROM (VALUES (1), (2)) AS u(y) WHERE y < x ORDER BY y DESC LIMIT 1) AS l",
        does: Does::Fail("does not support logical expression OuterReferenceColumn"),
        right: "3 2",
    },
    Fault {
        file: "sql/src/workarounds/subquery.rs",
        issue: Some(19816),
        sql: "SELECT x FROM (VALUES (3)) AS t(x) WHERE EXISTS (SELECT 1 FROM (VALUES (1)) AS u(y) \
              WHERE EXISTS (SELECT 1 FROM (VALUES (3)) AS v(z) WHERE z = x))",
        does: Does::Fail("No field named"),
        right: "3",
    },
    Fault {
        file: "src/binder.rs",
        issue: None,
        sql: "SELECT k, x FROM (SELECT k, unnest(a) AS x FROM keyed) AS s ORDER BY k, x DESC",
        does: Does::Answer("1 1, 1 2"),
        right: "1 2, 1 1",
    },
    Fault {
        file: "sql/src/workarounds/values_subquery.rs",
        issue: None,
        sql: "VALUES ((SELECT 1)), (2)",
        does: Does::Fail("ScalarSubqueryExpr evaluated before"),
        right: "1, 2",
    },
    Fault {
        file: "sql/src/workarounds/values_subquery.rs",
        issue: None,
        sql: "SELECT count(*) FROM (VALUES (1), (3)) AS t(x) WHERE x IN (VALUES (1), (2))",
        does: Does::Fail("single expression required"),
        right: "1",
    },
    Fault {
        file: "src/query.rs",
        issue: None,
        sql: "SELECT n FROM (SELECT count(*) AS n FROM (VALUES (1)) AS t(x)) AS s WHERE 1 > (SELECT 2)",
        does: Does::Answer("0"),
        right: "",
    },
];

/// The file whose fault shows in a plan only: see [`a_case_has_the_type_of_its_first_branch`].
const IN_PLANS: &[&str] = &[
    "sql/src/workarounds/case_type.rs",
    "sql/src/workarounds/nested_cast.rs",
    "sql/src/workarounds/time_shift.rs",
];

async fn context() -> Result<SessionContext> {
    let mut config = SessionConfig::new().with_target_partitions(1);
    config.options_mut().sql_parser.dialect = Dialect::PostgreSQL;
    let context = SessionContext::new_with_config(config);
    let keyed = "CREATE TABLE keyed (k INT PRIMARY KEY, a INT[]) AS VALUES (1, [1, 2])";
    context.sql(keyed).await?.collect().await?;
    Ok(context)
}

async fn answer(sql: &'static str) -> Result<String> {
    let batches = context().await?.sql(sql).await?.collect().await?;
    let mut rows = vec![];
    for batch in batches {
        for row in 0..batch.num_rows() {
            let columns = batch.columns().iter();
            let columns = columns.map(|column| array_value_to_string(column, row));
            rows.push(columns.collect::<Result<Vec<_>, _>>()?.join(" "));
        }
    }
    Ok(rows.join(", "))
}

/// All faults that are not as they were.
#[tokio::test]
async fn no_fault_is_mended() {
    let mut mended = vec![];
    for fault in FAULTS {
        // A panic of DataFusion ends a task, and not the test.
        let done = match tokio::spawn(answer(fault.sql)).await {
            Ok(done) => done,
            Err(panicked) => Err(DataFusionError::External(Box::new(panicked))),
        };
        let is_as_it_was = match (&done, &fault.does) {
            (Ok(found), Does::Answer(expected)) => found == expected && *expected != fault.right,
            (Err(error), Does::Fail(words)) => error.to_string().contains(words),
            (Err(error), Does::Panic) => error.to_string().contains("panic"),
            _ => false,
        };
        if !is_as_it_was {
            mended.push(format!(
                "{} (issue {:?}): {}\n  did: {:?}\n  does: {done:?}\n  right: {:?}",
                fault.file, fault.issue, fault.sql, fault.does, fault.right
            ));
        }
    }
    assert!(mended.is_empty(), "{}", mended.join("\n"));
}

/// apache/datafusion#1609.
#[tokio::test]
async fn a_case_has_the_type_of_its_first_branch() {
    let case = "SELECT CASE WHEN x > 1 THEN 1 ELSE 2.5 END FROM (VALUES (1)) AS t(x)";
    let union = "SELECT 1 UNION ALL SELECT 2.5 ORDER BY 1";
    for (sql, rows) in [(case, "2.5"), (union, "1.0, 2.5")] {
        let context = context().await.unwrap();
        let plan = context.state().create_logical_plan(sql).await.unwrap();
        assert_eq!(plan.schema().field(0).data_type(), &DataType::Int64, "{sql}");
        assert_eq!(answer(sql).await.unwrap(), rows);
    }
}

/// How often a physical expression is asked whether it may be NULL.
#[derive(Debug, Eq, PartialEq, Hash)]
struct Asked;

static ASKED: AtomicUsize = AtomicUsize::new(0);

impl std::fmt::Display for Asked {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("asked")
    }
}

impl PhysicalExpr for Asked {
    fn data_type(&self, _: &Schema) -> Result<DataType> {
        Ok(DataType::Int32)
    }

    fn nullable(&self, _: &Schema) -> Result<bool> {
        ASKED.fetch_add(1, Ordering::Relaxed);
        Ok(true)
    }

    fn evaluate(&self, _: &RecordBatch) -> Result<ColumnarValue> {
        Ok(ColumnarValue::Scalar(ScalarValue::Int32(None)))
    }

    fn children(&self) -> Vec<&Arc<dyn PhysicalExpr>> {
        vec![]
    }

    fn with_new_children(self: Arc<Self>, _: Vec<Arc<dyn PhysicalExpr>>) -> Result<Arc<dyn PhysicalExpr>> {
        Ok(self)
    }

    fn fmt_sql(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("asked")
    }
}

/// `nested_cast`: what is within casts and operators in turn is asked twice as often at each turn.
#[test]
fn a_physical_cast_asks_twice() {
    let one = lit(1_i32);
    let times = |turns: usize| {
        let mut expression: Arc<dyn PhysicalExpr> = Arc::new(Asked);
        for _ in 0..turns {
            let sum = binary(expression, Operator::Plus, Arc::clone(&one), &Schema::empty()).unwrap();
            expression = Arc::new(CastExpr::new(sum, DataType::Int32, None));
        }
        ASKED.store(0, Ordering::Relaxed);
        expression.nullable(&Schema::empty()).unwrap();
        ASKED.load(Ordering::Relaxed)
    };
    assert_eq!([times(1), times(2), times(8)], [2, 4, 256]);
}

/// `time_shift`: Arrow casts infinity as any number, and DataFusion has no bounds of a time of day moved.
#[test]
fn infinity_is_a_number_to_arrow() {
    let infinity = TimestampMicrosecondArray::from(vec![i64::MAX]);
    let options = CastOptions {
        safe: false,
        ..CastOptions::default()
    };
    assert!(cast_with_options(&infinity, &DataType::Date32, &options).is_err());
}

#[test]
fn every_work_around_has_its_fault() {
    let planner = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let told: BTreeSet<String> = (FAULTS.iter().map(|fault| fault.file))
        .chain(IN_PLANS.iter().copied())
        .map(str::to_owned)
        .collect();
    for file in &told {
        assert!(planner.join(file).exists(), "{file} is gone");
    }
    for entry in std::fs::read_dir(planner.join("sql/src/workarounds")).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        let file = format!("sql/src/workarounds/{name}");
        assert!(
            !name.ends_with(".rs") || told.contains(&file),
            "{file} has no test"
        );
    }
}
