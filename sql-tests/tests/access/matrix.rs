//! Every kind of statement and every endpoint against every kind of user: allowed, or 42501.
//!
//! The kinds are read from the sources ([`complete`]), so that a new statement or endpoint without a line here fails the test. Each case runs once for
//! each user, on a connection of its own, after what `before` it the first role has done; then the first role cleans up.
//!
//! | user | |
//! |---|---|
//! | ann | owns the objects, and what is in schema `s` |
//! | gus | has every privilege that there is on them, and the roles that are there for files, signals, checkpoints and numbers |
//! | mia | is a member of a role that has the same |
//! | sam | may look into the schema, and nothing else |

mod complete;
mod inside;

use crate::http::{basic, request};
use crate::{Fixture, rows};

/// The users, in the order of the letters of a case.
const USERS: [&str; 4] = ["ann", "gus", "mia", "sam"];

struct Case {
    /// The variant of the statement's enum.
    kind: &'static str,
    sql: &'static str,
    /// For each user `y`: it may, or `n`: 42501.
    may: &'static str,
    before: &'static str,
    after: &'static str,
}

const fn case(kind: &'static str, sql: &'static str, may: &'static str) -> Case {
    Case {
        kind,
        sql,
        may,
        before: "",
        after: "",
    }
}

impl Case {
    const fn before(self, before: &'static str) -> Case {
        Case { before, ..self }
    }

    const fn after(self, after: &'static str) -> Case {
        Case { after, ..self }
    }
}

/// Of a table of its own, which is made for each.
const fn altered(sql: &'static str) -> Case {
    case("AlterRelation", sql, "ynnn").before(
        "DROP TABLE IF EXISTS s.x; CREATE TABLE s.x (a int PRIMARY KEY, b int, c int, CONSTRAINT positive CHECK (b > 0)); \
         ALTER TABLE s.x OWNER TO ann",
    )
}

const SETUP: &str = "
    CREATE USER ann PASSWORD 'ann'; CREATE USER gus PASSWORD 'gus'; CREATE ROLE grp; CREATE USER mia PASSWORD 'mia' IN ROLE grp;
    CREATE USER sam PASSWORD 'sam';
    CREATE SCHEMA s AUTHORIZATION ann;
    GRANT CREATE ON DATABASE millrace TO ann, gus, grp;
    CREATE TABLE s.t (a int PRIMARY KEY, b int); CREATE STREAM s.st (a int); CREATE SEQUENCE s.q;
    CREATE STREAM s.made (n bigint) WITH (connector = 'datagen', rows = 3);
    CREATE VIEW s.v AS SELECT * FROM s.t; CREATE MATERIALIZED VIEW s.mv AS SELECT a, count(*) FROM s.t GROUP BY a;
    CREATE FUNCTION s.f(x int) RETURNS int LANGUAGE sql AS 'SELECT x + 1'; REVOKE ALL ON FUNCTION s.f FROM PUBLIC;
    CREATE TABLE s.kt (a int); CREATE SUBSCRIPTION s.kept FROM s.kt WITH (retention = '1 hour');
    ALTER TABLE s.kt OWNER TO ann; ALTER SUBSCRIPTION s.kept OWNER TO ann;
    ALTER TABLE s.t OWNER TO ann; ALTER STREAM s.st OWNER TO ann; ALTER SEQUENCE s.q OWNER TO ann; ALTER VIEW s.v OWNER TO ann;
    ALTER STREAM s.made OWNER TO ann; ALTER MATERIALIZED VIEW s.mv OWNER TO ann; ALTER FUNCTION s.f OWNER TO ann;
    CREATE SECRET s.k AS 'x'; CREATE SECRET s.own AS 'x'; ALTER SECRET s.k OWNER TO ann; ALTER SECRET s.own OWNER TO ann;
    GRANT USAGE ON SECRET s.k TO gus, grp;
    GRANT ALL ON SCHEMA s TO gus, grp; GRANT USAGE ON SCHEMA s TO sam;
    GRANT ALL ON ALL TABLES IN SCHEMA s TO gus, grp; GRANT ALL ON ALL SEQUENCES IN SCHEMA s TO gus, grp;
    GRANT ALL ON ALL FUNCTIONS IN SCHEMA s TO gus, grp;
    GRANT pg_read_server_files, pg_write_server_files, pg_signal_backend, pg_checkpoint, pg_monitor TO gus, grp;
    ALTER SYSTEM SET access_control = on";

