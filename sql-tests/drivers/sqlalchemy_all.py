"""SQLAlchemy over psycopg 3, psycopg2 and asyncpg: tables are made, reflected, filled, read by its ORM; pandas writes and reads them."""

import datetime
import decimal
import uuid

import pandas
import sqlalchemy as sa
from sqlalchemy import orm
from sqlalchemy.dialects import postgresql as pg
from sqlalchemy.exc import DBAPIError

import cases
from cases import DATABASE, HOST, PORT, USER, case, shown

metadata = sa.MetaData()
people = sa.Table(
    "people", metadata,
    sa.Column("id", sa.Integer, primary_key=True),
    sa.Column("name", sa.String(40), nullable=False, unique=True, comment="who"),
    sa.Column("email", sa.Text, index=True),
    sa.Column("balance", sa.Numeric(12, 2), server_default="0"),
    sa.Column("score", sa.Float),
    sa.Column("rank", sa.SmallInteger),
    sa.Column("big", sa.BigInteger, sa.Identity(start=100)),
    sa.Column("born", sa.Date),
    sa.Column("woken", sa.Time),
    sa.Column("seen", sa.DateTime(timezone=True), server_default=sa.func.now()),
    sa.Column("plain", sa.DateTime),
    sa.Column("precise", pg.TIMESTAMP(precision=3)),
    sa.Column("took", sa.Interval),
    sa.Column("active", sa.Boolean, server_default=sa.true()),
    sa.Column("key", sa.Uuid),
    sa.Column("doc", pg.JSONB),
    sa.Column("plain_doc", sa.JSON),
    sa.Column("tags", pg.ARRAY(sa.Text)),
    sa.Column("numbers", pg.ARRAY(sa.Integer)),
    sa.Column("data", sa.LargeBinary),
    sa.Column("code", sa.CHAR(3)),
    sa.Column("doubled", sa.Integer, sa.Computed("rank * 2", persisted=True)),
    sa.CheckConstraint("score >= 0", name="score_is_positive"),
    sa.UniqueConstraint("email", "code", name="email_and_code"),
    comment="all of them",
)
pairs = sa.Table("pairs", metadata, sa.Column("a", sa.Integer, primary_key=True), sa.Column("b", sa.Integer, primary_key=True), sa.Column("c", sa.Integer),
                 sa.Index("pairs_by_c", "c"))


def reflection(engine):
    inspector = sa.inspect(engine)
    case("table names", lambda: sorted(inspector.get_table_names()))
    case("schema names", lambda: sorted(name for name in inspector.get_schema_names() if name not in ("mr_catalog", "pg_toast")))
    case("has table", lambda: [inspector.has_table("people"), inspector.has_table("nobody")])
    case("has index", lambda: [inspector.has_index("pairs", "pairs_by_c"), inspector.has_index("pairs", "nothing")])
    case("view names", lambda: [inspector.get_view_names(), inspector.get_materialized_view_names()])
    case("view definition", lambda: "people" in inspector.get_view_definition("named"))
    case("temporary tables", lambda: inspector.get_temp_table_names())
    case("sequence names", lambda: sorted(inspector.get_sequence_names()))
    for table in ("people", "pairs", "named", "counted"):
        def columns():
            return [[column["name"], str(column["type"]), column["nullable"], column["default"], column["autoincrement"], column["comment"],
                     sorted(column.get("identity", {}).items()), column.get("computed")] for column in inspector.get_columns(table)]
        case(f"columns of {table}", columns)
        case(f"key of {table}", lambda: inspector.get_pk_constraint(table))
        case(f"unique of {table}", lambda: sorted(map(shown, inspector.get_unique_constraints(table))))
        case(f"checks of {table}", lambda: sorted(map(shown, inspector.get_check_constraints(table))))
        case(f"indexes of {table}", lambda: sorted(map(shown, inspector.get_indexes(table))))
        case(f"foreign keys of {table}", lambda: inspector.get_foreign_keys(table))
        case(f"comment of {table}", lambda: inspector.get_table_comment(table))
        case(f"options of {table}", lambda: inspector.get_table_options(table))
    case("no such table", lambda: inspector.get_columns("nobody"))
    case("enums", lambda: inspector.get_enums())
    case("domains", lambda: inspector.get_domains())
    def reflected():
        found = sa.MetaData()
        found.reflect(engine, views=True)
        return sorted([name, [column.name for column in table.primary_key], len(table.columns), len(table.indexes)] for name, table in found.tables.items())
    case("reflected", reflected)
    def multi():
        return [sorted(map(str, inspector.get_multi_columns())), sorted(map(str, inspector.get_multi_pk_constraint())), sorted(map(str, inspector.get_multi_indexes()))]
    case("many at once", multi)


