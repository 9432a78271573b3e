"""Statements made at random from a seed: casts, operators and functions over values at the edges of types, queries, faulty statements.

`of_seed` gives the same ones for the same seed. None changes anything; `SETUP` makes the relations that queries read.
"""

import random as randomness

from values import BINARY, SUFFIX, TARGETS, TEXTS, UNARY, bare, literal, quoted

SETUP = [
    "CREATE TABLE t (id int PRIMARY KEY, a int, b bigint, c text, d date, e numeric(10,2), f double precision, g boolean)",
    "INSERT INTO t VALUES (1, 1, 10, 'x', '2024-01-01', 1.50, 0.5, true), (2, 2, 20, 'y', '2024-02-29', 2.25, -1.5, false), (3, 2, NULL, 'x', NULL, -3.10, 'NaN', NULL), "
    "(4, NULL, 40, NULL, '1999-12-31', NULL, 1e10, true), (5, 5, 10, 'z', '2024-01-01', 0, 0, false), (6, 1, -5, '', '2030-06-15', 100.00, NULL, NULL)",
    "CREATE TABLE u (k int, a int, c text, ts timestamp, iv interval, j jsonb, xs int[])",
    "INSERT INTO u VALUES (1, 1, 'x', '2024-01-01 10:00', '1 day', '{\"a\": 1, \"b\": [1,2]}', '{1,2}'), (2, 2, 'y', '2024-01-01 11:30', '25:00', '{\"a\": 2}', '{2,NULL}'), "
    "(3, NULL, 'q', NULL, NULL, '[1, 2, 3]', '{}'), (4, 2, NULL, '2024-03-31 02:30', '1 mon', 'null', NULL), (5, 7, 'x', '2024-01-01 10:00', '-1 day', NULL, '{7,7}')",
]

