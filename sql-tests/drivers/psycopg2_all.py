"""psycopg2: transactions by default, parameters as literals, COPY by files, cursors on the server."""

import datetime
import decimal
import io
import select

import psycopg2
import psycopg2.extras
from psycopg2 import errors, extensions, sql

from cases import DATABASE, HOST, PORT, TYPES, USER, case

WHERE = dict(host=HOST, port=PORT, user=USER, dbname=DATABASE, password="x", connect_timeout=30)


def rows(db, statement, parameters=None):
    with db.cursor() as cursor:
        cursor.execute(statement, parameters)
        return None if cursor.description is None else [list(row) for row in cursor.fetchall()]


def types(db):
    for name, texts in TYPES:
        for text in texts:
            case(f"result {name} {text}", lambda: rows(db, f"SELECT %s::{name}", (text,)))
            db.rollback()
            case(f"array {name} {text}", lambda: rows(db, f"SELECT ARRAY[%s, NULL]::{name}[]", (text,)))
            db.rollback()
            def again():
                got = rows(db, f"SELECT %s::{name}", (text,))[0][0]
                if name in ("json", "jsonb"):
                    got = psycopg2.extras.Json(got)
                if isinstance(got, memoryview):
                    got = bytes(got)
                return rows(db, f"SELECT %s::{name}", (got,))
            case(f"parameter {name} {text}", again)
            db.rollback()
        def described():
            with db.cursor() as cursor:
                cursor.execute(f"SELECT NULL::{name} AS a, NULL::{name}[] AS b")
                return [[c.name, c.type_code, c.internal_size, c.precision, c.scale] for c in cursor.description]
        case(f"described {name}", described)
        db.rollback()


def transactions(db):
    def rolled_back():
        rows(db, "CREATE TABLE a (id serial PRIMARY KEY, v text)")
        rows(db, "INSERT INTO a (v) VALUES (%s)", ("x",))
        got = [rows(db, "SELECT * FROM a"), db.status == extensions.STATUS_IN_TRANSACTION]
        db.rollback()
        return got + [rows(db, "SELECT to_regclass('a') IS NULL")]
    case("rolled back", rolled_back)
    db.rollback()
    def kept():
        with db, db.cursor() as cursor:
            cursor.execute("CREATE TABLE a (id serial PRIMARY KEY, v text, n numeric(6,2), at timestamptz, xs int[])")
            psycopg2.extras.execute_values(cursor, "INSERT INTO a (v, n, xs) VALUES %s", [("x", 1, [1]), ("y", decimal.Decimal("2.5"), []), (None, None, None)])
            cursor.executemany("INSERT INTO a (v, at) VALUES (%s, %s)", [("q", datetime.datetime(2024, 1, 1)), ("r", None)])
            psycopg2.extras.execute_batch(cursor, "UPDATE a SET n = %s WHERE id = %s", [(7, 1), (8, 2)])
            return cursor.rowcount
    case("kept", kept)
    case("read", lambda: rows(db, "SELECT id, v, n, at::text, xs FROM a ORDER BY id"))
    db.rollback()
    case("in", lambda: rows(db, "SELECT id FROM a WHERE id IN %s ORDER BY id", ((1, 3),)))
    case("any", lambda: rows(db, "SELECT id FROM a WHERE v = ANY(%s) ORDER BY id", (["x", "y"],)))
    case("named", lambda: rows(db, "SELECT %(a)s + %(b)s * %(a)s", {"a": 2, "b": 3}))
    case("composed", lambda: rows(db, sql.SQL("SELECT {} FROM {} WHERE v = {}").format(sql.Identifier("id"), sql.Identifier("a"), sql.Literal("x"))))
    case("interval", lambda: rows(db, "SELECT %s + %s", (datetime.datetime(2024, 1, 1), datetime.timedelta(days=1, seconds=3))))
    db.rollback()
    def caught():
        got = []
        with db.cursor() as cursor:
            cursor.execute("SAVEPOINT s")
            try:
                cursor.execute("INSERT INTO a (id) VALUES (1)")
            except errors.UniqueViolation as error:
                got.append([error.pgcode, error.diag.constraint_name, error.diag.table_name, error.diag.schema_name])
            cursor.execute("ROLLBACK TO s")
            cursor.execute("SELECT count(*) FROM a")
            got.append(cursor.fetchone()[0])
        db.rollback()
        return got
    case("caught", caught)
    def not_null():
        try:
            rows(db, "INSERT INTO a (id) VALUES (NULL)")
        except errors.NotNullViolation as error:
            return [error.diag.column_name, error.diag.table_name, error.diag.schema_name]
        finally:
            db.rollback()
    case("not null", not_null)
    def named_cursor():
        with db.cursor("c", scrollable=False) as cursor:
            cursor.itersize = 2
            cursor.execute("SELECT g FROM generate_series(1, 7) g")
            got = [row[0] for row in cursor]
        db.rollback()
        return got
    case("named cursor", named_cursor)
    def holding():
        cursor = db.cursor("h", withhold=True)
        cursor.execute("SELECT g FROM generate_series(1, 4) g")
        got = [cursor.fetchone()]
        db.commit()
        got += cursor.fetchmany(2)
        cursor.close()
        db.rollback()
        return got
    case("holding cursor", holding)
    db.rollback()
    def dictionaries():
        with db.cursor(cursor_factory=psycopg2.extras.RealDictCursor) as cursor:
            cursor.execute("SELECT id, v FROM a ORDER BY id LIMIT 2")
            return [dict(row) for row in cursor.fetchall()]
    case("dictionaries", dictionaries)
    db.rollback()
    for level in ("READ COMMITTED", "REPEATABLE READ", "SERIALIZABLE", "READ UNCOMMITTED"):
        def isolated():
            try:
                db.set_session(isolation_level=level)
                return rows(db, "SHOW transaction_isolation")
            finally:
                db.rollback()
                db.set_session(isolation_level="DEFAULT")
        case(f"isolation {level}", isolated)
        db.rollback()
    def read_only():
        db.set_session(readonly=True)
        try:
            rows(db, "DELETE FROM a")
        finally:
            db.rollback()
            db.set_session(readonly="DEFAULT")
    case("read only", read_only)
    db.rollback()