class Base(orm.DeclarativeBase):
    metadata = sa.MetaData()


class Author(Base):
    __tablename__ = "authors"
    id: orm.Mapped[int] = orm.mapped_column(primary_key=True)
    name: orm.Mapped[str]
    books: orm.Mapped[list["Book"]] = orm.relationship(back_populates="author", primaryjoin="Author.id == foreign(Book.author_id)", order_by="Book.id")


class Book(Base):
    __tablename__ = "books"
    id: orm.Mapped[int] = orm.mapped_column(primary_key=True)
    author_id: orm.Mapped[int]
    title: orm.Mapped[str]
    price: orm.Mapped[decimal.Decimal | None] = orm.mapped_column(sa.Numeric(8, 2))
    made: orm.Mapped[datetime.datetime] = orm.mapped_column(sa.DateTime(timezone=True), server_default=sa.func.now())
    author: orm.Mapped[Author] = orm.relationship(back_populates="books", primaryjoin="Author.id == foreign(Book.author_id)")


def mapped(engine):
    case("create all", lambda: Base.metadata.create_all(engine))
    case("create all again", lambda: Base.metadata.create_all(engine))
    def add():
        with orm.Session(engine) as session:
            session.add_all([Author(name="Ann", books=[Book(title="A", price=decimal.Decimal("9.50")), Book(title="B")]), Author(name="Ben", books=[Book(title="C")])])
            session.commit()
            return session.scalar(sa.select(sa.func.count()).select_from(Book))
    case("add", add)
    def read():
        with orm.Session(engine) as session:
            authors = session.scalars(sa.select(Author).options(orm.selectinload(Author.books)).order_by(Author.id)).all()
            joined = session.execute(sa.select(Author.name, Book.title).join(Author.books).order_by(Book.id)).all()
            eager = session.scalars(sa.select(Author).options(orm.joinedload(Author.books)).order_by(Author.id).limit(1)).unique().all()
            return [[(author.name, [book.title for book in author.books]) for author in authors], [list(row) for row in joined], [len(author.books) for author in eager]]
    case("read", read)
    def change():
        with orm.Session(engine) as session:
            book = session.get(Book, 1)
            book.price += 1
            session.delete(session.get(Book, 3))
            session.flush()
            with session.begin_nested():
                session.add(Book(author_id=2, title="D"))
            session.commit()
            return [(book.id, book.title, book.price) for book in session.scalars(sa.select(Book).order_by(Book.id))]
    case("change", change)
    def undone():
        with orm.Session(engine) as session:
            try:
                with session.begin_nested():
                    session.add(Book(id=1, author_id=2, title="twice"))
                    session.flush()
            except DBAPIError as error:
                got = [type(error).__name__]
            return got + [session.scalar(sa.select(sa.func.count()).select_from(Book))]
    case("undone", undone)
    def bulk():
        with orm.Session(engine) as session:
            got = session.scalars(sa.insert(Book).returning(Book.id, sort_by_parameter_order=True), [{"author_id": 1, "title": f"t{n}"} for n in range(5)]).all()
            session.execute(sa.update(Book).where(Book.title.like("t%")).values(price=Book.author_id * 2))
            session.execute(sa.delete(Book).where(Book.title.in_(["t1", "t2"])))
            session.commit()
            return [len(got), sorted(session.scalars(sa.select(Book.title)).all())]
    case("bulk", bulk)
    def upsert():
        with engine.begin() as db:
            statement = pg.insert(Book.__table__).values(id=1, author_id=1, title="new")
            statement = statement.on_conflict_do_update(index_elements=["id"], set_={"title": statement.excluded.title}).returning(Book.__table__.c.title)
            return db.execute(statement).scalar()
    case("upsert", upsert)
    def queries():
        with orm.Session(engine) as session:
            window = sa.func.row_number().over(partition_by=Book.author_id, order_by=Book.id)
            ranked = sa.select(Book.title, window.label("n")).subquery()
            top = session.execute(sa.select(ranked.c.title).where(ranked.c.n == 1).order_by(ranked.c.title)).all()
            cte = sa.select(Book.author_id, sa.func.count().label("n")).group_by(Book.author_id).cte("counts")
            counts = session.execute(sa.select(Author.name, cte.c.n).join_from(Author, cte, Author.id == cte.c.author_id).order_by(Author.id)).all()
            exists = session.scalars(sa.select(Author.name).where(Author.books.any(Book.price > 5)).order_by(Author.id)).all()
            agg = session.execute(sa.select(sa.func.array_agg(pg.aggregate_order_by(Book.title, Book.title.desc())))).all()
            return [[list(row) for row in top], [list(row) for row in counts], exists, len(agg)]
    case("queries", queries)
    def paged():
        with orm.Session(engine) as session:
            return session.scalars(sa.select(Book.id).order_by(Book.id).limit(2).offset(1)).all()
    case("paged", paged)
    def streamed():
        with engine.connect() as db:
            return [row[0] for row in db.execution_options(stream_results=True, yield_per=2).execute(sa.select(Book.id).order_by(Book.id))][:3]
    case("streamed", streamed)
    def for_update():
        with orm.Session(engine) as session:
            return session.scalars(sa.select(Book.title).where(Book.id == 1).with_for_update()).all()
    case("for update", for_update)
    case("drop all", lambda: Base.metadata.drop_all(engine))


