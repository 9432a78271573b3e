"""Events a second through one query: YSB and Nexmark, recorded events from the first byte to the last row of the result.

millrace: a fresh server each turn. Two senders post the recorded JSON over HTTP; rows are durable before they are acknowledged. The
clock stops when all of them are in the view (FLUSH). The senders take their part of the same cores.

Flink: a mini-cluster in one process each turn, which reads the recorded JSON from files itself. One run to warm the JVM and to check
the answer, then two that count (one, if it takes over a minute); the faster one is kept. No checkpoints, so nothing survives a failure.
"""

import hashlib
import http.client
import json
import os
import queue
import shlex
import subprocess
import threading
import time

from . import machine
from .fetch import HERE, flink_jars
from .millrace import Server

SENDERS = 2
# A side that takes longer has one turn.
SLOW_SECONDS = 60

STREAMS = {
    "events": "user_id TEXT, page_id TEXT, ad_id TEXT, ad_type TEXT, event_type TEXT, event_time BIGINT, ip_address TEXT",
    "person": "id BIGINT, name TEXT, email_address TEXT, credit_card TEXT, city TEXT, state TEXT, date_time BIGINT, extra TEXT",
    "auction": "id BIGINT, item_name TEXT, description TEXT, initial_bid BIGINT, reserve BIGINT, date_time BIGINT, expires BIGINT, "
    "seller BIGINT, category BIGINT, extra TEXT",
    "bid": "auction BIGINT, bidder BIGINT, price BIGINT, channel TEXT, url TEXT, date_time BIGINT, extra TEXT",
}

HOP = "HOP(bid_at, ts, INTERVAL '2 seconds', INTERVAL '10 seconds')"

# Of each query: the streams that it reads, the view, and its columns as they are compared.
QUERIES = {
    "ysb": (
        ["events"],
        """SELECT a.campaign_id, window_start, count(*) AS n
           FROM TUMBLE(events_at, ts, INTERVAL '10 seconds') e JOIN ads a ON a.ad_id = e.ad_id
           WHERE e.event_type = 'view' GROUP BY a.campaign_id, window_start""",
        "campaign_id, (extract(epoch FROM window_start) * 1000)::bigint, n",
    ),
    "q0": (["bid"], "SELECT auction, bidder, price, date_time, extra FROM bid", "auction, bidder, price, date_time, extra"),
    "q1": (
        ["bid"],
        "SELECT auction, bidder, CAST(0.908 * price AS DECIMAL(23, 3)) AS price, date_time, extra FROM bid",
        "auction, bidder, price, date_time, extra",
    ),
    "q2": (["bid"], "SELECT auction, price FROM bid WHERE MOD(auction, 123) = 0", "auction, price"),
    "q3": (
        ["person", "auction"],
        """SELECT p.name, p.city, p.state, a.id FROM auction AS a JOIN person AS p ON a.seller = p.id
           WHERE a.category = 10 AND (p.state = 'OR' OR p.state = 'ID' OR p.state = 'CA')""",
        "name, city, state, id",
    ),
    "q4": (
        ["auction", "bid"],
        """SELECT category, AVG(final) AS avg_final
           FROM (SELECT MAX(b.price) AS final, a.category FROM auction AS a, bid AS b
                 WHERE a.id = b.auction AND b.date_time BETWEEN a.date_time AND a.expires GROUP BY a.id, a.category) AS q
           GROUP BY category""",
        "category, trunc(avg_final)::bigint",
    ),
    "q5": (
        ["bid"],
        f"""SELECT c.auction, c.starttime, c.num
            FROM (SELECT auction, COUNT(*) AS num, window_start AS starttime, window_end AS endtime
                  FROM {HOP} GROUP BY auction, window_start, window_end) AS c
            JOIN (SELECT MAX(num) AS maxn, starttime, endtime
                  FROM (SELECT COUNT(*) AS num, window_start AS starttime, window_end AS endtime
                        FROM {HOP} GROUP BY auction, window_start, window_end) AS n
                  GROUP BY starttime, endtime) AS m
            ON c.starttime = m.starttime AND c.endtime = m.endtime AND c.num >= m.maxn""",
        "auction, (extract(epoch FROM starttime) * 1000)::bigint, num",
    ),
    "q7": (
        ["bid"],
        """SELECT b.auction, b.price, b.bidder, b.date_time, b.extra FROM bid_at AS b
           JOIN (SELECT MAX(price) AS maxprice, window_end AS endtime
                 FROM TUMBLE(bid_at, ts, INTERVAL '10 seconds') GROUP BY window_start, window_end) AS m
           ON b.price = m.maxprice AND b.ts BETWEEN m.endtime - INTERVAL '10 seconds' AND m.endtime - INTERVAL '0.001 seconds'""",
        "auction, price, bidder, date_time, extra",
    ),
    "q8": (
        ["person", "auction"],
        """SELECT p.id, p.name, p.starttime
           FROM (SELECT id, name, window_start AS starttime, window_end AS endtime
                 FROM TUMBLE(person_at, ts, INTERVAL '10 seconds') GROUP BY id, name, window_start, window_end) AS p
           JOIN (SELECT seller, window_start AS starttime, window_end AS endtime
                 FROM TUMBLE(auction_at, ts, INTERVAL '10 seconds') GROUP BY seller, window_start, window_end) AS a
           ON p.id = a.seller AND p.starttime = a.starttime AND p.endtime = a.endtime""",
        "id, name, (extract(epoch FROM starttime) * 1000)::bigint",
    ),
}

