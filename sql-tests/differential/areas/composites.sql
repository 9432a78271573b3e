-- Composite types, as columns and as values.
CREATE TYPE addr AS (street text, no int);
CREATE TYPE person AS (name varchar(5), home addr, tags int[]);
CREATE TABLE p (id int PRIMARY KEY, a addr, who person);
INSERT INTO p VALUES (1, ROW('Main', 5), ROW('Bob', ROW('X', 1), '{1,2}'));
INSERT INTO p VALUES (2, ('Side St', NULL), NULL);
INSERT INTO p VALUES (3, '("a ""b"", c",7)', '(Al,"(""Y Z"",9)",{})');
INSERT INTO p (id) VALUES (4);
INSERT INTO p VALUES (5, ROW(NULL, NULL), NULL);
INSERT INTO p VALUES (6, ROW('Main', 5), ROW('Cy', NULL, NULL));
SELECT * FROM p ORDER BY id;
-- Attributes.
SELECT (a).street, (a).no, (p.a).no + 1 AS next FROM p ORDER BY id;
SELECT id, (a).* FROM p ORDER BY id;
SELECT (who).home, ((who).home).street, (who).home.no, (who).tags[2] FROM p ORDER BY id;
SELECT (who).*, (a).* FROM p WHERE id = 1;
SELECT ((who).home).* FROM p WHERE id < 4 ORDER BY id;
SELECT * FROM (SELECT id, (a).* FROM p) AS q WHERE no > 5;
SELECT q.street FROM (SELECT id, (a).* FROM p) AS q ORDER BY q.id;
SELECT (x.r).no, x.* FROM (SELECT id, a AS r FROM p) AS x ORDER BY x.id;
WITH c AS (SELECT (a).* FROM p) SELECT street, count(*) FROM c GROUP BY street ORDER BY 1;
SELECT id FROM p WHERE (a).no = 5 ORDER BY id;
SELECT (a).zip FROM p;
SELECT (id).x FROM p;
SELECT (id).* FROM p;
-- Comparisons, and what is NULL.
SELECT id FROM p WHERE a = ROW('Main', 5)::addr ORDER BY id;
SELECT id, a IS NULL, a IS NOT NULL, NOT a IS NULL FROM p ORDER BY id;
SELECT a, count(*) FROM p GROUP BY a ORDER BY a;
SELECT DISTINCT a FROM p ORDER BY a DESC;
SELECT x.id, y.id FROM p AS x JOIN p AS y ON x.a = y.a ORDER BY 1, 2;
SELECT id, a < ROW('Z', 1)::addr, a <> ROW('Main', 5)::addr, a IN (ROW('Main', 5)::addr), a = ANY (ARRAY[ROW('Main', 5)::addr]) FROM p ORDER BY id;
SELECT id FROM p ORDER BY a, id;
SELECT count(a), count(DISTINCT a), max((a).no) FROM p;
SELECT a FROM p UNION SELECT ROW('u', 1)::addr ORDER BY 1;
SELECT coalesce(a, ROW('none', 0)::addr), CASE WHEN id = 1 THEN a END, (SELECT q.a FROM p AS q WHERE q.id = p.id) FROM p ORDER BY id;
SELECT row_number() OVER (PARTITION BY a ORDER BY id) FROM p ORDER BY id;
SELECT ROW(1, 2) = ROW(1, 2, 3);
-- refused 42883: by its types
SELECT a = ROW('Main', 5, 6) FROM p;
-- refused 42883: by its types
SELECT a = who FROM p;
-- Casts.
SELECT ROW('q', 3)::addr, (ROW('q', 3)::addr).no, ('q', '3')::addr, '(q,3)'::addr, NULL::addr, ROW(1, 2)::text, ROW('a b', NULL, '')::text;
SELECT '(q,x)'::addr;
SELECT '(q)'::addr;
SELECT '(q,3,4)'::addr;
SELECT 'q,3'::addr;
SELECT '(q,3) z'::addr;
SELECT '("q,3)'::addr;
SELECT ROW(1)::addr;
SELECT ROW('a', 1, 2)::addr;
SELECT ROW('a', 'b')::addr;
SELECT 5::addr;
SELECT a::int FROM p;
SELECT ROW('a', 1)::addr::person;
SELECT a::text FROM p ORDER BY id;
INSERT INTO p VALUES (7, 5, NULL);
INSERT INTO p VALUES (7, ROW('a', 'x'), NULL);
INSERT INTO p VALUES (7, NULL, ROW('too long', NULL, NULL));
SELECT concat(a, '!'), a || '', 'x' || a, format('%s', a) FROM p ORDER BY id;
SELECT a || 1 FROM p;
-- Arrays of them.
SELECT ARRAY[a, a] FROM p WHERE id = 3;
SELECT array_agg(a ORDER BY id) FROM p;
SELECT (('{"(a,1)","(b,2)"}'::addr[])[2]).street;
CREATE TABLE lists (id int, l addr[]);
INSERT INTO lists VALUES (1, ARRAY[ROW('a', 1), ROW('b', 2)]::addr[]), (2, NULL), (3, '{"(\"x y\",)",NULL}');
SELECT id, l, l[1], (l[1]).street, cardinality(l) FROM lists ORDER BY id;
-- JSON.
SELECT to_jsonb(a), to_jsonb(who) FROM p ORDER BY id;
SELECT jsonb_agg(a ORDER BY id) FROM p;
-- Changes.
UPDATE p SET a = ROW('New', 1) WHERE id = 4;
UPDATE p SET a.no = 99 WHERE id = 4;
UPDATE p SET who.home.street = 'deep', a.street = NULL, a.no = (a).no + 1 WHERE id IN (2, 4);
SELECT * FROM p ORDER BY id;
UPDATE p SET (a.street, a.no) = ('both', 2) WHERE id = 5;
UPDATE p SET a.nope = 1;
UPDATE p SET id.x = 1;
UPDATE p SET a.no = 'x';
UPDATE p SET a.no = DEFAULT;
UPDATE p SET p.id = 1;
DELETE FROM p WHERE (a).street = 'both' RETURNING a, (a).no;
SELECT id, a FROM p ORDER BY id;
-- The types of attributes.
CREATE TYPE feeling AS ENUM ('sad', 'ok');
CREATE TYPE mixed AS (m feeling, j jsonb, n numeric(5, 2), t timestamptz, c char(3), b bytea, u uuid, d interval);
CREATE TABLE mm (v mixed);
INSERT INTO mm VALUES (ROW('ok', '{"a":1}', '1.239', '2020-01-01 00:00+00', 'x', '\x01', 'A0EEBC99-9C0B-4EF8-BB6D-6BB9BD380A11', '1 day'));
SELECT v FROM mm;
SELECT (v).m < 'ok', (v).m = 'ok', (v).j ->> 'a', (v).n, (v).t, (v).b, (v).u, (v).d FROM mm;
INSERT INTO mm VALUES ('(bad,,,,,,,)');
INSERT INTO mm VALUES ('(sad,,,,,,,)');
SELECT (v).* FROM mm ORDER BY (v).m;
-- Views and tables from queries.
CREATE VIEW vv AS SELECT id, a, (a).street AS s FROM p;
SELECT * FROM vv ORDER BY id;
SELECT (v.a).no FROM vv AS v ORDER BY v.id;
CREATE TABLE copied AS SELECT id, a FROM p;
SELECT a, (a).no FROM copied ORDER BY id;
-- The rows of a table.
CREATE TABLE t0 (id int, v text);
INSERT INTO t0 VALUES (1, 'x'), (2, 'y');
SELECT (t0).v, (t0).* FROM t0 ORDER BY id;
SELECT (r).id, (r).v FROM (SELECT t0 AS r FROM t0) AS q ORDER BY 1;
SELECT (r).* FROM (SELECT t0 AS r FROM t0) AS q ORDER BY 1;
SELECT (ROW(1, 'x')::t0).v, ('(7,z)'::t0).id, (NULL::t0).v;
SELECT count(*) FROM t0 WHERE t0 = ROW(1, 'x'::text);
SELECT (x).f1, (x).f2 FROM (SELECT ROW(1, 'a'::text) AS x) AS s;
-- The catalog.
SELECT attname, format_type(atttypid, atttypmod), attnum FROM pg_attribute WHERE attrelid = 'addr'::regclass ORDER BY attnum;
SELECT typname, typtype, typcategory FROM pg_type WHERE typname IN ('addr', '_addr') ORDER BY 1;
SELECT relname, relkind, relnatts FROM pg_class WHERE relname = 'addr';
SELECT pg_typeof(a), pg_typeof(who), pg_typeof((who).tags), pg_typeof(ROW(1, 2)) FROM p WHERE id = 1;
SELECT format_type(atttypid, atttypmod) FROM pg_attribute WHERE attrelid = 'lists'::regclass AND attnum > 0 ORDER BY attnum;
-- What is refused.
CREATE TYPE addr AS (x int);
CREATE TYPE bad AS (x int, x int);
CREATE TYPE bad AS (x nope);
DROP TYPE addr;
CREATE TYPE nothing AS ();
SELECT ROW()::nothing;
DROP TABLE p, copied, lists, mm CASCADE;
DROP TYPE person, addr, mixed, feeling, nothing;
