//! The queries that psql 15 sends for its backslash commands, as it sends them.

use crate::tests::{Fixture, run};

const LIST: &str = r#"SELECT n.nspname as "Schema",
  c.relname as "Name",
  CASE c.relkind WHEN 'r' THEN 'table' WHEN 'v' THEN 'view' WHEN 'm' THEN 'materialized view' WHEN 'i' THEN 'index' WHEN 'S' THEN 'sequence' WHEN 't' THEN 'TOAST table' WHEN 'f' THEN 'foreign table' WHEN 'p' THEN 'partitioned table' WHEN 'I' THEN 'partitioned index' END as "Type",
  pg_catalog.pg_get_userbyid(c.relowner) as "Owner"
FROM pg_catalog.pg_class c
     LEFT JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
     LEFT JOIN pg_catalog.pg_am am ON am.oid = c.relam
WHERE c.relkind IN (KINDS)
      AND n.nspname <> 'pg_catalog'
      AND n.nspname !~ '^pg_toast'
      AND n.nspname <> 'information_schema'
  AND pg_catalog.pg_table_is_visible(c.oid)
ORDER BY 1,2;"#;

const INDEXES: &str = r#"SELECT n.nspname as "Schema",
  c.relname as "Name",
  CASE c.relkind WHEN 'r' THEN 'table' WHEN 'i' THEN 'index' END as "Type",
  pg_catalog.pg_get_userbyid(c.relowner) as "Owner",
 c2.relname as "Table"
FROM pg_catalog.pg_class c
     LEFT JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
     LEFT JOIN pg_catalog.pg_am am ON am.oid = c.relam
     LEFT JOIN pg_catalog.pg_index i ON i.indexrelid = c.oid
     LEFT JOIN pg_catalog.pg_class c2 ON i.indrelid = c2.oid
WHERE c.relkind IN ('i','I','')
      AND n.nspname <> 'pg_catalog'
      AND n.nspname !~ '^pg_toast'
      AND n.nspname <> 'information_schema'
  AND pg_catalog.pg_table_is_visible(c.oid)
ORDER BY 1,2;"#;

const FIND: &str = r#"SELECT c.oid,
  n.nspname,
  c.relname
FROM pg_catalog.pg_class c
     LEFT JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
WHERE c.relname OPERATOR(pg_catalog.~) '^(NAME)$' COLLATE pg_catalog.default
  AND pg_catalog.pg_table_is_visible(c.oid)
ORDER BY 2, 3;"#;

const CLASS: &str = r#"SELECT c.relchecks, c.relkind, c.relhasindex, c.relhasrules, c.relhastriggers, c.relrowsecurity, c.relforcerowsecurity, false AS relhasoids, c.relispartition, '', c.reltablespace, CASE WHEN c.reloftype = 0 THEN '' ELSE c.reloftype::pg_catalog.regtype::pg_catalog.text END, c.relpersistence, c.relreplident, am.amname
FROM pg_catalog.pg_class c
 LEFT JOIN pg_catalog.pg_class tc ON (c.reltoastrelid = tc.oid)
LEFT JOIN pg_catalog.pg_am am ON (c.relam = am.oid)
WHERE c.oid = 'OID';"#;

const COLUMNS: &str = r#"SELECT a.attname,
  pg_catalog.format_type(a.atttypid, a.atttypmod),
  (SELECT pg_catalog.pg_get_expr(d.adbin, d.adrelid, true)
   FROM pg_catalog.pg_attrdef d
   WHERE d.adrelid = a.attrelid AND d.adnum = a.attnum AND a.atthasdef),
  a.attnotnull,
  (SELECT c.collname FROM pg_catalog.pg_collation c, pg_catalog.pg_type t
   WHERE c.oid = a.attcollation AND t.oid = a.atttypid AND a.attcollation <> t.typcollation) AS attcollation,
  a.attidentity,
  a.attgenerated
FROM pg_catalog.pg_attribute a
WHERE a.attrelid = 'OID' AND a.attnum > 0 AND NOT a.attisdropped
ORDER BY a.attnum;"#;

const INDEXES_OF: &str = r#"SELECT c2.relname, i.indisprimary, i.indisunique, i.indisclustered, i.indisvalid, pg_catalog.pg_get_indexdef(i.indexrelid, 0, true),
  pg_catalog.pg_get_constraintdef(con.oid, true), contype, condeferrable, condeferred, i.indisreplident, c2.reltablespace
FROM pg_catalog.pg_class c, pg_catalog.pg_class c2, pg_catalog.pg_index i
  LEFT JOIN pg_catalog.pg_constraint con ON (conrelid = i.indrelid AND conindid = i.indexrelid AND contype IN ('p','u','x'))
