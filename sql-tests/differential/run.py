#!/usr/bin/env python3
"""Sends the same statements, made at random, to PostgreSQL and to millrace, and compares what they answer.

    sql-tests/differential/run.py [--count N] [--seed N] [--only KIND] [--against FILE | --record FILE] [--all] [--show WORD]

A statement's answers differ in one of these ways: `wrong` (other rows), `type` (other types of columns), `name` (other names of columns),
`lenient` (only PostgreSQL refuses it), `refused` (only millrace does), `code` (both do, with another SQLSTATE), `gone` (no answer).
A wrong answer, or none, is a fault (exit code 1), unless `known.txt` has it with a reason. The other ways are counted, and
shown with `--all`, with what is known.

`--record` keeps PostgreSQL's answers in a file, and `--against` takes them from there: so it runs where no PostgreSQL is.
"""

import argparse
import collections
import json
import os
import re
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.dirname(HERE))
from client import Answer, Client, Column, Gone
from servers import Millrace, Postgres
from statements import MAKERS, SETUP, of_seed

NUMERIC, NUMERICS = 1700, 1231
CANCELED = "57014"
# The ways that are faults: an answer that PostgreSQL does not give, and none.
FAULTS = ("wrong", "gone")


class Server:
    """A session that is opened again when the server has closed it."""

    def __init__(self, port):
        self.port = port
        self.connect()

    def connect(self):
        self.client = Client(self.port)
        self.client.ask("SET statement_timeout = '10s'")

    def ask(self, statement):
        try:
            return self.client.ask(statement)
        except (Gone, OSError) as error:
            self.client.close()
            self.connect()
            return Answer(None, [], None, "gone", str(error), None)


def recorded(answer):
    """An answer in the form of the file: what is compared, and no messages."""
    if answer.code:
        return {"code": answer.code}
    columns = None if answer.columns is None else [[column.name, column.type] for column in answer.columns]
    return {"columns": columns, "rows": answer.rows}


def of_record(entry):
    columns = entry.get("columns")
    columns = columns and [Column(name, kind, -1) for name, kind in columns]
    return Answer(columns, [tuple(row) for row in entry.get("rows", [])], None, entry.get("code"), None, None)


def plain(value, column):
    """A value without what numerics say of their scale: here they have none (see the page on SQL)."""
    if value is None or column.type not in (NUMERIC, NUMERICS) or "." not in value:
        return value
    return re.sub(r"(\.\d*?)0+(?=$|[,}])", lambda found: found[1].rstrip("."), value)


def is_ordered(statement):
    """Whether it says in what order the rows come: outside of all parentheses."""
    place = statement.rfind(" ORDER BY 1")
    before = re.sub(r"'(?:[^']|'')*'", "", statement[:place])
    return place > 0 and before.count("(") == before.count(")")


def rows_of(answer, ordered):
    rows = [tuple(plain(value, column) for value, column in zip(row, answer.columns)) for row in answer.rows]
    return rows if ordered else sorted(rows, key=repr)


def difference(statement, wanted, got):
    """In which way two answers differ; None: in none."""
    if got.code == "gone":
        return "gone"
    if CANCELED in (wanted.code, got.code):
        return None if wanted.code == CANCELED else "gone"
    if wanted.code or got.code:
        if wanted.code == got.code:
            return None
        return "lenient" if not got.code else "refused" if not wanted.code else "code"
    if (wanted.columns is None) != (got.columns is None) or len(wanted.columns or []) != len(got.columns or []):
        return "wrong"
    if wanted.columns is None:
        return None
    ordered = is_ordered(statement)
    if rows_of(wanted, ordered) != rows_of(got, ordered):
        return "wrong"
    if [column.type for column in wanted.columns] != [column.type for column in got.columns]:
        return "type"
    if [column.name for column in wanted.columns] != [column.name for column in got.columns]:
        return "name"
    return None