# Functions with the kinds of their arguments, a kind a letter: see KINDS. Several signatures where several are worth it.
FUNCTIONS = """
abs:n abs:s cbrt:f ceil:n ceiling:f degrees:f div:nn exp:n factorial:b floor:n gcd:bb lcm:bb ln:n log:n log:nn log10:n min_scale:n mod:nn mod:ii pi: power:nn power:ff radians:f round:n round:f round:ni
scale:n sign:n sign:f sqrt:n sqrt:f trim_scale:n trunc:n trunc:ni trunc:f width_bucket:nnni acos:f asin:f atan:f atan2:ff cos:f cot:f sin:f tan:f sinh:f cosh:f tanh:f asinh:f acosh:f atanh:f acosd:f
asind:f atand:f cosd:f cotd:f sind:f tand:f numeric_inc:n ascii:t btrim:t btrim:tt chr:i concat:aa concat:aaa concat_ws:taa format:ta format:taa initcap:t left:ti length:t length:y lower:t lpad:ti lpad:tit
ltrim:t ltrim:tt md5:t md5:y octet_length:t octet_length:y bit_length:t char_length:t character_length:t parse_ident:t quote_ident:t quote_literal:t quote_literal:a quote_nullable:a regexp_match:tt
regexp_matches:tt regexp_replace:ttt regexp_replace:tttt regexp_split_to_array:tt regexp_count:tt regexp_instr:tt regexp_substr:tt regexp_like:tt repeat:ti replace:ttt reverse:t right:ti rpad:ti rpad:tit
rtrim:t rtrim:tt split_part:tti starts_with:tt string_to_array:tt string_to_array:ttt strpos:tt substr:ti substr:tii substring:tii substring:tt to_ascii:t to_hex:b to_hex:i translate:ttt unistr:t normalize:t
encode:ye decode:te get_bit:yi get_byte:yi set_bit:yii set_byte:yii sha224:y sha256:y sha384:y sha512:y substr:yii bit_count:y convert_from:ye convert_to:te to_char:nm to_char:pm to_char:qm to_char:vm to_char:im
to_char:fm to_date:tm to_number:tm to_timestamp:tm to_timestamp:f age:pp age:qq date_bin:vpp date_part:hp date_part:hq date_part:hv date_part:hd date_part:hx date_trunc:hp date_trunc:hq date_trunc:hv
date_trunc:hqz isfinite:d isfinite:p isfinite:v justify_days:v justify_hours:v justify_interval:v make_date:iii make_interval:iii make_time:iif make_timestamp:iiiiif make_timestamptz:iiiiif extract:h
json_typeof:j jsonb_typeof:k json_array_length:j jsonb_array_length:k json_extract_path:jt jsonb_extract_path:kt jsonb_extract_path_text:ktt json_strip_nulls:j jsonb_strip_nulls:k jsonb_pretty:k
jsonb_set:kKk jsonb_set:kKkl jsonb_insert:kKk jsonb_set_lax:kKk to_json:a to_jsonb:a array_to_json:r row_to_json:R json_build_array:aa jsonb_build_array:aa json_build_object:ta jsonb_build_object:ta
json_object:K jsonb_object:K json_object:KK jsonb_path_exists:kP jsonb_path_query:kP jsonb_path_query_array:kP jsonb_path_query_first:kP jsonb_path_match:kP jsonb_each:k jsonb_each_text:k jsonb_object_keys:k
jsonb_array_elements:k jsonb_array_elements_text:k json_array_elements:j json_each:j json_object_keys:j array_append:ri array_cat:rr array_dims:r array_fill:aN array_length:ri array_lower:ri array_ndims:r
array_position:ri array_position:rii array_positions:ri array_prepend:ir array_remove:ri array_replace:rii array_to_string:rt array_to_string:rtt array_upper:ri cardinality:r trim_array:ri unnest:r
generate_subscripts:ri coalesce:aa coalesce:ii nullif:ii nullif:aa greatest:ii greatest:nf least:aa least:tt num_nulls:aa num_nonnulls:aa generate_series:ii generate_series:iii generate_series:nnn
generate_series:ppv generate_series:qqv generate_series:ddv pg_typeof:a pg_column_size:i format_type:ii obj_description:i col_description:ii current_setting:t inet_client_addr: version_missing:
to_regclass:t to_regtype:t quote_ident:a host:t overlay:O position:O trim:O extract:O substring:O collation_for:t isempty:a lower:a uuid_nil: string_agg:tt array_agg:a sum:n sum:i sum:b sum:f sum:g sum:v
avg:n avg:i avg:f avg:v count:a min:t max:p min:v max:r bool_and:l bool_or:l every:l bit_and:i bit_or:b bit_xor:i stddev:n stddev:i variance:f var_pop:n corr:ff covar_pop:ff regr_slope:ff regr_count:ff
jsonb_agg:a json_agg:a jsonb_object_agg:ta json_object_agg:ta stddev_samp:f mode: random_missing:
"""

KINDS = {
    "a": ["int", "text", "numeric", "boolean", "date", "timestamp", "interval", "jsonb", "int[]", "text[]", "double precision", "uuid", "bytea", "char(4)", "time", "timestamptz", "real", "json"],
    "b": ["bigint", "int"], "d": ["date"], "f": ["double precision"], "g": ["real"], "i": ["int", "smallint"], "j": ["json"], "k": ["jsonb"], "l": ["boolean"], "n": ["numeric"],
    "p": ["timestamp"], "q": ["timestamptz"], "r": ["int[]", "text[]"], "s": ["smallint", "real"], "t": ["text", "varchar(3)", "char(4)"], "v": ["interval"], "x": ["time"], "y": ["bytea"], "K": ["text[]"],
}
FIELDS = ["year", "month", "day", "hour", "minute", "second", "milliseconds", "microseconds", "epoch", "dow", "isodow", "doy", "week", "isoyear", "quarter", "decade", "century", "millennium", "julian",
          "timezone", "timezone_hour", "YEAR", "days", "fortnight"]
PATTERNS = ["YYYY-MM-DD", "HH24:MI:SS", "DD Mon YYYY", "FMDay, FMMonth DDth", "IYYY-IW-ID", "J", "Q", "SSSS", "MS US FF3", "TZ TZH:TZM OF", "BC", "AM", "HH12:MI PM", "WW W D DDD", "CC", "RM", "Y,YYY",
            "999", "FM999.99", "000.00", "S999", "999MI", "999PR", "9,999.99", "9.99EEEE", "RN", "FMRN", "99V99", "L99", "SG99", "PL99", "99th", "\"text\" YYYY", "yyyy", "Mon", "", "XX", "9G999D99", "FM0999"]
