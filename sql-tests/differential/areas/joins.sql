-- Joins of all kinds over two small tables with NULLs and repeated keys.
CREATE TABLE j1 (i int, j int, t text);
CREATE TABLE j2 (i int, k int);
INSERT INTO j1 VALUES (1, 4, 'one'), (2, 3, 'two'), (3, 2, 'three'), (4, 1, 'four'), (5, 0, 'five'), (6, 6, 'six'), (7, 7, 'seven'), (8, 8, 'eight'), (0, NULL, 'zero'), (NULL, NULL, 'null'), (NULL, 0, 'zero');
INSERT INTO j2 VALUES (1, -1), (2, 2), (3, -3), (2, 4), (5, -5), (5, -5), (0, NULL), (NULL, NULL), (NULL, 0);
SELECT * FROM j1 AS tx;
SELECT * FROM j1 AS t1 (a, b, c);
SELECT * FROM j1 t1 (a, b, c), j2 t2 (d, e) WHERE t1.a = t2.d;
SELECT t1.a, t2.e FROM j1 t1 (a, b, c), j2 t2 (d, e) WHERE t1.a = t2.d;
SELECT * FROM j1 CROSS JOIN j2 WHERE j1.i = 3;
SELECT i, k, t FROM j1 CROSS JOIN j2;
SELECT t1.i, k, t FROM j1 t1 CROSS JOIN j2 t2 WHERE t1.i < 2;
SELECT * FROM j1 INNER JOIN j2 USING (i);
-- refused 42601: not supported
SELECT * FROM j1 JOIN j2 USING (i) AS x WHERE x.i = 2;
SELECT * FROM j1 t1 (a, b, c) JOIN j2 t2 (a, d) USING (a) ORDER BY a, d;
SELECT * FROM j1 t1 (a, b, c) JOIN j2 t2 (a, b) USING (b) ORDER BY b, t1.a;
SELECT * FROM j1 NATURAL JOIN j2;
SELECT * FROM j1 t1 (a, b, c) NATURAL JOIN j2 t2 (a, d);
-- refused 42601: not supported
SELECT * FROM j1 t1 (a, b) NATURAL JOIN j2 t2 (a);
SELECT * FROM j1 JOIN j2 ON (j1.i = j2.i);
SELECT * FROM j1 JOIN j2 ON (j1.i = j2.k);
SELECT * FROM j1 JOIN j2 ON (j1.i <= j2.k);
SELECT * FROM j1 LEFT OUTER JOIN j2 USING (i) ORDER BY i, k, t;
SELECT * FROM j1 RIGHT OUTER JOIN j2 USING (i);
SELECT * FROM j1 FULL OUTER JOIN j2 USING (i) ORDER BY i, k, t;
SELECT * FROM j1 LEFT JOIN j2 USING (i) WHERE (k = 1);
SELECT * FROM j1 LEFT JOIN j2 USING (i) WHERE (i = 1);
SELECT * FROM j1 LEFT JOIN j2 ON j1.i = j2.i AND j2.k > 0;
SELECT * FROM j1 FULL JOIN j2 ON j1.i = j2.i AND j2.k > 0 WHERE j1.i IS NULL;
SELECT * FROM j1 NATURAL LEFT JOIN j2;
SELECT * FROM j1 NATURAL FULL JOIN j2;
SELECT * FROM (j1 JOIN j2 USING (i)) x;
SELECT * FROM (j1 JOIN j2 USING (i)) AS x (a, b, c, d) WHERE a = 1;
SELECT j1.i, x.n FROM j1 LEFT JOIN (SELECT i, count(*) AS n FROM j2 GROUP BY i) x ON x.i = j1.i;
SELECT * FROM j1 a JOIN j1 b ON a.i = b.j;
SELECT count(*) FROM j1 a, j1 b, j2 c WHERE a.i = b.i AND b.i = c.i;
SELECT * FROM j1 WHERE i IN (SELECT i FROM j2);
SELECT * FROM j1 WHERE i NOT IN (SELECT i FROM j2);
SELECT * FROM j1 WHERE i NOT IN (SELECT i FROM j2 WHERE i IS NOT NULL);
SELECT * FROM j1 WHERE NOT EXISTS (SELECT 1 FROM j2 WHERE j2.i = j1.i);
-- Names that are not there, or are there twice.
SELECT i FROM j1, j2;
SELECT j1.z FROM j1;
SELECT * FROM j1 JOIN j2 USING (t);
SELECT * FROM j1 x JOIN j2 y ON x.i = z.i;
SELECT * FROM j1, j1;
SELECT * FROM j1 JOIN j2 USING (i) JOIN j2 z USING (k);
SELECT j1.i FROM j1 x;
-- LATERAL.
SELECT a.i, b.* FROM j1 a, LATERAL (SELECT k FROM j2 WHERE j2.i = a.i ORDER BY k LIMIT 1) b;
SELECT a.i, b.k FROM j1 a LEFT JOIN LATERAL (SELECT k FROM j2 WHERE j2.i = a.i) b ON b.k > 0;
SELECT a.i, g FROM j1 a, generate_series(1, a.j) g;
SELECT a.i, s.n FROM j1 a CROSS JOIN LATERAL (SELECT count(*) AS n FROM j2 WHERE j2.i >= a.i) s;
SELECT * FROM j1 a, (SELECT * FROM j2 WHERE j2.i = a.i) b;
SELECT x.v, y.w FROM (VALUES (1), (2)) x (v), LATERAL (VALUES (x.v + 1), (x.v * 10)) y (w);
-- Three relations, outer joins within each other.
SELECT a.i, b.k, c.t FROM j1 a LEFT JOIN (j2 b JOIN j1 c ON b.k = c.i) ON a.i = b.i;
SELECT a.i, b.k, c.k FROM j1 a LEFT JOIN j2 b ON a.i = b.i LEFT JOIN j2 c ON b.k = c.i;
SELECT a.i, b.i, c.i FROM j1 a FULL JOIN j2 b ON a.i = b.k FULL JOIN j2 c ON b.i = c.k;
SELECT i, count(*), count(k) FROM j1 LEFT JOIN j2 USING (i) GROUP BY i ORDER BY i;
DELETE FROM j1 USING j2 WHERE j1.i = j2.i;
SELECT * FROM j1;