TIME_OF = {"events": "event_time", "person": "date_time", "auction": "date_time", "bid": "date_time"}


def run(said):
    """The suite: for each query, all sides by turns."""
    expected = {answer["query"]: answer for answer in map(json.loads, open(HERE / "expected.jsonl"))}
    sides = {"millrace": millrace, "Flink": flink}
    for name, command in (given.split("=", 1) for given in said.commands):
        sides[name] = lambda said, query, expected, command=command: by_command(said, query, expected, command)
    found = []
    for query in QUERIES:
        if said.only and query not in said.only:
            continue
        for turn in range(said.rounds):
            for name, side in sides.items():
                if any(slow["seconds"] > SLOW_SECONDS for slow in found if (slow["query"], slow["side"]) == (query, name)):
                    continue
                before = machine.load()
                measured = {"query": query, "side": name, "turn": turn, "load before": before, **side(said, query, expected[query])}
                print(json.dumps(measured), flush=True)
                found.append(measured)
    return found


def checked(expected, rows, md5sum15):
    return rows == expected["rows"] and str(md5sum15) == expected["md5sum15"]


def pieces(cache, stream):
    folder = cache / "data" / ("ysb" if stream == "events" else "nexmark") / stream / "chunk"
    return sorted(path for path in folder.iterdir() if path.name[0].isdigit())


def millrace(said, query, expected):
    streams, view, columns = QUERIES[query]
    with Server(said.binary, said.cache) as server, server.connect() as connection:
        for stream in streams:
            connection.execute(f"CREATE STREAM {stream} ({STREAMS[stream]})")
            connection.execute(
                f"CREATE VIEW {stream}_at AS SELECT *, to_timestamp({TIME_OF[stream]} / 1000.0) AS ts FROM {stream}"
            )
        if query == "ysb":
            connection.execute("CREATE TABLE ads (ad_id TEXT PRIMARY KEY, campaign_id TEXT)")
            with connection.cursor().copy("COPY ads FROM STDIN CSV") as copy:
                copy.write((said.cache / "data" / "ysb" / "ads.csv").read_bytes())
        connection.execute(f"CREATE MATERIALIZED VIEW result AS {view}")
        spent, busy, begun = machine.spent(server.pid), machine.busy(), time.perf_counter()
        send(said.cache, server, streams)
        connection.execute("FLUSH")
        seconds = time.perf_counter() - begun
        spent, busy = machine.spent(server.pid) - spent, machine.busy() - busy
        events = sum(connection.execute(f"SELECT count(*) FROM {stream}").fetchone()[0] for stream in streams)
        rows, total = 0, 0
        with connection.cursor().copy(f"COPY (SELECT {columns} FROM result) TO STDOUT (DELIMITER '|')") as copy:
            for line in lines(copy):
                rows += 1
                total += int(hashlib.md5(line).hexdigest()[:15], 16)
        return {
            "events": events,
            "seconds": seconds,
            "processor seconds": spent,
            "peak MB": machine.peak(server.pid),
            # Of these a part are the senders'.
            "seconds of others": max(0.0, busy - spent),
            "right": checked(expected, rows, total % 2**64),
        }