ENCODINGS = ["hex", "base64", "escape", "UTF8", "LATIN1", "nope"]
PATHS = ["$", "$.a", "$.b[*]", "$[0]", "$[*] ? (@ > 1)", "strict $.a", "lax $.x", "$.a + 1", "$.**", "$.b.size()", "$.a.type()", "$[last]", "$ ? (@.a == 1)", "$.", "exists($.a)", "$.a == 1"]


def argument(random, kind):
    if kind == "h":
        return quoted(random.choice(FIELDS))
    if kind == "m":
        return quoted(random.choice(PATTERNS))
    if kind == "e":
        return quoted(random.choice(ENCODINGS))
    if kind == "z":
        return quoted(random.choice(["UTC", "Europe/Zurich", "America/New_York", "x"]))
    if kind == "P":
        return quoted(random.choice(PATHS))
    if kind == "N":
        return random.choice(["ARRAY[2]", "ARRAY[2,3]", "'{1}'", "ARRAY[0]"])
    if kind == "R":
        return random.choice(["ROW(1,'a')", "ROW(1.5,NULL,true)", "ROW()"])
    if random.random() < 0.12:
        return bare(random)
    if kind == "i" and random.random() < 0.7:
        return random.choice(["0", "1", "2", "3", "-1", "-2", "5", "10", "12"])
    if kind == "t" and random.random() < 0.5:
        return quoted(random.choice(TEXTS["text"] + ["a.*", "(a)(b)?", "[a-z]+", "l+", "o", ",", "b", "\\d", "^h", "(?i)A", "%s-%I", "%L", "%1$s %2$s", "%5s|", "%", "g", "aab"]))
    return literal(random, random.choice(KINDS[kind]))


def odd_syntax(random, name):
    text = lambda: argument(random, "t")
    number = lambda: argument(random, "i")
    if name == "overlay":
        return f"overlay({text()} PLACING {text()} FROM {number()}" + random.choice([")", f" FOR {number()})"])
    if name == "position":
        return f"position({text()} IN {text()})"
    if name == "trim":
        return random.choice([f"trim(BOTH {text()} FROM {text()})", f"trim(LEADING FROM {text()})", f"trim(TRAILING {text()} FROM {text()})", f"trim({text()}, {text()})"])
    if name == "extract":
        return f"extract({random.choice(FIELDS)} FROM {argument(random, random.choice('pqvdx'))})"
    return random.choice([f"substring({text()} FROM {number()} FOR {number()})", f"substring({text()} FROM {text()})", f"substring({text()} FOR {number()})", f"substring({text()} SIMILAR {text()} ESCAPE '#')"])


CALLS = [entry.split(":") for entry in FUNCTIONS.split()]


def call(random):
    name, kinds = random.choice(CALLS)
    if kinds == "O":
        return odd_syntax(random, name)
    if kinds == "h" and name == "extract":
        return odd_syntax(random, name)
    return f"{name}({', '.join(argument(random, kind) for kind in kinds)})"


def cast(random):
    kind = random.choice(list(TEXTS))
    target = random.choice(TARGETS)
    return random.choice([f"SELECT {literal(random, kind)}::{target} AS x", f"SELECT CAST({literal(random, kind)} AS {target})"])


def input_text(random):
    """A text that a type reads: also one with a character changed."""
    kind = random.choice(list(TEXTS))
    text = random.choice(TEXTS[kind])
    if random.random() < 0.5 and text:
        at = random.randrange(len(text))
        text = random.choice([text[:at] + random.choice("0159-+. :,aZ'\"{}[]TeE") + text[at + 1:], text[:at] + text[at + 1:], text[:at] + text[at] + text[at:], text[at:] + text[:at]])
    return random.choice([f"SELECT {quoted(text)}::{kind} AS x", f"SELECT {quoted(text)}::text::{kind} AS x"])


def operand(random, depth=1):
    roll = random.random()
    if roll < 0.25:
        return bare(random)
    if roll < 0.32 and depth:
        return f"({expression(random, depth - 1)})"
    return literal(random, random.choice(list(TEXTS)))


