-- Communities of interest: whom each user of a telephone calls, or is called by, the most; and when that changes abruptly.

CREATE STREAM call (caller TEXT NOT NULL, callee TEXT NOT NULL, ts TIMESTAMPTZ NOT NULL, WATERMARK FOR ts AS ts - INTERVAL '1 minute');

-- A mapper that splits keys: one call counts for both.
CREATE VIEW talk AS
  SELECT unnest(ARRAY[caller, callee]) AS person, unnest(ARRAY[callee, caller]) AS contact, ts FROM call;

-- Every half hour, the calls of the last hour.
CREATE MATERIALIZED VIEW contacts AS
  SELECT person, contact, window_end, count(*) AS calls
  FROM HOP(talk, ts, INTERVAL '30 minutes', INTERVAL '1 hour')
  GROUP BY person, contact, window_end
EMIT ON WINDOW CLOSE;

CREATE MATERIALIZED VIEW community AS
  SELECT person, window_end, place, contact, calls
  FROM (SELECT *, row_number() OVER (PARTITION BY person, window_end ORDER BY calls DESC, contact) AS place FROM contacts) AS ranked
  WHERE place <= 2;

-- Nobody of an hour's community was in the community of the hour before.
CREATE MATERIALIZED VIEW alert AS
  SELECT c.person, c.window_end, string_agg(c.contact, ', ' ORDER BY c.place) AS contacts
  FROM community AS c LEFT JOIN community AS b
    ON b.person = c.person AND b.contact = c.contact AND b.window_end = c.window_end - INTERVAL '1 hour'
  WHERE EXISTS (SELECT 1 FROM community AS k WHERE k.person = c.person AND k.window_end = c.window_end - INTERVAL '1 hour')
  GROUP BY c.person, c.window_end
  HAVING count(b.contact) = 0;

INSERT INTO call
  SELECT caller, callee, TIMESTAMPTZ '2026-01-01 00:00:00+00' + minute * INTERVAL '1 minute'
  FROM (VALUES ('ann', 'bob', 1), ('bob', 'ann', 5), ('ann', 'cid', 10), ('ann', 'dee', 20), ('ann', 'cid', 25), ('bob', 'ann', 40),
               ('ann', 'bob', 61), ('ann', 'eve', 62), ('cid', 'eve', 65), ('cid', 'eve', 80), ('fay', 'cid', 90), ('bob', 'ann', 91),
               ('gus', 'hal', 151)) AS c (caller, callee, minute);
