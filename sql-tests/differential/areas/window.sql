-- Window functions and frames.
CREATE TABLE emp (dep text, no int, salary int, hired date);
INSERT INTO emp VALUES ('develop', 10, 5200, '2007-08-01'), ('sales', 1, 5000, '2006-10-01'), ('personnel', 5, 3500, '2007-12-10'), ('sales', 4, 4800, '2007-08-08'), ('personnel', 2, 3900, '2006-12-23'), ('develop', 7, 4200, '2008-01-01'), ('develop', 9, 4500, '2008-01-01'), ('sales', 3, 4800, '2007-08-01'), ('develop', 8, 6000, '2006-10-01'), ('develop', 11, 5200, '2007-08-15');
SELECT dep, no, salary, sum(salary) OVER (PARTITION BY dep) FROM emp ORDER BY dep, salary, no;
SELECT dep, no, salary, rank() OVER (PARTITION BY dep ORDER BY salary) FROM emp ORDER BY 1, 2;
SELECT no, dense_rank() OVER (ORDER BY salary), percent_rank() OVER (ORDER BY salary), cume_dist() OVER (ORDER BY salary) FROM emp ORDER BY no;
SELECT no, row_number() OVER (ORDER BY no DESC), ntile(3) OVER (ORDER BY no) FROM emp ORDER BY no;
SELECT no, ntile(NULL) OVER (ORDER BY no) FROM emp ORDER BY no LIMIT 2;
SELECT no, lag(salary) OVER (ORDER BY no), lead(salary, 2) OVER (ORDER BY no), lag(salary, 1, 0) OVER (ORDER BY no) FROM emp ORDER BY no;
SELECT no, lead(salary * 2, 1, -1) OVER (PARTITION BY dep ORDER BY no) FROM emp ORDER BY no;
SELECT no, first_value(salary) OVER (ORDER BY no), last_value(salary) OVER (ORDER BY no), nth_value(salary, 2) OVER (ORDER BY no) FROM emp ORDER BY no;
SELECT no, last_value(no) OVER (PARTITION BY dep ORDER BY salary RANGE BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING) FROM emp WHERE dep = 'personnel' ORDER BY no;
SELECT dep, count(*), sum(sum(salary)) OVER (ORDER BY dep) FROM emp GROUP BY dep ORDER BY dep;
SELECT dep, rank() OVER (ORDER BY count(*)) FROM emp GROUP BY dep ORDER BY dep;
-- differs: sums of bigint and averages of integers have other types
SELECT sum(salary) OVER w, avg(salary) OVER (w ORDER BY no) FROM emp WINDOW w AS (PARTITION BY dep) ORDER BY 1, 2;
SELECT no, sum(no) OVER (ORDER BY no ROWS BETWEEN 1 PRECEDING AND 1 FOLLOWING) FROM emp ORDER BY no;
SELECT no, sum(no) OVER (ORDER BY no ROWS BETWEEN 2 FOLLOWING AND 3 FOLLOWING) FROM emp ORDER BY no;
SELECT no, sum(no) OVER (ORDER BY no ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) FROM emp ORDER BY no;
SELECT no, sum(no) OVER (ORDER BY no ROWS BETWEEN CURRENT ROW AND UNBOUNDED FOLLOWING) FROM emp ORDER BY no;
SELECT no, sum(no) OVER (ROWS BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING EXCLUDE NO OTHERS) FROM emp ORDER BY no;
SELECT no, sum(salary) OVER (ORDER BY salary RANGE BETWEEN 300 PRECEDING AND 300 FOLLOWING) FROM emp ORDER BY no;
SELECT no, count(*) OVER (ORDER BY hired RANGE BETWEEN '6 months' PRECEDING AND CURRENT ROW) FROM emp ORDER BY no;
SELECT no, count(*) OVER (ORDER BY salary GROUPS BETWEEN 1 PRECEDING AND 1 FOLLOWING) FROM emp ORDER BY no;
SELECT no, sum(no) OVER (ORDER BY salary RANGE BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW EXCLUDE CURRENT ROW) FROM emp ORDER BY no;
SELECT no, sum(no) OVER (ORDER BY salary RANGE BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW EXCLUDE TIES) FROM emp ORDER BY no;
SELECT no, sum(no) OVER (ORDER BY salary RANGE BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW EXCLUDE GROUP) FROM emp ORDER BY no;
SELECT no, count(*) FILTER (WHERE salary > 4500) OVER (ORDER BY no) FROM emp ORDER BY no;
SELECT no, array_agg(no) OVER (ORDER BY no ROWS 2 PRECEDING), string_agg(dep, ',') OVER (ORDER BY no ROWS 1 PRECEDING) FROM emp ORDER BY no;
SELECT no, max(hired) OVER (PARTITION BY dep), min(dep) OVER () FROM emp ORDER BY no;
SELECT * FROM (SELECT no, rank() OVER (ORDER BY salary DESC) r FROM emp) x WHERE r <= 3 ORDER BY no;
SELECT DISTINCT dep, max(salary) OVER (PARTITION BY dep) FROM emp ORDER BY 1;
SELECT no, sum(salary) OVER (ORDER BY salary NULLS FIRST), rank() OVER (ORDER BY NULL) FROM emp ORDER BY no;
SELECT pg_typeof(rank() OVER ()), pg_typeof(ntile(2) OVER ()), pg_typeof(cume_dist() OVER ()), pg_typeof(sum(1) OVER ());
SELECT count(*) OVER () FROM emp WHERE false;
-- What is refused.
SELECT rank() FROM emp;
SELECT rank() OVER (ORDER BY rank() OVER ()) FROM emp;
SELECT * FROM emp WHERE row_number() OVER (ORDER BY salary) < 10;
SELECT * FROM emp GROUP BY rank() OVER (ORDER BY salary);
-- differs: sums of bigint and averages of integers have other types
SELECT sum(DISTINCT salary) OVER (ORDER BY no) FROM emp;
-- differs: it is accepted
SELECT count() OVER () FROM emp;
SELECT sum(salary) OVER w FROM emp;
-- refused 42601: the SQLSTATE differs
SELECT sum(salary) OVER (w PARTITION BY dep) FROM emp WINDOW w AS (ORDER BY no);
SELECT sum(no) OVER (ORDER BY no ROWS BETWEEN UNBOUNDED FOLLOWING AND CURRENT ROW) FROM emp;
SELECT sum(no) OVER (ROWS BETWEEN -1 PRECEDING AND CURRENT ROW) FROM emp;
SELECT ntile(0) OVER (ORDER BY no) FROM emp;
SELECT nth_value(no, 0) OVER (ORDER BY no) FROM emp;
SELECT sum(no) OVER (ORDER BY dep RANGE 1 PRECEDING) FROM emp;
SELECT sum(no) OVER (RANGE 1 PRECEDING) FROM emp;
SELECT upper(dep) OVER () FROM emp;
CREATE TABLE moves (k int, v int, n int, d int);
INSERT INTO moves VALUES (1, 10, 1, 100), (2, NULL, 2, 200), (3, 30, 0, 300), (4, 40, -1, 400), (5, 50, NULL, 500), (6, 60, 9, NULL);
SELECT k, lag(v, n) OVER (ORDER BY k), lead(v, n) OVER (ORDER BY k), lag(v, n, d) OVER (ORDER BY k), lead(v, n, d) OVER (ORDER BY k DESC) FROM moves ORDER BY k;
SELECT k, lag(v, 1, d) OVER (ORDER BY k), lead(v, 2, v) OVER (ORDER BY k), lag(v, n + 1, -v) OVER (PARTITION BY k % 2 ORDER BY k) FROM moves ORDER BY k;
SELECT k, ntile(n) OVER (ORDER BY k DESC) FROM moves ORDER BY k;
SELECT k, ntile(v / 10) OVER (PARTITION BY k % 2 ORDER BY k DESC) FROM moves ORDER BY k;
SELECT ntile(n) OVER (ORDER BY n) FROM moves;
SELECT ntile(0) OVER () FROM moves;
SELECT ntile(-1) OVER () FROM moves;
SELECT ntile(NULL) OVER () FROM moves WHERE k = 1;
SELECT nth_value(v, 0) OVER () FROM moves;
SELECT nth_value(v, -2) OVER () FROM moves;
SELECT sum(v) OVER (ROWS BETWEEN -1 PRECEDING AND CURRENT ROW) FROM moves;
DROP TABLE moves;

