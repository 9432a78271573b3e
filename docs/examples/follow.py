"""Follows a materialized view: prints all of it each time that it has changed.

    pip install 'psycopg[binary]'
    python3 docs/examples/follow.py [host=127.0.0.1 port=5433 user=millrace dbname=millrace]
"""

import json
import sys

import psycopg

SERVER = " ".join(sys.argv[1:]) or "host=127.0.0.1 port=5433 user=millrace dbname=millrace"

with psycopg.connect(SERVER, autocommit=True) as connection:
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
                del totals[customer]
        elif has_changed:
            has_changed = False
            print(json.dumps(totals, sort_keys=True), flush=True)