WHERE c.oid = 'OID' AND c.oid = i.indrelid AND i.indexrelid = c2.oid
ORDER BY i.indisprimary DESC, c2.relname;"#;

/// What `\d name` asks beside; each must be answered, whatever with.
const BESIDE: &[&str] = &[
    r#"SELECT pol.polname, pol.polpermissive,
  CASE WHEN pol.polroles = '{0}' THEN NULL ELSE pg_catalog.array_to_string(array(select rolname from pg_catalog.pg_roles where oid = any (pol.polroles) order by 1),',') END,
  pg_catalog.pg_get_expr(pol.polqual, pol.polrelid),
  pg_catalog.pg_get_expr(pol.polwithcheck, pol.polrelid),
  CASE pol.polcmd
    WHEN 'r' THEN 'SELECT'
    WHEN 'a' THEN 'INSERT'
    WHEN 'w' THEN 'UPDATE'
    WHEN 'd' THEN 'DELETE'
    END AS cmd
FROM pg_catalog.pg_policy pol
WHERE pol.polrelid = 'OID' ORDER BY 1;"#,
    r#"SELECT oid, stxrelid::pg_catalog.regclass, stxnamespace::pg_catalog.regnamespace::pg_catalog.text AS nsp, stxname,
pg_catalog.pg_get_statisticsobjdef_columns(oid) AS columns,
  'd' = any(stxkind) AS ndist_enabled,
  'f' = any(stxkind) AS deps_enabled,
  'm' = any(stxkind) AS mcv_enabled,
stxstattarget
FROM pg_catalog.pg_statistic_ext
WHERE stxrelid = 'OID'
ORDER BY nsp, stxname;"#,
    r#"SELECT pubname
     , NULL
     , NULL
FROM pg_catalog.pg_publication p
     JOIN pg_catalog.pg_publication_namespace pn ON p.oid = pn.pnpubid
     JOIN pg_catalog.pg_class pc ON pc.relnamespace = pn.pnnspid
WHERE pc.oid ='OID' and pg_catalog.pg_relation_is_publishable('OID')
UNION
SELECT pubname
     , pg_get_expr(pr.prqual, c.oid)
     , (CASE WHEN pr.prattrs IS NOT NULL THEN
         (SELECT string_agg(attname, ', ')
           FROM pg_catalog.generate_series(0, pg_catalog.array_upper(pr.prattrs::pg_catalog.int2[], 1)) s,
                pg_catalog.pg_attribute
          WHERE attrelid = pr.prrelid AND attnum = prattrs[s])
        ELSE NULL END) FROM pg_catalog.pg_publication p
     JOIN pg_catalog.pg_publication_rel pr ON p.oid = pr.prpubid
     JOIN pg_catalog.pg_class c ON c.oid = pr.prrelid
WHERE pr.prrelid = 'OID'
UNION
SELECT pubname
     , NULL
     , NULL
FROM pg_catalog.pg_publication p
WHERE p.puballtables AND pg_catalog.pg_relation_is_publishable('OID')
ORDER BY 1;"#,
    r#"SELECT c.oid::pg_catalog.regclass
FROM pg_catalog.pg_class c, pg_catalog.pg_inherits i
WHERE c.oid = i.inhparent AND i.inhrelid = 'OID'
  AND c.relkind != 'p' AND c.relkind != 'I'
ORDER BY inhseqno;"#,
    r#"SELECT c.oid::pg_catalog.regclass, c.relkind, inhdetachpending, pg_catalog.pg_get_expr(c.relpartbound, c.oid)
FROM pg_catalog.pg_class c, pg_catalog.pg_inherits i
WHERE c.oid = i.inhrelid AND i.inhparent = 'OID'
ORDER BY pg_catalog.pg_get_expr(c.relpartbound, c.oid) = 'DEFAULT', c.oid::pg_catalog.regclass::pg_catalog.text;"#,
    r#"SELECT pg_catalog.pg_get_viewdef('OID'::pg_catalog.oid, true);"#,
    r#"SELECT r.conname, pg_catalog.pg_get_constraintdef(r.oid, true) FROM pg_catalog.pg_constraint r
WHERE r.conrelid = 'OID' AND r.contype = 'c' ORDER BY 1;"#,
];

const ROLES: &str = r#"SELECT r.rolname, r.rolsuper, r.rolinherit,
  r.rolcreaterole, r.rolcreatedb, r.rolcanlogin,
  r.rolconnlimit, r.rolvaliduntil,
  ARRAY(SELECT b.rolname
        FROM pg_catalog.pg_auth_members m
        JOIN pg_catalog.pg_roles b ON (m.roleid = b.oid)
        WHERE m.member = r.oid) as memberof