const CASES: &[Case] = &[
    // What is read.
    case("Query", "SELECT * FROM s.t", "yyyn"),
    case("Query", "SELECT * FROM s.v", "yyyn"),
    case("Query", "SELECT * FROM s.mv", "yyyn"),
    case("Query", "SELECT count(*) FROM s.st", "yyyn"),
    case("Query", "SELECT (SELECT max(a) FROM s.t)", "yyyn"),
    case("Query", "SELECT 1 WHERE EXISTS (SELECT FROM s.t)", "yyyn"),
    case("Query", "SELECT 1 FROM pg_class LIMIT 1", "yyyy"),
    case("Query", "SELECT s.f(1)", "yyyn"),
    case("Query", "SELECT nextval('s.q')", "yyyn"),
    case("Query", "SELECT setval('s.q', 7)", "yyyn"),
    case("Query", "SELECT a FROM s.t FOR UPDATE", "yyyn"),
    case(
        "Query",
        "SELECT pg_cancel_backend(pid) FROM pg_stat_activity WHERE usename = 'sam'",
        "nyyy",
    ),
    case(
        "Query",
        "SELECT pg_cancel_backend(pid) FROM pg_stat_activity WHERE usename = 'millrace'",
        "nnnn",
    ),
    case("Prepare", "PREPARE p AS SELECT * FROM s.t", "yyyn"),
    case("Execute", "PREPARE p AS SELECT 1; EXECUTE p", "yyyy"),
    case(
        "Declare",
        "BEGIN; DECLARE c CURSOR FOR SELECT * FROM s.t; COMMIT",
        "yyyn",
    ),
    case(
        "Fetch",
        "BEGIN; DECLARE c CURSOR FOR SELECT 1; FETCH c; COMMIT",
        "yyyy",
    ),
    case(
        "Close",
        "BEGIN; DECLARE c CURSOR FOR SELECT 1; CLOSE c; COMMIT",
        "yyyy",
    ),
    case("Copy", "COPY s.t TO STDOUT", "yyyn"),
    case("Copy", "COPY (SELECT * FROM s.t) TO STDOUT", "yyyn"),
    case("Copy", "COPY s.t FROM STDIN", "yyyn"),
    case("Explain", "EXPLAIN SELECT * FROM s.t", "yyyn"),
    case("Explain", "EXPLAIN ANALYZE SELECT * FROM s.mv", "yyyn"),
    case("Explain", "EXPLAIN MATERIALIZED VIEW s.mv", "yyyn"),
    case(
        "Explain",
        "EXPLAIN ANALYZE (DURATION '1ms') MATERIALIZED VIEWS",
        "yyyy",
    ),
    // The first run is ann's, the second gus's.
    case("Explain", "EXPLAIN ANALYZE PROFILE 1", "yyyn"),
    case("Explain", "EXPLAIN ANALYZE PROFILE 2", "nyyn"),
    case("Subscribe", "SUBSCRIBE s.nothing", "yyyy"),
    case(
        "DeclareSubscribeCursor",
        "BEGIN; DECLARE c CURSOR FOR SUBSCRIBE TO s.mv; COMMIT",
        "yyyn",
    ),
    case(
        "DeclareSubscribeCursor",
        "BEGIN; DECLARE c CURSOR FOR SUBSCRIBE (SELECT count(*) AS n FROM s.mv); COMMIT",
        "yyyn",
    ),
    case(
        "DeclareSubscriptionCursor",
        "DECLARE c SUBSCRIPTION CURSOR FOR s.kept",
        "yyyn",
    ),
    case(
        "DeclareSubscribeCursor",
        "BEGIN; DECLARE c CURSOR FOR SUBSCRIBE TO s.kept; COMMIT",
        "yyyn",
    ),
    // What is written.
    case("Insert", "INSERT INTO s.t VALUES (100, 1)", "yyyn").after("DELETE FROM s.t WHERE a = 100"),
    case(
        "Insert",
        "INSERT INTO s.t VALUES (101, 1) ON CONFLICT (a) DO UPDATE SET b = 2 RETURNING b",
        "yyyn",
    ),
    case("Insert", "INSERT INTO s.st SELECT 1", "yyyn"),
    case(
        "Insert",
        "WITH x AS (SELECT 102 AS a, 1 AS b) INSERT INTO s.t SELECT * FROM x",
        "yyyn",
    )
    .after("DELETE FROM s.t WHERE a = 102"),
    case("Update", "UPDATE s.t SET b = 3 WHERE a = 1", "yyyn"),
    case(
        "Merge",
        "MERGE INTO s.t USING (SELECT 1 AS k) AS x ON t.a = x.k WHEN MATCHED THEN UPDATE SET b = 3",
        "yyyn",
    ),
    case(
        "Query",
        "WITH gone AS (DELETE FROM s.t WHERE a = 77 RETURNING a) SELECT count(*) FROM gone",
        "yyyn",
    ),
    case(
        "Query",
        "WITH new AS (INSERT INTO s.t VALUES (103, 1)) SELECT 1",
        "yyyn",
    )
    .after("DELETE FROM s.t WHERE a = 103"),
    case("Delete", "DELETE FROM s.t WHERE a = 77", "yyyn"),
    case("Truncate", "TRUNCATE s.t", "yyyn"),
    case("Lock", "BEGIN; LOCK TABLE s.t IN EXCLUSIVE MODE; COMMIT", "yyyn"),
    // What is defined.
    case("CreateTable", "CREATE TABLE s.new (a int)", "yyyn").after("DROP TABLE IF EXISTS s.new"),
    case("CreateTable", "CREATE TABLE s.new AS SELECT * FROM s.t", "yyyn")
        .after("DROP TABLE IF EXISTS s.new"),
    case("CreateTable", "CREATE TABLE public.new (a int)", "nnnn"),
    case("CreateStream", "CREATE STREAM s.new (a int)", "yyyn").after("DROP STREAM IF EXISTS s.new"),
    case(
        "CreateStream",
        "CREATE STREAM s.new (a int) WITH (connector = 'kafka', nonsense = 1)",
        "nyyn",
    ),
    case("CreateView", "CREATE VIEW s.new AS SELECT * FROM s.t", "yyyn").after("DROP VIEW IF EXISTS s.new"),
    case(
        "CreateView",
        "CREATE OR REPLACE VIEW s.v AS SELECT * FROM s.t",
        "ynnn",
    ),
    case(
        "CreateMaterializedView",
        "CREATE MATERIALIZED VIEW s.new AS SELECT a FROM s.t",
        "yyyn",
    )
    .after("DROP MATERIALIZED VIEW IF EXISTS s.new"),
    case(
        "CreateSink",
        "CREATE SINK s.new FROM s.mv WITH (connector = 'nonsense')",
        "nyyn",
    ),
    case(
        "CreateSink",
        "CREATE SINK s.new FROM s.mv WITH (connector = 'webhook', url = 'http://127.0.0.1/')",
        "nyyn",
    ),
    case(
        "CreateSubscription",
        "CREATE SUBSCRIPTION s.new FROM s.kt WITH (retention = '1 hour')",
        "yyyn",
    )
    .after("DROP SUBSCRIPTION IF EXISTS s.new"),
    case(
        "CreateSubscription",
        "CREATE SUBSCRIPTION s.new AS SELECT a FROM s.kt WITH (retention = '1 hour')",
        "yyyn",
    )
    .after("DROP SUBSCRIPTION IF EXISTS s.new"),
    case(
        "CreateExternalTable",
        "CREATE EXTERNAL TABLE s.new STORED AS PARQUET LOCATION '/nowhere'",
        "nyyn",
    ),
    case(
        "CreateFunction",
        "CREATE FUNCTION s.new(x int) RETURNS int LANGUAGE sql AS 'SELECT x'",
        "yyyn",
    )
    .after("DROP FUNCTION IF EXISTS s.new"),
    case(
        "CreateFunction",
        "CREATE FUNCTION s.new(x int) RETURNS int LANGUAGE javascript AS 'return x'",
        "nnnn",
    ),
    case(
        "CreateFunction",
        "CREATE REDUCER s.new(x int) RETURNS int LANGUAGE javascript AS 'function process() {}'",
        "ynnn",
    )
    .before("GRANT pg_execute_server_program TO ann")
    .after("DROP FUNCTION IF EXISTS s.new; REVOKE pg_execute_server_program FROM ann"),
    case("CreateIndex", "CREATE INDEX new ON s.t (b)", "ynnn").after("DROP INDEX IF EXISTS s.new"),
    case("CreateSequence", "CREATE SEQUENCE s.new", "yyyn").after("DROP SEQUENCE IF EXISTS s.new"),
    case("CreateSchema", "CREATE SCHEMA new", "yyyn").after("DROP SCHEMA IF EXISTS new"),
    case("CreateDatabase", "CREATE DATABASE new", "nnnn"),
    case("CreateDatabase", "CREATE DATABASE new", "ynnn")
        .before("ALTER ROLE ann CREATEDB")
        .after("DROP DATABASE IF EXISTS new; ALTER ROLE ann NOCREATEDB"),
    case("Comment", "COMMENT ON TABLE s.t IS 'x'", "ynnn"),
    case("Drop", "DROP TABLE s.gone", "ynnn")
        .before("DROP TABLE IF EXISTS s.gone; CREATE TABLE s.gone (a int); ALTER TABLE s.gone OWNER TO ann"),
    case("Drop", "DROP TABLE s.gone", "ynnn").before("CREATE TABLE IF NOT EXISTS s.gone (a int)"),
    case("Drop", "DROP SCHEMA s", "ynnn"),
    case("AlterRelation", "ALTER TABLE s.t ADD COLUMN c int", "ynnn"),
    case("AlterRelation", "ALTER TABLE s.t OWNER TO ann", "ynnn"),
    case("AlterRelation", "ALTER TABLE s.t RENAME TO t2", "ynnn")
        .after("ALTER TABLE IF EXISTS s.t2 RENAME TO t"),
    case("AlterRelation", "ALTER SCHEMA s OWNER TO ann", "ynnn"),
    case("Pause", "PAUSE STREAM s.made", "ynnn"),
    case("Resume", "RESUME STREAM s.made", "ynnn").before("RESUME STREAM s.made; PAUSE STREAM s.made"),
    // What is altered and dropped, kind by kind.
    altered("ALTER TABLE s.x RENAME COLUMN b TO d"),
    altered("ALTER TABLE s.x DROP COLUMN c"),
    altered("ALTER TABLE s.x ADD CONSTRAINT more CHECK (c > 0)"),
    altered("ALTER TABLE s.x DROP CONSTRAINT positive"),
    altered("ALTER TABLE s.x RENAME CONSTRAINT positive TO p"),
    altered("ALTER TABLE s.x ALTER COLUMN b SET DEFAULT 7"),
    altered("ALTER TABLE s.x ALTER COLUMN b SET NOT NULL"),
    altered("ALTER TABLE s.x ALTER COLUMN b TYPE bigint"),
    altered("ALTER TABLE s.x SET (durability = 'off')"),
    altered("ALTER TABLE s.x RESET (durability)"),
    altered("ALTER TABLE s.x SET SCHEMA s"),
    altered("ALTER TABLE s.x ALTER COLUMN a ADD GENERATED BY DEFAULT AS IDENTITY"),
    case("AlterRelation", "ALTER TABLE s.x ALTER COLUMN a SET GENERATED ALWAYS RESTART", "ynnn").before(
        "DROP TABLE IF EXISTS s.x; CREATE TABLE s.x (a int GENERATED BY DEFAULT AS IDENTITY); ALTER TABLE s.x OWNER TO ann",
    ),
    altered("ALTER TABLE s.x ALTER COLUMN a DROP IDENTITY IF EXISTS"),
    case("AlterRelation", "ALTER SEQUENCE s.q RESTART WITH 1", "ynnn"),
    case("AlterRelation", "ALTER MATERIALIZED VIEW s.mv SWAP WITH s.mv2", "ynnn").before(
        "DROP MATERIALIZED VIEW IF EXISTS s.mv2; CREATE MATERIALIZED VIEW s.mv2 AS SELECT a, count(*) FROM s.t GROUP BY a; \
         ALTER MATERIALIZED VIEW s.mv OWNER TO ann; ALTER MATERIALIZED VIEW s.mv2 OWNER TO ann",
    ),
    case("Drop", "DROP STREAM s.lost", "ynnn")
        .before("DROP STREAM IF EXISTS s.lost; CREATE STREAM s.lost (a int); ALTER STREAM s.lost OWNER TO ann")
        .after("DROP STREAM IF EXISTS s.lost"),
    case("Drop", "DROP VIEW s.lost", "ynnn")
        .before("DROP VIEW IF EXISTS s.lost; CREATE VIEW s.lost AS SELECT 1 AS a; ALTER VIEW s.lost OWNER TO ann")
        .after("DROP VIEW IF EXISTS s.lost"),
    case("Drop", "DROP MATERIALIZED VIEW s.lost", "ynnn")
        .before(
            "DROP MATERIALIZED VIEW IF EXISTS s.lost; CREATE MATERIALIZED VIEW s.lost AS SELECT a FROM s.t; \
             ALTER MATERIALIZED VIEW s.lost OWNER TO ann",
        )
        .after("DROP MATERIALIZED VIEW IF EXISTS s.lost"),
    case("Drop", "DROP INDEX s.lost", "ynnn")
        .before("DROP INDEX IF EXISTS s.lost; CREATE INDEX lost ON s.t (b)")
        .after("DROP INDEX IF EXISTS s.lost"),
    case("Drop", "DROP FUNCTION s.lost", "ynnn")
        .before(
            "DROP FUNCTION IF EXISTS s.lost; CREATE FUNCTION s.lost() RETURNS int LANGUAGE sql AS 'SELECT 1'; \
             ALTER FUNCTION s.lost OWNER TO ann",
        )
        .after("DROP FUNCTION IF EXISTS s.lost"),
    case("Drop", "DROP SEQUENCE s.lost", "ynnn")
        .before("DROP SEQUENCE IF EXISTS s.lost; CREATE SEQUENCE s.lost; ALTER SEQUENCE s.lost OWNER TO ann")
        .after("DROP SEQUENCE IF EXISTS s.lost"),
    case("Drop", "DROP DATABASE lost", "nnnn")
        .before("DROP DATABASE IF EXISTS lost; CREATE DATABASE lost")
        .after("DROP DATABASE IF EXISTS lost"),
    // There is none of these; `privileges` has a sink.
    case("Drop", "DROP SINK s.nothing", "yyyy"),
    case("Explain", "EXPLAIN ANALYZE SINK s.nothing", "yyyy"),
    case("Drop", "DROP SUBSCRIPTION s.lost", "ynnn")
        .before(
            "DROP SUBSCRIPTION IF EXISTS s.lost; CREATE SUBSCRIPTION s.lost FROM s.kt WITH (retention = '1 hour'); \
             ALTER SUBSCRIPTION s.lost OWNER TO ann",
        )
        .after("DROP SUBSCRIPTION IF EXISTS s.lost"),
    // Whoever has a privilege without the right to grant it is warned.
    case("Grant", "GRANT USAGE ON SEQUENCE s.q TO gus", "yyyn"),
    case("Grant", "GRANT EXECUTE ON FUNCTION s.f TO gus", "yyyn"),
    case("Grant", "GRANT USAGE ON SCHEMA s TO gus", "yyyy"),
    case("Grant", "GRANT CREATE ON SCHEMA public TO gus", "yyyy"),
    case("Grant", "GRANT CONNECT ON DATABASE millrace TO gus", "yyyy"),
    case("AlterRole", "ALTER ROLE sam RENAME TO sam2", "nnnn"),
    case("AlterRole", "ALTER ROLE sam RESET (cpu_share)", "nnnn"),
    case("Copy", "COPY (SUBSCRIBE s.nothing) TO STDOUT", "yyyy"),
    case("Query", "SELECT pg_notify('x', 'y')", "yyyy"),
    case("Query", "SELECT pg_stat_statements_reset()", "nnnn"),
    case(
        "Query",
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = 'millrace'",
        "nnnn",
    ),
    // Where rows come from.
    case("CreateTable", "CREATE TABLE s.new (a int PRIMARY KEY) WITH (connector = 'postgres-cdc')", "nyyn"),
    case("CreateStream", "CREATE STREAM s.new (a int) WITH (connector = 'file', path = '/nowhere')", "nyyn"),
    case("CreateStream", "CREATE STREAM s.new (a int) WITH (connector = 's3')", "nyyn"),
    case("CreateStream", "CREATE STREAM s.new (n bigint) WITH (connector = 'datagen', rows = 1)", "yyyn")
        .after("DROP STREAM IF EXISTS s.new"),
    case("CreateStream", "CREATE STREAM s.new (a int) WITH (connector = 'nexmark', rows = 1)", "yyyn")
        .after("DROP STREAM IF EXISTS s.new"),
    case("CreateStream", "CREATE STREAM s.new (a int) WITH (connector = 'ysb', rows = 1)", "yyyn")
        .after("DROP STREAM IF EXISTS s.new"),
    // Who may what.
    case("CreateRole", "CREATE ROLE new", "nnnn"),
    case("CreateRole", "CREATE ROLE new", "ynnn")
        .before("ALTER ROLE ann CREATEROLE")
        .after("DROP ROLE IF EXISTS new; ALTER ROLE ann NOCREATEROLE"),
    case("CreateRole", "CREATE ROLE new SUPERUSER", "nnnn")
        .before("ALTER ROLE ann CREATEROLE")
        .after("ALTER ROLE ann NOCREATEROLE"),
    case("AlterRole", "ALTER ROLE sam PASSWORD 'sam'", "nnny"),
    case("AlterRole", "ALTER ROLE sam LOGIN", "nnnn"),
    case("AlterRole", "ALTER ROLE millrace PASSWORD 'x'", "nnnn"),
    case("DropRole", "DROP ROLE nobody", "nnnn"),
    case("GrantRole", "GRANT grp TO sam", "nnnn"),
    case("GrantRole", "GRANT pg_read_server_files TO CURRENT_USER", "nnnn"),
    case("Grant", "GRANT SELECT ON s.t TO gus", "yyyn"),
    case("Grant", "REVOKE SELECT ON s.t FROM sam", "yyyn"),
    case(
        "AlterDefaultPrivileges",
        "ALTER DEFAULT PRIVILEGES FOR ROLE ann REVOKE ALL ON TABLES FROM sam",
        "ynnn",
    ),
    case("CreateToken", "CREATE TOKEN ci FOR sam", "nnny").after("DROP TOKEN IF EXISTS ci"),
    case("DropToken", "DROP TOKEN kept", "nnny")
        .before("DROP TOKEN IF EXISTS kept; CREATE TOKEN kept FOR sam")
        .after("DROP TOKEN IF EXISTS kept"),
    case("CreateEnum", "CREATE TYPE s.new AS ENUM ('a')", "yyyn").after("DROP TYPE IF EXISTS s.new"),
    case("CreateEnum", "CREATE TYPE public.new AS ENUM ('a')", "nnnn"),
    case("CreateComposite", "CREATE TYPE s.new AS (a int)", "yyyn").after("DROP TYPE IF EXISTS s.new"),
    case("CreateComposite", "CREATE TYPE public.new AS (a int)", "nnnn"),
    case("CreateDomain", "CREATE DOMAIN s.new AS int", "yyyn").after("DROP DOMAIN IF EXISTS s.new"),
    case("CreateDomain", "CREATE DOMAIN public.new AS int", "nnnn"),
    case("AlterRelation", "ALTER TYPE s.m ADD VALUE 'b'", "ynnn")
        .before("DROP TYPE IF EXISTS s.m; CREATE TYPE s.m AS ENUM ('a'); ALTER TYPE s.m OWNER TO ann")
        .after("DROP TYPE IF EXISTS s.m"),
    case("Drop", "DROP TYPE s.m", "ynnn")
        .before("DROP TYPE IF EXISTS s.m; CREATE TYPE s.m AS ENUM ('a'); ALTER TYPE s.m OWNER TO ann")
        .after("DROP TYPE IF EXISTS s.m"),
    case("AlterRelation", "ALTER DOMAIN s.d SET NOT NULL", "ynnn")
        .before("DROP DOMAIN IF EXISTS s.d; CREATE DOMAIN s.d AS int; ALTER DOMAIN s.d OWNER TO ann")
        .after("DROP DOMAIN IF EXISTS s.d"),
    case("Drop", "DROP DOMAIN s.d", "ynnn")
        .before("DROP DOMAIN IF EXISTS s.d; CREATE DOMAIN s.d AS int; ALTER DOMAIN s.d OWNER TO ann")
        .after("DROP DOMAIN IF EXISTS s.d"),
    case("CreateSecret", "CREATE SECRET s.new AS 'x'", "yyyn").after("DROP SECRET IF EXISTS s.new"),
    case("CreateSecret", "CREATE SECRET public.new AS 'x'", "nnnn"),
    case("AlterSecret", "ALTER SECRET s.k AS 'y'", "ynnn"),
    case("AlterRelation", "ALTER SECRET s.k OWNER TO ann", "ynnn"),
    case("Grant", "GRANT USAGE ON SECRET s.own TO sam", "ynnn")
        .after("REVOKE USAGE ON SECRET s.own FROM sam"),
    case(
        "CreateStream",
        "CREATE STREAM s.new (a int) WITH (connector = 'webhook', secret = SECRET s.k)",
        "nyyn",
    )
    .after("DROP STREAM IF EXISTS s.new"),
    case(
        "CreateStream",
        "CREATE STREAM s.new (a int) WITH (connector = 'webhook', secret = SECRET s.own)",
        "nnnn",
    ),
    case("Drop", "DROP SECRET s.gone", "ynnn").before(
        "DROP SECRET IF EXISTS s.gone; CREATE SECRET s.gone AS 'x'; ALTER SECRET s.gone OWNER TO ann",
    ),
    case("AlterRole", "ALTER ROLE sam SET search_path = s", "nnny").after("ALTER ROLE sam RESET ALL"),
    case("AlterRole", "ALTER ROLE sam SET (cpu_share = 50)", "nnnn"),
    case("AlterRole", "ALTER ROLE sam RESET cpu_share", "nnnn"),
    case(
        "AlterRole",
        "ALTER ROLE sam IN DATABASE millrace SET jit = off",
        "nnny",
    )
    .after("ALTER ROLE sam IN DATABASE millrace RESET ALL"),
    case("AlterRole", "ALTER ROLE ALL SET jit = off", "nnnn"),
    case("AlterRole", "ALTER DATABASE millrace SET jit = off", "nnnn"),
    case("ReassignOwned", "REASSIGN OWNED BY ann TO ann", "ynnn"),
    case("DropOwned", "DROP OWNED BY sam", "nnny").after("GRANT USAGE ON SCHEMA s TO sam"),
    case("SetVariable", "SET ROLE grp", "nnyn"),
    case("SetVariable", "SET ROLE millrace", "nnnn"),
    case("SetVariable", "SET SESSION AUTHORIZATION ann", "ynnn"),
    case("Query", "SELECT set_config('role', 'millrace', false)", "nnnn"),
    // The server.
    case("AlterSystemSet", "ALTER SYSTEM SET durability = group", "nnnn"),
    case("CancelJob", "CANCEL JOB 1", "nyyn"),
    case("Checkpoint", "CHECKPOINT", "nyyn"),
    case("AddWorker", "ADD WORKER", "nnnn"),
    case("DropWorker", "DROP WORKER 99", "nnnn"),
    case("KillWorker", "KILL WORKER 99", "nnnn"),
    case("Backup", "BACKUP TO '/nowhere/backup'", "nnnn"),
    case("Copy", "COPY s.t TO '/nowhere'", "nyyn"),
    case("Copy", "COPY s.t FROM PROGRAM 'true'", "nnnn"),
    // The session's own.
    case("Sql", "BEGIN; COMMIT", "yyyy"),
    case("StartTransaction", "BEGIN", "yyyy"),
    case("Commit", "BEGIN; COMMIT", "yyyy"),
    case("Rollback", "BEGIN; ROLLBACK", "yyyy"),
    case("Savepoint", "BEGIN; SAVEPOINT a; COMMIT", "yyyy"),
    case(
        "ReleaseSavepoint",
        "BEGIN; SAVEPOINT a; RELEASE a; COMMIT",
        "yyyy",
    ),
    case("Deallocate", "DEALLOCATE ALL", "yyyy"),
    case("Discard", "DISCARD ALL", "yyyy"),
    case("Set", "SET TRANSACTION READ ONLY", "yyyy"),
    case(
        "SetConstraintsAll",
        "BEGIN; SET CONSTRAINTS ALL IMMEDIATE; COMMIT",
        "yyyy",
    ),
    case("LISTEN", "LISTEN x", "yyyy"),
    case("UNLISTEN", "UNLISTEN x", "yyyy"),
    case("NOTIFY", "NOTIFY x", "yyyy"),
    case("Vacuum", "VACUUM", "yyyy"),
    case("Analyze", "ANALYZE", "yyyy"),
    case("CreateExtension", "CREATE EXTENSION IF NOT EXISTS pg_stat_statements", "yyyy"),
    case("ResetVariable", "RESET ALL", "yyyy"),
    case("Show", "SHOW TABLES", "yyyy"),
    case("Describe", "DESCRIBE s.t", "yyyy"),
    case("Wait", "WAIT", "yyyy"),
    case("Flush", "FLUSH", "yyyy"),
    case("Refresh", "REFRESH MATERIALIZED VIEW s.mv", "ynnn"),
];

