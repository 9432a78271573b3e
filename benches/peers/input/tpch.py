"""TPC-H's tables at scale factor 1 as Parquet, and its 22 queries, by DuckDB's extension.    usage: tpch.py DIR"""

import glob
import os
import pathlib
import sys

import duckdb
import duckdb_extension_tpch

TABLES = "customer lineitem nation orders part partsupp region supplier".split()

if __name__ == "__main__":
    out = pathlib.Path(sys.argv[1])
    out.mkdir(parents=True, exist_ok=True)
    connection = duckdb.connect(config={"allow_unsigned_extensions": "true"})
    folder = os.path.dirname(duckdb_extension_tpch.__file__)
    connection.execute(f"LOAD '{glob.glob(folder + '/extensions/*/tpch.duckdb_extension')[0]}'")
    connection.execute("CALL dbgen(sf=1)")
    for table in TABLES:
        connection.execute(f"COPY {table} TO '{out}/{table}.parquet' (FORMAT parquet)")
    for number, text in connection.execute("SELECT query_nr, query FROM tpch_queries()").fetchall():
        (out / f"q{number}.sql").write_text(text)
