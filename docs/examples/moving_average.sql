-- Averages of what sensors measure: over jumping windows, over windows that overlap, and over numbers of readings.

CREATE STREAM reading (
  sensor INT NOT NULL, temperature DOUBLE PRECISION, ts TIMESTAMPTZ,
  WATERMARK FOR ts AS ts - INTERVAL '2 seconds'
);

-- Jumping: each reading is in one window. A row appears when the watermark has passed its window, and never changes.
CREATE MATERIALIZED VIEW average_by_minute AS
  SELECT sensor, window_start, avg(temperature) AS mean, count(*) AS readings
  FROM TUMBLE(reading, ts, INTERVAL '1 minute')
  GROUP BY sensor, window_start
EMIT ON WINDOW CLOSE;

-- Sliding: every 20 seconds the average of the last minute. Windows share panes of 20 seconds: of each, what left is
-- taken away and what entered is added.
CREATE MATERIALIZED VIEW moving_average AS
  SELECT sensor, window_end, avg(temperature) AS mean, count(*) AS readings
  FROM HOP(reading, ts, INTERVAL '20 seconds', INTERVAL '1 minute')
  GROUP BY sensor, window_end
EMIT ON WINDOW CLOSE;

-- Sliding over the last three readings of each sensor, whenever they were.
CREATE MATERIALIZED VIEW last_three AS
  SELECT sensor, ts, avg(temperature) OVER (PARTITION BY sensor ORDER BY ts ROWS 2 PRECEDING) AS mean
  FROM reading;

-- Jumping: of each three readings one row.
CREATE MATERIALIZED VIEW by_three AS
  SELECT sensor, number / 3 AS window_number, avg(temperature) AS mean, max(ts) AS ended
  FROM (SELECT *, (row_number() OVER (PARTITION BY sensor ORDER BY ts))::bigint - 1 AS number FROM reading) AS numbered
  GROUP BY sensor, number / 3
  HAVING count(*) = 3;

INSERT INTO reading VALUES
  (1, 20, '2026-01-01 00:00:10'), (1, 21, '2026-01-01 00:00:30'), (1, 25, '2026-01-01 00:00:50'),
  (2, 5, '2026-01-01 00:00:20'), (1, 26, '2026-01-01 00:01:10'), (2, 7, '2026-01-01 00:01:15'),
  (1, 27, '2026-01-01 00:01:30');
