//! Statements with sizes, depths and counts turned up. Their values are made in `values`, other shapes of queries in `shapes`.

use std::fmt;

use bytes::Bytes;
use futures::SinkExt;
use rand::Rng;
use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use tokio_postgres::Client;
use tokio_postgres::types::{ToSql, Type};

/// What is sent to the server.
#[derive(Debug, Clone)]
pub enum Attack {
    /// Texts of statements, one after the other. Each may fail.
    Statements(Vec<String>),
    /// A statement with texts as its parameters.
    Parameters(String, Vec<String>),
    /// Rows for a COPY.
    Copy(String, String),
}

impl fmt::Display for Attack {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Attack::Statements(statements) => f.write_str(&statements.join(";\n")),
            Attack::Parameters(sql, values) => write!(f, "{sql} with {values:?}"),
            Attack::Copy(sql, rows) => write!(f, "{sql}\n{rows}"),
        }
    }
}

impl Attack {
    /// Sends it. The last error, if there was one.
    pub async fn run(&self, client: &Client) -> Result<(), tokio_postgres::Error> {
        match self {
            Attack::Statements(statements) => {
                let mut outcome = Ok(());
                for statement in statements {
                    match client.simple_query(statement).await {
                        Ok(_) => {}
                        Err(error) if error.as_db_error().is_some() => outcome = Err(error),
                        Err(error) => return Err(error),
                    }
                }
                outcome
            }
            Attack::Parameters(sql, values) => {
                let statement = client.prepare_typed(sql, &vec![Type::TEXT; values.len()]).await?;
                let values: Vec<&(dyn ToSql + Sync)> = values.iter().map(|value| value as _).collect();
                client.query(&statement, &values).await.map(|_| ())
            }
            Attack::Copy(sql, rows) => {
                let sink = client.copy_in::<_, Bytes>(sql).await?;
                let mut sink = std::pin::pin!(sink);
                sink.send(Bytes::from(rows.clone())).await?;
                sink.finish().await.map(|_| ())
            }
        }
    }
}

use super::values::DEPTH_MAX;

/// Writes attacks.
pub struct Grammar<'a> {
    pub(super) random: &'a mut StdRng,
}

impl<'a> Grammar<'a> {
    pub fn new(random: &'a mut StdRng) -> Self {
        Grammar { random }
    }

    /// One attack.
    pub fn attack(&mut self) -> Attack {
        let one = |sql: String| Attack::Statements(vec![sql]);
        match self.random.random_range(0..38) {
            0..=5 => one(format!("SELECT length({})", self.text(DEPTH_MAX))),
            6 => one(format!("SELECT {}", self.text(DEPTH_MAX))),
            7 | 8 => {
                let value = self.any();
                one(format!("SELECT {value}"))
            }
            9 => {
                let value = self.text(2);
                one(format!(
                    "SELECT {value} FROM generate_series(1, {}) AS s(g)",
                    self.rows()
                ))
            }
            10 => {
                let value = self.text(2);
                let aggregate = self.pick(&[
                    "string_agg(x, ',')",
                    "array_agg(x)",
                    "max(x)",
                    "count(DISTINCT x)",
                    "min(x || x)",
                ]);
                let group = self.pick(&["", " GROUP BY x", " GROUP BY length(x) % 3"]);
                one(format!(
                    "SELECT {aggregate} FROM (SELECT {value} AS x FROM generate_series(1, {}) AS s(g)) AS q{group}",
                    self.rows()
                ))
            }
            11 => {
                let value = self.text(2);
                let rows = self.rows();
                one(format!(
                    "SELECT {value} AS x FROM generate_series(1, {rows}) AS s(g) ORDER BY x, g LIMIT 3"
                ))
            }
            12 => {
                let value = self.text(2);
                one(format!(
                    "SELECT id FROM t WHERE length({value} || v) > {} OR v = {value}",
                    self.integer()
                ))
            }
            13 => one(self.chain()),
            14 => one(self.long_list()),
            15 => one(self.deep()),
            16 => {
                let (limit, offset) = (self.integer(), self.integer());
                one(format!(
                    "SELECT * FROM t, t AS u, t AS w ORDER BY 1 LIMIT {limit} OFFSET {offset}"
                ))
            }
            17 => self.prepared(),
            18 => self.view(),
            19 => self.written(),
            20 => self.cursor(),
            21 => self.copy(),
            22 | 23 => self.parameters(),
            24 => one(format!("EXPLAIN SELECT {}", self.any())),
            25 => {
                let value = self.text(1);
                let frame = self.pick(&[
                    "",
                    " ORDER BY g",
                    " ORDER BY g ROWS BETWEEN 1000 PRECEDING AND CURRENT ROW",
                ]);
                let function = self.pick(&[
                    "lag(x, 1, 'none')",
                    "string_agg(x, '')",
                    "first_value(x)",
                    "max(x)",
                ]);
                one(format!(
                    "SELECT length({function} OVER (PARTITION BY 1{frame})) FROM (SELECT g, {value} AS x \
                     FROM generate_series(1, {}) AS s(g)) AS q",
                    self.rows()
                ))
            }
            26 => one(format!(
                "WITH RECURSIVE r(n, x) AS (SELECT 1, {} UNION ALL SELECT n + 1, x || x FROM r WHERE n < {}) \
                 SELECT max(length(x)) FROM r",
                self.literal(),
                self.times()
            )),
            27 => one(format!(
                "SELECT * FROM generate_series({}, {}, {})",
                self.integer(),
                self.integer(),
                self.integer()
            )),
            28 => one(self.noise()),
            29..=36 => self.shape(),
            _ => {
                let value = self.any();
                one(format!("VALUES ({value}), ({value}), (NULL)"))
            }
        }
    }