def expression(random, depth=1):
    roll = random.random()
    if roll < 0.70:
        left = random.choice(list(TEXTS))
        # Types that belong together meet more often than by chance.
        related = random.choice(list(TEXTS)) if random.random() < 0.35 else random.choice(RELATED.get(left, [left]))
        sides = [literal(random, left) if random.random() < 0.8 else operand(random, depth), literal(random, related) if random.random() < 0.7 else operand(random, depth)]
        return f"{sides[0]} {random.choice(BINARY)} {sides[1]}"
    if roll < 0.78:
        return f"{random.choice(UNARY)} {operand(random, depth)}"
    if roll < 0.90:
        return f"({operand(random, depth)}) {random.choice(SUFFIX)}"
    if roll < 0.95:
        return f"CASE WHEN {operand(random, 0)} THEN {operand(random, depth)} ELSE {operand(random, depth)} END"
    return random.choice([f"ARRAY[{operand(random, 0)}, {operand(random, 0)}]", f"GREATEST({operand(random, 0)}, {operand(random, 0)})", f"COALESCE({operand(random, 0)}, {operand(random, 0)})",
                          f"NULLIF({operand(random, 0)}, {operand(random, 0)})", f"ROW({operand(random, 0)}, {operand(random, 0)}) = ROW({operand(random, 0)}, {operand(random, 0)})",
                          f"{operand(random, 0)} IN ({operand(random, 0)}, {operand(random, 0)})", f"{operand(random, 0)} BETWEEN {operand(random, 0)} AND {operand(random, 0)}"])


NUMBERS = ["smallint", "int", "bigint", "real", "double precision", "numeric", "numeric(6,2)"]
CHARACTERS = ["text", "varchar(3)", "char(4)"]
TIMES = ["date", "time", "timestamp", "timestamptz", "interval"]
RELATED = {**{kind: NUMBERS for kind in NUMBERS}, **{kind: CHARACTERS for kind in CHARACTERS}, **{kind: TIMES for kind in TIMES}, "jsonb": ["jsonb", "text", "int", "text[]"], "json": ["text", "int", "json"],
           "int[]": ["int[]", "int"], "text[]": ["text[]", "text"]}
RELATED["interval"] = [*TIMES, "double precision", "int"]
RELATED["date"] = [*TIMES, "int"]

T_COLUMNS = {"id": "n", "a": "n", "b": "n", "c": "t", "d": "d", "e": "n", "f": "n", "g": "b"}
U_COLUMNS = {"k": "n", "a": "n", "c": "t", "ts": "p", "iv": "v", "j": "j", "xs": "x"}