/// A request: its path and body, and for each user whether it may.
struct Endpoint {
    route: &'static str,
    method: &'static str,
    path: &'static str,
    content_type: &'static str,
    body: &'static str,
    may: &'static str,
}

const ENDPOINTS: &[Endpoint] = &[
    Endpoint {
        route: "/api/sql",
        method: "POST",
        path: "/api/sql",
        content_type: "text/plain",
        body: "SELECT * FROM s.t",
        may: "yyyn",
    },
    Endpoint {
        route: "/api/sql",
        method: "GET",
        path: "/api/sql?query=SELECT%20a%20FROM%20s.t",
        content_type: "text/plain",
        body: "",
        may: "yyyn",
    },
    Endpoint {
        route: "/api/ingest/{stream}",
        method: "POST",
        path: "/api/ingest/s.st",
        content_type: "application/x-ndjson",
        body: "{\"a\": 1}\n",
        may: "yyyn",
    },
    Endpoint {
        route: "/api/subscribe",
        method: "POST",
        path: "/api/subscribe",
        content_type: "application/json",
        body: "{\"query\": \"SUBSCRIBE s.mv\"}",
        may: "yyyn",
    },
    Endpoint {
        route: "/api/queries/{id}",
        method: "DELETE",
        path: "/api/queries/nothing",
        content_type: "text/plain",
        body: "",
        may: "nyyn",
    },
    Endpoint {
        route: "/api/jobs/{id}/profile",
        method: "GET",
        path: "/api/jobs/1/profile",
        content_type: "text/plain",
        body: "",
        may: "nyyn",
    },
    Endpoint {
        route: "/metrics",
        method: "GET",
        path: "/metrics",
        content_type: "text/plain",
        body: "",
        may: "nyyn",
    },
];

