"""Rows a second at a size of batch: millrace's SQL beside the same sums and joins, written by hand in differential dataflow.

Both get the rows from the process that keeps them: millrace by INSERT .. SELECT of a series, durable, one statement a batch, and the clock
stops when all are in the view; differential dataflow from a loop, in memory, one epoch a batch, with as many workers as cores.
"""

import json
import subprocess
import time

from . import machine
from .millrace import Server

VIEWS = {
    "sum": "SELECT k, sum(v) AS total, count(*) AS n FROM facts GROUP BY k",
    "join": "SELECT g.g, sum(f.v) AS total, count(*) AS n FROM facts f JOIN groups g ON g.k = f.k GROUP BY g.g",
}
# Rows of a run at each size of batch.
BATCHES = {100: 50_000, 1_000: 500_000, 10_000: 3_000_000, 100_000: 10_000_000, 1_000_000: 10_000_000}


def run(said):
    """The suite: for each view and size of batch, both sides by turns."""
    found = []
    for what in VIEWS:
        if said.only and what not in said.only:
            continue
        for batch, rows in BATCHES.items():
            for turn in range(said.rounds):
                for name, side in (("millrace", millrace), ("differential dataflow", differential)):
                    busy, before = machine.busy(), machine.load()
                    measured = {
                        "query": f"{what}, batches of {batch:,}",
                        "side": name,
                        "turn": turn,
                        "events": rows,
                        **side(said, what, rows, batch),
                        "load before": before,
                        "processor seconds": machine.busy() - busy,
                    }
                    print(json.dumps(measured), flush=True)
                    found.append(measured)
    return found


def millrace(said, what, rows, batch):
    with Server(said.binary, said.cache) as server, server.connect() as connection:
        connection.execute("CREATE STREAM facts (k INT, v INT)")
        connection.execute("CREATE TABLE groups (k INT PRIMARY KEY, g INT)")
        connection.execute("INSERT INTO groups SELECT k, k % 50 FROM generate_series(0, 99999) AS t(k)")
        connection.execute(f"CREATE MATERIALIZED VIEW result AS {VIEWS[what]}")
        begun = time.perf_counter()
        for first in range(0, rows, batch):
            connection.execute(
                "INSERT INTO facts SELECT (j::bigint * 7919 % 100000)::int, (j % 1000)::int "
                f"FROM generate_series({first}, {first + batch - 1}) AS t(j)"
            )
        connection.execute("FLUSH")
        seconds = time.perf_counter() - begun
        counted = connection.execute("SELECT sum(n), sum(total) FROM result").fetchone()
        expected = (rows, sum(range(1000)) * (rows // 1000))
        return {"seconds": seconds, "right": tuple(map(int, counted)) == expected}


def differential(said, what, rows, batch):
    program = said.cache / "differential" / "release" / "differential"
    told = subprocess.run([program, what, str(rows), str(batch), str(machine.CORES)], capture_output=True, text=True, check=True)
    return {"seconds": float(told.stdout)}
