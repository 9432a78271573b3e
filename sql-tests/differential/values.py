"""Literals at the edges of each type, and the grammar's small pieces that are made of them."""

# By type: texts that it reads, and some that it does not.
TEXTS = {
    "smallint": ["0", "1", "-1", "7", "32767", "-32768", "32768", " 12 ", "1.5", "x"],
    "int": ["0", "1", "-1", "2", "10", "2147483647", "-2147483648", "2147483648", "007", "+5", "1e3", ""],
    "bigint": ["0", "-1", "3", "9223372036854775807", "-9223372036854775808", "9223372036854775808", "4294967296"],
    "real": ["0", "-0", "1.5", "-2.25", "0.1", "3.4028235e38", "1e-45", "1e39", "NaN", "Infinity", "-inf", "16777217", "1e10", "123456.7"],
    "double precision": ["0", "-0", "0.1", "2.5", "3.5", "-2.5", "1e15", "1e16", "123456789.125", "1e308", "1e309", "5e-324", "1e-400", "NaN", "inf",
                         "-Infinity", "0.30000000000000004", "1e-5", "0.0001"],
    "numeric": ["0", "1", "-1", "0.5", "1.50", "2.5", "-2.5", "3.14159", "100", "1e5", "1e-5", "123456789012345678", "0.000001", "99.995", "1234.5678", " 3 ", "x", "1_0"],
    "numeric(6,2)": ["0", "1.005", "-1.005", "9999.99", "10000", "9999.995", "12.3"],
    "text": ["", "a", "A", "abc", "ABC", "hello world", "äöü", "日本", "a%b", "a_b", "\\", "''", "  x  ", "10", "2.5", "t", "2024-02-29", "{1,2}", "NULL", "xyzzy", "foo.bar.baz"],
    "varchar(3)": ["", "ab", "abc", "abcd", "ab   ", "äöü"],
    "char(4)": ["", "a", "ab", "abcd", "abcde", "ab      "],
    "bytea": ["", "a", "\\x00ff", "\\x", "\\xzz", "\\001a", "abc"],
    "boolean": ["t", "f", "true", "off", "yes", "1", "0", "tr", "2", " on "],
    "date": ["2024-02-29", "2000-01-01", "1999-12-31", "0001-01-01", "0044-03-15 BC", "9999-12-31", "infinity", "-infinity", "epoch", "2023-02-29", "Jan 5 2021",
             "20210203", "2021.040", "1/2/2003", "today x", "J2451545", "99-01-08", "2024-W05"],
    "time": ["00:00", "12:34:56", "23:59:59.999999", "24:00:00", "24:00:01", "04:05 PM", "12:00 AM", "040506", "25:00", "1:2:3", "12:34:56.7890123", "allballs"],
    "timestamp": ["2024-02-29 12:34:56", "2000-01-01 00:00:00", "1999-12-31 23:59:59.999999", "epoch", "infinity", "-infinity", "2001-02-16 20:38:40.12",
                  "0001-01-01 00:00:00", "0044-03-15 12:00 BC", "2024-02-29", "2024-02-29T01:02:03Z", "294276-12-31 23:59:59", "Mon Feb 16 20:38:40 2001", "2024-13-01"],
    "timestamptz": ["2024-02-29 12:34:56+00", "2000-01-01 00:00:00+02", "2001-02-16 20:38:40.12-05:30", "epoch", "infinity", "-infinity", "2024-06-01 12:00 Europe/Zurich",
                    "2024-01-01 12:00 PST", "1999-12-31 23:59:59.999999+00", "2024-02-29 12:00 Nowhere/Else"],
    "interval": ["0", "1 day", "1 month", "-1 month", "1 year 2 months 3 days 04:05:06", "24:00:00", "1 mon -1 day", "-00:00:01", "100000:00:00", "1.5 days", "P1Y2M3DT4H5M6S",
                 "@ 1 minute ago", "1.5 months", "3 weeks", "5", "1 century", "1-2", "1 fortnight", "00:00:00.000001"],
    "uuid": ["a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11", "{a0eebc999c0b4ef8bb6d6bb9bd380a11}", "00000000-0000-0000-0000-000000000000", "A0EEBC99-9C0B-4EF8-BB6D-6BB9BD380A11", "xyz"],
    "json": ["null", "1", "\"a\"", "{\"a\": 1, \"b\": [1,2]}", "[]", "{}", "[1, \"x\", null]", "{\"a\":1,\"a\":2}", "{a:1}", "1.50", "true"],
    "jsonb": ["null", "1", "\"a\"", "{\"a\": 1, \"b\": [1,2]}", "[]", "{}", "[1, \"x\", null]", "{\"a\":1,\"a\":2}", "{\"b\": {\"c\": \"d\"}, \"aa\": 2}", "1.50", "1e2", "true", "[[1],[2]]",
              "\"\\u00e4\"", "{", "\"a\\nb\""],
    "int[]": ["{}", "{1}", "{1,2,3}", "{1,NULL,3}", "{3,2,1}", "{{1,2},{3,4}}", "{{1},{2,3}}", "{a}", "[0:1]={1,2}"],
    "text[]": ["{}", "{a}", "{a,b,c}", "{a,NULL,\"\"}", "{\"a b\",\"c,d\",\"\\\"q\\\"\"}", "{{a,b},{c,d}}"],
    "numeric[]": ["{}", "{1.5,2.50}", "{NULL}"],
    "boolean[]": ["{t,f}", "{}"],
    "date[]": ["{2024-02-29,2000-01-01}", "{NULL}"],
}

