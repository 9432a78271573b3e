"""What the scripts for Python drivers share: each case prints one line, its name and what came of it."""

import datetime
import decimal
import os
import traceback

HOST = os.environ["DRIVERS_HOST"]
PORT = int(os.environ["DRIVERS_PORT"])
USER = "millrace"
DATABASE = "millrace"

# A type's name, and values of it as texts: each is a parameter, a result and an element of an array.
TYPES = [
    ("boolean", ["true", "false"]),
    ("smallint", ["-32768", "7", "32767"]),
    ("integer", ["-2147483648", "7", "2147483647"]),
    ("bigint", ["-9223372036854775808", "7", "9223372036854775807"]),
    ("real", ["1.5", "-0.25", "3.4e38", "Infinity", "NaN"]),
    ("double precision", ["1.5", "-0.1", "1e300", "-Infinity", "NaN"]),
    ("numeric", ["0", "1.50", "-12345678901234567890.123456789", "0.00001", "10000"]),
    ("numeric(10,2)", ["1.50", "-99999999.99"]),
    ("text", ["", "a", "ä€😀", "it's \"so\""]),
    ("varchar(5)", ["", "abc"]),
    ("char(4)", ["ab", "abcd"]),
    ("bytea", ["\\x", "\\x00ff10"]),
    ("date", ["2024-02-29", "1999-12-31", "0001-01-01"]),
    ("time", ["00:00:00", "23:59:59.999999"]),
    ("timestamp", ["2024-02-29 12:34:56.789012", "1969-12-31 23:59:59"]),
    ("timestamptz", ["2024-02-29 12:34:56.789012+00", "1969-12-31 23:59:59+02"]),
    ("interval", ["1 day", "1 year 2 mons 3 days 04:05:06.789", "-00:00:01"]),
    ("uuid", ["01234567-89ab-cdef-0123-456789abcdef"]),
    ("json", ['{"a": [1, 2.5, null]}', '"x"']),
    ("jsonb", ['{"a": [1, 2.5, null]}', '"x"']),
    ("oid", ["0", "16384"]),
    ("name", ["a", "pg_class"]),
]


def shown(value):
    """A value as text, the same for equal values of every server."""
    if isinstance(value, float):
        return repr(value)
    if isinstance(value, (datetime.datetime, datetime.date, datetime.time, datetime.timedelta)):
        return f"{type(value).__name__}({value})"
    if isinstance(value, decimal.Decimal):
        return f"Decimal({value})"
    if isinstance(value, memoryview):
        return repr(bytes(value))
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key}: {shown(item)}" for key, item in value.items()) + "}"
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(shown(item) for item in value) + "]"
    return repr(value)


def failed(error):
    """An error as text: its SQLSTATE, or what the driver itself has to say."""
    seen = error
    while seen is not None:
        state = getattr(seen, "sqlstate", None) or getattr(seen, "pgcode", None)
        if state:
            return f"error {state}"
        seen = getattr(seen, "orig", None) or seen.__cause__
    if os.environ.get("DRIVERS_SHOW"):
        traceback.print_exception(error)
    return f"error {type(error).__name__}"


def line(name, outcome):
    print(f"{name} => {outcome}".replace("\n", "\\n"), flush=True)


def note(error):
    """With DRIVERS_SHOW, what an error says."""
    if os.environ.get("DRIVERS_SHOW"):
        print(f"  # {error}".replace("\n", "\\n"), flush=True)
    return failed(error)


def case(name, run):
    """Runs a case, and prints its result or error."""
    try:
        line(name, shown(run()))
    except Exception as error:
        line(name, note(error))
