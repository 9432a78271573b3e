"""asyncpg: everything is binary and prepared, and the types of parameters are what the server says."""

import asyncio
import datetime
import decimal
import io
import uuid

import asyncpg

from cases import DATABASE, HOST, PORT, TYPES, USER, line, note, shown


def connect():
    return asyncpg.connect(host=HOST, port=PORT, user=USER, database=DATABASE, password="x", timeout=30)


async def case(name, future):
    try:
        line(name, shown(records(await future)))
    except Exception as error:
        line(name, note(error))


def records(value):
    if isinstance(value, asyncpg.Record):
        return dict(value)
    if isinstance(value, list):
        return [records(item) for item in value]
    return value


async def types(db):
    for name, texts in TYPES:
        array = name + "[]"
        for text in texts:
            got = None
            try:
                got = await db.fetchval(f"SELECT '{text.replace(chr(39), chr(39) * 2)}'::{name}")
                line(f"result {name} {text}", shown(got))
            except Exception as error:
                line(f"result {name} {text}", note(error))
                continue
            await case(f"parameter {name} {text}", db.fetchval(f"SELECT $1::{name}", got))
            await case(f"parameter as text {name} {text}", db.fetchval(f"SELECT $1::{name}::text", got))
            await case(f"array {name} {text}", db.fetchval(f"SELECT $1::{array}", [got, None, got]))
            await case(f"any {name} {text}", db.fetchval(
                f"SELECT count(*) FROM (VALUES ($1::{name})) t(x) WHERE x::text = ANY ($2::{array}::text[])", got, [got]))
        await case(f"null {name}", db.fetchval(f"SELECT $1::{name}", None))
        await case(f"empty array {name}", db.fetchval(f"SELECT $1::{array}", []))
        async def described():
            statement = await db.prepare(f"SELECT $1::{name} AS a, $2::{array} AS b")
            return [[(p.name, p.kind, p.schema) for p in statement.get_parameters()],
                    [(a.name, a.type.name, a.type.kind) for a in statement.get_attributes()]]
        await case(f"described {name}", described())


async def table_of_all(db):
    columns = ", ".join(f"c{i} {name}" for i, (name, _) in enumerate(TYPES) if name not in ("name", "oid"))
    await case("create table of all types", db.execute(f"CREATE TABLE all_types (id int PRIMARY KEY, {columns})"))
    for i, (name, texts) in enumerate(TYPES):
        if name in ("name", "oid"):
            continue
        for n, text in enumerate(texts):
            value = await db.fetchval(f"SELECT $1::text::{name}", text)
            await case(f"insert {name} {n}", db.execute(
                f"INSERT INTO all_types (id, c{i}) VALUES ($1, $2)", i * 10 + n, value))
            await case(f"select by {name} {n}", db.fetch(f"SELECT id, c{i} FROM all_types WHERE id = $1 AND c{i} IS NOT NULL", i * 10 + n))
            if name != "json":
                await case(f"equal {name} {n}", db.fetch(f"SELECT id FROM all_types WHERE c{i} = $1 ORDER BY id", value))
    await case("all of it", db.fetch("SELECT * FROM all_types ORDER BY id LIMIT 3"))
    await case("record", db.fetchval("SELECT t FROM all_types t WHERE id = 10"))
    out = io.BytesIO()
    await case("copy table out, binary", db.copy_from_table("all_types", output=out, format="binary"))
    await case("create copy", db.execute(f"CREATE TABLE all_copy (id int PRIMARY KEY, {columns})"))
    out.seek(0)
    await case("copy table in, binary", db.copy_to_table("all_copy", source=out, format="binary"))
    await case("count", db.fetchval("SELECT count(*) FROM all_copy"))
    await case("same", db.fetchval("SELECT count(*) FROM all_types a JOIN all_copy b USING (id) WHERE a.c2 IS NOT DISTINCT FROM b.c2 AND a.c8 IS NOT DISTINCT FROM b.c8 AND a.c14 IS NOT DISTINCT FROM b.c14 AND a.c6 IS NOT DISTINCT FROM b.c6"))