class Query:
    """One SELECT over `t` and `u`, whose columns and their kinds are known while it grows."""

    def __init__(self, random, depth=2, outer=()):
        self.random = random
        self.depth = depth
        self.outer = list(outer)
        self.columns = []
        # An inner query's names hide no outer ones.
        self.aliases = [name + str(3 - depth if depth else 4 + len({column.split(".")[0] for column, _ in outer})) for name in "pqr"]
        self.source = self.relations()

    def relations(self):
        random = self.random
        first, names = self.relation(self.aliases[0])
        self.columns += names
        joined = first
        for alias in self.aliases[1:1 + random.choice([0, 0, 1, 1, 1, 2])]:
            right, names = self.relation(alias)
            before = list(self.columns)
            self.columns = before + names
            kind = random.choice(["JOIN", "LEFT JOIN", "RIGHT JOIN", "FULL JOIN", "CROSS JOIN", "JOIN LATERAL"])
            if kind == "CROSS JOIN":
                joined += f" CROSS JOIN {right}"
            elif kind == "JOIN LATERAL" and self.depth:
                inner = Query(random, 0, before)
                text, kinds = inner.text_of(limit=True)
                self.columns = before + [(f"{alias}.c{n}", kind) for n, kind in enumerate(kinds)]
                names = ", ".join(f"c{n}" for n in range(len(kinds)))
                joined += f" {random.choice(['CROSS', 'LEFT'])} JOIN LATERAL ({text}) {alias}({names})"
                joined += " ON true" if "LEFT JOIN LATERAL (" + text in joined else ""
            else:
                on = self.equality(before, names) if random.random() < 0.8 or "FULL" in kind else self.condition()
                joined += f" {kind.replace(' LATERAL', '')} {right} ON {on}"
        return joined

    def relation(self, alias):
        random = self.random
        roll = random.random()
        if roll < 0.15 and self.depth:
            text, kinds = Query(random, self.depth - 1, ()).text_of(limit=False)
            names = [f"c{n}" for n in range(len(kinds))]
            return f"({text}) {alias}({', '.join(names)})", [(f"{alias}.{name}", kind) for name, kind in zip(names, kinds)]
        if roll < 0.22:
            return f"(VALUES (1, 'x'), (2, NULL), (NULL, 'y')) {alias}(v, w)", [(f"{alias}.v", "n"), (f"{alias}.w", "t")]
        if roll < 0.28:
            return f"generate_series(1, {random.choice([0, 3])}) {alias}(s)", [(f"{alias}.s", "n")]
        name, columns = random.choice([("t", T_COLUMNS), ("u", U_COLUMNS)])
        return f"{name} {alias}", [(f"{alias}.{column}", kind) for column, kind in columns.items()]

    def equality(self, left, right):
        pairs = [(a, b) for a, kind in left for b, other in right if kind == other and kind != "j"]
        if not pairs:
            return "true"
        a, b = self.random.choice(pairs)
        return f"{a} = {b}"

    def of_kind(self, kind):
        choices = [name for name, other in self.columns + self.outer if other == kind]
        return self.random.choice(choices) if choices else None

    def value(self, kind, depth=2):
        random = self.random
        column = self.of_kind(kind)
        if column and (random.random() < 0.6 or not depth):
            return column
        inner = lambda of: self.value(of, depth - 1)
        if kind == "n":
            choices = [lambda: str(random.choice([0, 1, 2, 5, -1, "1.5", "NULL::int"]))]
            if depth:
                choices += [lambda: f"{inner('n')} {random.choice('+-*')} {inner('n')}", lambda: f"length({inner('t')})", lambda: f"coalesce({inner('n')}, 0)", lambda: f"abs({inner('n')})",
                            lambda: f"CASE WHEN {self.condition(depth - 1)} THEN {inner('n')} ELSE {inner('n')} END", lambda: f"({inner('n')})::{random.choice(['int', 'numeric', 'double precision', 'bigint'])}",
                            lambda: f"extract(year FROM {inner('d')})", lambda: f"nullif({inner('n')}, {inner('n')})"]
        elif kind == "t":
            choices = [lambda: quoted(random.choice(["x", "", "y", "zz"]))]
            if depth:
                choices += [lambda: f"{inner('t')} || {inner('t')}", lambda: f"upper({inner('t')})", lambda: f"({inner(random.choice('nbdpv'))})::text", lambda: f"concat({inner('t')}, {inner('n')})",
                            lambda: f"coalesce({inner('t')}, 'none')", lambda: f"substr({inner('t')}, 1, 1)"]
        elif kind == "d":
            choices = [lambda: "DATE '2024-01-01'"] + ([lambda: f"{inner('d')} + 1", lambda: f"({inner('p')})::date"] if depth else [])
        elif kind == "p":
            choices = [lambda: "TIMESTAMP '2024-01-01 10:00'"] + ([lambda: f"{inner('p')} + {inner('v')}", lambda: f"date_trunc('month', {inner('p')})"] if depth else [])
        elif kind == "v":
            choices = [lambda: "INTERVAL '1 day'"] + ([lambda: f"{inner('v')} * 2", lambda: f"{inner('p')} - {inner('p')}"] if depth else [])
        elif kind == "j":
            choices = [lambda: "'{\"a\": 1}'::jsonb"] + ([lambda: f"to_jsonb({inner('n')})", lambda: f"({inner('j')}) -> 'a'"] if depth else [])
        elif kind == "x":
            choices = [lambda: "ARRAY[1, 2]"] + ([lambda: f"array_append({inner('x')}, 3)"] if depth else [])
        else:
            return self.condition(depth - 1) if depth else "true"
        return random.choice(choices)()

    def condition(self, depth=2):
        random = self.random
        roll = random.random()
        below = max(min(depth - 1, 1), 0)
        if depth and roll < 0.15:
            return f"({self.condition(depth - 1)} {random.choice(['AND', 'OR'])} {self.condition(depth - 1)})"
        if depth and roll < 0.2:
            return f"NOT ({self.condition(depth - 1)})"
        if roll < 0.28:
            column = self.of_kind("b")
            if column:
                return column
        if roll < 0.36:
            return f"{self.value(random.choice('ntdp'), below)} IS {random.choice(['', 'NOT '])}NULL"
        if roll < 0.42:
            return f"{self.value('n', below)} IN ({self.value('n', 0)}, {self.value('n', 0)})"
        if roll < 0.47:
            return f"{self.value('t', below)} LIKE {quoted(random.choice(['x%', '%', '_', '']))}"
        if roll < 0.5:
            return f"{self.value('n', 0)} = ANY({self.value('x', 0)})"
        if roll < 0.64 and self.depth:
            inner = Query(random, 0, self.columns + self.outer if random.random() < 0.6 else ())
            form = random.choice(["EXISTS", "NOT EXISTS", "IN", "NOT IN", "ANY", "ALL"])
            if "EXISTS" in form:
                return f"{form} ({inner.text_of(limit=False)[0]})"
            text, _ = inner.text_of(limit=False, wanted=["n"])
            operator = {"ANY": f"{random.choice(['=', '<', '>='])} ANY", "ALL": f"{random.choice(['<>', '<', '>='])} ALL"}.get(form, form)
            return f"{self.value('n', below)} {operator} ({text})"
        kind = random.choice("nnntdpv")
        return f"{self.value(kind, below)} {random.choice(['=', '<>', '<', '<=', '>', '>=', 'IS DISTINCT FROM'])} {self.value(kind, below)}"

    def aggregate(self):
        random = self.random
        form = random.choice(["count(*)", "count", "sum", "avg", "min", "max", "string_agg", "array_agg", "bool_or", "count distinct", "jsonb_agg", "sum v"])
        filtered = f" FILTER (WHERE {self.condition(1)})" if random.random() < 0.2 else ""
        if form == "count(*)":
            return "count(*)" + filtered, "n"
        if form == "count":
            return f"count({self.value(random.choice('ntd'), 1)})" + filtered, "n"
        if form == "count distinct":
            return f"count(DISTINCT {self.value(random.choice('ntdv'), 1)})" + filtered, "n"
        if form in ("sum", "avg"):
            return f"{form}({self.value('n', 1)})" + filtered, "n"
        if form == "sum v":
            return f"sum({self.value('v', 1)})" + filtered, "v"
        if form in ("min", "max"):
            kind = random.choice("ntdpv")
            return f"{form}({self.value(kind, 1)})" + filtered, kind
        if form == "bool_or":
            return f"bool_or({self.condition(1)})" + filtered, "b"
        if form == "string_agg":
            text = self.value("t", 1)
            return f"string_agg({text}, ',' ORDER BY {text})" + filtered, "t"
        number = self.value("n", 1)
        return f"{form}({number} ORDER BY {number})" + filtered, "o"

    def window(self):
        random = self.random
        order = self.value(random.choice("nt"), 0)
        over = random.choice(["", f"PARTITION BY {self.value(random.choice('ntd'), 0)}"])
        if random.random() < 0.7:
            over += f" ORDER BY {order}{random.choice(['', ' DESC', ' NULLS FIRST'])}"
            over += random.choice(["", "", " ROWS BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING", " RANGE BETWEEN CURRENT ROW AND UNBOUNDED FOLLOWING", " GROUPS BETWEEN 1 PRECEDING AND 1 FOLLOWING",
                                   " RANGE BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW EXCLUDE CURRENT ROW", " GROUPS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW EXCLUDE TIES", " RANGE CURRENT ROW EXCLUDE GROUP"])
        name = random.choice(["rank()", "dense_rank()", f"sum({self.value('n', 0)})", "count(*)", f"max({self.value('t', 0)})", f"avg({self.value('n', 0)})", "percent_rank()", "cume_dist()"])
        return f"{name} OVER ({over})", "n" if "max" not in name else "t"

    def text_of(self, limit, wanted=None):
        """The statement, and the kinds of its columns."""
        random = self.random
        where = f" WHERE {self.condition()}" if random.random() < 0.6 else ""
        grouped = wanted in (None, ["n"]) and random.random() < 0.35
        if grouped:
            keys = [(self.of_kind(kind) or self.value(kind, 1), kind) for kind in random.sample("ntdbv", random.choice([0, 1, 1, 2]))]
            keys = [(text, kind) for text, kind in keys if any(name in text for name, _ in self.columns)]
            items = [] if wanted else keys[:]
            aggregates = [self.aggregate() for _ in range(random.choice([1, 1, 2]))]
            items += [("count(*)", "n")] if wanted else aggregates
            group = ", ".join(text for text, _ in keys)
            if keys and random.random() < 0.25:
                group = random.choice([f"ROLLUP({group})", f"CUBE({group})", f"GROUPING SETS (({group}), ())"])
            tail = (f" GROUP BY {group}" if keys else "") + (f" HAVING count(*) {random.choice(['>', '<='])} {random.choice([0, 1, 2])}" if random.random() < 0.3 else "")
        else:
            kinds = wanted or [random.choice("nnttdbpvjx") for _ in range(random.choice([1, 2, 3]))]
            items = [(self.value(kind), kind) for kind in kinds]
            if not wanted and self.depth and random.random() < 0.2:
                items.append(self.window())
            if not wanted and self.depth and random.random() < 0.2:
                inner = Query(random, 0, self.columns + self.outer)
                items.append((f"(SELECT max(z.m) FROM ({inner.text_of(limit=False, wanted=['n'])[0]}) z(m))", "n"))
            tail = ""
        distinct = "DISTINCT " if random.random() < 0.15 else ""
        text = f"SELECT {distinct}{', '.join(item for item, _ in items)} FROM {self.source}{where}{tail}"
        if self.depth == 2 and random.random() < 0.1 and not wanted:
            other = Query(random, 1)
            other_text, _ = other.text_of(limit=False, wanted=[kind if kind in "ntdpvb" else "n" for _, kind in items])
            text = f"{text} {random.choice(['UNION', 'UNION ALL', 'INTERSECT', 'EXCEPT'])} {other_text}"
        elif limit:
            positions = ", ".join(str(at + 1) + random.choice(["", " DESC", " NULLS FIRST"]) for at in range(len(items)))
            text += f" ORDER BY {positions}" + random.choice(["", " LIMIT 2", " OFFSET 1", " LIMIT 3 OFFSET 1", " FETCH FIRST 2 ROWS WITH TIES"])
        return text, [kind for _, kind in items]


