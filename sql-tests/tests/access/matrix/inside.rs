//! Cases of what a statement reaches by way of something else: a table that refers to another, a query inside of one.

use super::{Case, case};

/// Of a table with one that refers to it: everybody may empty the first, lock and read both; the second is ann's.
const fn referred(kind: &'static str, sql: &'static str, may: &'static str) -> Case {
    case(kind, sql, may).before(
        "DROP TABLE IF EXISTS s.child; DROP TABLE IF EXISTS s.parent; \
         CREATE TABLE s.parent (a int PRIMARY KEY); CREATE TABLE s.child (a int REFERENCES s.parent, b int); \
         ALTER TABLE s.parent OWNER TO ann; ALTER TABLE s.child OWNER TO ann; GRANT SELECT ON s.child TO PUBLIC; \
         GRANT SELECT, UPDATE, TRUNCATE ON s.parent TO PUBLIC; GRANT REFERENCES ON s.parent TO gus",
    )
}

/// As `referred`, and everybody may make tables.
const fn referring(kind: &'static str, sql: &'static str, may: &'static str) -> Case {
    let case = referred(kind, sql, may);
    case.after("DROP TABLE IF EXISTS s.new")
}

/// Of what is in a schema into which gus alone may look; everybody has every right to what is in it.
const fn hidden(kind: &'static str, sql: &'static str, may: &'static str) -> Case {
    case(kind, sql, may).before(
        "CREATE SCHEMA IF NOT EXISTS hidden; CREATE TABLE IF NOT EXISTS hidden.t (a int); \
         CREATE SEQUENCE IF NOT EXISTS hidden.q; GRANT ALL ON hidden.t TO PUBLIC; \
         GRANT ALL ON SEQUENCE hidden.q TO PUBLIC; GRANT USAGE ON SCHEMA hidden TO gus",
    )
}

/// Where gus alone may make what is temporary.
const fn temporary(kind: &'static str, sql: &'static str) -> Case {
    case(kind, sql, "nynn")
        .before(
            "REVOKE TEMPORARY ON DATABASE millrace FROM PUBLIC; GRANT TEMPORARY ON DATABASE millrace TO gus",
        )
        .after("GRANT TEMPORARY ON DATABASE millrace TO PUBLIC")
}

/// What locks the second table besides the first, or instead.
const fn locking(sql: &'static str, may: &'static str) -> Case {
    referred("Query", sql, may)
}

pub(super) const CASES: &[Case] = &[
    referred("Truncate", "TRUNCATE s.parent CASCADE", "ynnn"),
    referred("Truncate", "TRUNCATE s.parent, s.child", "ynnn"),
    // Mia may make tables there, and has no REFERENCES.
    referring(
        "CreateTable",
        "CREATE TABLE s.new (a int REFERENCES s.parent)",
        "yynn",
    ),
    referring(
        "CreateTable",
        "CREATE TABLE s.new (a int, FOREIGN KEY (a) REFERENCES s.parent (a))",
        "yynn",
    ),
    referring(
        "AlterRelation",
        "CREATE TABLE s.new (a int); ALTER TABLE s.new ADD FOREIGN KEY (a) REFERENCES s.parent",
        "yynn",
    ),
    locking(
        "SELECT 1 FROM s.parent JOIN s.child ON parent.a = child.a FOR UPDATE",
        "ynnn",
    ),
    locking("SELECT 1 FROM s.parent, s.child FOR SHARE", "ynnn"),
    locking(
        "SELECT 1 FROM s.parent JOIN s.child ON parent.a = child.a FOR UPDATE OF parent",
        "yyyy",
    ),
    locking(
        "SELECT 1 FROM s.parent JOIN s.child AS c ON parent.a = c.a FOR UPDATE OF c",
        "ynnn",
    ),
    locking("SELECT * FROM (SELECT a FROM s.child FOR UPDATE) AS x", "ynnn"),
    locking("SELECT 1 WHERE EXISTS (SELECT 1 FROM s.child FOR UPDATE)", "ynnn"),
    locking(
        "WITH x AS (SELECT a FROM s.child FOR UPDATE) SELECT * FROM x",
        "ynnn",
    ),
    locking("SELECT * FROM (SELECT a FROM s.child) AS x FOR UPDATE", "ynnn"),
    locking(
        "WITH child AS (SELECT a FROM s.child) SELECT * FROM child, s.parent FOR UPDATE",
        "yyyy",
    ),
    referred(
        "Copy",
        "COPY (SELECT * FROM (SELECT a FROM s.child FOR UPDATE) AS x) TO STDOUT",
        "ynnn",
    ),
    referred(
        "Explain",
        "EXPLAIN SELECT * FROM (SELECT a FROM s.child FOR UPDATE) AS x",
        "ynnn",
    ),
    referred(
        "Update",
        "UPDATE s.parent SET a = 1 WHERE a IN (SELECT a FROM s.child FOR UPDATE)",
        "ynnn",
    ),
    // What is explained is planned with the rights of the server, as what is made is.
    case(
        "Explain",
        "EXPLAIN CREATE MATERIALIZED VIEW s.new AS SELECT count(*) AS n FROM s.t",
        "yyyn",
    ),
    case(
        "Explain",
        "EXPLAIN (TYPE LOGICAL) CREATE MATERIALIZED VIEW s.new AS SELECT count(*) AS n FROM s.t",
        "yyyn",
    ),
    case(
        "Explain",
        "EXPLAIN (TYPE STAGES) CREATE MATERIALIZED VIEW s.new AS SELECT count(*) AS n FROM s.t",
        "yyyn",
    ),
    case(
        "Explain",
        "EXPLAIN (PREDICT, DURATION '1ms') CREATE MATERIALIZED VIEW s.new AS SELECT count(*) AS n FROM s.t",
        "yyyn",
    ),
    // Everybody may read the table; the schema is gus's to look into.
    hidden(
        "Explain",
        "EXPLAIN CREATE MATERIALIZED VIEW new AS SELECT a FROM hidden.t",
        "nynn",
    ),
    hidden(
        "CreateMaterializedView",
        "CREATE MATERIALIZED VIEW s.new AS SELECT a FROM hidden.t",
        "nynn",
    )
    .after("DROP MATERIALIZED VIEW IF EXISTS s.new"),
    hidden("Query", "SELECT a FROM hidden.t", "nynn"),
    hidden("Query", "SELECT nextval('hidden.q')", "nynn"),
    hidden("Query", "SELECT setval('hidden.q', 7)", "nynn"),
    hidden(
        "Query",
        "SELECT nextval('hidden.q'); SELECT currval('hidden.q')",
        "nynn",
    ),
    hidden("Query", "SELECT currval('hidden.q')", "nynn"),
    hidden("Query", "SELECT 'hidden.t'::regclass", "nynn"),
    hidden("Query", "SELECT to_regclass('hidden.t')", "nynn"),
    // What goes with a session, where everybody has lost the right that PUBLIC has.
    temporary("CreateTable", "CREATE TEMP TABLE x (a int)"),
    temporary("CreateTable", "CREATE TABLE pg_temp.x (a int)"),
    temporary("CreateTable", "CREATE TEMP TABLE x AS SELECT 1 AS a"),
    temporary("CreateView", "CREATE TEMP VIEW x AS SELECT 1 AS a"),
    temporary("CreateSequence", "CREATE TEMP SEQUENCE x"),
    hidden(
        "DeclareSubscribeCursor",
        "BEGIN; DECLARE c CURSOR FOR SUBSCRIBE (SELECT count(*) AS n FROM hidden.t); COMMIT",
        "nynn",
    ),
];
