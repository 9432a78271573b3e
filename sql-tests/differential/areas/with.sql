-- Common table expressions, recursive ones, and changes in them.
WITH q AS (SELECT 1 AS x) SELECT * FROM q;
WITH q1 (x, y) AS (SELECT 1, 2) SELECT * FROM q1, q1 AS q2;
WITH a AS (SELECT 1 AS x), b AS (SELECT x + 1 AS x FROM a) SELECT a.x, b.x FROM a, b;
WITH a AS MATERIALIZED (SELECT 1 AS x) SELECT * FROM a;
WITH a AS NOT MATERIALIZED (SELECT 1 AS x) SELECT * FROM a;
WITH RECURSIVE t (n) AS (VALUES (1) UNION ALL SELECT n + 1 FROM t WHERE n < 100) SELECT sum(n) FROM t;
WITH RECURSIVE t (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM t WHERE n < 5) SELECT n, n * n FROM t ORDER BY n;
WITH RECURSIVE t (n) AS (SELECT 1 UNION SELECT (n + 1) % 3 FROM t) SELECT * FROM t ORDER BY 1;
WITH RECURSIVE t (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM t) SELECT * FROM t LIMIT 10;
WITH RECURSIVE f (a, b) AS (SELECT 0, 1 UNION ALL SELECT b, a + b FROM f WHERE b < 50) SELECT a FROM f;
CREATE TABLE dep (id int, parent int, name text);
INSERT INTO dep VALUES (0, NULL, 'ROOT'), (1, 0, 'A'), (2, 1, 'B'), (3, 2, 'C'), (4, 2, 'D'), (5, 0, 'E'), (6, 4, 'F'), (7, 5, 'G');
WITH RECURSIVE sub AS (SELECT * FROM dep WHERE name = 'A' UNION ALL SELECT d.* FROM dep d, sub s WHERE d.parent = s.id) SELECT * FROM sub ORDER BY name;
WITH RECURSIVE sub (level, id, path) AS (SELECT 0, id, name FROM dep WHERE parent IS NULL UNION ALL SELECT level + 1, d.id, s.path || '/' || d.name FROM dep d JOIN sub s ON d.parent = s.id) SELECT * FROM sub ORDER BY path;
WITH RECURSIVE sub AS (SELECT id, ARRAY[id] AS path FROM dep WHERE parent IS NULL UNION ALL SELECT d.id, path || d.id FROM dep d JOIN sub s ON d.parent = s.id) SELECT * FROM sub ORDER BY path;
SELECT (WITH x AS (SELECT 5 AS n) SELECT n FROM x) + 1;
SELECT * FROM (WITH x AS (SELECT 5 AS n) SELECT n FROM x) y;
WITH outermost (x) AS (SELECT 1 UNION (WITH innermost AS (SELECT 2) SELECT * FROM innermost UNION SELECT 3)) SELECT * FROM outermost ORDER BY 1;
-- refused 42712: two WITH queries of one name, one within the other
WITH x AS (SELECT 1 AS n) SELECT * FROM (WITH x AS (SELECT 2 AS n) SELECT * FROM x) y;
WITH a AS (SELECT id FROM dep WHERE id > 4) SELECT count(*) FROM dep WHERE id IN (SELECT id FROM a);
-- differs: a WITH query with a volatile function is computed at each place
WITH q (x) AS (SELECT random()) SELECT a.x = b.x FROM q a, q b;
WITH q (x, y) AS (SELECT 1) SELECT * FROM q;
WITH q AS (SELECT 1), q AS (SELECT 2) SELECT * FROM q;
WITH q AS (SELECT * FROM nope) SELECT 1;
WITH RECURSIVE x (n) AS (SELECT n FROM x) SELECT * FROM x;
WITH RECURSIVE x (n) AS (SELECT 1 INTERSECT SELECT n + 1 FROM x) SELECT * FROM x;
WITH RECURSIVE x (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM x WHERE n IN (SELECT * FROM x)) SELECT * FROM x;
-- INSERT, UPDATE and DELETE behind and inside of WITH.
CREATE TABLE y (a int PRIMARY KEY, b text);
CREATE TABLE z (a int, b text);
INSERT INTO y SELECT g, 'row ' || g FROM generate_series(1, 5) g;
WITH t AS (SELECT a FROM y) INSERT INTO y SELECT a + 20, NULL FROM t RETURNING *;
WITH t AS (SELECT a FROM y WHERE a > 20) UPDATE y SET b = 'new' FROM t WHERE y.a = t.a RETURNING y.a, y.b;
WITH t AS (SELECT a FROM y WHERE a > 22) DELETE FROM y USING t WHERE y.a = t.a RETURNING y.a;
SELECT * FROM y ORDER BY a;
WITH gone AS (DELETE FROM y WHERE a > 20 RETURNING *) SELECT * FROM gone ORDER BY a;
WITH gone AS (DELETE FROM y WHERE a = 5 RETURNING a, b) INSERT INTO z SELECT * FROM gone;
SELECT * FROM z;
WITH new (k, v) AS (INSERT INTO y VALUES (6, 'six'), (7, 'seven') RETURNING a, upper(b)) SELECT k, v, (SELECT count(*) FROM y) FROM new ORDER BY k;
WITH u AS (UPDATE y SET b = b || '!' WHERE a < 3 RETURNING a, b), d AS (DELETE FROM y WHERE a > 5 RETURNING a) SELECT (SELECT count(*) FROM u), (SELECT count(*) FROM d), (SELECT max(b) FROM u);
SELECT * FROM y ORDER BY a;
WITH x AS (INSERT INTO z VALUES (8, 'eight')) SELECT count(*) FROM z;
SELECT count(*) FROM z;
WITH x AS (INSERT INTO z VALUES (9, 'nine')) SELECT * FROM x;
WITH up AS (UPDATE y SET b = 'u' WHERE a = 99 RETURNING a) INSERT INTO y SELECT 99, 'i' WHERE NOT EXISTS (SELECT 1 FROM up) RETURNING a, b;
WITH w AS (INSERT INTO y VALUES (1, 'again') RETURNING a) SELECT * FROM w;
WITH w AS (INSERT INTO z VALUES (10, 'ten') RETURNING a) SELECT 1 / (a - 10) FROM w;
SELECT * FROM z ORDER BY a;
SELECT * FROM (WITH w AS (DELETE FROM z RETURNING a) SELECT * FROM w) x;
BEGIN;
WITH w AS (DELETE FROM z RETURNING a) SELECT count(*) FROM w;
SELECT count(*) FROM z;
ROLLBACK;
SELECT count(*) FROM z;
-- SEARCH and CYCLE.
WITH RECURSIVE t (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM t WHERE n < 5) SEARCH DEPTH FIRST BY n SET o SELECT * FROM t ORDER BY o;
WITH RECURSIVE t (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM t WHERE n < 5) SEARCH BREADTH FIRST BY n SET o SELECT * FROM t ORDER BY o DESC;
CREATE TABLE tree (id int, link int, data text);
INSERT INTO tree VALUES (1, NULL, 'root'), (2, 1, 'a'), (3, 1, 'b'), (4, 2, 'aa'), (5, 3, 'ba'), (6, 2, 'ab'), (7, 4, 'aaa');
WITH RECURSIVE search_tree (id, link, data) AS (SELECT t.id, t.link, t.data FROM tree t WHERE link IS NULL UNION ALL SELECT t.id, t.link, t.data FROM tree t, search_tree st WHERE t.link = st.id) SEARCH DEPTH FIRST BY id SET ordercol SELECT * FROM search_tree ORDER BY ordercol;
WITH RECURSIVE search_tree AS (SELECT t.id, t.link, t.data FROM tree t WHERE link IS NULL UNION ALL SELECT t.id, t.link, t.data FROM tree t JOIN search_tree ON t.link = search_tree.id) SEARCH BREADTH FIRST BY data, id SET ordercol SELECT id, data, ordercol FROM search_tree ORDER BY ordercol;
WITH RECURSIVE s (id, link, data) AS (SELECT * FROM tree WHERE link IS NULL UNION ALL SELECT t.* FROM tree t JOIN s ON t.link = s.id) SEARCH DEPTH FIRST BY data DESC SET o SELECT id FROM s;
WITH RECURSIVE s (id, link, data) AS (SELECT * FROM tree WHERE link IS NULL UNION ALL SELECT t.* FROM tree t JOIN s ON t.link = s.id) SEARCH DEPTH FIRST BY data SET o SELECT id, (SELECT count(*) FROM s x WHERE x.o < s.o) FROM s ORDER BY o;
CREATE TABLE ways (f int, t int);
INSERT INTO ways VALUES (1, 2), (2, 3), (3, 1), (3, 4), (4, 4);
WITH RECURSIVE g AS (SELECT f, t FROM ways WHERE f = 1 UNION ALL SELECT w.f, w.t FROM ways w, g WHERE w.f = g.t) CYCLE f, t SET is_cycle USING path SELECT * FROM g ORDER BY path;
WITH RECURSIVE g (f, t) AS (SELECT * FROM ways UNION ALL SELECT w.* FROM ways w, g WHERE w.f = g.t) CYCLE f, t SET is_cycle TO 'Y' DEFAULT 'N' USING path SELECT f, t, is_cycle, path FROM g ORDER BY path;
WITH RECURSIVE g (f, t) AS (SELECT * FROM ways WHERE f = 1 UNION ALL SELECT w.* FROM ways w, g WHERE w.f = g.t) SEARCH DEPTH FIRST BY f, t SET seq CYCLE f, t SET is_cycle TO 1 DEFAULT 0 USING path SELECT * FROM g ORDER BY seq;
WITH RECURSIVE g (f, t) AS (SELECT * FROM ways WHERE f = 1 UNION SELECT w.* FROM ways w, g AS h WHERE w.f = h.t) SEARCH BREADTH FIRST BY f, t SET seq CYCLE f SET is_cycle TO 1 DEFAULT 0 USING path SELECT * FROM g ORDER BY seq;
WITH RECURSIVE t (n) AS (SELECT 1 UNION ALL SELECT n % 3 + 1 FROM t) CYCLE n SET c USING p, u AS (SELECT max(n) AS m FROM t) SELECT n, c, m FROM t, u ORDER BY p;
WITH RECURSIVE t (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM t WHERE n < 3) SEARCH DEPTH FIRST BY m SET o SELECT * FROM t;
-- refused 42601: the SQLSTATE differs
WITH RECURSIVE t (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM t WHERE n < 3) SEARCH DEPTH FIRST BY n SET n SELECT * FROM t;
WITH RECURSIVE t (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM t WHERE n < 3) CYCLE n SET c USING c SELECT * FROM t;
WITH RECURSIVE t (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM t WHERE n < 3) CYCLE m SET c USING p SELECT * FROM t;
WITH RECURSIVE t (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM (SELECT * FROM t) x WHERE n < 3) CYCLE n SET c USING p SELECT * FROM t;
WITH RECURSIVE t (n) AS (SELECT 1) CYCLE n SET c USING p SELECT * FROM t;
-- refused 0A000: rows of what is maintained have no order
CREATE MATERIALIZED VIEW ordered AS WITH RECURSIVE t (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM t WHERE n < 5) SEARCH DEPTH FIRST BY n SET o SELECT n FROM t;
CREATE TABLE chain AS SELECT i AS a, i % 100 + 1 AS b FROM generate_series(1, 100) i;
WITH RECURSIVE r (a, b, n) AS (SELECT a, b, 1 FROM chain WHERE a = 1 UNION ALL SELECT c.a, c.b, n + 1 FROM chain c, r WHERE c.a = r.b AND n < 25000) SELECT a, b, n FROM r ORDER BY n OFFSET 24999;
WITH RECURSIVE r (a, path, is_cycle) AS (SELECT 1, ARRAY[ROW(1)], false UNION ALL SELECT c.b, path || ROW(c.b), ROW(c.b) = ANY (path) FROM r JOIN chain c ON c.a = r.a WHERE NOT is_cycle) SELECT count(*), bool_or(is_cycle) FROM r;
DROP TABLE chain;

-- An aggregate over the step before.
WITH RECURSIVE r(n) AS (SELECT 1 UNION ALL SELECT max(n) + 1 FROM r) SELECT * FROM r;
WITH RECURSIVE r(n) AS (SELECT 1 UNION ALL SELECT count(*)::int FROM r x WHERE n < 5) SELECT * FROM r;
WITH RECURSIVE r(n) AS (SELECT 1 UNION SELECT n + 1 FROM r WHERE n < 5 GROUP BY n) SELECT * FROM r ORDER BY n;
-- Literals beside a star.
WITH RECURSIVE t AS (SELECT *, 1 AS depth FROM (VALUES (1, 'a')) v(id, name) UNION ALL SELECT id + 1, name, depth + 1 FROM t WHERE depth < 3) SELECT id, name, depth, pg_typeof(depth) FROM t ORDER BY depth;