# Types that values are cast into, beside those above.
TARGETS = [*TEXTS, "varchar", "char", "char(1)", "numeric(3,0)", "timestamp(0)", "timestamptz(2)", "time(1)", "interval(0)", "interval day to second", "bigint[]", "double precision[]",
           "varchar(2)[]", "oid", "regclass", "regtype", "name", "timetz", "bit(3)", "money", "xml", "inet"]

BINARY = ["+", "-", "*", "/", "%", "^", "=", "<>", "<", "<=", ">", ">=", "||", "&", "|", "#", "<<", ">>", "~", "~*", "!~", "LIKE", "NOT LIKE", "ILIKE", "SIMILAR TO", "AND", "OR",
          "IS DISTINCT FROM", "IS NOT DISTINCT FROM", "@>", "<@", "&&", "->", "->>", "#>", "#>>", "?", "?|", "?&", "#-", "^@", "@@", "@?", "!="]
UNARY = ["-", "+", "~", "@", "|/", "||/", "NOT", "!!"]
SUFFIX = ["IS NULL", "IS NOT NULL", "IS TRUE", "IS NOT FALSE", "IS UNKNOWN", "AT TIME ZONE 'UTC'", "AT TIME ZONE 'America/New_York'", "AT TIME ZONE '+02'", "COLLATE \"C\"", "BETWEEN 1 AND 5",
          "IN (1, 2, NULL)", "IN ('a', 'b')", "= ANY('{1,2}')", "[1]", "[1:2]", "IS NORMALIZED", "IS DOCUMENT", "['a']"]


def quoted(text):
    return "'" + text.replace("'", "''") + "'"


def literal(random, kind):
    """A literal of a type that it can read, or nearly."""
    if random.random() < 0.04:
        return f"NULL::{kind}"
    return f"{quoted(random.choice(TEXTS[kind]))}::{kind}"


def bare(random):
    """A constant without a type."""
    return random.choice(["NULL", "1", "0", "-1", "2.5", "'a'", "''", "'1'", "10000000000", "1e3", "true", "'2024-02-29'", "'1 day'", "'{1,2}'", "'{}'", "ARRAY[1,2]", "ARRAY['a','b']",
                          "ARRAY[1,NULL]", "DATE '2024-01-31'", "INTERVAL '1 month'", "INTERVAL '1-2' YEAR TO MONTH", "INTERVAL '90' MINUTE", "TIMESTAMP '2024-03-31 02:30:00'", "99999999999999999999", ".5",
                          "$$x$$", "E'a\\nb'", "U&'\\00e4'", "B'101'", "X'1F'", "1.", "'infinity'", "ROW(1,2)", "(1,NULL)", "ARRAY[[1,2],[3,4]]"])
