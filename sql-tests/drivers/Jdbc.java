// pgjdbc: DatabaseMetaData, prepared statements of both kinds, batches, cursors, COPY, generated keys, types in text and binary.

import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.sql.*;
import java.util.*;
import org.postgresql.PGConnection;
import org.postgresql.copy.CopyManager;

public class Jdbc {
    interface Work { Object run() throws Exception; }

    static final boolean SHOW = System.getenv("DRIVERS_SHOW") != null;

    static void run(String name, Work work) {
        String outcome;
        try {
            outcome = shown(work.run());
        } catch (SQLException error) {
            if (SHOW) System.out.println("  # " + error.getMessage().replace("\n", "\\n"));
            outcome = "error " + error.getSQLState();
        } catch (Exception error) {
            if (SHOW) System.out.println("  # " + error);
            outcome = "error " + error.getClass().getSimpleName();
        }
        System.out.println((name + " => " + outcome).replace("\n", "\\n"));
    }

    static String shown(Object value) throws SQLException {
        if (value == null) return "null";
        if (value instanceof byte[] bytes) return "bytes " + HexFormat.of().formatHex(bytes);
        if (value instanceof java.sql.Array array) return shown(Arrays.asList((Object[]) array.getArray()));
        if (value instanceof int[] numbers) return Arrays.toString(numbers);
        if (value instanceof List<?> list) {
            StringJoiner out = new StringJoiner(", ", "[", "]");
            for (Object item : list) out.add(shown(item));
            return out.toString();
        }
        return value.getClass().getSimpleName() + " " + value;
    }

    static List<Object> rows(ResultSet set, String... columns) throws SQLException {
        List<Object> out = new ArrayList<>();
        while (set.next()) {
            List<Object> row = new ArrayList<>();
            if (columns.length == 0) for (int i = 1; i <= set.getMetaData().getColumnCount(); i++) row.add(set.getObject(i));
            for (String column : columns) row.add(set.getString(column));
            out.add(row);
        }
        set.close();
        return out;
    }

    static List<Object> query(Connection db, String sql, Object... values) throws SQLException {
        try (PreparedStatement statement = db.prepareStatement(sql)) {
            for (int i = 0; i < values.length; i++) statement.setObject(i + 1, values[i]);
            return rows(statement.executeQuery());
        }
    }

    static int execute(Connection db, String sql) throws SQLException {
        try (Statement statement = db.createStatement()) {
            return statement.executeUpdate(sql);
        }
    }

    static final String[][] TYPES = {
        {"boolean", "true"}, {"smallint", "-32768"}, {"integer", "7"}, {"bigint", "-9223372036854775808"}, {"real", "1.5", "NaN"},
        {"double precision", "-0.1", "-Infinity"}, {"numeric", "1.50", "-12345678901234567890.123456789"}, {"numeric(10,2)", "1.50"},
        {"text", "ä€😀", ""}, {"varchar(5)", "abc"}, {"char(4)", "ab"}, {"bytea", "\\x00ff10"}, {"date", "2024-02-29"},
        {"time", "23:59:59.999"}, {"timestamp", "2024-02-29 12:34:56.789012"}, {"timestamptz", "2024-02-29 12:34:56.789012+00"},
        {"interval", "1 year 2 mons 3 days 04:05:06.789"}, {"uuid", "01234567-89ab-cdef-0123-456789abcdef"}, {"json", "{\"a\": 1}"},
        {"jsonb", "{\"a\": 1}"},
    };

