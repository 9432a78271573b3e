-- A view that scores rows with a model, and a batch query that trains it again and again.
--
-- Rows are scored once, when they come, with the model of that moment: a lookup join. Training is batch work: it takes the
-- cores that views leave, and is paused when they need more.

CREATE TABLE training (id BIGINT PRIMARY KEY, x1 DOUBLE PRECISION, x2 DOUBLE PRECISION, y DOUBLE PRECISION);
CREATE TABLE model (id INT PRIMARY KEY, step INT, w0 DOUBLE PRECISION, w1 DOUBLE PRECISION, w2 DOUBLE PRECISION);
CREATE STREAM measured (id BIGINT, x1 DOUBLE PRECISION, x2 DOUBLE PRECISION);

-- What is to be found: y is 1 where 0.5 + 2 x1 - x2 is positive.
INSERT INTO training
  SELECT n, x1, x2, CASE WHEN 0.5 + 2 * x1 - x2 > 0 THEN 1 ELSE 0 END
  FROM (SELECT n, 2 * sin(n * 1.3) AS x1, 2 * cos(n * 2.7) AS x2 FROM generate_series(1, 500) AS g(n)) AS numbers;
INSERT INTO model VALUES (1, 0, 0, 0, 0);

CREATE MATERIALIZED VIEW scored AS
  SELECT e.id, m.step, 1 / (1 + exp(-(m.w0 + m.w1 * e.x1 + m.w2 * e.x2))) AS probability
  FROM measured AS e
  JOIN model FOR SYSTEM_TIME AS OF PROCTIME() AS m ON m.id = 1;

INSERT INTO measured VALUES (1, 1, 0), (2, -1, 0);

-- Logistic regression: forty steps down the gradient, from where the model is.
SET query_priority = 'batch';
INSERT INTO model
  WITH RECURSIVE descent(n, w0, w1, w2) AS (
    SELECT 0, w0, w1, w2 FROM model WHERE id = 1
    UNION ALL
    SELECT n + 1, max(w0) + avg(y - p), max(w1) + avg((y - p) * x1), max(w2) + avg((y - p) * x2)
    FROM (
      SELECT d.*, t.x1, t.x2, t.y, 1 / (1 + exp(-(d.w0 + d.w1 * t.x1 + d.w2 * t.x2))) AS p
      FROM descent AS d CROSS JOIN training AS t
    ) AS predicted
    WHERE n < 40
    GROUP BY n
  )
  SELECT 1, n, w0, w1, w2 FROM descent ORDER BY n DESC LIMIT 1
  ON CONFLICT (id) DO UPDATE SET step = model.step + excluded.step, w0 = excluded.w0, w1 = excluded.w1, w2 = excluded.w2;
RESET query_priority;

INSERT INTO measured VALUES (3, 1, 0), (4, -1, 0);
