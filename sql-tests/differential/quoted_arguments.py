#!/usr/bin/env python3
"""Writes server/functions/src/sql/quoted_arguments.txt: what each function takes in the place of a quoted literal.

    quoted_arguments.py "host=127.0.0.1 port=5432 user=postgres" "host=127.0.0.1 port=5433 user=millrace" > server/functions/src/sql/quoted_arguments.txt

The first is a server of PostgreSQL, the second one of millrace, which says what functions there are. It needs psycopg.
"""
import sys

import psycopg

TYPES = ["int2", "int4", "int8", "numeric", "float4", "float8", "date", "timestamp", "timestamptz", "time", "interval", "bytea", "bool", "uuid"]
FUNCTIONS = """
    SELECT p.proname, array(SELECT t.typname::text FROM unnest(p.proargtypes::oid[]) WITH ORDINALITY a(o, n) JOIN pg_type t ON t.oid = a.o ORDER BY n)
    FROM pg_proc p
    WHERE p.pronamespace = 'pg_catalog'::regnamespace AND p.prokind = 'f' AND NOT p.proretset AND p.provariadic = 0
      AND p.pronargs BETWEEN 1 AND 7 AND p.proname !~ '^(pg_|has_|json|date$)'
"""
# What millrace answers for a function that it has not: undefined, or refused by name.
NOT_THERE = {"42883", "42704", "0A000", "42601"}


def connect(to):
    return psycopg.connect(to, autocommit=True, prepare_threshold=None)


def is_there(millrace, name, candidates):
    for types in candidates:
        arguments = ", ".join(f"NULL::{of.lstrip('_')}{'[]' if of[0] == '_' else ''}" for of in types)
        try:
            millrace.execute(f"SELECT {name}({arguments})")
            return True
        except psycopg.Error as error:
            if error.sqlstate not in NOT_THERE:
                return True
    return False


def chosen(postgres, name, count, names):
    """The types that are chosen when all arguments are quoted."""
    try:
        postgres.execute("DEALLOCATE ALL")
        postgres.execute(f"PREPARE p AS SELECT {name}({', '.join(f'${n + 1}' for n in range(count))})")
        found = postgres.execute("SELECT unnest(parameter_types)::text FROM pg_prepared_statements WHERE name = 'p'").fetchall()
        return [names.get(of, "-") for (of,) in found]
    except psycopg.Error:
        return ["-"] * count


def main():
    postgres, millrace = map(connect, sys.argv[1:3])
    shown = {of: postgres.execute("SELECT to_regtype(%s)::text", (of,)).fetchone()[0] for of in TYPES}
    names = {of: of.replace(" without time zone", "") for of in shown.values()}
    by_name = {}
    for name, types in postgres.execute(FUNCTIONS).fetchall():
        by_name.setdefault((name, len(types)), []).append(types)
    for (name, count), candidates in sorted(by_name.items()):
        if not is_there(millrace, name, candidates):
            continue
        kinds = [{types[n] for types in candidates} for n in range(count)]
        always = [names[shown[next(iter(of))]] if len(of) == 1 and of <= shown.keys() else "-" for of in kinds]
        if_all = chosen(postgres, name, count, names)
        if {*always, *if_all} != {"-"}:
            print(f"{name}: {', '.join(always)}" + ("" if always == if_all else f" | {', '.join(if_all)}"))


if __name__ == "__main__":
    main()
