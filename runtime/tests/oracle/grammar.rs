//! Random queries over `s(k, v, f, d, b, name)`, `t(id, k, v, f, d, b, name)` and `u(k, label)`.
//!
//! Every query has one answer: what depends on the order of rows (LIMIT, first_value) is ordered by all that is put out.

use rand::Rng;
use rand::rngs::StdRng;
use rand::seq::IndexedRandom;

/// A relation in FROM, with its columns by type.
#[derive(Clone)]
struct Source {
    sql: String,
    integers: Vec<String>,
    texts: Vec<String>,
}

/// A query.
pub fn query(random: &mut StdRng) -> String {
    match random.random_range(0..10) {
        0..=3 => grouped(random),
        4..=6 => plain(random),
        7 => set_operation(random),
        8 => first_rows(random),
        _ => windowed(random),
    }
}

fn pick<'a>(random: &mut StdRng, from: &[&'a str]) -> &'a str {
    from.choose(random).copied().unwrap_or_default()
}

fn one(random: &mut StdRng, from: &[String]) -> String {
    from.choose(random).cloned().unwrap_or_else(|| "1".into())
}

/// One relation under an alias.
fn base(random: &mut StdRng, alias: &str) -> Source {
    let column = |name: &str| format!("{alias}.{name}");
    match random.random_range(0..6) {
        0 | 1 => Source {
            sql: format!("t AS {alias}"),
            integers: vec![column("id"), column("k"), column("v")],
            texts: vec![column("name")],
        },
        2 | 3 => Source {
            sql: format!("s AS {alias}"),
            integers: vec![column("k"), column("v")],
            texts: vec![column("name")],
        },
        4 => Source {
            sql: format!("u AS {alias}"),
            integers: vec![column("k")],
            texts: vec![column("label")],
        },
        _ => {
            let aggregate = pick(
                random,
                &["count(*)", "sum(v)", "min(v)", "max(v)", "count(DISTINCT v)"],
            );
            let table = pick(random, &["s", "t"]);
            Source {
                sql: format!(
                    "(SELECT k, {aggregate} AS v, max(name) AS name FROM {table} GROUP BY k) AS {alias}"
                ),
                integers: vec![column("k"), column("v")],
                texts: vec![column("name")],
            }
        }
    }
}

/// One relation, or several joined.
fn source(random: &mut StdRng) -> Source {
    let mut all = base(random, "a");
    for alias in ["b", "c"] {
        if !random.random_bool(0.4) {
            break;
        }
        let next = base(random, alias);
        let kind = pick(random, &["JOIN", "JOIN", "LEFT JOIN", "RIGHT JOIN", "FULL JOIN"]);
        let mut on = format!("{} = {}", one(random, &all.integers), one(random, &next.integers));
        if random.random_bool(0.2) {
            on = format!(
                "{on} AND {} = {}",
                one(random, &all.integers),
                one(random, &next.integers)
            );
        }
        if random.random_bool(0.25) {
            on = format!(
                "{on} AND {} < {}",
                one(random, &all.integers),
                one(random, &next.integers)
            );
        }
        all.sql = format!("{} {kind} {} ON {on}", all.sql, next.sql);
        all.integers.extend(next.integers);
        all.texts.extend(next.texts);
    }
    all
}

fn integer(random: &mut StdRng, source: &Source, depth: usize) -> String {
    let column = one(random, &source.integers);
    match random.random_range(0..if depth == 0 { 2 } else { 6 }) {
        0 => column,
        1 => random.random_range(-2..6).to_string(),
        2 => format!("{column} + {}", integer(random, source, depth - 1)),
        3 => format!("coalesce({column}, {})", random.random_range(-2..3)),
        4 => format!(
            "CASE WHEN {} THEN {column} ELSE {} END",
            condition(random, source, depth - 1),
            integer(random, source, depth - 1)
        ),
        _ => format!("nullif({column}, {})", random.random_range(0..4)),
    }
}

fn condition(random: &mut StdRng, source: &Source, depth: usize) -> String {
    let left = integer(random, source, 0);
    match random.random_range(0..if depth == 0 { 4 } else { 9 }) {
        0 | 1 => {
            let operator = pick(random, &["<", "<=", "=", "<>", ">", "IS DISTINCT FROM"]);
            format!("{left} {operator} {}", integer(random, source, 0))
        }
        2 => format!(
            "{} IS {}NULL",
            one(random, &source.integers),
            pick(random, &["", "NOT "])
        ),
        3 => format!(
            "{} LIKE '{}'",
            one(random, &source.texts),
            pick(random, &["a%", "%b", "%"])
        ),
        4 => format!(
            "({} AND {})",
            condition(random, source, depth - 1),
            condition(random, source, depth - 1)
        ),
        5 => format!(
            "({} OR {})",
            condition(random, source, depth - 1),
            condition(random, source, depth - 1)
        ),
        6 => format!("NOT ({})", condition(random, source, depth - 1)),
        7 => {
            let outer = one(random, &source.integers);
            let table = pick(random, &["s", "t", "u"]);
            format!(
                "{}EXISTS (SELECT 1 FROM {table} AS x WHERE x.k = {outer})",
                pick(random, &["", "NOT "])
            )
        }
        _ => {
            let column = one(random, &source.integers);
            format!(
                "{column} IN (SELECT x.k FROM {} AS x)",
                pick(random, &["s", "t", "u"])
            )
        }
    }
}

