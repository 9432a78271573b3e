//! Values of statements: texts, arrays, JSON, numbers, of sizes that may be too large.

use rand::Rng;
use rand::seq::IndexedRandom;

use super::grammar::Grammar;

/// How deep expressions nest.
pub const DEPTH_MAX: u32 = 4;

impl Grammar<'_> {
    pub(super) fn pick<'t>(&mut self, texts: &[&'t str]) -> &'t str {
        texts.choose(self.random).expect("there are some")
    }

    pub(super) fn below(&mut self, depth: u32) -> u32 {
        depth.saturating_sub(self.random.random_range(1..=2))
    }

    /// A number of times.
    pub(super) fn times(&mut self) -> &'static str {
        self.pick(&[
            "0",
            "1",
            "3",
            "10",
            "1000",
            "100000",
            "1000000",
            "100000000",
            "2147483647",
            "9223372036854775807",
            "-1",
        ])
    }

    /// Rows of a query: never so many that their number alone is the attack.
    pub(super) fn rows(&mut self) -> &'static str {
        self.pick(&["1", "2", "10", "300", "9000", "20000"])
    }

    pub(super) fn integer(&mut self) -> String {
        match self.random.random_range(0..8) {
            0 => self
                .pick(&[
                    "2147483647",
                    "-2147483648",
                    "9223372036854775807",
                    "(-9223372036854775807 - 1)",
                    "9223372036854775808",
                ])
                .to_owned(),
            1 => self
                .pick(&[
                    "'1e16383'::numeric",
                    "1e100000000",
                    "10 ^ 1e9",
                    "1e-16383",
                    "1e38",
                    "1e37::numeric(38, 0)",
                    "0.1 ^ 1000",
                ])
                .to_owned(),
            2 => format!("length({})", self.text(2)),
            3 => format!("'{}'::numeric", "9".repeat(self.random.random_range(1..500))),
            4 => format!("factorial({})", self.times()),
            5 => format!("strpos({}, {})", self.text(1), self.literal()),
            6 => self.times().to_owned(),
            _ => format!("{}", self.random.random::<i32>()),
        }
    }

    pub(super) fn literal(&mut self) -> String {
        match self.random.random_range(0..6) {
            0 => "''".to_owned(),
            1 => "'ä\u{1F600}'".to_owned(),
            2 => format!("'{}'", "x".repeat(self.random.random_range(0..200_000))),
            3 => "E'\\\\%_(){}[]$^*+?'".to_owned(),
            4 => "NULL".to_owned(),
            _ => "'ab'".to_owned(),
        }
    }

    /// A text, perhaps a long one.
    pub(super) fn text(&mut self, depth: u32) -> String {
        if depth == 0 {
            return self.literal();
        }
        let d = self.below(depth);
        match self.random.random_range(0..34) {
            0..=5 => format!("repeat({}, {})", self.text(d), self.times()),
            6 | 7 => format!("replace({}, {}, {})", self.text(d), self.literal(), self.text(d)),
            8 => format!("lpad({}, {}, {})", self.text(d), self.times(), self.literal()),
            9 => format!("rpad({}, {}, 'ä')", self.text(d), self.times()),
            10 | 11 => format!("({} || {})", self.text(d), self.text(d)),
            12 => {
                let count = self.random.random_range(2..30);
                let value = self.text(d);
                format!("concat({})", vec![value; count].join(", "))
            }
            13 => {
                let count = self.random.random_range(2..30);
                let value = self.text(d);
                format!("concat_ws({}, {})", self.text(d), vec![value; count].join(", "))
            }
            14 => format!("format('%s %s %1$s %2$s', {}, {})", self.text(d), self.text(d)),
            15 => format!(
                "format('%{}s|%L', {}, {})",
                self.times(),
                self.text(d),
                self.text(d)
            ),
            16 => format!("translate({}, 'ab', 'äö')", self.text(d)),
            17 => {
                let pattern = self.pattern();
                format!("regexp_replace({}, {pattern}, '\\1\\1\\1\\1', 'g')", self.text(d))
            }
            18 => format!("array_to_string({}, {})", self.array(d), self.text(d)),
            19 => format!("upper(lower(initcap({})))", self.text(d)),
            20 => format!("reverse({})", self.text(d)),
            21 => format!("quote_literal({})", self.text(d)),
            22 => format!("({})::text", self.jsonb(d)),
            23 => format!("jsonb_pretty({})", self.jsonb(d)),
            24 => format!(
                "encode(({})::bytea, '{}')",
                self.text(d),
                self.pick(&["hex", "base64"])
            ),
            25 => format!("({})::text", self.array(d)),
            26 => format!("to_char(now(), {})", self.text(d)),
            27 => format!("substr({}, {}, {})", self.text(d), self.times(), self.times()),
            28 => format!(
                "overlay({} placing {} from {} for {})",
                self.text(d),
                self.text(d),
                self.times(),
                self.times()
            ),
            29 => format!(
                "CASE WHEN random() < 2 THEN {} ELSE {} END",
                self.text(d),
                self.text(d)
            ),
            30 => format!("coalesce({}, {})", self.text(d), self.text(d)),
            31 => format!(
                "split_part({}, {}, {})",
                self.text(d),
                self.literal(),
                self.times()
            ),
            32 => format!("(SELECT string_agg({}, {}) FROM t)", self.text(d), self.literal()),
            _ => format!("({})::text", self.integer()),
        }
    }

    pub(super) fn pattern(&mut self) -> String {
        match self.random.random_range(0..14) {
            6 => self.doubled_groups(),
            7 => format!("repeat('{}', {})", self.atom(), self.times()),
            8 => format!(
                "repeat('(', 150) || '{}' || repeat('){{{}}}', 150)",
                self.atom(),
                self.random.random_range(1..256)
            ),
            9 | 10 => {
                let parts: String = (0..self.random.random_range(1..40))
                    .map(|_| self.atom())
                    .collect();
                format!("'{parts}'")
            }
            11 => format!("'(' || repeat('{}|', {}) || 'b)*'", self.atom(), self.times()),
            0 => "'((a|b){500}){500}'".to_owned(),
            1 => "'(a*)*b'".to_owned(),
            2 => format!("'{}'", "(".repeat(self.random.random_range(1..2_000))),
            3 => format!("'{}'", "a?".repeat(self.random.random_range(1..20_000))),
            4 => "'(.)'".to_owned(),
            _ => self.text(1),
        }
    }

    /// Groups of which each refers to the one before it more than once.
    fn doubled_groups(&mut self) -> String {
        let times = self.random.random_range(1..4);
        let groups: String = (1..self.random.random_range(2..60))
            .map(|group| format!("({})", format!("\\{group}").repeat(times)))
            .collect();
        format!("'(a){groups}'")
    }

    /// A part of a regular expression.
    fn atom(&mut self) -> String {
        let inner = self.pick(&[
            "a",
            "\\w",
            ".",
            "[[:alpha:]]",
            "[^a]",
            "(?:a|ab)",
            "ä",
            "(a|b*)",
            "$",
            "\\m",
        ]);
        let frame = self.pick(&[
            "{}",
            "{}",
            "{}*",
            "{}+?",
            "{}{7}",
            "{}{0,255}",
            "({})",
            "(?={})",
            "(?<!{})",
            "(?!{})x",
            "({})\\1",
        ]);
        frame.replace("{}", inner)
    }

    pub(super) fn array(&mut self, depth: u32) -> String {
        let d = self.below(depth);
        match self.random.random_range(0..12) {
            0 => format!("ARRAY[{}, {}]", self.text(d), self.text(d)),
            1 => format!(
                "string_to_array({}, {})",
                self.text(d),
                self.pick(&["','", "''", "NULL", "'a'"])
            ),
            2 => format!("array_repeat({}, {})", self.text(d), self.times()),
            3 => format!("range(0, {})", self.times()),
            4 => format!("array_resize(ARRAY[1, 2], {}, 7)", self.times()),
            5 => format!("array_append(ARRAY['a', 'b'], {})", self.text(d)),
            6 => {
                let array = self.array(d);
                format!("array_cat({array}, {array})")
            }
            7 => format!("array_replace({}, 'a', {})", self.array(d), self.text(d)),
            8 => format!("regexp_match({}, {})", self.text(d), self.pattern()),
            9 => format!("('{{' || {} || '}}')::int[]", self.text(d)),
            10 => format!("array_intersect({}, {})", self.array(d), self.array(d)),
            _ => format!("({})[{}:{}]", self.array(d), self.times(), self.times()),
        }
    }

    pub(super) fn jsonb(&mut self, depth: u32) -> String {
        let d = self.below(depth);
        let times = self.times();
        match self.random.random_range(0..12) {
            0 => format!("('[' || repeat('1e16383,', {times}) || '1]')::jsonb"),
            1 => format!("(repeat('[', {times}) || repeat(']', {times}))::jsonb"),
            2 => format!("('[' || repeat('[],', {times}) || '1]')::jsonb"),
            3 => format!("to_jsonb({})", self.text(d)),
            4 => format!("jsonb_build_array({}, {})", self.text(d), self.text(d)),
            5 => format!("jsonb_build_object({}, {})", self.literal(), self.text(d)),
            6 => {
                let value = self.jsonb(d);
                format!("({value} || {value})")
            }
            7 => format!("jsonb_set('{{\"a\": [1]}}', '{{a,0}}', {})", self.jsonb(d)),
            8 => r#"('{' || repeat('"a":{', 500) || repeat('}', 500) || '}')::jsonb"#.to_owned(),
            9 => format!(
                "({}::jsonb)",
                self.pick(&[
                    "'1e131071'",
                    "'1e131072'",
                    "'1e99999999999999999999'",
                    "'-1e-16383'"
                ])
            ),
            10 => format!("({} #> '{{1,2,3}}')", self.jsonb(d)),
            _ => "'[1, 2, {\"a\": null}]'::jsonb".to_owned(),
        }
    }

    pub(super) fn any(&mut self) -> String {
        let (one, other) = (self.jsonb(2), self.array(2));
        match self.random.random_range(0..24) {
            0 => one,
            1 => other,
            2 => format!("{one} @> {one}"),
            3 => format!("{other} && {other}"),
            4 => format!("{other} @> {other}"),
            5 => format!("levenshtein({}, {})", self.text(2), self.text(2)),
            6 => {
                let operator = self.pick(&["~", "~*", "!~", "SIMILAR TO"]);
                format!("{} {operator} {}", self.text(2), self.pattern())
            }
            7 => format!("regexp_like({}, {})", self.text(2), self.pattern()),
            8 => format!("{} LIKE {}", self.text(2), self.text(2)),
            9 => format!("({other})[{}]", self.times()),
            10 => format!(
                "date '{}' + interval '{} days'",
                self.pick(&["4713-01-01", "9999-12-31", "294276-01-01", "0001-01-01"]),
                self.times()
            ),
            11 => format!("interval '1 month' * {}", self.integer()),
            12 => format!("interval '{} years {} microseconds'", self.times(), self.times()),
            13 => format!(
                "timestamp '{}' - timestamp '{}'",
                self.pick(&["infinity", "294276-12-31", "1-1-1"]),
                self.pick(&["-infinity", "4714-11-24 BC", "9999-1-1"])
            ),
            14 => format!(
                "generate_series(timestamp '1-1-1', timestamp '9999-1-1', interval '{} seconds')",
                self.times()
            ),
            15 => format!(
                "({}) {} ({})",
                self.integer(),
                self.pick(&["+", "*", "/", "%", "^", "-", "<<"]),
                self.integer()
            ),
            16 => format!("round({}, {})", self.integer(), self.times()),
            17 => format!("regexp_split_to_array({}, {})", self.text(2), self.pattern()),
            18 => format!("jsonb_path_query_array({one}, '{}')", self.path()),
            19 => format!("to_char(({})::numeric, {})", self.integer(), self.text(1)),
            20 => format!(
                "{} LIKE ANY (ARRAY[{}, {}])",
                self.text(2),
                self.text(2),
                self.text(1)
            ),
            21 => format!("({one} = {one}, {other} < {other}, md5({}))", self.text(2)),
            22 => format!("sha256({}::bytea)", self.text(2)),
            _ => format!("to_timestamp({}, {})", self.text(1), self.text(1)),
        }
    }

    /// A path into JSON.
    fn path(&mut self) -> String {
        let step = self.pick(&[
            "[*]",
            ".**",
            ".a",
            "[last]",
            ".*",
            "[0 to 2147483647]",
            " ? (@ > 1)",
            ".keyvalue()",
        ]);
        let deep = format!("${}", step.repeat(self.random.random_range(1..200)));
        match self.random.random_range(0..3) {
            0 => format!(
                "{}1{}",
                "(".repeat(self.random.random_range(1..5_000)),
                ")".repeat(3)
            ),
            1 => format!(
                "$.** ? (@ like_regex \"{}\")",
                "(a|b)*".repeat(self.random.random_range(1..500))
            ),
            _ => deep,
        }
    }
}