def lines(copy):
    """The lines of what COPY sends, which cuts them anywhere."""
    rest = b""
    for piece in copy:
        *whole, rest = (rest + bytes(piece)).split(b"\n")
        yield from whole


def send(cache, server, streams):
    """Posts what was recorded, in pieces in their order, by so many senders for each stream."""
    failed = []

    def sender(stream, waiting):
        connection = http.client.HTTPConnection("127.0.0.1", server.http, timeout=600, blocksize=1 << 18)
        headers = {"Content-Type": "application/x-ndjson"}
        while not failed:
            try:
                path = waiting.get_nowait()
            except queue.Empty:
                return
            with open(path, "rb") as body:
                headers["Content-Length"] = str(os.path.getsize(path))
                connection.request("POST", f"/api/ingest/{stream}", body=body, headers=headers)
                answer = connection.getresponse()
                text = answer.read()
                if answer.status != 200:
                    failed.append(text[:300])

    senders = []
    for stream in streams:
        waiting = queue.Queue()
        for path in pieces(cache, stream):
            waiting.put(path)
        of_stream = max(1, SENDERS // len(streams))
        senders += [threading.Thread(target=sender, args=(stream, waiting)) for _ in range(of_stream)]
    for thread in senders:
        thread.start()
    for thread in senders:
        thread.join()
    if failed:
        raise SystemExit(f"millrace refused rows: {failed[0]}")


def flink(said, query, expected):
    opens = ["java.util", "java.lang", "java.time"]
    command = ["java", "-Xmx6g", *(f"--add-opens=java.base/{package}=ALL-UNNAMED" for package in opens)]
    command += [f"-Dlog4j.configurationFile={said.cache}/flink-race/log4j2.properties"]
    command += ["-cp", f"{said.cache}/flink-race:{flink_jars(said.cache)}", "Race", HERE / "flink" / f"{query}.sql"]
    told = subprocess.run([*command, said.cache / "data", "2"], capture_output=True, text=True, check=True)
    runs = [json.loads(line) for line in told.stdout.splitlines() if line.startswith("{")]
    check, counted = runs[0], runs[1:]
    best = min(counted, key=lambda one: one["seconds"])
    return {
        "events": sum(EVENTS[stream] for stream in QUERIES[query][0]),
        **{name: best[name] for name in ("seconds", "processor seconds", "peak MB", "seconds of others")},
        "right": checked(expected, check["rows"], check["md5sum15"]),
    }


# How many events were recorded.
EVENTS = {"events": 10_000_000, "person": 108_800, "auction": 326_400, "bid": 5_004_800}


def by_command(said, query, expected, command):
    """A side that somebody else runs: prints seconds, rows and md5sum15 as JSON; README.md says how rows are summed up."""
    told = subprocess.run([*shlex.split(command), query, said.cache / "data"], capture_output=True, text=True, check=True)
    answer = json.loads(told.stdout.splitlines()[-1])
    return {
        "events": sum(EVENTS[stream] for stream in QUERIES[query][0]),
        **{name: answer[name] for name in ("seconds", "processor seconds", "peak MB") if name in answer},
        "right": checked(expected, answer["rows"], answer["md5sum15"]),
    }
