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
CREATE FUNCTION o(a int, OUT b int) LANGUAGE sql AS 'SELECT a';
-- refused 0A000: elements of arrays in the list of INSERT
INSERT INTO t (v[1]) VALUES ('x');
-- OUT parameters.
CREATE FUNCTION next_of(a int, OUT b int) LANGUAGE SQL AS 'SELECT a + 1';
SELECT next_of(3), next_of(NULL);
SELECT * FROM next_of(3);
SELECT n.b FROM next_of(4) AS n;
CREATE FUNCTION pair_of(a int, OUT b int, OUT c text) LANGUAGE SQL AS $$SELECT a + 1, 'x' || a$$;
SELECT * FROM pair_of(3);
SELECT c, b FROM pair_of(4) AS q;
-- refused 0A000: its body is a query, which would take the columns of an argument for its own
SELECT v.x, q.* FROM (VALUES (1), (2)) v (x), LATERAL pair_of(v.x) q ORDER BY 1;
CREATE FUNCTION doubled(INOUT a int) LANGUAGE SQL AS 'SELECT a * 2';
SELECT doubled(4);
SELECT * FROM doubled(5);
CREATE FUNCTION extremes(OUT low int, OUT high int) LANGUAGE SQL AS 'SELECT min(x), max(x) FROM generate_series(3, 7) x';
SELECT * FROM extremes();
CREATE FUNCTION none_of(OUT low int, OUT high int) LANGUAGE SQL AS 'SELECT 1, 2 WHERE false';
SELECT * FROM none_of();
CREATE FUNCTION top_of(OUT low int, OUT high int) RETURNS record LANGUAGE SQL AS 'SELECT x, x * x FROM generate_series(3, 7) x';
SELECT * FROM top_of();
-- refused 42601: the SQLSTATE differs
CREATE FUNCTION wrong(OUT low int) RETURNS text LANGUAGE SQL AS 'SELECT 1';
-- Defaults.
CREATE FUNCTION plus(a int, b int DEFAULT 5, c int = 20) RETURNS int LANGUAGE SQL AS 'SELECT a + b + c';
SELECT plus(1), plus(1, 2), plus(1, 2, 3), plus(a => 1), plus(b => 1, a => 3), plus(3, c => 0);
SELECT plus();
SELECT plus(1, 2, 3, 4);
SELECT plus(1, d => 2);
SELECT plus(1, a => 2);
SELECT proname, pg_get_function_arguments(oid), pg_get_function_result(oid) FROM pg_proc WHERE proname IN ('plus', 'pair_of', 'next_of', 'doubled') ORDER BY 1;
-- refused 42601: the SQLSTATE differs
CREATE FUNCTION late(a int DEFAULT 1, b int) RETURNS int LANGUAGE SQL AS 'SELECT a + b';
-- STRICT.
CREATE FUNCTION seven(a int) RETURNS int LANGUAGE SQL STRICT AS 'SELECT coalesce(a, 7)';
SELECT seven(NULL), seven(1);
CREATE FUNCTION either(a int, b int) RETURNS int LANGUAGE SQL RETURNS NULL ON NULL INPUT AS 'SELECT coalesce(a, b)';
SELECT either(NULL, 1), either(1, 2), either(1, NULL);
CREATE FUNCTION any_way(a int) RETURNS int LANGUAGE SQL CALLED ON NULL INPUT AS 'SELECT coalesce(a, 7)';
SELECT any_way(NULL), (SELECT proisstrict FROM pg_proc WHERE proname = 'seven'), (SELECT proisstrict FROM pg_proc WHERE proname = 'any_way');