def copies(db):
    def copied():
        with db.cursor() as cursor:
            cursor.execute("CREATE TABLE b (a int PRIMARY KEY, t text, c char(3))")
            cursor.copy_from(io.StringIO("1\tx\tab\n2\t\\N\t\\N\n"), "b")
            cursor.copy_expert("COPY b FROM STDIN WITH (FORMAT csv, HEADER true, NULL 'nil')", io.StringIO("a,t,c\n3,nil,z\n"))
            out = io.StringIO()
            cursor.copy_to(out, "b")
            csv = io.StringIO()
            cursor.copy_expert("COPY (SELECT * FROM b ORDER BY a) TO STDOUT WITH CSV HEADER", csv)
            binary = io.BytesIO()
            cursor.copy_expert("COPY b (a, t) TO STDOUT (FORMAT BINARY)", binary)
            got = [out.getvalue(), csv.getvalue(), binary.getvalue()]
            binary.seek(0)
            cursor.execute("DELETE FROM b")
            cursor.copy_expert("COPY b (a, t) FROM STDIN (FORMAT BINARY)", binary)
            cursor.execute("SELECT * FROM b ORDER BY a")
            return got + [cursor.fetchall()]
    case("copies", copied)
    db.rollback()


def others(db):
    db.autocommit = True
    def listening():
        other = psycopg2.connect(**WHERE)
        other.autocommit = True
        rows(db, "LISTEN news")
        rows(other, "NOTIFY news, 'a'")
        select.select([db], [], [], 5)
        db.poll()
        got = [[note.channel, note.payload] for note in db.notifies]
        rows(db, "UNLISTEN news")
        other.close()
        return got
    case("listening", listening)
    case("status", lambda: [db.encoding, db.get_parameter_status("server_encoding"), db.get_parameter_status("DateStyle"),
                            db.get_parameter_status("integer_datetimes"), db.get_parameter_status("standard_conforming_strings"), db.server_version >= 150000])
    def hstore():
        psycopg2.extras.register_hstore(db)
    case("no hstore", hstore)
    case("uuid", lambda: [psycopg2.extras.register_uuid() is not None, rows(db, "SELECT '01234567-89ab-cdef-0123-456789abcdef'::uuid")])
    def composite():
        rows(db, "CREATE TYPE pair AS (a int, b text)")
        psycopg2.extras.register_composite("pair", db)
        got = rows(db, "SELECT (1, 'x')::pair")
        rows(db, "DROP TYPE pair")
        return got
    case("composite", composite)
    case("discard", lambda: rows(db, "DISCARD ALL"))
    def reset():
        db.reset()
        return rows(db, "SELECT 1")
    case("reset", reset)


def main():
    db = psycopg2.connect(**WHERE)
    for part in (transactions, copies, types, others):
        case(part.__name__, lambda: part(db))
        db.rollback()


main()