async def statements(db):
    await case("create", db.execute("CREATE TABLE t (id serial PRIMARY KEY, name text UNIQUE, n int CHECK (n > 0), at timestamptz DEFAULT now())"))
    await case("insert returning", db.fetchrow("INSERT INTO t (name, n) VALUES ($1, $2) RETURNING id, name, n", "a", 1))
    await case("insert status", db.execute("INSERT INTO t (name, n) VALUES ($1, $2)", "b", 2))
    await case("executemany", db.executemany("INSERT INTO t (name, n) VALUES ($1, $2)", [("c", 3), ("d", 4)]))
    await case("fetchmany", db.fetchmany("INSERT INTO t (name, n) VALUES ($1, $2) RETURNING id", [("e", 5), ("f", 6)]))
    await case("unique", db.execute("INSERT INTO t (name, n) VALUES ($1, $2)", "a", 9))
    await case("check", db.execute("INSERT INTO t (name, n) VALUES ($1, $2)", "z", -1))
    await case("in array", db.fetch("SELECT id, name FROM t WHERE id = ANY($1) ORDER BY id", [1, 3]))
    await case("in text array", db.fetch("SELECT id FROM t WHERE name = ANY($1) ORDER BY id", ["a", "d"]))
    await case("not in", db.fetch("SELECT id FROM t WHERE name <> ALL($1) ORDER BY id", ["a", "b", "c"]))
    await case("limit", db.fetch("SELECT id FROM t ORDER BY id LIMIT $1 OFFSET $2", 2, 1))
    await case("between", db.fetch("SELECT id FROM t WHERE n BETWEEN $1 AND $2 ORDER BY id", 2, 4))
    await case("like", db.fetch("SELECT id FROM t WHERE name LIKE $1 ORDER BY id", "%a%"))
    await case("coalesce", db.fetchval("SELECT coalesce($1, 5)", None))
    await case("twice", db.fetchval("SELECT $1::int + $1", 4))
    await case("unnest", db.fetch("SELECT * FROM unnest($1::int[], $2::text[]) AS u(a, b)", [1, 2], ["x", "y"]))
    await case("insert from unnest", db.execute("INSERT INTO t (name, n) SELECT * FROM unnest($1::text[], $2::int[])", ["u", "v"], [7, 8]))
    await case("update", db.execute("UPDATE t SET n = n + $1 WHERE name = $2", 10, "a"))
    await case("upsert", db.execute("INSERT INTO t (id, name, n) VALUES ($1, $2, $3) ON CONFLICT (id) DO UPDATE SET n = EXCLUDED.n + $3", 1, "a", 30))
    await case("after upsert", db.fetchrow("SELECT id, name, n FROM t WHERE id = 1"))
    await case("delete", db.execute("DELETE FROM t WHERE id = $1", 2))
    await case("now minus interval", db.fetchval("SELECT count(*) FROM t WHERE at > now() - $1::interval", datetime.timedelta(days=1)))
    await case("date plus", db.fetchval("SELECT $1::date + $2::int", datetime.date(2024, 2, 28), 2))
    await case("extract", db.fetchval("SELECT extract(epoch FROM $1::timestamptz)", datetime.datetime(2024, 1, 1, tzinfo=datetime.timezone.utc)))
    await case("case", db.fetchval("SELECT CASE WHEN $1 THEN 'yes' ELSE 'no' END", True))
    await case("concat", db.fetchval("SELECT 'x' || $1", "y"))
    await case("json field", db.fetchval("SELECT $1::jsonb -> 'a' ->> 0", '{"a": ["q"]}'))
    await case("json contains", db.fetchval("SELECT $1::jsonb @> $2::jsonb", '{"a": 1, "b": 2}', '{"a": 1}'))
    await case("numeric sum", db.fetchval("SELECT sum(x) FROM unnest($1::numeric[]) x", [decimal.Decimal("1.10"), decimal.Decimal("2.205")]))
    await case("generate_series", db.fetch("SELECT * FROM generate_series($1::int, $2) g", 1, 3))
    await case("values", db.fetch("SELECT * FROM (VALUES ($1::int, $2::text), (2, 'b')) v(a, b)", 1, "a"))
    await case("nextval", db.fetchval("SELECT nextval($1)", "t_id_seq"))
    await case("currval", db.fetchval("SELECT currval('t_id_seq')"))
    await case("serial sequence", db.fetchval("SELECT pg_get_serial_sequence('t', 'id')"))
    await case("record of two", db.fetchval("SELECT ROW(1, 'a'::text)"))
    await case("array of arrays", db.fetchval("SELECT ARRAY[ARRAY[1, 2], ARRAY[3, 4]]"))
    await case("two-dimensional parameter", db.fetchval("SELECT $1::int[]", [[1, 2], [3, 4]]))
    await case("array_agg", db.fetchval("SELECT array_agg(id ORDER BY id) FROM t"))
    await case("regclass", db.fetchval("SELECT 't'::regclass"))
    await case("regclass parameter", db.fetchval("SELECT 't'::regclass::oid = $1::regclass::oid", "t"))
    await case("regtype", db.fetchval("SELECT 'int4'::regtype"))
    await case("name", db.fetchval("SELECT current_user"))
    await case("relname", db.fetchrow("SELECT relname, relkind, relnatts FROM pg_class WHERE oid = 't'::regclass"))
    await case("char", db.fetchval("SELECT 'a'::\"char\""))
    await case("void", db.fetchval("SELECT pg_sleep(0)"))
    await case("syntax", db.fetch("SELEC 1"))
    await case("no table", db.fetch("SELECT * FROM nowhere"))
    await case("no column", db.fetch("SELECT nothing FROM t"))
    await case("by zero", db.fetch("SELECT 1 / $1::int", 0))
    await case("bad argument", db.fetchval("SELECT $1::int", "text"))
    await case("bad uuid", db.fetchval("SELECT $1::uuid", uuid.UUID("01234567-89ab-cdef-0123-456789abcdef")))
    await case("no type", db.fetchval("SELECT $1", "x"))
    await case("set of settings", db.fetchval("SELECT current_setting('server_version_num')::int >= 150000"))
    await case("settings", db.fetchval("SHOW standard_conforming_strings"))
    await case("script", db.execute("CREATE TABLE s1 (a int); INSERT INTO s1 VALUES (1), (2); DROP TABLE s1"))