, r.rolreplication
, r.rolbypassrls
FROM pg_catalog.pg_roles r
WHERE r.rolname !~ '^pg_'
ORDER BY 1;"#;

const DATABASES: &str = r#"SELECT d.datname as "Name",
       pg_catalog.pg_get_userbyid(d.datdba) as "Owner",
       pg_catalog.pg_encoding_to_char(d.encoding) as "Encoding",
       d.datcollate as "Collate",
       d.datctype as "Ctype",
       d.daticulocale as "ICU Locale",
       CASE d.datlocprovider WHEN 'c' THEN 'libc' WHEN 'i' THEN 'icu' END AS "Locale Provider",
       pg_catalog.array_to_string(d.datacl, E'\n') AS "Access privileges"
FROM pg_catalog.pg_database d
ORDER BY 1;"#;

const SCHEMAS: &str = r#"SELECT n.nspname AS "Name",
  pg_catalog.pg_get_userbyid(n.nspowner) AS "Owner"
FROM pg_catalog.pg_namespace n
WHERE n.nspname !~ '^pg_' AND n.nspname <> 'information_schema'
ORDER BY 1;"#;

const FUNCTIONS: &str = r#"SELECT n.nspname as "Schema",
  p.proname as "Name",
  pg_catalog.pg_get_function_result(p.oid) as "Result data type",
  pg_catalog.pg_get_function_arguments(p.oid) as "Argument data types",
 CASE p.prokind
  WHEN 'a' THEN 'agg'
  WHEN 'w' THEN 'window'
  WHEN 'p' THEN 'proc'
  ELSE 'func'
 END as "Type"
FROM pg_catalog.pg_proc p
     LEFT JOIN pg_catalog.pg_namespace n ON n.oid = p.pronamespace
WHERE pg_catalog.pg_function_is_visible(p.oid)
      AND n.nspname <> 'pg_catalog'
      AND n.nspname <> 'information_schema'
ORDER BY 1, 2, 4;"#;

const COMPLETION: &str = r#"SELECT pg_catalog.quote_ident(c.relname), NULL::pg_catalog.text FROM pg_catalog.pg_class c WHERE c.relkind IN ('r', 'S', 'v', 'm', 'f', 'p') AND (pg_catalog.quote_ident(c.relname)) LIKE 'to%' AND pg_catalog.pg_table_is_visible(c.oid)
LIMIT 1000"#;

async fn fixture() -> Fixture {
    let f = Fixture::new().await;
    f.ok("CREATE STREAM bid (auction INT, price NUMERIC(10,2) DEFAULT 0, day DATE); CREATE TABLE item (id INT PRIMARY KEY, name VARCHAR(20) NOT NULL)").await;
    f.ok("CREATE VIEW dear AS SELECT * FROM bid WHERE price > 6")
        .await;
    f.ok("CREATE MATERIALIZED VIEW totals AS SELECT auction, count(*) AS n FROM bid GROUP BY auction")
        .await;
    f.ok("CREATE INDEX totals_n ON totals (n)").await;
    f
}