-- Offsets that are expressions.
SELECT x, sum(x) OVER (ORDER BY x ROWS 1 + 1 PRECEDING) FROM generate_series(1, 5) t(x) ORDER BY x;
SELECT x, sum(x) OVER (ORDER BY x ROWS BETWEEN abs(-1) PRECEDING AND 2 * 1 FOLLOWING) FROM generate_series(1, 5) t(x) ORDER BY x;
SELECT x, sum(x) OVER w FROM generate_series(1, 5) t(x) WINDOW w AS (ORDER BY x ROWS BETWEEN length('ab') PRECEDING AND CURRENT ROW) ORDER BY x;
SELECT x, count(*) OVER (ORDER BY x RANGE BETWEEN 1 + 1 PRECEDING AND 0 FOLLOWING) FROM generate_series(1, 5) t(x) ORDER BY x;
SELECT d, count(*) OVER (ORDER BY d RANGE BETWEEN 2 * interval '1 day' PRECEDING AND CURRENT ROW) FROM (VALUES (date '2024-01-01'), (date '2024-01-02'), (date '2024-01-05')) t(d) ORDER BY d;
SELECT x, sum(x) OVER (ORDER BY x ROWS NULL::int PRECEDING) FROM generate_series(1, 3) t(x);
SELECT x, sum(x) OVER (ORDER BY x ROWS -1 PRECEDING) FROM generate_series(1, 3) t(x);
SELECT x, sum(x) OVER (ORDER BY x ROWS x PRECEDING) FROM generate_series(1, 3) t(x);
SELECT x, sum(x) OVER (ORDER BY x ROWS 1.5 + 1 PRECEDING) FROM generate_series(1, 3) t(x);
SELECT t, count(*) OVER (ORDER BY t RANGE '1 hour'::interval PRECEDING) FROM (VALUES (timestamp '2024-01-01 00:00'), (timestamp '2024-01-01 00:30'), (timestamp '2024-01-01 02:00')) v(t) ORDER BY t;