def rows_of_all_types(engine):
    values = dict(name="Ann", email="a@x", balance=decimal.Decimal("12.30"), score=1.5, rank=3, born=datetime.date(2000, 2, 29), woken=datetime.time(7, 30),
                  seen=datetime.datetime(2024, 1, 1, 12, tzinfo=datetime.timezone.utc), plain=datetime.datetime(2024, 1, 1, 12, 0, 0, 123456),
                  precise=datetime.datetime(2024, 1, 1, 12, 0, 0, 123456), took=datetime.timedelta(days=1, seconds=2), key=uuid.UUID(int=5),
                  doc={"a": [1, {"b": None}]}, plain_doc=[1, "x"], tags=["a", "b,c"], numbers=[1, 2], data=b"\x00\xff", code="ab")
    def insert():
        with engine.begin() as db:
            got = db.execute(sa.insert(people).returning(people.c.id, people.c.big, people.c.doubled), values).one()
            db.execute(sa.insert(people), [dict(name="Ben"), dict(name="Cid")])
            return list(got)
    case("insert all types", insert)
    def select():
        with engine.connect() as db:
            row = db.execute(sa.select(people).where(people.c.id == 1)).mappings().one()
            return {name: row[name] for name in values} | {"active": row["active"]}
    case("select all types", select)
    conditions = {
        "in": people.c.name.in_(["Ann", "Cid"]), "not in": people.c.name.not_in(["Ann"]), "empty in": people.c.id.in_([]),
        "ilike": people.c.name.ilike("a%"), "contains": people.c.tags.contains(["a"]), "any": people.c.tags.any("a"), "overlap": people.c.tags.overlap(["a", "z"]),
        "json": people.c.doc["a"][0].astext == "1", "json has": people.c.doc.has_key("a"), "json contains": people.c.doc.contains({"a": [1]}),
        "is null": people.c.email.is_(None), "distinct": people.c.email.is_distinct_from("a@x"), "date": people.c.born == datetime.date(2000, 2, 29),
        "numeric": people.c.balance > decimal.Decimal("1.5"), "uuid": people.c.key == uuid.UUID(int=5), "interval": people.c.took > datetime.timedelta(hours=1),
        "between": people.c.id.between(1, 2), "extract": sa.extract("year", people.c.born) == 2000, "regexp": people.c.name.regexp_match("^A"),
        "cast": sa.cast(people.c.id, sa.Text) == "1", "true": people.c.active.is_(True), "bytes": people.c.data == b"\x00\xff", "trunc": sa.func.date_trunc("day", people.c.seen) == datetime.datetime(2024, 1, 1, tzinfo=datetime.timezone.utc),
    }
    for name, condition in conditions.items():
        def run():
            with engine.connect() as db:
                return db.execute(sa.select(people.c.name).where(condition).order_by(people.c.id)).scalars().all()
        case(f"where {name}", run)
    case("update", lambda: run_all(engine, sa.update(people).where(people.c.name == "Ben").values(score=2, tags=["z"]).returning(people.c.name, people.c.tags)))
    case("check", lambda: run_all(engine, sa.update(people).values(score=-1)))
    case("unique", lambda: run_all(engine, sa.insert(people).values(name="Ann")))
    case("case", lambda: run_all(engine, sa.select(sa.case((people.c.id == 1, "one"), else_="other")).order_by(people.c.id)))
    case("string_agg", lambda: run_all(engine, sa.select(sa.func.string_agg(people.c.name, pg.aggregate_order_by(sa.literal_column("','"), people.c.name)))))
    case("union", lambda: sorted(run_all(engine, sa.union_all(sa.select(sa.literal(1)), sa.select(sa.literal(2))))))
    case("values", lambda: run_all(engine, sa.select(sa.values(sa.column("a", sa.Integer), sa.column("b", sa.String), name="v").data([(1, "x"), (2, "y")]))))
    case("lateral", lambda: run_all(engine, sa.select(people.c.name, sa.func.unnest(people.c.tags)).where(people.c.id == 1)))
    case("jsonb_each", lambda: run_all(engine, sa.text("SELECT key FROM jsonb_each('{\"a\": 1}')")))
    case("sequence", lambda: run_all(engine, sa.select(sa.func.nextval("people_id_seq") > 3)))
    case("text with parameters", lambda: run_all(engine, sa.text("SELECT CAST(:a AS INTEGER) + 1, :b || 'x'").bindparams(a=1, b="y")))


