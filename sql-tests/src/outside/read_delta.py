# Answers a query about a table of Delta Lake, by the library of delta-rs: an array of JSON a row.
# Arguments: where the table is, the query (the table is t), options of the place as JSON. With the query "append N" it appends a row whose
# first column is N instead, as another writer would. Says "skipped" where the library is not installed (pip install deltalake).
import json
import sys

try:
    from arro3.core import Array, DataType, Table
    from deltalake import DeltaTable, QueryBuilder, write_deltalake
except ImportError as error:
    print("skipped", error)
    sys.exit()

place, query, options = sys.argv[1:]
options = json.loads(options)
if query.startswith("append "):
    row = Table.from_pydict({"n": Array([int(query.split()[1])], DataType.int64())})
    write_deltalake(place, row, mode="append", schema_mode="merge", storage_options=options)
    sys.exit()
if query == "version":
    print(json.dumps([DeltaTable(place, storage_options=options).version()]))
    sys.exit()
table = QueryBuilder().register("t", DeltaTable(place, storage_options=options)).execute(query).read_all()
columns = [table[name].to_pylist() for name in table.column_names]
for row in zip(*columns):
    print(json.dumps(row, default=str))
