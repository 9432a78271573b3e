"""TPC-H at scale factor 1: the time of each of its 22 queries, until the last row of the answer is with who asked.

millrace answers over its tables, over the log of its streams, and over Parquet files, from one server, by psycopg. DuckDB has the tables in
memory. DataFusion, stock, has them as Parquet files and in memory. All have as many threads as cores (`machine.CORES`). DuckDB and
DataFusion run in the process that asks, without a wire. The answers are compared row by row with those of DuckDB.
"""

import datetime
import decimal
import json
import math
import time

from . import machine
from .machine import CORES
from .millrace import Server

TABLES = "customer lineitem nation orders part partsupp region supplier".split()


def run(said):
    """The suite: for each query, all sides by turns."""
    data = said.cache / "data" / "tpch"
    found = []
    with Server(said.binary, said.cache) as server:
        sides = {
            "millrace, tables": over_millrace(server, data, "tables"),
            "millrace, streams": over_millrace(server, data, "streams"),
            "millrace, Parquet": over_millrace(server, data, "files"),
            "DuckDB, in memory": duckdb_side(data),
            "DataFusion, Parquet": datafusion_side(data, in_memory=False),
            "DataFusion, in memory": datafusion_side(data, in_memory=True),
        }
        for name, dsn in (given.split("=", 1) for given in said.pg):
            sides[name] = over_pg(dsn)
        for number in range(1, 23):
            query = f"q{number}"
            if said.only and query not in said.only:
                continue
            texts = [text for text in (data / f"{query}.sql").read_text().split(";") if text.strip()]
            expected = sides["DuckDB, in memory"](texts)
            for turn in range(said.rounds):
                for name, side in sides.items():
                    busy, before = machine.busy(), machine.load()
                    begun = time.perf_counter()
                    try:
                        answer = side(texts)
                    except Exception as error:
                        found.append({"query": query, "side": name, "turn": turn, "failed": str(error)[:300]})
                        print(json.dumps(found[-1]), flush=True)
                        continue
                    seconds = time.perf_counter() - begun
                    measured = {
                        "query": query,
                        "side": name,
                        "turn": turn,
                        "seconds": seconds,
                        # Of the whole machine, which shows what others took.
                        "processor seconds": machine.busy() - busy,
                        "load before": before,
                        "right": same(expected, answer),
                    }
                    print(json.dumps(measured), flush=True)
                    found.append(measured)
    return found


def over_millrace(server, data, way):
    """The tables as `way` has them, in a schema of that name."""
    connection = server.connect()
    connection.execute(f"CREATE SCHEMA {way}")
    for table in TABLES:
        files = f"CREATE EXTERNAL TABLE {way}.{table} STORED AS PARQUET LOCATION '{data}/{table}.parquet'"
        if way == "files":
            connection.execute(files)
            continue
        connection.execute(files.replace(f"{way}.{table}", f"{way}.from_{table}"))
        if way == "tables":
            connection.execute(f"CREATE TABLE {way}.{table} AS SELECT * FROM {way}.from_{table}")
        else:
            columns = connection.execute(
                "SELECT a.attname, format_type(a.atttypid, a.atttypmod) FROM pg_attribute a "
                f"WHERE a.attrelid = '{way}.from_{table}'::regclass AND a.attnum > 0 ORDER BY a.attnum"
            ).fetchall()
            columns = ", ".join(f"{name} {kind}" for name, kind in columns)
            connection.execute(f"CREATE STREAM {way}.{table} ({columns})")
            connection.execute(f"INSERT INTO {way}.{table} SELECT * FROM {way}.from_{table}")
        connection.execute(f"DROP TABLE {way}.from_{table}")
    connection.execute(f"SET search_path = {way}")
    return lambda texts: [connection.execute(text).fetchall() for text in texts][-1]


def over_pg(dsn):
    import psycopg

    connection = psycopg.connect(dsn, autocommit=True)
    return lambda texts: [connection.execute(text).fetchall() for text in texts][-1]


def duckdb_side(data):
    import duckdb

    connection = duckdb.connect()
    connection.execute(f"SET threads = {CORES}")
    for table in TABLES:
        connection.execute(f"CREATE TABLE {table} AS SELECT * FROM '{data}/{table}.parquet'")
    return lambda texts: [connection.execute(text).fetchall() for text in texts][-1]


def datafusion_side(data, in_memory):
    import datafusion
    import pyarrow.parquet

    context = datafusion.SessionContext(datafusion.SessionConfig().with_target_partitions(CORES))
    for table in TABLES:
        if not in_memory:
            context.register_parquet(table, f"{data}/{table}.parquet")
            continue
        batches = pyarrow.parquet.read_table(f"{data}/{table}.parquet").to_batches(max_chunksize=8192)
        partitions = [batches[part::CORES] for part in range(CORES)]
        context.register_record_batches(table, [partition for partition in partitions if partition])

    def answer(texts):
        batches = [context.sql(text).collect() for text in texts][-1]
        return [tuple(row.values()) for batch in batches for row in batch.to_pylist()]

    return answer


def same(expected, answer):
    """Whether rows are the same, whatever their order and whatever type their numbers have."""
    if len(expected) != len(answer):
        return False
    one, other = (sorted(map(plain, rows), key=texts_first) for rows in (expected, answer))
    return all(len(left) == len(right) and all(map(equal, left, right)) for left, right in zip(one, other))


def plain(row):
    def value(of):
        if isinstance(of, (int, float, decimal.Decimal)):
            return float(of)
        if isinstance(of, datetime.datetime):
            return str(of.date())
        return str(of)

    return [value(of) for of in row]


def texts_first(row):
    return [of for of in row if isinstance(of, str)], [of for of in row if isinstance(of, float)]


def equal(left, right):
    if isinstance(left, float) and isinstance(right, float):
        return math.isclose(left, right, rel_tol=1e-6, abs_tol=0.005)
    return left == right