#[tokio::test(flavor = "multi_thread")]
async fn lists_of_relations() {
    let f = fixture().await;
    let all = f.ok(&LIST.replace("KINDS", "'r','p','v','m','S','f',''")).await;
    assert_eq!(
        all,
        [
            "public|bid|table|millrace",
            "public|dear|view|millrace",
            "public|item|table|millrace",
            "public|totals|materialized view|millrace"
        ]
    );
    assert_eq!(
        f.ok(&LIST.replace("KINDS", "'m',''")).await,
        ["public|totals|materialized view|millrace"]
    );
    assert_eq!(
        f.ok(INDEXES).await,
        [
            "public|item_pkey|index|millrace|item",
            "public|totals_n|index|millrace|totals"
        ]
    );
    assert_eq!(f.ok(COMPLETION).await, ["totals|null"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn description_of_one_relation() {
    let f = fixture().await;
    let oid = |row: &str| row.split('|').next().unwrap().to_string();
    let item = f.ok(&FIND.replace("NAME", "item")).await;
    assert_eq!(item.len(), 1, "{item:?}");
    let item = oid(&item[0]);
    assert_eq!(f.ok(&CLASS.replace("OID", &item)).await.len(), 1);
    assert_eq!(
        f.ok(&COLUMNS.replace("OID", &item)).await,
        [
            "id|integer|null|t|null||",
            "name|character varying(20)|null|t|null||"
        ]
    );
    let indexes = f.ok(&INDEXES_OF.replace("OID", &item)).await;
    assert_eq!(indexes.len(), 1);
    assert!(indexes[0].starts_with("item_pkey|t|t|"), "{indexes:?}");
    assert!(indexes[0].contains("PRIMARY KEY (id)"), "{indexes:?}");
    for name in ["bid", "dear", "totals"] {
        let found = f.ok(&FIND.replace("NAME", name)).await;
        let oid = oid(&found[0]);
        assert!(!f.ok(&COLUMNS.replace("OID", &oid)).await.is_empty(), "{name}");
        for sql in [CLASS, INDEXES_OF].iter().chain(BESIDE) {
            f.ok(&sql.replace("OID", &oid)).await;
        }
    }
    let bid = oid(&f.ok(&FIND.replace("NAME", "bid")).await[0]);
    assert_eq!(
        f.ok(&COLUMNS.replace("OID", &bid)).await[1],
        "price|numeric(10,2)|0|f|null||"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn lists_of_other_things() {
    let f = fixture().await;
    assert!(f.ok(DATABASES).await[0].starts_with("millrace|millrace|UTF"));
    assert_eq!(f.ok(SCHEMAS).await, ["mr_catalog|millrace", "public|millrace"]);
    let roles = f.ok(ROLES).await;
    assert!(
        roles.len() == 1 && roles[0].starts_with("millrace|t|"),
        "{roles:?}"
    );
    assert_eq!(f.ok(FUNCTIONS).await, Vec::<String>::new());
    assert_eq!(
        f.ok("SELECT table_name, table_type FROM information_schema.tables WHERE table_schema = 'public' ORDER BY 1").await,
        ["bid|BASE TABLE", "dear|VIEW", "item|BASE TABLE", "totals|MATERIALIZED VIEW"]
    );
    assert_eq!(
        f.ok("SELECT column_name, data_type FROM information_schema.columns WHERE table_name = 'item' ORDER BY ordinal_position").await,
        ["id|integer", "name|character varying"]
    );
    assert_eq!(f.ok("SELECT typname FROM pg_type WHERE oid = 25").await, ["text"]);
    assert_eq!(f.ok("SELECT count(*) > 0 FROM mr_catalog.workers").await, ["t"]);
    assert_eq!(f.ok("SELECT matviewname FROM pg_matviews").await, ["totals"]);
    assert_eq!(
        f.ok("SELECT count(*) FROM pg_tables WHERE schemaname = 'public'")
            .await,
        ["2"]
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn relations_of_the_system_are_described() {
    let f = fixture().await;
    // As psql asks for `\d mr_catalog.tasks`.
    let find = FIND.replace(
        "AND pg_catalog.pg_table_is_visible(c.oid)",
        "AND n.nspname OPERATOR(pg_catalog.~) '^(mr_catalog)$' COLLATE pg_catalog.default",
    );
    for name in millrace_system::mr_catalog::names() {
        let found = f.ok(&find.replace("NAME", name)).await;
        assert_eq!(found.len(), 1, "{name}");
        let oid = found[0].split('|').next().unwrap();
        let columns = f.ok(&COLUMNS.replace("OID", oid)).await;
        let read = f.ok(&format!("SELECT count(*) FROM mr_catalog.{name}")).await;
        assert!(columns.len() > 2 && read.len() == 1, "{name}: {columns:?}");
    }
    let tasks = f.ok(&find.replace("NAME", "tasks")).await;
    let oid = tasks[0].split('|').next().unwrap();
    let columns = f.ok(&COLUMNS.replace("OID", oid)).await;
    assert_eq!(columns[0], "query|bigint|null|f|null||");
    for sql in [CLASS, INDEXES_OF].iter().chain(BESIDE) {
        f.ok(&sql.replace("OID", oid)).await;
    }
    // Without their schema they are not found, and not listed.
    assert_eq!(f.ok(&FIND.replace("NAME", "tasks")).await, Vec::<String>::new());
}

#[tokio::test(flavor = "multi_thread")]
async fn sessions_are_shown_as_activity() {
    let f = fixture().await;
    let own = "SELECT datname, usename, state, query, backend_start <= query_start, wait_event \
               FROM pg_stat_activity WHERE pid = pg_backend_pid()";
    assert_eq!(
        f.ok(own).await,
        [format!("millrace|millrace|active|{own}|t|null")]
    );
    f.ok("INSERT INTO item VALUES (1, 'one')").await;
    // What the log wrote for that is its device's.
    assert_eq!(
        f.ok(
            "SELECT disk, monotasks > 0, bytes > 0, service_us > 0 FROM mr_catalog.disks WHERE kind = 'log'"
        )
        .await,
        ["data|t|t|t"]
    );
    f.ok("BEGIN").await;
    let other = f.other_session();
    let states = "SELECT state, query FROM pg_catalog.pg_stat_activity WHERE pid <> pg_backend_pid()";
    assert_eq!(run(&other, states).await.unwrap(), ["idle in transaction|BEGIN"]);
}