    static void types(Connection db, String form) {
        for (String[] entry : TYPES) {
            String name = entry[0];
            for (int i = 1; i < entry.length; i++) {
                String text = entry[i];
                String literal = "'" + text.replace("'", "''") + "'::" + name;
                // Several times: from the fifth on the driver prepares on the server, and asks for binary results.
                run(form + " result " + name + " " + text, () -> {
                    Set<String> seen = new TreeSet<>();
                    try (PreparedStatement statement = db.prepareStatement("SELECT " + literal + " AS v")) {
                        for (int n = 0; n < 7; n++) seen.add(shown(rows(statement.executeQuery())));
                    }
                    return seen.toString();
                });
                run(form + " parameter " + name + " " + text, () -> {
                    Object value = ((List<?>) query(db, "SELECT " + literal).get(0)).get(0);
                    Set<String> seen = new TreeSet<>();
                    try (PreparedStatement statement = db.prepareStatement("SELECT ?::" + name + " AS v")) {
                        for (int n = 0; n < 7; n++) {
                            statement.setObject(1, value);
                            seen.add(shown(rows(statement.executeQuery())));
                        }
                    }
                    return seen.toString();
                });
                run(form + " array " + name + " " + text, () -> query(db, "SELECT ARRAY[" + literal + ", NULL] AS v"));
                run(form + " null " + name, () -> {
                    try (PreparedStatement statement = db.prepareStatement("SELECT ?::" + name)) {
                        statement.setNull(1, Types.OTHER);
                        return rows(statement.executeQuery());
                    }
                });
                run(form + " metadata " + name, () -> {
                    try (Statement statement = db.createStatement(); ResultSet set = statement.executeQuery("SELECT " + literal + " AS v")) {
                        ResultSetMetaData data = set.getMetaData();
                        return List.of(data.getColumnTypeName(1), data.getColumnType(1), data.getPrecision(1), data.getScale(1), data.getColumnDisplaySize(1), data.getColumnClassName(1));
                    }
                });
            }
        }
    }

    static void metadata(Connection db) throws SQLException {
        DatabaseMetaData data = db.getMetaData();
        run("getTables", () -> rows(data.getTables(null, "public", "jd%", null), "TABLE_SCHEM", "TABLE_NAME", "TABLE_TYPE", "REMARKS"));
        run("getTables of kinds", () -> rows(data.getTables(null, null, "jd%", new String[] {"TABLE", "VIEW", "MATERIALIZED VIEW"}), "TABLE_NAME", "TABLE_TYPE"));
        run("getTables of sequences", () -> rows(data.getTables(null, "public", "jd%", new String[] {"SEQUENCE", "INDEX"}), "TABLE_NAME", "TABLE_TYPE"));
        for (String table : new String[] {"jd", "jd_pairs", "jd_view", "jd_counts"}) {
            run("getColumns " + table, () -> rows(data.getColumns(null, "public", table, null), "COLUMN_NAME", "DATA_TYPE", "TYPE_NAME", "COLUMN_SIZE", "DECIMAL_DIGITS",
                "NULLABLE", "REMARKS", "COLUMN_DEF", "ORDINAL_POSITION", "IS_NULLABLE", "IS_AUTOINCREMENT", "IS_GENERATEDCOLUMN"));
            run("getPrimaryKeys " + table, () -> rows(data.getPrimaryKeys(null, "public", table), "TABLE_NAME", "COLUMN_NAME", "KEY_SEQ", "PK_NAME"));
            run("getIndexInfo " + table, () -> rows(data.getIndexInfo(null, "public", table, false, true), "NON_UNIQUE", "INDEX_NAME", "TYPE", "ORDINAL_POSITION", "COLUMN_NAME", "ASC_OR_DESC"));
            run("getIndexInfo unique " + table, () -> rows(data.getIndexInfo(null, "public", table, true, true), "NON_UNIQUE", "INDEX_NAME", "COLUMN_NAME"));
            run("getImportedKeys " + table, () -> rows(data.getImportedKeys(null, "public", table), "FK_NAME"));
            run("getExportedKeys " + table, () -> rows(data.getExportedKeys(null, "public", table), "FK_NAME"));
            run("getBestRowIdentifier " + table, () -> rows(data.getBestRowIdentifier(null, "public", table, 0, true), "COLUMN_NAME", "TYPE_NAME"));
            run("getVersionColumns " + table, () -> rows(data.getVersionColumns(null, "public", table), "COLUMN_NAME"));
            run("getTablePrivileges " + table, () -> data.getTablePrivileges(null, "public", table).next());
            run("getColumnPrivileges " + table, () -> data.getColumnPrivileges(null, "public", table, "%").next());
        }
        run("getSchemas", () -> {
            List<Object> found = rows(data.getSchemas(), "TABLE_SCHEM");
            found.removeIf(row -> row.toString().contains("pg_toast") || row.toString().contains("mr_catalog"));
            return found;
        });
        run("getCatalogs", () -> rows(data.getCatalogs(), "TABLE_CAT").contains(List.of("millrace")));
        run("getTableTypes", () -> rows(data.getTableTypes(), "TABLE_TYPE"));
        run("getTypeInfo", () -> {
            List<Object> wanted = new ArrayList<>();
            ResultSet set = data.getTypeInfo();
            while (set.next()) {
                String name = set.getString("TYPE_NAME");
                if (List.of("int4", "int8", "text", "varchar", "numeric", "bool", "timestamptz", "uuid", "jsonb", "bytea", "_int4", "serial").contains(name))
                    wanted.add(List.of(name, set.getInt("DATA_TYPE"), set.getInt("PRECISION"), set.getBoolean("AUTO_INCREMENT")));
            }
            wanted.sort(Comparator.comparing(Object::toString));
            return wanted;
        });
        run("getProcedures", () -> { data.getProcedures(null, null, "nobody").close(); return true; });
        run("getFunctions", () -> { data.getFunctions(null, null, "nobody").close(); return true; });
        run("getUDTs", () -> rows(data.getUDTs(null, "public", "%", null), "TYPE_NAME").size());
        run("getClientInfoProperties", () -> rows(data.getClientInfoProperties(), "NAME"));
        run("product", () -> List.of(data.getDatabaseProductName(), data.getDatabaseMajorVersion(), data.getUserName(), data.getDefaultTransactionIsolation(), data.getMaxColumnNameLength()));
        run("keywords", () -> !data.getSQLKeywords().isEmpty());
        run("max index keys", () -> data.getMaxColumnsInIndex());
        run("result's tables", () -> {
            try (Statement statement = db.createStatement(); ResultSet set = statement.executeQuery("SELECT id, name AS n, price FROM jd")) {
                ResultSetMetaData of = set.getMetaData();
                return List.of(of.getColumnName(1), of.getColumnLabel(2), of.getColumnTypeName(3), of.getPrecision(3), of.getScale(3));
            }
        });
    }