def select(random):
    text, kinds = Query(random).text_of(limit=random.random() < 0.5)
    return text


FAULTS = ["SELEC 1", "SELECT 1 +", "SELECT nope FROM t", "SELECT t.nope FROM t", "SELECT * FROM nope", "SELECT a FROM t, u", "SELECT nope(1)", "SELECT upper(1)", "SELECT 'x'::int", "SELECT 1/0",
          "SELECT a, count(*) FROM t", "SELECT count(*) FROM t WHERE count(*) > 1", "SELECT sum(sum(a)) FROM t", "SELECT 1 FROM t ORDER BY 5", "SELECT a FROM t GROUP BY 7", "SELECT DISTINCT a FROM t ORDER BY b",
          "SELECT 1 UNION SELECT 'x'", "SELECT 1 UNION SELECT 1, 2", "SELECT * FROM t JOIN u USING (nope)", "SELECT (SELECT 1, 2)", "SELECT (SELECT id FROM t)", "SELECT 1 LIMIT -1", "SELECT 1 LIMIT 'x'",
          "SELECT * FROM t t, t t", "SELECT row_number() FROM t", "SELECT a FROM t WHERE row_number() OVER () = 1", "SELECT 1 WHERE 1", "SELECT NULL + 'a'", "SELECT 1 = 'x'", "SELECT ARRAY[1, 'x']",
          "SELECT CASE WHEN 1 THEN 2 END", "SELECT 1::nope", "SELECT $1", "SELECT 'a' || 1 || NULL", "SELECT -32768::smallint", "SELECT 2147483647 + 1", "SELECT 1 IN ('a')", "SELECT (1,2) = (1,2,3)",
          "WITH a AS (SELECT 1), a AS (SELECT 2) SELECT 1", "SELECT a AS x FROM t WHERE x = 1", "SELECT * FROM (SELECT 1)", "SELECT generate_series(1,2) FROM t WHERE generate_series(1,2) = 1",
          "SELECT lag(a) FROM t", "SELECT max(a) OVER w FROM t", "SELECT 1 AS a, 2 AS a ORDER BY a", "SELECT t.* FROM u", "SELECT *", "SELECT a.b.c.d FROM t", "INSERT INTO t VALUES (1)", "INSERT INTO t (nope) VALUES (1)",
          "INSERT INTO t (id, a) VALUES (100)", "INSERT INTO t (id, id) VALUES (1, 2)", "INSERT INTO t (id) VALUES (1)", "INSERT INTO t (id) VALUES (NULL)", "UPDATE t SET nope = 1", "UPDATE t SET a = 'x'",
          "DELETE FROM nope", "UPDATE t SET a = 1, a = 2", "CREATE TABLE t (a int)", "DROP TABLE nope", "CREATE TABLE z (a int, a int)", "CREATE TABLE z (a nope)", "DROP VIEW t", "SET nope.x.y = 1",
          "SET work = 1", "SHOW nope", "EXECUTE nope", "DEALLOCATE nope", "FETCH nope", "CLOSE nope", "RELEASE x", "ROLLBACK TO x", "SAVEPOINT x", "COPY nope FROM STDIN", "ALTER TABLE t DROP COLUMN nope",
          "ALTER TABLE t ADD COLUMN a int", "TRUNCATE nope", "LOCK nope", "COMMENT ON TABLE nope IS 'x'", "SELECT 1 FROM t HAVING a = 1", "SELECT a FROM t GROUP BY a HAVING b = 1", "VALUES (1), (1, 2)",
          "SELECT * FROM t WHERE a = (SELECT 1, 2)", "SELECT EXISTS (SELECT nope FROM t)", "SELECT sum(c) FROM t", "SELECT avg(d) FROM t", "SELECT c + 1 FROM t", "SELECT c = 1 FROM t", "SELECT d + d FROM t",
          "SELECT g + 1 FROM t", "SELECT NOT a FROM t", "SELECT a AND g FROM t", "SELECT c LIKE 1 FROM t", "SELECT count(DISTINCT *) FROM t", "SELECT count() FROM t", "SELECT string_agg(c) FROM t",
          "SELECT sum(a ORDER BY nope) FROM t", "SELECT sum(DISTINCT a) OVER () FROM t", "SELECT rank() OVER (ROWS 1 FOLLOWING) FROM t", "SELECT 'abc'[1]", "SELECT a[1] FROM t", "SELECT xs['a'] FROM u"]


