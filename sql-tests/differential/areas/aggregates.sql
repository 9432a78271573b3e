-- Aggregates over numbers, texts, booleans and nothing.
CREATE TABLE n (k int, a smallint, b real, c numeric, d text, e boolean, f interval);
INSERT INTO n VALUES (1, 56, 7.8, 1.5, 'x', true, '1 day'), (1, 100, 99.097, 2.25, 'y', false, '02:00'), (2, 0, 0.09561, -3, NULL, NULL, NULL), (2, 42, 324.78, NULL, 'x', true, '1 month'), (3, NULL, NULL, NULL, NULL, NULL, NULL);
SELECT avg(a), sum(a), max(a), min(a), count(a), count(*) FROM n;
SELECT avg(c), sum(c), max(c), min(c), count(c) FROM n;
SELECT sum(f), avg(f), max(f), min(f) FROM n;
SELECT max(d), min(d), count(DISTINCT d) FROM n;
SELECT sum(a) FROM n WHERE false;
SELECT count(*), sum(c), avg(c), max(d), array_agg(k), string_agg(d, ','), bool_and(e) FROM n WHERE false;
SELECT k, count(*), sum(a) FROM n WHERE false GROUP BY k;
SELECT sum(2147483647::int) FROM generate_series(1, 3);
-- refused 22003: the SQLSTATE differs
SELECT sum(9223372036854775807::bigint) FROM generate_series(1, 2);
SELECT sum(1.5), avg(2), avg(1::bigint), avg(1.0) FROM generate_series(1, 3);
-- differs: sums of bigint and averages of integers have other types
SELECT pg_typeof(sum(1::smallint)), pg_typeof(sum(1)), pg_typeof(sum(1::bigint)), pg_typeof(sum(1::real)), pg_typeof(sum(1::float8)), pg_typeof(sum(1.0));
SELECT pg_typeof(count(*)), pg_typeof(max(1::smallint)), pg_typeof(sum(interval '1 day'));
SELECT var_pop(a), var_samp(a), stddev_pop(a), stddev_samp(a) FROM n WHERE k = 9;
SELECT var_pop(1.0::float8), var_samp(2.0::float8), stddev_pop(3.0::float8), stddev_samp(4.0::float8);
SELECT bool_and(e), bool_or(e), every(e) FROM n;
SELECT k, bool_and(e), bool_or(e) FROM n GROUP BY k ORDER BY k;
SELECT bit_and(a), bit_or(a), bit_xor(a) FROM n;
SELECT k, array_agg(d ORDER BY d) FROM n GROUP BY k ORDER BY k;
SELECT k, array_agg(a ORDER BY a DESC NULLS LAST) FROM n GROUP BY k ORDER BY k;
SELECT string_agg(d, ',' ORDER BY d), string_agg(DISTINCT d, ',' ORDER BY d) FROM n;
SELECT string_agg(d, NULL ORDER BY d) FROM n;
SELECT array_agg(DISTINCT k ORDER BY k DESC) FROM n;
SELECT array_agg(ARRAY[k, k + 1] ORDER BY k, a) FROM n WHERE k < 3;
SELECT count(*) FILTER (WHERE a > 50), sum(a) FILTER (WHERE k = 1), array_agg(k ORDER BY k) FILTER (WHERE e) FROM n;
SELECT k, sum(a) FROM n GROUP BY k HAVING sum(a) > 50 ORDER BY k;
SELECT k FROM n GROUP BY k HAVING bool_or(e);
SELECT sum(a) FROM n HAVING count(*) > 10;
SELECT k + 1, count(*) FROM n GROUP BY k + 1 ORDER BY 1;
SELECT d, k, sum(a) FROM n GROUP BY GROUPING SETS ((d), (k), ()) ORDER BY d, k;
SELECT d, k, grouping(d, k), count(*) FROM n GROUP BY ROLLUP (d, k) ORDER BY 1, 2, 3;
SELECT d, k, grouping(d), grouping(k), count(*) FROM n GROUP BY CUBE (d, k) ORDER BY 3, 4, 1, 2;
SELECT k, sum(a) FROM n GROUP BY ROLLUP (k) HAVING grouping(k) = 0 ORDER BY k;
SELECT count(*), max(a) FROM n GROUP BY ();
SELECT 1 AS one FROM n GROUP BY ();
SELECT count(*) FROM n WHERE false GROUP BY ();
SELECT d, count(*) FROM n GROUP BY (), d ORDER BY d;
SELECT k, d, count(*) FROM n GROUP BY (k, d) ORDER BY 1, 2;
SELECT DISTINCT count(*) FROM n GROUP BY k ORDER BY 1;
SELECT percentile_cont(0.5) WITHIN GROUP (ORDER BY a), percentile_disc(0.5) WITHIN GROUP (ORDER BY a) FROM n;
SELECT mode() WITHIN GROUP (ORDER BY d) FROM n;
SELECT percentile_disc(ARRAY[0.25, 0.75]) WITHIN GROUP (ORDER BY a) FROM n;
SELECT jsonb_agg(a ORDER BY a), jsonb_object_agg(a, d ORDER BY a) FROM n WHERE a IS NOT NULL;
SELECT jsonb_agg(d ORDER BY k, a) FROM n;
SELECT corr(a, c), covar_pop(a, c), regr_count(a, c) FROM n WHERE false;
SELECT regr_count(a::float8, c::float8), regr_sxx(a::float8, c::float8) FROM n;
SELECT max(x) FROM (VALUES ('a'), ('B'), ('b')) v (x);
SELECT max(x), min(x) FROM (VALUES ('NaN'::float8), (1), ('Infinity')) v (x);
SELECT max(x), min(x) FROM (VALUES (ARRAY[1, 2]), (ARRAY[1, NULL]), (ARRAY[0, 9])) v (x);
SELECT max(x) FROM (VALUES (date '2024-01-01'), (NULL), (date '2023-05-05')) v (x);
SELECT count(DISTINCT x) FROM (VALUES (interval '1 day'), (interval '24 hours'), (interval '1 hour')) v (x);
SELECT sum(DISTINCT x), count(DISTINCT x) FROM (VALUES (1), (1), (2), (NULL)) v (x);
-- What is refused.
SELECT k, a FROM n GROUP BY k;
SELECT sum(sum(a)) FROM n;
SELECT a FROM n WHERE sum(a) > 1;
SELECT sum(d) FROM n;
SELECT avg(e) FROM n;
-- refused 42701: the SQLSTATE differs
SELECT sum(a) FROM n GROUP BY sum(a);
SELECT count(*) FILTER (WHERE sum(a) > 1) FROM n;
SELECT k, sum(a) FROM n;
SELECT a, sum(a) FROM n ORDER BY k;
-- differs: it is accepted
SELECT count() FROM n;
SELECT k FROM n GROUP BY 2;
SELECT max(a) FROM n ORDER BY d;
SELECT DISTINCT k FROM n ORDER BY a;
-- differs: sums of bigint and averages of integers have other types
SELECT (SELECT sum(n.a)) FROM n;
SELECT (SELECT count(*) FROM n x WHERE x.k = n.k) FROM n ORDER BY 1;
SELECT k, (SELECT max(x.a) FROM n x WHERE x.k = y.k) FROM n y GROUP BY k ORDER BY k;
-- Several fractions at once.
SELECT percentile_cont(ARRAY[0.25, 0.5, 0.75]) WITHIN GROUP (ORDER BY x), percentile_disc(ARRAY[0.25, 0.5, 0.75]) WITHIN GROUP (ORDER BY x) FROM generate_series(1, 10) x;
SELECT percentile_disc(ARRAY[0, NULL, 1]) WITHIN GROUP (ORDER BY x DESC), percentile_cont(ARRAY[0.1, NULL, 0.9]) WITHIN GROUP (ORDER BY x DESC) FROM (VALUES (1.5), (NULL), (4), (10)) v (x);
SELECT percentile_disc('{0.5,1}'::float8[]) WITHIN GROUP (ORDER BY x), percentile_cont('{0.5,1}'::float8[]) WITHIN GROUP (ORDER BY length(x)) FROM (VALUES ('a'), ('bb'), ('ccc')) v (x);
SELECT k, percentile_disc(ARRAY[0.5]) WITHIN GROUP (ORDER BY a), percentile_cont(ARRAY[0.5, 1]) WITHIN GROUP (ORDER BY a) FILTER (WHERE a > 1) FROM n GROUP BY k ORDER BY k;
SELECT percentile_cont(ARRAY[0.5, 1.5]) WITHIN GROUP (ORDER BY x) FROM generate_series(1, 10) x;
SELECT percentile_cont(ARRAY[0.5]) WITHIN GROUP (ORDER BY x) FROM (VALUES (1)) v (x) WHERE false;
SELECT rank(3) WITHIN GROUP (ORDER BY x NULLS FIRST), dense_rank(3) WITHIN GROUP (ORDER BY x NULLS FIRST), percent_rank(3) WITHIN GROUP (ORDER BY x NULLS FIRST), cume_dist(3) WITHIN GROUP (ORDER BY x DESC NULLS LAST) FROM (VALUES (1), (2), (3), (NULL)) v (x);
