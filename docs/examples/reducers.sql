-- The four applications of StreamMapReduce with reducers of one's own in JavaScript: docs/reducers.md says what each part is for.

-- Moving average: what enters a window goes through process, what leaves it through retract, so that nothing is computed again.
CREATE REDUCER mean_of(value DOUBLE PRECISION) RETURNS DOUBLE PRECISION LANGUAGE javascript AS $$
  function init() { return { sum: 0, count: 0 }; }
  function process(state, value) { state.sum += value; state.count++; }
  function retract(state, value) { state.sum -= value; state.count--; }
  function value(state) { return state.count ? state.sum / state.count : null; }
$$;

CREATE STREAM reading (sensor INT NOT NULL, temperature DOUBLE PRECISION NOT NULL, ts TIMESTAMPTZ NOT NULL);

CREATE MATERIALIZED VIEW last_minute AS
  SELECT sensor, mean_of(temperature) AS mean
  FROM reading WHERE ts > now() - INTERVAL '1 minute'
  GROUP BY sensor;

-- Communities of interest: whom somebody talks to the most. States of several workers merge (a combiner), and several rows come out.
CREATE REDUCER community(contact TEXT, size INT) RETURNS JSONB[] LANGUAGE javascript AS $$
  function init() { return { calls: new Map(), size: 0 }; }
  function process(state, contact, size) {
    state.calls.set(contact, (state.calls.get(contact) ?? 0) + 1);
    state.size = size;
  }
  function merge(state, other) {
    for (const [contact, n] of other.calls) state.calls.set(contact, (state.calls.get(contact) ?? 0) + n);
    state.size = other.size || state.size;
  }
  function value(state) {
    return [...state.calls]
      .sort(([a, n], [b, m]) => m - n || (a < b ? -1 : 1))
      .slice(0, state.size)
      .map(([contact, calls]) => ({ contact, calls }));
  }
$$;

CREATE STREAM call (caller TEXT NOT NULL, callee TEXT NOT NULL, ts TIMESTAMPTZ NOT NULL, WATERMARK FOR ts AS ts);

-- A mapper that splits keys: one call counts for both.
CREATE VIEW talk AS
  SELECT unnest(ARRAY[caller, callee]) AS person, unnest(ARRAY[callee, caller]) AS contact, ts FROM call;

CREATE MATERIALIZED VIEW communities AS
  SELECT person, window_start, made->>'contact' AS contact, (made->>'calls')::int AS calls
  FROM (SELECT person, window_start, community(contact, 2) AS members
        FROM TUMBLE(talk, ts, INTERVAL '1 hour') GROUP BY person, window_start) AS c, UNNEST(members) AS m (made);

-- Service levels: the steps of each transaction, in the order of their times whatever the order in which they come.
CREATE REDUCER verdict(step INT, ts TIMESTAMPTZ) RETURNS TEXT LANGUAGE javascript AS $$
  function init() { return { next: 1, began: null, ended: null }; }
  function process(state, step, ts) {
    if (step !== state.next) state.next = -1;
    if (state.next < 0) return;
    state.began ??= ts;
    state.ended = ts;
    state.next++;
  }
  function value({ next, began, ended }) {
    if (next < 0) return 'out of order';
    if (next < 5) return 'open';
    return ended - began <= 10000 ? 'conforms' : 'too late';
  }
$$;

CREATE STREAM step (tx BIGINT NOT NULL, step INT NOT NULL, ts TIMESTAMPTZ NOT NULL);

CREATE MATERIALIZED VIEW verdicts AS
  SELECT tx, verdict(step, ts ORDER BY ts) AS verdict FROM step GROUP BY tx;

-- Missing heartbeats: every minute each device is asked how many heartbeats came, also one of which none did.
CREATE REDUCER silence(ts TIMESTAMPTZ) RETURNS INT LANGUAGE javascript AS $$
  function init() { return { beats: 0, silent: 0 }; }
  function process(state, ts) { state.beats++; }
  function timer(state, now) {
    state.silent = state.beats ? 0 : state.silent + 1;
    state.beats = 0;
  }
  function value(state) { return state.silent; }
$$;

CREATE STREAM heartbeat (device TEXT NOT NULL, ts TIMESTAMPTZ NOT NULL);

CREATE MATERIALIZED VIEW silent AS
  SELECT device, silence(ts) AS minutes FROM heartbeat GROUP BY device
EMIT EVERY INTERVAL '1 minute';

INSERT INTO reading VALUES (1, 20, now() - INTERVAL '50 seconds'), (1, 26, now()), (2, 5, now());

INSERT INTO call VALUES
  ('ann', 'bob', '2026-01-01 00:01:00'), ('ann', 'cid', '2026-01-01 00:02:00'), ('bob', 'ann', '2026-01-01 00:05:00'),
  ('ann', 'dee', '2026-01-01 00:20:00'), ('ann', 'cid', '2026-01-01 01:05:00');

INSERT INTO step
  SELECT tx, step, TIMESTAMPTZ '2026-01-01 00:00:00+00' + seconds * INTERVAL '1 second'
  FROM (VALUES (1, 4, 9.5), (1, 1, 0.0), (1, 3, 4.5), (1, 2, 1.0),   -- conforms, though it came in another order
               (2, 1, 0.0), (2, 2, 1.0),                             -- not confirmed yet
               (3, 1, 2.0), (3, 3, 3.0), (3, 2, 4.0), (3, 4, 5.0),   -- executed before it was authorised
               (4, 1, 3.0), (4, 2, 4.0), (4, 3, 5.0), (4, 4, 13.5)   -- too late
       ) AS s (tx, step, seconds);

INSERT INTO heartbeat VALUES ('door', now()), ('lift', now());