    /// Names that double with each step.
    fn chain(&mut self) -> String {
        let steps = self.random.random_range(1..60);
        let each = self.pick(&[
            "SELECT a.x FROM {} a",
            "SELECT a.x FROM {} a, {} b",
            "SELECT x FROM {} UNION ALL SELECT x FROM {}",
            "SELECT x || x AS x FROM {}",
        ]);
        let mut sql = "WITH c0 AS (SELECT 'ab' AS x)".to_owned();
        for step in 1..=steps {
            let before = format!("c{}", step - 1);
            sql.push_str(&format!(", c{step} AS ({})", each.replace("{}", &before)));
        }
        format!("{sql} SELECT max(length(x)) FROM c{steps}")
    }

    fn long_list(&mut self) -> String {
        let count = self.random.random_range(1..20_000);
        let item = self.pick(&["1", "id", "'ab'", "1.5", "NULL"]);
        let items = vec![item; count].join(self.pick(&[", ", " + ", " OR id = ", " || "]));
        match self.random.random_range(0..4) {
            0 => format!("SELECT id FROM t WHERE id IN ({items})"),
            1 => format!("SELECT {items} FROM t"),
            2 => format!("SELECT array_length(ARRAY[{items}], 1)"),
            _ => format!("SELECT concat({items})"),
        }
    }

    fn deep(&mut self) -> String {
        let depth = *[10, 100, 1_000, 20_000]
            .choose(self.random)
            .expect("there are some");
        let (open, inside, close) = *[
            ("(", "1", ")"),
            ("NOT ", "true", ""),
            ("(SELECT ", "1", ")"),
            ("abs(", "1", ")"),
            ("ARRAY[", "1", "]"),
            ("CASE WHEN true THEN ", "1", " END"),
            ("-", " 1", ""),
            ("upper(", "'a'", " || 'b')"),
        ]
        .choose(self.random)
        .expect("there are some");
        format!("SELECT {}{inside}{}", open.repeat(depth), close.repeat(depth))
    }

    fn prepared(&mut self) -> Attack {
        let name = "p";
        let body = match self.random.random_range(0..6) {
            0 => format!("EXECUTE {name}"),
            1 => format!(
                "SELECT ${}",
                self.pick(&["1", "65535", "65536", "100000000000", "99999999999999999999"])
            ),
            2 => format!("SELECT repeat($1, {})", self.times()),
            3 => format!("PREPARE {name} AS SELECT 1"),
            4 => format!("SELECT {}", self.any()),
            _ => format!(
                "INSERT INTO own SELECT g, $1 FROM generate_series(1, {}) AS s(g)",
                self.rows()
            ),
        };
        let value = self.text(2);
        Attack::Statements(vec![
            format!("DEALLOCATE ALL"),
            format!("PREPARE {name} AS {body}"),
            format!("EXECUTE {name}"),
            format!("EXECUTE {name}({value})"),
        ])
    }

