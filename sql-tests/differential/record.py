#!/usr/bin/env python3
"""Writes `slt/postgresql/*.slt` from `areas/*.sql`: the same statements, with the answers that PostgreSQL gives.

    sql-tests/differential/record.py [AREA ..]

Statements end with `;` at the end of a line. `-- comment` lines stay. The statement behind `-- differs: why` is not recorded, only
named: millrace answers otherwise, for that reason. `-- refused CODE: why` records that millrace refuses it. Neither is sent to
PostgreSQL, so that what follows finds the same rows in both.
"""

import glob
import os
import re
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.dirname(HERE))
from client import Client
from run import NUMERIC, NUMERICS
from servers import Postgres

TARGET = os.path.join(os.path.dirname(HERE), "slt", "postgresql")


def statements(text):
    """Pairs of the lines of comment before a statement, and the statement."""
    comments, lines = [], []
    for line in text.split("\n"):
        if not lines and line.startswith("--"):
            comments.append(line[2:].strip())
        elif line.strip() or lines:
            lines.append(line.rstrip())
            if line.rstrip().endswith(";"):
                yield comments, "\n".join(lines).rstrip(";")
                comments, lines = [], []
    if comments:
        yield comments, None


def shown(value, column):
    if value is None:
        return "NULL"
    return "(empty)" if value == "" else re.sub(r"\s+", " ", value)


def has_other_zeros(value, column):
    """Whether a value is a numeric with a fraction whose type does not say how many digits it has."""
    return value is not None and column.type in (NUMERIC, NUMERICS) and column.modifier < 0 and "." in value


def is_ordered(statement):
    """Whether it says in what order the rows come, outside of all parentheses."""
    text = re.sub(r"'(?:[^']|'')*'", "", statement)
    places = [found.start() for found in re.finditer(r"\border by\b", text, re.IGNORECASE)]
    return any(text[:place].count("(") == text[:place].count(")") for place in places)


def record(client, statement):
    """A statement with its answer, in the form of sqllogictest."""
    answer = client.ask(statement)
    if answer.code:
        return f"statement error ({answer.code})\n{statement}"
    if answer.columns is None:
        return f"statement ok\n{statement}"
    if any(has_other_zeros(value, column) for row in answer.rows for value, column in zip(row, answer.columns)):
        return f"# The numerics of its answer may have other zeros at the end.\nstatement ok\n{statement}"
    kinds = "T" * max(len(answer.columns), 1)
    order = "" if is_ordered(statement) else " rowsort"
    rows = [" ".join(shown(value, column) for value, column in zip(row, answer.columns)) for row in answer.rows]
    rows = sorted(rows) if order else rows
    # The runner cannot read arrays of several dimensions, and of rows, in the binary format, and shows instants in UTC.
    texts = [value or "" for row in answer.rows for value in row]
    is_textual = any("{{" in text or re.match(r'\{"?\(', text) or re.search(r"^\d+-.*\d-0\d$", text) for text in texts)
    skipped = ["skipif extended"] if is_textual else []
    return "\n".join([*skipped, f"query {kinds}{order}", statement, "----", *rows])


def area(client, path):
    name = os.path.basename(path)[:-4]
    blocks = []
    with open(path) as file:
        for comments, statement in statements(file.read()):
            rule = next((comment for comment in comments if re.match(r"(differs:|refused )", comment)), None)
            said = [f"# {comment}" if comment else "#" for comment in comments if comment is not rule]
            if statement is None:
                blocks.append("\n".join(said))
                continue
            if rule is None:
                block = record(client, statement)
            else:
                way, _, why = rule.partition(":")
                said.append(f"# PostgreSQL answers this otherwise: {why.strip()}")
                if way == "differs":
                    block = "\n".join("# " + line for line in statement.split("\n"))
                else:
                    block = f"statement error ({way.split()[1]})\n{statement}"
            blocks.append("\n".join([*said, block]))
    with open(os.path.join(TARGET, name + ".slt"), "w") as file:
        file.write(f"# Written by differential/record.py from {name}.sql, with the answers of PostgreSQL.\n\n")
        file.write("\n\n".join(blocks) + "\n")


def main():
    os.makedirs(TARGET, exist_ok=True)
    paths = sorted(glob.glob(os.path.join(HERE, "areas", "*.sql")))
    paths = [path for path in paths if len(sys.argv) == 1 or os.path.basename(path)[:-4] in sys.argv[1:]]
    with tempfile.TemporaryDirectory() as directory:
        server = Postgres(directory)
        try:
            if not server.start():
                sys.exit("there is no PostgreSQL to ask")
            for path in paths:
                # Each area begins with nothing.
                client = Client(server.port, database="postgres")
                client.ask("DROP DATABASE IF EXISTS millrace WITH (FORCE)")
                client.ask("CREATE DATABASE millrace TEMPLATE template0")
                client.close()
                client = Client(server.port)
                area(client, path)
                client.close()
        finally:
            server.stop()


if __name__ == "__main__":
    main()
