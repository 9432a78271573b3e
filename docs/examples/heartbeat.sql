-- That nothing came is an event: devices that have not been heard of for thirty seconds.

CREATE TABLE device (id TEXT PRIMARY KEY);
CREATE STREAM heartbeat (device TEXT NOT NULL, ts TIMESTAMPTZ NOT NULL);

-- A device is here when its last heartbeat is older than that, and leaves with the next one.
CREATE MATERIALIZED VIEW silent AS
  SELECT device, max(ts) AS last_heard
  FROM heartbeat
  GROUP BY device
  HAVING max(ts) < now() - INTERVAL '30 seconds';

-- Once a minute a row for every device, also for those of which no row came.
CREATE MATERIALIZED VIEW beats AS
  SELECT d.id, count(h.ts) AS beats
  FROM device AS d
  LEFT JOIN (SELECT * FROM heartbeat WHERE ts > now() - INTERVAL '1 minute') AS h ON h.device = d.id
  GROUP BY d.id
EMIT EVERY INTERVAL '1 minute';

INSERT INTO device VALUES ('door'), ('lift'), ('roof');
INSERT INTO heartbeat SELECT id, now() FROM device WHERE id <> 'roof';