    static void statements(Connection db) throws SQLException {
        run("create", () -> execute(db, "CREATE TABLE jd (id serial PRIMARY KEY, name varchar(40) NOT NULL UNIQUE, price numeric(8,2) DEFAULT 1.5, at timestamptz DEFAULT now(), plain timestamp(3), "
            + "day date, n int CHECK (n > 0), big bigint GENERATED ALWAYS AS IDENTITY, doc jsonb, tags text[], data bytea, code char(3), key uuid, f float8, r real, s smallint, b boolean, t text, twice int GENERATED ALWAYS AS (n * 2) STORED)"));
        run("create pairs", () -> execute(db, "CREATE TABLE jd_pairs (a int, b int, c text, PRIMARY KEY (b, a))"));
        run("create indexes", () -> execute(db, "CREATE INDEX jd_by_n ON jd (n, price)") + execute(db, "CREATE UNIQUE INDEX jd_by_key ON jd (key)"));
        run("comments", () -> execute(db, "COMMENT ON TABLE jd IS 'a table'") + execute(db, "COMMENT ON COLUMN jd.name IS 'a name'"));
        run("views", () -> execute(db, "CREATE VIEW jd_view AS SELECT id, name FROM jd") >= 0);
        run("materialized views", () -> execute(db, "CREATE MATERIALIZED VIEW jd_counts AS SELECT n, count(*) AS c FROM jd GROUP BY n") >= 0);
        run("generated keys", () -> {
            try (PreparedStatement statement = db.prepareStatement("INSERT INTO jd (name, n) VALUES (?, ?)", Statement.RETURN_GENERATED_KEYS)) {
                statement.setString(1, "a");
                statement.setInt(2, 1);
                statement.executeUpdate();
                return rows(statement.getGeneratedKeys(), "id", "name", "big", "twice");
            }
        });
        run("generated columns", () -> {
            try (PreparedStatement statement = db.prepareStatement("INSERT INTO jd (name) VALUES (?)", new String[] {"id"})) {
                statement.setString(1, "b");
                statement.executeUpdate();
                return rows(statement.getGeneratedKeys(), "id");
            }
        });
        run("batch", () -> {
            try (PreparedStatement statement = db.prepareStatement("INSERT INTO jd (name, n, price) VALUES (?, ?, ?)")) {
                for (int i = 0; i < 10; i++) {
                    statement.setString(1, "batch" + i);
                    statement.setInt(2, i + 1);
                    statement.setBigDecimal(3, new java.math.BigDecimal("1.25"));
                    statement.addBatch();
                }
                return statement.executeBatch();
            }
        });
        run("batch of statements", () -> {
            try (Statement statement = db.createStatement()) {
                statement.addBatch("INSERT INTO jd_pairs VALUES (1, 1, 'x')");
                statement.addBatch("INSERT INTO jd_pairs VALUES (1, 2, 'y')");
                return statement.executeBatch();
            }
        });
        run("any", () -> {
            try (PreparedStatement statement = db.prepareStatement("SELECT id FROM jd WHERE id = ANY(?) ORDER BY id")) {
                statement.setArray(1, db.createArrayOf("int4", new Integer[] {1, 2}));
                return rows(statement.executeQuery());
            }
        });
        run("limit", () -> query(db, "SELECT id FROM jd ORDER BY id LIMIT ? OFFSET ?", 2, 1));
        run("like", () -> query(db, "SELECT count(*) FROM jd WHERE name LIKE ?", "batch%"));
        run("escaped", () -> query(db, "SELECT {fn concat('a', 'b')}, {d '2024-02-29'}, {ts '2024-02-29 01:02:03'}"));
        run("string for int", () -> query(db, "SELECT name FROM jd WHERE id = ?", "1"));
        run("date", () -> query(db, "SELECT ?::date + 1", java.time.LocalDate.of(2024, 2, 28)));
        run("timestamp", () -> query(db, "SELECT ?::timestamptz", java.time.OffsetDateTime.parse("2024-02-29T12:00:00Z")));
        run("uuid", () -> query(db, "SELECT ?", UUID.fromString("01234567-89ab-cdef-0123-456789abcdef")));
        run("untyped null", () -> query(db, "SELECT ?::text", (Object) null));
        run("parameters", () -> {
            try (PreparedStatement statement = db.prepareStatement("UPDATE jd SET n = ?, price = ?, doc = ? WHERE name = ? AND at < ?")) {
                ParameterMetaData data = statement.getParameterMetaData();
                List<Object> out = new ArrayList<>();
                for (int i = 1; i <= data.getParameterCount(); i++) out.add(data.getParameterTypeName(i));
                return out;
            }
        });
        run("columns", () -> {
            try (PreparedStatement statement = db.prepareStatement("SELECT id, name, price FROM jd WHERE id = ?")) {
                ResultSetMetaData data = statement.getMetaData();
                return List.of(data.getColumnTypeName(1), data.getColumnTypeName(2), data.getPrecision(2), data.getPrecision(3));
            }
        });
        run("unique", () -> execute(db, "INSERT INTO jd (name) VALUES ('a')"));
        run("diagnosed", () -> {
            try {
                execute(db, "INSERT INTO jd (name) VALUES ('a')");
                return null;
            } catch (org.postgresql.util.PSQLException error) {
                var message = error.getServerErrorMessage();
                return Arrays.asList(message.getSQLState(), message.getSchema(), message.getTable(), message.getConstraint());
            }
        });
        run("cursor", () -> {
            db.setAutoCommit(false);
            try (PreparedStatement statement = db.prepareStatement("SELECT g FROM generate_series(1, ?) g")) {
                statement.setFetchSize(3);
                statement.setInt(1, 10);
                return rows(statement.executeQuery()).size();
            } finally {
                db.rollback();
                db.setAutoCommit(true);
            }
        });
        run("scrolling", () -> {
            try (Statement statement = db.createStatement(ResultSet.TYPE_SCROLL_INSENSITIVE, ResultSet.CONCUR_READ_ONLY); ResultSet set = statement.executeQuery("SELECT g FROM generate_series(1, 5) g")) {
                set.last();
                int last = set.getInt(1);
                set.absolute(2);
                return List.of(last, set.getInt(1));
            }
        });
        run("updatable", () -> {
            try (Statement statement = db.createStatement(ResultSet.TYPE_SCROLL_INSENSITIVE, ResultSet.CONCUR_UPDATABLE); ResultSet set = statement.executeQuery("SELECT id, name, n FROM jd WHERE id = 1")) {
                set.next();
                set.updateInt("n", 77);
                set.updateRow();
            }
            return query(db, "SELECT n FROM jd WHERE id = 1");
        });
        run("savepoints", () -> {
            db.setAutoCommit(false);
            try {
                execute(db, "INSERT INTO jd_pairs VALUES (5, 5, 'z')");
                Savepoint point = db.setSavepoint("p");
                String state = null;
                try {
                    execute(db, "INSERT INTO jd_pairs VALUES (5, 5, 'z')");
                } catch (SQLException error) {
                    state = error.getSQLState();
                }
                db.rollback(point);
                db.commit();
                return List.of(state, query(db, "SELECT count(*) FROM jd_pairs"));
            } finally {
                db.rollback();
                db.setAutoCommit(true);
            }
        });
        for (int level : new int[] {Connection.TRANSACTION_READ_COMMITTED, Connection.TRANSACTION_REPEATABLE_READ, Connection.TRANSACTION_SERIALIZABLE}) {
            run("isolation " + level, () -> {
                db.setTransactionIsolation(level);
                return db.getTransactionIsolation();
            });
        }
        run("isolation again", () -> { db.setTransactionIsolation(Connection.TRANSACTION_READ_COMMITTED); return true; });
        run("read only", () -> {
            db.setReadOnly(true);
            db.setAutoCommit(false);
            try {
                return execute(db, "DELETE FROM jd");
            } finally {
                db.rollback();
                db.setAutoCommit(true);
                db.setReadOnly(false);
            }
        });
        run("copy in", () -> new CopyManager(db.unwrap(org.postgresql.core.BaseConnection.class)).copyIn("COPY jd_pairs FROM STDIN", new ByteArrayInputStream("7\t7\tq\n8\t8\t\\N\n".getBytes())));
        run("copy out", () -> {
            ByteArrayOutputStream out = new ByteArrayOutputStream();
            long count = new CopyManager(db.unwrap(org.postgresql.core.BaseConnection.class)).copyOut("COPY (SELECT * FROM jd_pairs ORDER BY a, b) TO STDOUT (FORMAT binary)", out);
            return List.of(count, out.toByteArray().length);
        });
        run("schema", () -> List.of(db.getSchema(), db.getCatalog(), db.isValid(2)));
        run("cancelled", () -> {
            try (Statement statement = db.createStatement()) {
                statement.setQueryTimeout(1);
                statement.executeQuery("SELECT pg_sleep(20)");
                return null;
            }
        });
        run("notifications", () -> {
            execute(db, "LISTEN news");
            execute(db, "NOTIFY news, 'hello'");
            var got = db.unwrap(PGConnection.class).getNotifications(5000);
            execute(db, "UNLISTEN news");
            return List.of(got.length, got[0].getName(), got[0].getParameter());
        });
    }

    public static void main(String[] arguments) throws Exception {
        TimeZone.setDefault(TimeZone.getTimeZone("UTC"));
        String url = "jdbc:postgresql://" + System.getenv("DRIVERS_HOST") + ":" + System.getenv("DRIVERS_PORT") + "/millrace";
        try (Connection db = DriverManager.getConnection(url, "millrace", "x")) {
            statements(db);
            metadata(db);
            types(db, "extended");
        }
        for (String mode : new String[] {"simple", "extendedForPrepared", "extendedCacheEverything"}) {
            try (Connection db = DriverManager.getConnection(url + "?preferQueryMode=" + mode, "millrace", "x")) {
                types(db, mode);
            }
        }
        try (Connection db = DriverManager.getConnection(url + "?binaryTransfer=true&prepareThreshold=-1", "millrace", "x")) {
            types(db, "binary");
        }
    }
}