def run_all(engine, statement):
    with engine.begin() as db:
        result = db.execute(statement)
        return [list(row) for row in result] if result.returns_rows else result.rowcount


def frames(engine):
    frame = pandas.DataFrame({"i": [1, 2, 3], "f": [0.5, None, 2.5], "s": ["a", None, "c"], "b": [True, False, True],
                              "t": pandas.to_datetime(["2024-01-01", "2024-01-02", None])})
    case("to_sql", lambda: frame.to_sql("frame", engine, index=False))
    case("to_sql, again", lambda: frame.to_sql("frame", engine, index=False))
    case("to_sql, append", lambda: frame.to_sql("frame", engine, index=False, if_exists="append", method="multi"))
    case("to_sql, with an index", lambda: frame.to_sql("frame_i", engine, index=True, index_label="id"))
    case("read_sql", lambda: pandas.read_sql("SELECT * FROM frame ORDER BY i", engine).astype(str).values.tolist())
    case("read_sql, parameters", lambda: pandas.read_sql(sa.text("SELECT i FROM frame WHERE i > :n ORDER BY i"), engine, params={"n": 1}).values.tolist())
    case("read_sql, types", lambda: [str(kind) for kind in pandas.read_sql("SELECT * FROM frame ORDER BY i", engine).dtypes])
    case("read_sql_table", lambda: sorted(pandas.read_sql_table("frame_i", engine).columns))
    case("read_sql, pieces", lambda: [len(part) for part in pandas.read_sql("SELECT * FROM frame", engine, chunksize=4)])
    case("to_sql, replace", lambda: frame.to_sql("frame", engine, index=False, if_exists="replace"))
    case("read_sql, replaced", lambda: pandas.read_sql("SELECT count(*) AS n FROM frame", engine).values.tolist())
    def dropped():
        with engine.begin() as db:
            db.execute(sa.text("DROP TABLE frame"))
            db.execute(sa.text("DROP TABLE frame_i"))
    case("drop", dropped)


def main():
    for driver in ("psycopg", "psycopg2"):
        url = sa.URL.create(f"postgresql+{driver}", USER, "x", HOST, PORT, DATABASE)
        engine = sa.create_engine(url)
        print(f"# {driver}")
        def all_of_it():
            case("version", lambda: engine.dialect.name)
            case("create", lambda: metadata.create_all(engine))
            case("create a view", lambda: run_all(engine, sa.text("CREATE VIEW named AS SELECT id, name FROM people")))
            case("create a materialized view", lambda: run_all(engine, sa.text("CREATE MATERIALIZED VIEW counted AS SELECT code, count(*) AS n FROM people GROUP BY code")))
            reflection(engine)
            rows_of_all_types(engine)
            mapped(engine)
            frames(engine)
            case("drop views", lambda: [run_all(engine, sa.text("DROP VIEW named")), run_all(engine, sa.text("DROP MATERIALIZED VIEW counted"))])
            case("drop", lambda: metadata.drop_all(engine))
        plain = cases.line
        cases.line = lambda name, outcome: plain(f"{driver}: {name}", outcome)
        case("all", all_of_it)
        cases.line = plain
        engine.dispose()
    for level in ("READ COMMITTED", "REPEATABLE READ", "SERIALIZABLE", "AUTOCOMMIT"):
        def isolated():
            engine = sa.create_engine(sa.URL.create("postgresql+psycopg", USER, "x", HOST, PORT, DATABASE), isolation_level=level)
            with engine.connect() as db:
                return db.execute(sa.text("SELECT 1")).scalar()
        case(f"isolation {level}", isolated)


main()
