-- Functions whose bodies are SQL: parameters without names, bodies that read relations, and rows.
CREATE TABLE t (k int, v text);
INSERT INTO t VALUES (1, 'a'), (2, 'b'), (2, 'c');
CREATE FUNCTION plus(int, int) RETURNS int LANGUAGE sql AS 'SELECT $1 + $2';
SELECT plus(1, 2), plus(k, 10) FROM t ORDER BY 2;
CREATE FUNCTION shout(text) RETURNS text AS $$ SELECT upper($1) || '!' $$ LANGUAGE sql IMMUTABLE COST 10;
SELECT shout('a');
CREATE FUNCTION half(double precision) RETURNS double precision LANGUAGE sql AS 'SELECT $1 / 2';
SELECT half(3);
CREATE FUNCTION mixed(a int, b text) RETURNS text LANGUAGE sql AS 'SELECT b || $1';
SELECT mixed(1, 'x');
CREATE FUNCTION wrong(int) RETURNS int LANGUAGE sql AS 'SELECT $2';
CREATE FUNCTION rows_of(int) RETURNS TABLE (k int, shown text) LANGUAGE sql AS 'SELECT t.k, t.v || $1 FROM t WHERE t.k = $1';
SELECT * FROM rows_of(2) ORDER BY shown;
SELECT r.shown FROM rows_of(2) AS r(a, shown) ORDER BY 1;
SELECT t.v, r.shown FROM t JOIN rows_of(1) r ON r.k = t.k;
CREATE FUNCTION numbers(n int) RETURNS SETOF int LANGUAGE sql AS 'SELECT x * n FROM generate_series(1, 3) AS g(x)';
SELECT * FROM numbers(5) ORDER BY 1;
SELECT numbers FROM numbers(5) ORDER BY 1;
SELECT x FROM numbers(5) AS x ORDER BY 1;
-- refused 0A000: only in FROM
SELECT numbers(5);
CREATE FUNCTION how_many(int) RETURNS bigint LANGUAGE sql AS 'SELECT count(*) FROM t WHERE k = $1';
SELECT how_many(2), how_many(7);
-- refused 0A000: its columns could be taken for those of the body
SELECT how_many(k) FROM t;
SELECT * FROM how_many(2);
SELECT * FROM plus(1, 2);
SELECT * FROM plus(1, 2) AS p;
CREATE FUNCTION first_of(text) RETURNS int LANGUAGE sql AS 'SELECT k FROM t WHERE v > $1 ORDER BY v';
SELECT first_of('a'), first_of('z');
INSERT INTO t VALUES (3, 'd');
SELECT how_many(3);
CREATE FUNCTION too_few() RETURNS TABLE (a int, b int) LANGUAGE sql AS 'SELECT 1';
CREATE FUNCTION too_many() RETURNS TABLE (a int) LANGUAGE sql AS 'SELECT 1, 2';
CREATE FUNCTION nowhere() RETURNS TABLE (a int) LANGUAGE sql AS 'SELECT x FROM nosuch';
SELECT proretset FROM pg_proc WHERE proname IN ('numbers', 'plus') ORDER BY proname;
CREATE VIEW fv AS SELECT * FROM rows_of(2);
SELECT count(*) FROM fv;
DROP FUNCTION plus(int, int);
DROP FUNCTION shout;
-- refused 0A000: no parameter gives a result
CREATE FUNCTION o(a int, OUT b int) LANGUAGE sql AS 'SELECT a';
-- refused 0A000: elements of arrays in the list of INSERT
INSERT INTO t (v[1]) VALUES ('x');