async def transactions(db):
    async def rolled_back():
        try:
            async with db.transaction():
                await db.execute("CREATE TABLE tx (a int PRIMARY KEY)")
                await db.execute("INSERT INTO tx VALUES (1)")
                async with db.transaction():
                    await db.execute("INSERT INTO tx VALUES ($1)", 2)
                try:
                    async with db.transaction():
                        await db.execute("INSERT INTO tx VALUES (1)")
                except asyncpg.UniqueViolationError:
                    pass
                seen = await db.fetch("SELECT a FROM tx ORDER BY a")
                raise KeyError([row["a"] for row in seen])
        except KeyError as seen:
            return [seen.args, await db.fetchval("SELECT to_regclass('tx') IS NULL")]
    await case("transaction with a savepoint", rolled_back())

    async def cursor():
        got = []
        async with db.transaction():
            async for row in db.cursor("SELECT * FROM generate_series(1, $1::int) g", 7, prefetch=3):
                got.append(row["g"])
            cursor = await db.cursor("SELECT * FROM generate_series(1, 10) g")
            got.append([r["g"] for r in await cursor.fetch(2)])
            got.append((await cursor.fetchrow())["g"])
        return got
    await case("cursor", cursor())
    async def forward():
        async with db.transaction():
            cursor = await db.cursor("SELECT * FROM generate_series(1, 10) g")
            await cursor.forward(3)
            return (await cursor.fetchrow())["g"]
    await case("cursor that moves", forward())
    for level in ("serializable", "repeatable_read", "read_committed"):
        async def isolated():
            other = await connect()
            try:
                async with other.transaction(isolation=level, readonly=True):
                    return await other.fetchval("SELECT 1")
            finally:
                await other.close()
        await case(f"isolation {level}", isolated())


async def copies(db):
    await case("copy target", db.execute("CREATE TABLE c (a int PRIMARY KEY, b text, d numeric(6,2), at timestamp, xs int[])"))
    rows = [(1, "x", decimal.Decimal("1.50"), datetime.datetime(2024, 1, 2, 3, 4, 5), [1, None]), (2, None, None, None, [])]
    await case("copy records", db.copy_records_to_table("c", records=rows))
    await case("copy csv", db.copy_to_table("c", source=io.BytesIO(b"3,y,2.25,2024-01-01,{3}\n4,,,,\n"), format="csv"))
    await case("copied", db.fetch("SELECT * FROM c ORDER BY a"))
    for form in ("text", "csv", "binary"):
        async def out():
            sink = io.BytesIO()
            status = await db.copy_from_query("SELECT * FROM c WHERE a < $1 ORDER BY a", 3, output=sink, format=form)
            return [status, sink.getvalue()]
        await case(f"copy query, {form}", out())
    await case("copy a bad row", db.copy_records_to_table("c", records=[(1, "x", None, None, None)]))
    await case("after it", db.fetchval("SELECT count(*) FROM c"))


async def notifications(db):
    other = await connect()
    heard = asyncio.get_running_loop().create_future()
    def hear(_connection, _pid, channel, payload):
        if not heard.done():
            heard.set_result([channel, payload])
    async def listen():
        await db.add_listener("news", hear)
        await other.execute("SELECT pg_notify('news', 'hello')")
        return await asyncio.wait_for(heard, 5)
    await case("listen and notify", listen())
    await case("unlisten", db.remove_listener("news", hear))

    async def locks():
        got = [await db.fetchval("SELECT pg_try_advisory_lock(42)"),
               await other.fetchval("SELECT pg_try_advisory_lock(42)"),
               await db.fetchval("SELECT pg_advisory_unlock(42)"),
               await other.fetchval("SELECT pg_try_advisory_lock(42)"),
               await other.fetchval("SELECT pg_advisory_unlock(42)")]
        return got
    await case("advisory locks", locks())
    await other.close()


async def introspection(db):
    await case("enum", db.execute("CREATE TYPE mood AS ENUM ('sad', 'ok'); DROP TYPE mood"))
    await case("type codec", db.set_type_codec("json", encoder=str, decoder=str, schema="pg_catalog"))
    await case("decoded by it", db.fetchval("SELECT '[1]'::json"))
    await case("reset", db.reset())
    await case("after reset", db.fetchval("SELECT 1"))


async def pool():
    async with asyncpg.create_pool(host=HOST, port=PORT, user=USER, database=DATABASE, password="x", min_size=2, max_size=4) as pool:
        return await asyncio.gather(*(pool.fetchval("SELECT $1::int * 2", n) for n in range(20)))


async def main():
    db = await connect()
    for part in (statements, transactions, copies, notifications, introspection, types, table_of_all):
        try:
            await part(db)
        except Exception as error:
            line(part.__name__, note(error))
    await case("pool", pool())
    await db.close()


asyncio.run(main())