    fn view(&mut self) -> Attack {
        let expression = match self.random.random_range(0..4) {
            0 => format!("repeat(v, {})", self.times()),
            1 => format!("replace(v, 'r', {})", self.text(2)),
            2 => format!("v || {}", self.text(2)),
            _ => format!("string_agg({}, ',')", self.text(1)),
        };
        let group = if expression.starts_with("string_agg") {
            " GROUP BY id % 3"
        } else {
            ""
        };
        Attack::Statements(vec![
            "DROP MATERIALIZED VIEW IF EXISTS hostile".to_owned(),
            format!(
                "CREATE MATERIALIZED VIEW hostile AS SELECT max(id) AS id, {expression} AS x FROM own{}",
                if group.is_empty() { " GROUP BY v" } else { group }
            ),
            "INSERT INTO own SELECT g, 'r' || g FROM generate_series(1, 300) AS s(g)".to_owned(),
            "SELECT id, length(x) FROM hostile".to_owned(),
            "DELETE FROM own".to_owned(),
            "DROP MATERIALIZED VIEW IF EXISTS hostile".to_owned(),
        ])
    }

    fn written(&mut self) -> Attack {
        let value = self.text(3);
        let statement = match self.random.random_range(0..4) {
            0 => format!("INSERT INTO own VALUES (1, {value})"),
            1 => format!(
                "INSERT INTO own SELECT g, {value} FROM generate_series(1, {}) AS s(g)",
                self.rows()
            ),
            2 => format!("UPDATE own SET v = {value}"),
            _ => format!("DELETE FROM own WHERE v = {value}"),
        };
        Attack::Statements(vec!["BEGIN".to_owned(), statement, "ROLLBACK".to_owned()])
    }

    fn cursor(&mut self) -> Attack {
        let value = self.text(2);
        Attack::Statements(vec![
            "BEGIN".to_owned(),
            format!(
                "DECLARE c CURSOR FOR SELECT {value} FROM generate_series(1, {}) AS s(g)",
                self.rows()
            ),
            format!(
                "FETCH {} FROM c",
                self.pick(&["1", "ALL", "9223372036854775807", "-1", "0"])
            ),
            format!("MOVE {} FROM c", self.times()),
            "ROLLBACK".to_owned(),
        ])
    }

    fn copy(&mut self) -> Attack {
        let options = self.pick(&["", " WITH (FORMAT csv)", " WITH (FORMAT text, DELIMITER ',')"]);
        let line = match self.random.random_range(0..6) {
            0 => "1\t2\t3\t4".repeat(self.random.random_range(1..10_000)),
            1 => "\"".repeat(self.random.random_range(1..100_000)),
            2 => format!("1\t{}", "\\".repeat(self.random.random_range(1..100_000))),
            3 => format!("99999999999999999999\t{}", "x".repeat(100)),
            4 => "\\.\n\\.\n1\ta".to_owned(),
            _ => format!("1,{}", "x".repeat(self.random.random_range(1..2_000_000))),
        };
        Attack::Copy(format!("COPY own FROM STDIN{options}"), format!("{line}\n"))
    }

    fn parameters(&mut self) -> Attack {
        let long = |random: &mut StdRng, part: &str| {
            part.repeat(*[1, 1_000, 500_000].choose(random).expect("there are some"))
        };
        let value = match self.random.random_range(0..6) {
            0 => long(self.random, "x"),
            1 => format!("[{}1]", long(self.random, "1e16383,")),
            2 => format!("{{{}1}}", long(self.random, "1,")),
            3 => long(self.random, "9"),
            4 => long(self.random, "["),
            _ => long(self.random, "(a?)"),
        };
        let sql = match self.random.random_range(0..9) {
            0 => "SELECT $1::jsonb",
            1 => "SELECT $1::numeric",
            2 => "SELECT $1::int[]",
            3 => "SELECT v ~ $1 FROM t",
            4 => "SELECT repeat($1, 100000)",
            5 => "SELECT $1 FROM generate_series(1, 20000)",
            6 => "SELECT levenshtein($1, $1)",
            7 => "SELECT CASE WHEN g > 5 THEN $1 END FROM generate_series(1, 20000) AS s(g)",
            _ => "SELECT string_agg($1, $1) FROM generate_series(1, 20000)",
        };
        Attack::Parameters(sql.to_owned(), vec![value])
    }

    /// Words that are in no order.
    fn noise(&mut self) -> String {
        const WORDS: [&str; 24] = [
            "SELECT", "FROM", "(", ")", ",", "WHERE", "'", "\"", "$1", "1", "*", "||", "::", "[", "]",
            "UNION", "WITH", "t", "GROUP BY", "OVER", "NULL", ";", "--", "/*",
        ];
        let count = self.random.random_range(1..200);
        let words: Vec<&str> = (0..count).map(|_| self.pick(&WORDS)).collect();
        words.join(" ")
    }
}
