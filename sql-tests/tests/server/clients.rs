//! What clients that other suites do not have see of the protocol: COPY in binary format, the types of columns, messages of LISTEN,
//! and what an error is about. The drivers themselves are run by `sql-tests/drivers`.

use std::pin::pin;
use std::time::Duration;

use bytes::Bytes;
use futures::{StreamExt, TryStreamExt, stream};
use millrace_sql_tests::{connect, rows, start};
use millrace_wire::Server;
use tempfile::TempDir;
use tokio::sync::mpsc;
use tokio_postgres::binary_copy::{BinaryCopyInWriter, BinaryCopyOutStream};
use tokio_postgres::error::SqlState;
use tokio_postgres::types::Type;
use tokio_postgres::{AsyncMessage, Client, NoTls, Notification};

struct Fixture {
    server: Server,
    client: Client,
    _directory: TempDir,
}

async fn fixture() -> Fixture {
    let directory = tempfile::tempdir().unwrap();
    let server = start(directory.path()).await.unwrap();
    let client = connect(server.pg_addr()).await.unwrap();
    Fixture {
        server,
        client,
        _directory: directory,
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn copy_in_binary_format_and_out_again() {
    let f = fixture().await;
    f.client
        .batch_execute(
            "CREATE TABLE b (id INT PRIMARY KEY, name TEXT, n BIGINT, x DOUBLE PRECISION, xs INT[])",
        )
        .await
        .unwrap();
    let types = [Type::INT4, Type::TEXT, Type::INT8, Type::FLOAT8, Type::INT4_ARRAY];
    let sink = f
        .client
        .copy_in("COPY b FROM STDIN (FORMAT BINARY)")
        .await
        .unwrap();
    let mut writer = pin!(BinaryCopyInWriter::new(sink, &types));
    // More than a batch of the server's.
    for id in 0..20_000_i32 {
        let name = (id % 3 != 0).then(|| format!("n\t{id}"));
        writer
            .as_mut()
            .write(&[&id, &name, &i64::from(id), &0.1_f64, &vec![Some(id), None]])
            .await
            .unwrap();
    }
    assert_eq!(writer.as_mut().finish().await.unwrap(), 20_000);
    let stream = f
        .client
        .copy_out("COPY (SELECT * FROM b ORDER BY id) TO STDOUT (FORMAT BINARY)")
        .await
        .unwrap();
    let read: Vec<_> = BinaryCopyOutStream::new(stream, &types)
        .try_collect()
        .await
        .unwrap();
    assert_eq!(read.len(), 20_000);
    assert_eq!(read[19_999].get::<Option<String>>(1), Some("n\t19999".to_owned()));
    assert_eq!(read[3].get::<Option<String>>(1), None);
    assert_eq!(read[7].get::<Vec<Option<i32>>>(4), [Some(7), None]);
}

#[tokio::test(flavor = "multi_thread")]
async fn binary_data_that_is_wrong_is_refused_by_its_place_and_keeps_nothing() {
    let f = fixture().await;
    f.client
        .batch_execute("CREATE TABLE b (id INT PRIMARY KEY, name TEXT)")
        .await
        .unwrap();
    let head: &[u8] = b"PGCOPY\n\xff\r\n\0\0\0\0\0\0\0\0\0";
    let row: &[u8] = b"\0\x02\0\0\0\x04\0\0\0\x01\0\0\0\x01x";
    let cases: [(&[u8], &str, &str); 6] = [
        (b"id\tname\n", "22P04", "COPY b"),
        (b"\0\x01\0\0\0\x04\0\0\0\x01", "22P04", "COPY b, line 2"),
        (
            b"\0\x02\0\0\0\x02\0\x01\0\0\0\x01x",
            "08P01",
            "COPY b, line 2, column id",
        ),
        (
            b"\0\x02\0\0\0\x04\0\0\0\x02\0\0\0\x01\xff",
            "22021",
            "COPY b, line 2, column name",
        ),
        (b"\0\x02\0\0\0\x04\0", "22P04", "COPY b, line 2"),
        (b"\xff\xff\0", "22P04", "COPY b, line 1"),
    ];
    for (wrong, code, place) in cases {
        let data = match place {
            "COPY b" => wrong.to_vec(),
            _ => [head, row, wrong].concat(),
        };
        let sink = f.client.copy_in("COPY b FROM STDIN BINARY").await.unwrap();
        let mut sink = pin!(sink);
        let sent = stream::iter([Ok(Bytes::from(data))]).forward(sink.as_mut()).await;
        let error = match sent {
            Ok(()) => sink.as_mut().finish().await.unwrap_err(),
            Err(error) => error,
        };
        let error = error.as_db_error().unwrap();
        assert_eq!((error.code().code(), error.where_()), (code, Some(place)));
    }
    assert_eq!(
        rows(&f.client, "SELECT count(*) FROM b").await.unwrap(),
        [[Some("0".into())]]
    );
}

/// A client, and what it is told.
async fn listener(server: &Server) -> (Client, mpsc::UnboundedReceiver<Notification>) {
    let address = format!(
        "host=127.0.0.1 port={} user=millrace dbname=millrace",
        server.pg_addr().port()
    );
    let (client, mut connection) = tokio_postgres::connect(&address, NoTls).await.unwrap();
    let (told, hear) = mpsc::unbounded_channel();
    tokio::spawn(async move {
        let mut messages = stream::poll_fn(move |context| connection.poll_message(context));
        while let Some(Ok(message)) = messages.next().await {
            if let AsyncMessage::Notification(notification) = message {
                // The test may have ended.
                let _ = told.send(notification);
            }
        }
    });
    (client, hear)
}

async fn next(hear: &mut mpsc::UnboundedReceiver<Notification>) -> (String, String) {
    let heard = tokio::time::timeout(Duration::from_secs(30), hear.recv()).await;
    let heard = heard.unwrap().unwrap();
    (heard.channel().to_owned(), heard.payload().to_owned())
}

#[tokio::test(flavor = "multi_thread")]
async fn who_listens_is_told_what_was_committed() {
    let f = fixture().await;
    let (client, mut hear) = listener(&f.server).await;
    client
        .batch_execute("LISTEN news; LISTEN \"Other\"")
        .await
        .unwrap();
    let tell = |sql: &'static str| f.client.batch_execute(sql);
    tell("BEGIN; NOTIFY news, 'never'; ROLLBACK").await.unwrap();
    tell("BEGIN; NOTIFY news, 'a'; SAVEPOINT s; NOTIFY news, 'not'; ROLLBACK TO s; NOTIFY news, 'a'; COMMIT")
        .await
        .unwrap();
    tell("NOTIFY nobody; SELECT pg_notify('Other', 'b')")
        .await
        .unwrap();
    assert_eq!(next(&mut hear).await, ("news".into(), "a".into()));
    assert_eq!(next(&mut hear).await, ("Other".into(), "b".into()));
    // Within a transaction nothing is said; at its end it is.
    client.batch_execute("BEGIN").await.unwrap();
    tell("NOTIFY news, 'c'").await.unwrap();
    client.batch_execute("SELECT 1").await.unwrap();
    assert!(hear.try_recv().is_err());
    client.batch_execute("COMMIT").await.unwrap();
    assert_eq!(next(&mut hear).await, ("news".into(), "c".into()));
    client.batch_execute("UNLISTEN news").await.unwrap();
    tell("NOTIFY news, 'd'; NOTIFY \"Other\", 'e'").await.unwrap();
    assert_eq!(next(&mut hear).await, ("Other".into(), "e".into()));
    client.batch_execute("DISCARD ALL").await.unwrap();
    let none = rows(&client, "SELECT pg_listening_channels()").await.unwrap();
    assert!(none.is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_that_is_gone_keeps_no_lock_and_one_that_waits_can_be_cancelled() {
    let f = fixture().await;
    let other = connect(f.server.pg_addr()).await.unwrap();
    f.client
        .batch_execute("SELECT pg_advisory_lock(1); SELECT pg_advisory_lock_shared(2, 3)")
        .await
        .unwrap();
    other
        .batch_execute("SET statement_timeout = '50ms'")
        .await
        .unwrap();
    let error = other
        .batch_execute("SELECT pg_advisory_lock(1)")
        .await
        .unwrap_err();
    assert_eq!(error.code(), Some(&SqlState::QUERY_CANCELED));
    other.batch_execute("RESET statement_timeout").await.unwrap();
    let waits = other.batch_execute("SELECT pg_advisory_lock(1)");
    let gone = async {
        drop(f.client);
        Ok(())
    };
    tokio::try_join!(waits, gone).unwrap();
    let locks = "SELECT classid, objid, objsubid, mode, granted FROM pg_locks WHERE locktype = 'advisory'";
    let text = |text: &str| Some(text.to_owned());
    assert_eq!(
        rows(&other, locks).await.unwrap(),
        [[text("0"), text("1"), text("1"), text("ExclusiveLock"), text("t")]]
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn columns_have_the_types_of_postgresql() {
    let f = fixture().await;
    f.client
        .batch_execute("CREATE TABLE u (id INT PRIMARY KEY, k UUID, j JSONB, v VARCHAR(5))")
        .await
        .unwrap();
    let cases: [(&str, &[Type]); 7] = [
        (
            "SELECT CASE WHEN id = 1 THEN k END, coalesce(j, j), (SELECT k FROM u LIMIT 1) FROM u",
            &[Type::UUID, Type::JSONB, Type::UUID],
        ),
        (
            "SELECT array_agg(k), array_agg(j), max(v) FROM u",
            &[Type::UUID_ARRAY, Type::JSONB_ARRAY, Type::TEXT],
        ),
        (
            "SELECT CASE WHEN id = 1 THEN k::text ELSE v END FROM u UNION ALL SELECT 'x'",
            &[Type::TEXT],
        ),
        (
            "SELECT oid, relname, relkind, relnamespace FROM pg_class",
            &[Type::OID, Type::NAME, Type::CHAR, Type::OID],
        ),
        (
            "SELECT indkey, indclass FROM pg_index",
            &[Type::INT2_VECTOR, Type::OID_VECTOR],
        ),
        (
            "SELECT array_agg(a.atttypid ORDER BY a.attnum), array_agg(a.attname::text) FROM pg_attribute a",
            &[Type::OID_ARRAY, Type::TEXT_ARRAY],
        ),
        (
            "SELECT g FROM generate_series(1::smallint, 3::bigint) g",
            &[Type::INT8],
        ),
    ];
    for (sql, types) in cases {
        let statement = f.client.prepare(sql).await.unwrap();
        let found: Vec<&Type> = statement.columns().iter().map(|column| column.type_()).collect();
        assert_eq!(found, types.iter().collect::<Vec<_>>(), "{sql}");
        f.client.query(&statement, &[]).await.unwrap();
    }
    let statement = f.client.prepare("SELECT $1::oid[], $2::oid").await.unwrap();
    assert_eq!(statement.params(), [Type::OID_ARRAY, Type::OID]);
    // What is announced is sent.
    f.client
        .batch_execute("INSERT INTO u VALUES (1, '01234567-89ab-cdef-0123-456789abcdef', '[1]', 'v')")
        .await
        .unwrap();
    let kinds = "SELECT indkey FROM pg_index WHERE indrelid = 'u'::regclass";
    let row = f.client.query_one(kinds, &[]).await.unwrap();
    assert_eq!(row.get::<_, Vec<i16>>(0), [1]);
}

#[tokio::test(flavor = "multi_thread")]
async fn arrays_of_two_dimensions_come_in_binary_format() {
    let f = fixture().await;
    f.client
        .batch_execute("CREATE TABLE m (xs INT[][])")
        .await
        .unwrap();
    // Two dimensions of two and one elements.
    let array: Vec<u8> = [2_i32, 1, 23, 2, 1, 1, 1, 4, 7, -1]
        .into_iter()
        .flat_map(i32::to_be_bytes)
        .collect();
    let length = i32::try_from(array.len()).unwrap().to_be_bytes();
    let head: &[u8] = b"PGCOPY\n\xff\r\n\0\0\0\0\0\0\0\0\0\0\x01";
    let data = [head, &length, &array, b"\xff\xff"].concat();
    let sink = f.client.copy_in("COPY m FROM STDIN BINARY").await.unwrap();
    let mut sink = pin!(sink);
    stream::iter([Ok(Bytes::from(data))])
        .forward(sink.as_mut())
        .await
        .unwrap();
    let found = rows(&f.client, "SELECT xs FROM m").await.unwrap();
    assert_eq!(found, [[Some("{{7},{NULL}}".to_owned())]]);
}

#[tokio::test(flavor = "multi_thread")]
async fn each_row_of_a_copy_is_a_message() {
    let f = fixture().await;
    for (format, sizes) in [
        ("TEXT", vec![2, 2, 3]),
        ("CSV, HEADER", vec![2, 2, 2, 3]),
        ("BINARY", vec![19 + 10, 10, 10, 2]),
    ] {
        let sql = format!("COPY (SELECT g FROM (VALUES (1), (2), (10)) v(g)) TO STDOUT (FORMAT {format})");
        let stream = f.client.copy_out(&sql).await.unwrap();
        let pieces: Vec<Bytes> = stream.try_collect().await.unwrap();
        assert_eq!(
            pieces.iter().map(Bytes::len).collect::<Vec<_>>(),
            sizes,
            "{format}"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn errors_say_what_they_are_about() {
    let f = fixture().await;
    f.client
        .batch_execute("CREATE TABLE c (id INT PRIMARY KEY, v TEXT NOT NULL UNIQUE, n INT CHECK (n > 0)); INSERT INTO c VALUES (1, 'a', 1)")
        .await
        .unwrap();
    let cases = [
        ("INSERT INTO c VALUES (1, 'b', 1)", None, Some("c_pkey")),
        ("INSERT INTO c VALUES (2, 'a', 1)", None, Some("c_v_key")),
        ("INSERT INTO c VALUES (2, 'b', 0)", None, Some("c_n_check")),
        ("INSERT INTO c VALUES (2, NULL, 1)", Some("v"), None),
        ("UPDATE c SET n = -1", None, Some("c_n_check")),
    ];
    for (sql, column, constraint) in cases {
        let error = f.client.batch_execute(sql).await.unwrap_err();
        let error = error.as_db_error().unwrap();
        assert_eq!(
            (error.schema(), error.table(), error.column(), error.constraint()),
            (Some("public"), Some("c"), column, constraint),
            "{sql}"
        );
    }
}
