-- RETURNING.
CREATE TABLE r (f1 serial, f2 text, f3 int DEFAULT 42);
INSERT INTO r (f2, f3) VALUES ('test', DEFAULT), ('More', 11), (upper('more'), 7 + 9) RETURNING *, f1 + f3 AS sum;
SELECT * FROM r ORDER BY f1;
UPDATE r SET f2 = lower(f2), f3 = DEFAULT RETURNING r.*, f1 + f3 AS sum13;
DELETE FROM r WHERE f1 > 2 RETURNING f3, f2, f1, least(f1, f3);
SELECT * FROM r ORDER BY f1;
INSERT INTO r (f2) VALUES ('x') RETURNING f1, (SELECT count(*) FROM r), f2 || '!' AS "Loud";
UPDATE r SET f3 = f3 * 2 WHERE f1 = 1 RETURNING (SELECT max(f3) FROM r), f3;
UPDATE r SET f3 = 5 WHERE false RETURNING *;
DELETE FROM r WHERE f1 IN (SELECT f1 FROM r WHERE f1 > 3) RETURNING *;
UPDATE r AS x SET f3 = 9 RETURNING x.f1, x.f3;
-- refused 42P01: RETURNING names the columns of the changed table alone
UPDATE r SET f3 = v.n FROM (VALUES (1, 100)) v (k, n) WHERE f1 = v.k RETURNING r.f1, f3, v.n, v.k;
-- refused 42P01: RETURNING names the columns of the changed table alone
DELETE FROM r USING (VALUES (1)) v (k) WHERE f1 = v.k RETURNING f1, v.k;
INSERT INTO r (f2) VALUES ('y') RETURNING nope;
-- differs: RETURNING names the columns of the changed table alone
INSERT INTO r (f2) VALUES ('y') RETURNING count(*);
INSERT INTO r (f2) VALUES ('y') RETURNING 1 / 0;
SELECT count(*) FROM r;
DELETE FROM r RETURNING CASE WHEN f3 > 10 THEN 'big' ELSE 'small' END AS size;