def fault(random):
    text = random.choice(FAULTS) if random.random() < 0.5 else select(random)
    if random.random() < 0.6:
        words = text.split(" ")
        at = random.randrange(len(words))
        roll = random.random()
        if roll < 0.35:
            del words[at]
        elif roll < 0.65:
            words[at] = random.choice(["nope", "NULL", "1", "'x'", "t", "(", ")", ",", "SELECT", "a", "p.a", "*", "::int"])
        else:
            other = random.randrange(len(words))
            words[at], words[other] = words[other], words[at]
        text = " ".join(words)
    # Neither may be changed, nor may a session be left in a transaction.
    head = text.lstrip("( ").split(" ")[0].upper()
    return text if head in ("SELECT", "WITH", "VALUES", "SELEC") or text in FAULTS else fault(random)


MAKERS = {"cast": cast, "input": input_text, "operator": lambda random: f"SELECT {expression(random)} AS x", "function": lambda random: f"SELECT {call(random)} LIMIT 20", "select": select, "fault": fault}
SHARES = ["cast"] * 3 + ["input"] * 2 + ["operator"] * 5 + ["function"] * 6 + ["select"] * 5 + ["fault"] * 1


def of_seed(seed, count, only=None):
    """`count` pairs of a kind and a statement."""
    random = randomness.Random(seed)
    for _ in range(count):
        kind = only or random.choice(SHARES)
        yield kind, MAKERS[kind](random)
