"""Follows a materialized view: prints all of its rows each time that it has changed, as JSON, until ctrl-C.

    pip install 'psycopg[binary]'
    python3 docs/examples/follow.py [host=127.0.0.1 port=5433 user=millrace dbname=millrace]
"""

import json
import sys

import psycopg

SERVER = " ".join(sys.argv[1:]) or "host=127.0.0.1 port=5433 user=millrace dbname=millrace"


def follow(connection):
    connection.execute("CREATE TABLE IF NOT EXISTS orders (id INT PRIMARY KEY, customer TEXT, amount INT)")
    connection.execute(
        "CREATE MATERIALIZED VIEW IF NOT EXISTS totals AS"
        " SELECT customer, sum(amount) AS total FROM orders GROUP BY customer"
    )
    # The rows that there are, then each key that changes, and after each epoch that it is whole.
    changes = connection.cursor().stream("SUBSCRIBE totals ENVELOPE UPSERT (KEY (customer)) WITH (PROGRESS)")
    totals, has_changed = {}, True
    for epoch, is_whole, op, customer, total in changes:
        if not is_whole:
            has_changed = True
            if op == "upsert":
                totals[customer] = total
            else:
                totals.pop(customer, None)
        elif has_changed:
            has_changed = False
            # A key can be NULL, which is None here and has no place among texts: it comes last.
            rows = sorted(totals.items(), key=lambda row: (row[0] is None, row[0] or ""))
            print(json.dumps(rows), flush=True)


connection = psycopg.connect(SERVER, autocommit=True)
try:
    follow(connection)
except KeyboardInterrupt:
    pass
finally:
    # Not `with`: that would first read the changes to their end, and there is none.
    connection.close()