fn filter(random: &mut StdRng, source: &Source) -> String {
    if random.random_bool(0.6) {
        format!(" WHERE {}", condition(random, source, 2))
    } else {
        String::new()
    }
}

fn plain(random: &mut StdRng) -> String {
    let source = source(random);
    let distinct = pick(random, &["", "", "DISTINCT "]);
    let columns = [
        integer(random, &source, 2),
        integer(random, &source, 1),
        one(random, &source.texts),
    ];
    let [x, y, z] = columns;
    let filter = filter(random, &source);
    format!(
        "SELECT {distinct}{x} AS x, {y} AS y, {z} AS z FROM {}{filter}",
        source.sql
    )
}

fn aggregate(random: &mut StdRng, source: &Source) -> String {
    let x = integer(random, source, 1);
    let text = one(random, &source.texts);
    let call = match random.random_range(0..12) {
        0 => "count(*)".into(),
        1 => format!("count({x})"),
        2 => format!("sum({x})"),
        3 => format!("min({x})"),
        4 => format!("max({x})"),
        5 => format!("avg({x})"),
        6 => format!("count(DISTINCT {x})"),
        7 => format!("max({text})"),
        8 => format!("bool_or({})", condition(random, source, 0)),
        9 => format!("sum(DISTINCT {x})"),
        10 => format!("count({text})"),
        _ => format!("stddev({x})"),
    };
    if random.random_bool(0.2) {
        format!("{call} FILTER (WHERE {})", condition(random, source, 0))
    } else {
        call
    }
}

fn grouped(random: &mut StdRng) -> String {
    let source = source(random);
    let (a, b) = (aggregate(random, &source), aggregate(random, &source));
    let filter = filter(random, &source);
    let from = format!("FROM {}{filter}", source.sql);
    let having = if random.random_bool(0.25) {
        " HAVING count(*) > 1"
    } else {
        ""
    };
    let key = one(random, &source.integers);
    let other = one(random, &source.texts);
    match random.random_range(0..6) {
        0 => format!("SELECT {a} AS a, {b} AS b {from}"),
        1 => format!(
            "SELECT {key} AS g, {other} AS h, {a} AS a, {b} AS b {from} GROUP BY {key}, {other}{having}"
        ),
        2 => format!("SELECT {key} AS g, {other} AS h, {a} AS a {from} GROUP BY ROLLUP ({key}, {other})"),
        3 => format!("SELECT {key} % 2 AS g, {a} AS a, {b} AS b {from} GROUP BY {key} % 2{having}"),
        _ => format!("SELECT {key} AS g, {a} AS a, {b} AS b {from} GROUP BY {key}{having}"),
    }
}

fn set_operation(random: &mut StdRng) -> String {
    let mut branch = || {
        let source = source(random);
        let (x, y) = (one(random, &source.integers), one(random, &source.texts));
        let filter = filter(random, &source);
        format!("SELECT {x} AS x, {y} AS y FROM {}{filter}", source.sql)
    };
    let (left, right) = (branch(), branch());
    let operation = pick(random, &["UNION", "UNION ALL", "INTERSECT", "EXCEPT"]);
    format!("{left} {operation} {right}")
}

fn first_rows(random: &mut StdRng) -> String {
    let source = source(random);
    let (x, y) = (integer(random, &source, 1), one(random, &source.texts));
    let filter = filter(random, &source);
    let direction = pick(random, &["", " DESC", " NULLS FIRST", " DESC NULLS LAST"]);
    let (skip, fetch) = (random.random_range(0..3), random.random_range(1..6));
    format!(
        "SELECT {x} AS x, {y} AS y FROM {}{filter} ORDER BY 1{direction}, 2 LIMIT {fetch} OFFSET {skip}",
        source.sql
    )
}

fn windowed(random: &mut StdRng) -> String {
    let partition = pick(random, &["PARTITION BY k ", "PARTITION BY name ", ""]);
    let function = pick(
        random,
        &[
            "row_number()",
            "rank()",
            "dense_rank()",
            "lag(v)",
            "lead(v, 2)",
            "sum(v)",
            "count(*)",
            "max(v)",
            "first_value(v)",
            "ntile(3)",
        ],
    );
    format!("SELECT id, k, {function} OVER ({partition}ORDER BY v, id) AS w FROM t")
}