/// Those that need no login: what they show is no secret, or they have a proof of their own.
const OPEN: [&str; 5] = [
    "/",
    "/console/{file}",
    "/health",
    "/ready",
    "/api/webhook/{stream}",
];

#[tokio::test(flavor = "multi_thread")]
async fn each_user_may_what_it_was_granted_and_nothing_else() {
    let fixture = Fixture::new().await;
    let first = fixture.first().await;
    for statement in SETUP.split(';') {
        rows(&first, statement)
            .await
            .unwrap_or_else(|error| panic!("{statement}: {error}"));
    }
    // Somebody whose session may be cancelled.
    let _sam = fixture.role("sam").await;
    let mut wrong = vec![];
    for case in CASES.iter().chain(inside::CASES) {
        for (user, may) in USERS.iter().zip(case.may.chars()) {
            run_all(&first, case.before).await;
            let client = fixture.role(user).await;
            let mut outcome = Ok(vec![]);
            // One after the other: in one text they would be a transaction.
            for statement in case.sql.split("; ") {
                outcome = rows(&client, statement).await;
                if outcome.is_err() {
                    break;
                }
            }
            drop(client);
            let is_denied = outcome.as_ref().is_err_and(|error| error.starts_with("42501"));
            if is_denied == (may == 'y') {
                wrong.push(format!("{user}: {}: {outcome:?}", case.sql));
            }
            run_all(&first, case.after).await;
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    fixture.server.shutdown().await;
}

async fn run_all(client: &tokio_postgres::Client, statements: &str) {
    for statement in statements
        .split(';')
        .filter(|statement| !statement.trim().is_empty())
    {
        rows(client, statement)
            .await
            .unwrap_or_else(|error| panic!("{statement}: {error}"));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn endpoints_know_who_sends_a_request() {
    let fixture = Fixture::new().await;
    let first = fixture.first().await;
    run_all(&first, SETUP).await;
    let address = fixture.server.http_addr();
    let mut wrong = vec![];
    for endpoint in ENDPOINTS {
        let ask = async |authorization: Option<String>| {
            request(
                address,
                endpoint.method,
                endpoint.path,
                authorization.as_deref(),
                endpoint.content_type,
                endpoint.body,
            )
            .await
        };
        let unknown = ask(None).await;
        if unknown.status != 401 {
            wrong.push(format!("nobody: {}: {}", endpoint.path, unknown.status));
        }
        for (user, may) in USERS.iter().zip(endpoint.may.chars()) {
            let answer = ask(Some(basic(user, user))).await;
            let is_denied = answer.status == 403;
            if is_denied == (may == 'y') || is_denied != answer.body.contains("42501") {
                wrong.push(format!(
                    "{user}: {}: {} {}",
                    endpoint.path, answer.status, answer.body
                ));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    fixture.server.shutdown().await;
}
