//! The types of parameters, compared with what PostgreSQL says.

use postgres_types::Type;

use crate::tests::Fixture;

/// What PostgreSQL 15 says in its description of the parameters.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn types_are_those_of_postgresql() {
    let f = Fixture::new().await;
    f.ok("CREATE TABLE t (id INT PRIMARY KEY, a BIGINT, s TEXT, v VARCHAR(9), n NUMERIC(10,2), ts TIMESTAMP, arr INT[], j JSONB)")
        .await;
    let cases: &[(&str, &[Type])] = &[
        ("SELECT $1::int, $2::int[]", &[Type::INT4, Type::INT4_ARRAY]),
        ("SELECT $1", &[Type::TEXT]),
        (
            "SELECT id FROM t WHERE a = $1 AND v = $2",
            &[Type::INT8, Type::TEXT],
        ),
        (
            "SELECT id FROM t WHERE s = ANY($1) OR id <> ALL($2)",
            &[Type::TEXT_ARRAY, Type::INT4_ARRAY],
        ),
        ("SELECT id FROM t WHERE id IN ($1, $2)", &[Type::INT4, Type::INT4]),
        ("SELECT id FROM t LIMIT $1 OFFSET $2", &[Type::INT8, Type::INT8]),
        ("SELECT $1 + 1, $1", &[Type::INT4]),
        ("SELECT n * $1, ts - $2 FROM t", &[Type::NUMERIC, Type::TIMESTAMP]),
        (
            "SELECT round($1), substring($2, 1, $3)",
            &[Type::FLOAT8, Type::TEXT, Type::INT4],
        ),
        (
            "SELECT coalesce($1, id), CASE WHEN $2 THEN $3 ELSE 'x' END FROM t",
            &[Type::INT4, Type::BOOL, Type::TEXT],
        ),
        (
            "WITH w AS (SELECT $1::int AS k) SELECT k FROM w WHERE k > $2",
            &[Type::INT4, Type::INT4],
        ),
        (
            "SELECT 1 FROM t x WHERE EXISTS (SELECT 1 FROM t WHERE t.a = x.id AND x.s = $1)",
            &[Type::TEXT],
        ),
        ("VALUES (1, 'a'), ($1, $2)", &[Type::INT4, Type::TEXT]),
        (
            "SELECT j -> $1, arr[$2], arr @> $3 FROM t",
            &[Type::TEXT, Type::INT4, Type::INT4_ARRAY],
        ),
        (
            "INSERT INTO t (id, v, n) VALUES ($1, $2, $3)",
            &[Type::INT4, Type::VARCHAR, Type::NUMERIC],
        ),
        ("INSERT INTO t (id, s) SELECT $1, $2", &[Type::INT4, Type::TEXT]),
        (
            "INSERT INTO t (id) VALUES ($1) ON CONFLICT (id) DO UPDATE SET a = $2 WHERE t.s = $3",
            &[Type::INT4, Type::INT8, Type::TEXT],
        ),
        (
            "UPDATE t SET a = a + $1, n = $2 WHERE id = $3",
            &[Type::INT8, Type::NUMERIC, Type::INT4],
        ),
        ("DELETE FROM t WHERE ts < $1 RETURNING s", &[Type::TIMESTAMP]),
    ];
    for (sql, types) in cases {
        let parsed = f.session.parse(sql).await.unwrap().pop();
        let prepared = f.session.prepare(parsed, &[]).await;
        assert_eq!(prepared.expect(sql).param_types, *types, "{sql}");
    }
    for (sql, code) in [
        ("SELECT $1 IS NULL", "42P18"),
        ("SELECT $1 + $2", "42725"),
        ("INSERT INTO t (id, s) VALUES ($1, $1)", "42P08"),
    ] {
        let parsed = f.session.parse(sql).await.unwrap().pop();
        let error = f.session.prepare(parsed, &[]).await.unwrap_err();
        assert_eq!(error.code.code(), code, "{sql}");
    }
}