def shape(statement):
    """A statement without its values, so that those that differ in the same way stand together."""
    text = re.sub(r"'(?:[^']|'')*'::", "::", statement)
    text = re.sub(r"'(?:[^']|'')*'", "'", text)
    return re.sub(r"\b\d+(\.\d+)?\b", "0", text)[:160]


def known():
    """What is known to be answered otherwise, as patterns."""
    entries = []
    with open(os.path.join(HERE, "known.txt")) as file:
        for line in file.read().split("\n"):
            if line.strip() and not line.startswith("#"):
                entries.append(re.compile(line))
    return entries


def outcome(answer):
    if answer.code:
        return f"{answer.code} {answer.message or ''}"
    types = [column.type for column in answer.columns or []]
    return f"{answer.rows[:12]} of {types} {[column.name for column in answer.columns or []]}"


def compare(statements, reference, server, arguments, entries):
    """The number of statements, of other differences by way, and what is to be shown by way and shape."""
    count, ways, found = 0, collections.Counter(), collections.defaultdict(list)
    for kind, statement in statements:
        wanted = reference(statement)
        got = server.ask(statement)
        count += 1
        way = difference(statement, wanted, got)
        if arguments.show and arguments.show in statement:
            print(f"{way}: {statement}\n    PostgreSQL: {outcome(wanted)}\n    millrace:   {outcome(got)}")
        if way is None:
            continue
        # What is looked for: the statement, and the messages of both.
        text = f"{statement} => {outcome(wanted)} => {outcome(got)}"
        is_fault = way in FAULTS and not any(pattern.search(text) for pattern in entries)
        ways[way if is_fault or way not in FAULTS else f"known {way}"] += 1
        if is_fault or arguments.all:
            found[(way, shape(statement))].append((statement, wanted, got))
    return count, ways, found


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--count", type=int, default=5000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", choices=list(MAKERS))
    parser.add_argument("--record", help="ask PostgreSQL alone, and keep its answers in this file")
    parser.add_argument("--against", help="compare with the answers in this file")
    parser.add_argument("--ports", help="compare two servers that run already: PostgreSQL's port, millrace's")
    parser.add_argument("--all", action="store_true", help="also what is known to differ")
    parser.add_argument("--show", help="print the answers to the statements with this in them")
    arguments = parser.parse_args()
    statements = of_seed(arguments.seed, arguments.count, arguments.only)
    with tempfile.TemporaryDirectory() as directory:
        servers = []

        def started(server):
            servers.append(server)
            if not server.start():
                sys.exit(f"{server.name} does not start")
            return server.port

        try:
            ports = [int(port) for port in arguments.ports.split(",")] if arguments.ports else [None, None]
            if arguments.against:
                with open(arguments.against) as file:
                    answers = {entry["statement"]: of_record(entry) for entry in map(json.loads, file)}
                statements = [("", statement) for statement in answers]
                reference = answers.__getitem__
            else:
                asked = Server(ports[0] or started(Postgres(directory)))
                reference = asked.ask
                if not arguments.ports:
                    for statement in SETUP:
                        asked.ask(statement)
            if arguments.record:
                with open(arguments.record, "w") as file:
                    for _, statement in statements:
                        print(json.dumps({"statement": statement, **recorded(reference(statement))}, ensure_ascii=False), file=file)
                return 0
            server = Server(ports[1] or started(Millrace(directory)))
            if not arguments.ports:
                for statement in SETUP:
                    server.ask(statement)
            count, ways, found = compare(statements, reference, server, arguments, known())
        finally:
            for server in servers:
                server.stop()
    for (way, form), cases in sorted(found.items(), key=lambda entry: (entry[0][0], -len(entry[1]))):
        statement, wanted, got = min(cases, key=lambda case: len(case[0]))
        print(f"{way} x {len(cases)}: {statement}\n    PostgreSQL: {outcome(wanted)[:400]}\n    millrace:   {outcome(got)[:400]}")
    print(f"{count} statements; {dict(ways)}")
    return 1 if any(ways[way] for way in FAULTS) else 0


if __name__ == "__main__":
    sys.exit(main())
