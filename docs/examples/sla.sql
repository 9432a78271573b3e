-- Conformance to a service level: every transaction passes four steps in order, within ten seconds.

CREATE STREAM step (tx BIGINT NOT NULL, step INT NOT NULL, ts TIMESTAMPTZ NOT NULL);

CREATE MATERIALIZED VIEW passed AS
  SELECT tx,
         min(ts) FILTER (WHERE step = 1) AS requested, min(ts) FILTER (WHERE step = 2) AS authorised,
         min(ts) FILTER (WHERE step = 3) AS executed, min(ts) FILTER (WHERE step = 4) AS confirmed
  FROM step GROUP BY tx;

CREATE MATERIALIZED VIEW conforming AS
  SELECT tx, requested, confirmed - requested AS took
  FROM passed
  WHERE requested <= authorised AND authorised <= executed AND executed <= confirmed
    AND confirmed <= requested + INTERVAL '10 seconds';

-- Found by the timer: nothing has to come for a transaction to be here when its ten seconds are over.
CREATE MATERIALIZED VIEW missed AS
  SELECT p.tx, p.requested
  FROM passed AS p
  WHERE p.requested + INTERVAL '10 seconds' < now()
    AND NOT EXISTS (SELECT 1 FROM conforming AS c WHERE c.tx = p.tx);

CREATE MATERIALIZED VIEW success AS
  SELECT date_trunc('minute', requested) AS minute, count(*) AS transactions,
         round(100.0 * count(*) FILTER (WHERE succeeded) / count(*), 1) AS percent
  FROM (SELECT requested, true AS succeeded FROM conforming
        UNION ALL SELECT requested, false FROM missed) AS ended
  GROUP BY date_trunc('minute', requested);

INSERT INTO step
  SELECT tx, step, date_trunc('minute', now()) + INTERVAL '1 minute' + seconds * INTERVAL '1 second'
  FROM (VALUES (1, 1, 0.0), (1, 2, 1.0), (1, 3, 4.5), (1, 4, 9.5),   -- in order and in time
               (2, 1, 0.0), (2, 2, 1.0), (2, 3, 2.0),                -- never confirmed
               (3, 1, 2.0), (3, 3, 3.0), (3, 2, 4.0), (3, 4, 5.0),   -- executed before it was authorised
               (4, 1, 3.0), (4, 2, 4.0), (4, 3, 5.0), (4, 4, 13.5)   -- too late
       ) AS s (tx, step, seconds);
