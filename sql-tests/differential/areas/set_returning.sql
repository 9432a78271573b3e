-- Where functions that return sets may stand.
SELECT CASE WHEN true THEN generate_series(1, 3) ELSE 0 END;
SELECT coalesce(generate_series(1, 3), 0);
SELECT generate_series(1, 3) OVER ();
SELECT 1 WHERE generate_series(1, 3) = 1;
SELECT count(*) FROM (VALUES (1)) t(x) HAVING generate_series(1, 2) = 1;
SELECT * FROM (VALUES (1)) a(x) JOIN (VALUES (1)) b(y) ON x = generate_series(1, 3);
SELECT * FROM generate_series(1, generate_series(1, 3));
SELECT 1 LIMIT generate_series(1, 3);
SELECT generate_series(1, 3) + 1;
SELECT (SELECT CASE WHEN x > 1 THEN x END) FROM unnest(ARRAY[1, 2]) AS x ORDER BY 1;
SELECT CASE WHEN EXISTS (SELECT generate_series(1, 3)) THEN 'yes' END;
SELECT coalesce((SELECT max(u) FROM unnest(ARRAY[1, 2]) AS u), 0);
SELECT x FROM (VALUES (1), (2)) t(x) WHERE x IN (SELECT unnest(ARRAY[2, 3]));
CREATE TABLE sr (a int, b text);
UPDATE sr SET a = generate_series(1, 2);
DELETE FROM sr WHERE a = generate_series(1, 2);
INSERT INTO sr SELECT generate_series(1, 2), 'x';
SELECT * FROM sr ORDER BY a;
DROP TABLE sr;
-- What a generated column may be computed from.
CREATE TABLE gen (a int, b timestamptz GENERATED ALWAYS AS (now()) STORED);
CREATE TABLE gen (a int, b double precision GENERATED ALWAYS AS (random()) STORED);
CREATE TABLE gen (a int, b int GENERATED ALWAYS AS (a * 2 + abs(a)) STORED);
INSERT INTO gen VALUES (-2);
SELECT * FROM gen;
DROP TABLE gen;
-- Keys of objects are scalars.
SELECT jsonb_build_object(ARRAY[1, 2], 1);
SELECT jsonb_build_object(1, 2, 'a', ARRAY[1, 2]);
-- The least of texts that are padded.
SELECT min(c), max(c) = 'b' FROM (VALUES ('a'::char(3)), ('b'::char(3))) t(c);
-- One row of VALUES with such a function is a query.
CREATE TABLE sv (a int, b text);
INSERT INTO sv VALUES (1, generate_series(1, 3));
INSERT INTO sv VALUES (generate_series(4, 5), 'x'), (6, 'y');
INSERT INTO sv (b, a) VALUES ('z', generate_series(7, 8)) RETURNING a, b;
INSERT INTO sv VALUES (generate_series(9, 10));
SELECT * FROM sv ORDER BY a, b;
DROP TABLE sv;
SELECT pg_typeof('x'), pg_typeof(NULL), pg_typeof('x'::text);
