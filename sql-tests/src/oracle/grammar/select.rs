//! Whole queries.

use super::{Field, Generated, Grammar, Kind, NOW, Scope, Source};

/// Relations that one FROM joins at most.
const JOINED_MAX: usize = 4;

impl Grammar<'_> {
    /// A query of any shape.
    pub(super) fn top(&mut self) -> Generated {
        match self.below(100) {
            0..=21 => self.plain(JOINED_MAX),
            22..=46 => self.grouped(JOINED_MAX),
            47..=57 => self.set_operation(),
            58..=65 => self.first_rows(),
            66..=70 => self.distinct_on(),
            71..=81 => self.windowed(),
            82..=88 => self.first_of_each(),
            89..=94 => self.with(),
            95..=97 => self.recursive(),
            _ => self.constant(),
        }
    }

    /// SELECT [DISTINCT] .. FROM .. [WHERE ..].
    pub(super) fn plain(&mut self, relations: usize) -> Generated {
        let from = self.from(relations);
        let filter = self.filter(&from.scope);
        let mut columns = vec![];
        let mut list = vec![];
        for index in 0..1 + self.below(4) {
            let name = format!("c{}", index + 1);
            let (sql, kind) = self.item_of_list(&from.scope);
            list.push(format!("{sql} AS {name}"));
            columns.push((name, kind));
        }
        let distinct = match self.below(6) {
            0 => {
                self.saw("DISTINCT");
                "DISTINCT "
            }
            _ => "",
        };
        Generated {
            sql: format!("SELECT {distinct}{} FROM {}{filter}", list.join(", "), from.sql),
            columns,
        }
    }

    fn item_of_list(&mut self, scope: &Scope) -> (String, Kind) {
        if self.chance(0.06)
            && let Some(outer) = self.column(scope, &[Kind::Int])
        {
            let inner = self.base();
            if let Some(same) = self.column(&inner.scope, &[Kind::Int]) {
                self.saw("scalar subquery in SELECT, correlated");
                let (call, kind) = match self.comparable(&inner.scope) {
                    Some(field) if self.chance(0.6) => (format!("max({})", field.sql), field.kind),
                    _ => ("count(*)".to_owned(), Kind::Int),
                };
                let (outer, same) = (outer.sql, same.sql);
                return (
                    format!("(SELECT {call} FROM {} WHERE {same} = {outer})", inner.sql),
                    kind,
                );
            }
        }
        match self.comparable(scope) {
            Some(field) if self.chance(0.55) => (field.sql, field.kind),
            Some(field) => (self.value(scope, field.kind, 2), field.kind),
            None => ("1".to_owned(), Kind::Int),
        }
    }

    /// Aggregates by keys, grouping sets, or nothing.
    pub(super) fn grouped(&mut self, relations: usize) -> Generated {
        let from = self.from(relations);
        let filter = self.filter(&from.scope);
        let mut keys: Vec<(String, Kind)> = vec![];
        for _ in 0..self.below(3) {
            if let Some(field) = self.comparable(&from.scope)
                && keys.iter().all(|(sql, _)| *sql != field.sql)
            {
                let sql = match self.below(5) {
                    0 if field.kind == Kind::Int => format!("{} % 2", field.sql),
                    _ => field.sql,
                };
                keys.push((sql, field.kind));
            }
        }
        let mut list = vec![];
        let mut columns = vec![];
        for (index, (sql, kind)) in keys.iter().enumerate() {
            list.push(format!("{sql} AS g{}", index + 1));
            columns.push((format!("g{}", index + 1), *kind));
        }
        let aggregates: Vec<(String, Kind)> = (0..1 + self.below(3))
            .map(|_| self.aggregate(&from.scope))
            .collect();
        for (index, (sql, kind)) in aggregates.into_iter().enumerate() {
            list.push(format!("{sql} AS a{}", index + 1));
            columns.push((format!("a{}", index + 1), kind));
        }
        let names: Vec<&str> = keys.iter().map(|(sql, _)| sql.as_str()).collect();
        let group_by = match (names.as_slice(), self.below(8)) {
            ([], _) => {
                self.saw("aggregate over all rows");
                String::new()
            }
            (_, 0) => {
                self.saw("ROLLUP");
                format!(" GROUP BY ROLLUP ({})", names.join(", "))
            }
            ([one, other], 1) => {
                self.saw("CUBE");
                format!(" GROUP BY CUBE ({one}, {other})")
            }
            ([one, ..], 2) => {
                self.saw("GROUPING SETS");
                list.push(format!("grouping({one}) AS s"));
                columns.push(("s".to_owned(), Kind::Result));
                format!(" GROUP BY GROUPING SETS (({}), ({one}), ())", names.join(", "))
            }
            _ => {
                self.saw("GROUP BY");
                format!(" GROUP BY {}", names.join(", "))
            }
        };
        let having = match self.below(5) {
            0 => {
                self.saw("HAVING");
                let bound = self.choose(&["count(*) > 1", "count(*) < 3", "count(*) % 2 = 0"]);
                format!(" HAVING {bound}")
            }
            1 if self.chance(0.1) => match self.column(&from.scope, &[Kind::Timestamp]) {
                Some(field) => {
                    self.saw(NOW);
                    let operator = self.choose(&["<", ">="]);
                    format!(" HAVING max({}) {operator} localtimestamp", field.sql)
                }
                None => String::new(),
            },
            _ => String::new(),
        };
        Generated {
            sql: format!(
                "SELECT {} FROM {}{filter}{group_by}{having}",
                list.join(", "),
                from.sql
            ),
            columns,
        }
    }

    /// Two or three queries of the same columns, put together.
    fn set_operation(&mut self) -> Generated {
        let kinds: Vec<Kind> = (0..1 + self.below(2))
            .map(|_| [Kind::Int, Kind::Text, Kind::Decimal, Kind::Date][self.below(4)])
            .collect();
        let mut sql = self.branch(&kinds);
        for _ in 0..1 + self.below(2) {
            let operation = self.choose(&[
                "UNION",
                "UNION ALL",
                "UNION ALL",
                "INTERSECT",
                "INTERSECT ALL",
                "EXCEPT",
                "EXCEPT ALL",
            ]);
            self.saw(operation);
            let next = self.branch(&kinds);
            sql = match self.below(3) {
                0 => format!("{next} {operation} ({sql})"),
                _ => format!("{sql} {operation} {next}"),
            };
        }
        let columns = kinds.into_iter().enumerate();
        Generated {
            sql,
            columns: columns
                .map(|(index, kind)| (format!("c{}", index + 1), kind))
                .collect(),
        }
    }

    fn branch(&mut self, kinds: &[Kind]) -> String {
        let from = self.from(2);
        let filter = self.filter(&from.scope);
        let list: Vec<String> = kinds
            .iter()
            .enumerate()
            .map(|(index, kind)| format!("{} AS c{}", self.value(&from.scope, *kind, 1), index + 1))
            .collect();
        let distinct = self.choose(&["", "", "", "DISTINCT "]);
        format!("SELECT {distinct}{} FROM {}{filter}", list.join(", "), from.sql)
    }

    /// ORDER BY .. LIMIT .. OFFSET, by all columns.
    fn first_rows(&mut self) -> Generated {
        self.saw("ORDER BY LIMIT");
        let inner = match self.below(4) {
            0 => self.grouped(2),
            1 => self.set_operation(),
            _ => self.plain(2),
        };
        let mut order: Vec<String> = vec![];
        for index in 1..=inner.columns.len() {
            let direction = self.choose(&["", "", " DESC", " NULLS FIRST", " DESC NULLS LAST"]);
            order.push(format!("{index}{direction}"));
        }
        let limit = match self.below(4) {
            0 => {
                self.saw("OFFSET");
                format!("LIMIT {} OFFSET {}", 1 + self.below(6), self.below(4))
            }
            1 => {
                self.saw("OFFSET");
                format!("OFFSET {}", 1 + self.below(3))
            }
            _ => format!("LIMIT {}", 1 + self.below(6)),
        };
        Generated {
            sql: format!("{} ORDER BY {} {limit}", inner.sql, order.join(", ")),
            columns: inner.columns,
        }
    }

    fn distinct_on(&mut self) -> Generated {
        self.saw("DISTINCT ON");
        let from = self.from(2);
        let filter = self.filter(&from.scope);
        let fields = self.some_columns(&from.scope);
        let Some(on) = self.comparable(&from.scope) else {
            return self.constant();
        };
        let direction = self.choose(&["", " DESC", " NULLS FIRST"]);
        let (list, columns) = listed(&fields);
        // By position: a name would be that of a column of the list, where one is called so.
        let all: Vec<String> = (1..=columns.len()).map(|position| position.to_string()).collect();
        let (on, from, all) = (on.sql, from.sql, all.join(", "));
        Generated {
            sql: format!(
                "SELECT DISTINCT ON ({on}) {list} FROM {from}{filter} ORDER BY {on}{direction}, {all}"
            ),
            columns,
        }
    }

    /// Up to three columns that have an order.
    fn some_columns(&mut self, scope: &Scope) -> Vec<Field> {
        let mut fields: Vec<Field> = vec![];
        for _ in 0..3 {
            if let Some(field) = self.comparable(scope)
                && fields.iter().all(|other| other.sql != field.sql)
            {
                fields.push(field);
            }
        }
        fields
    }

    /// Functions over windows.
    fn windowed(&mut self) -> Generated {
        let from = self.from(2);
        let filter = self.filter(&from.scope);
        let fields = self.some_columns(&from.scope);
        if fields.is_empty() {
            return self.constant();
        }
        let shown: Vec<String> = fields.iter().map(|field| field.sql.clone()).collect();
        let (mut list, mut columns) = listed(&fields);
        // Where rows that tie get different values, a second function could give them out the other way round.
        let functions = 1 + self.below(2);
        for index in 0..functions {
            let equal_alike = functions > 1 || self.chance(0.4);
            let (sql, kind) = self.window(&from.scope, &shown, equal_alike);
            list.push_str(&format!(", {sql} AS w{}", index + 1));
            columns.push((format!("w{}", index + 1), kind));
        }
        Generated {
            sql: format!("SELECT {list} FROM {}{filter}", from.sql),
            columns,
        }
    }

    /// The first rows of each group, by a rank.
    fn first_of_each(&mut self) -> Generated {
        let from = self.from(2);
        let filter = self.filter(&from.scope);
        let fields = self.some_columns(&from.scope);
        if fields.is_empty() {
            return self.constant();
        }
        self.saw("Top-N by rank");
        let shown: Vec<&str> = fields.iter().map(|field| field.sql.as_str()).collect();
        let (list, mut columns) = listed(&fields);
        let partition = match self.comparable(&from.scope) {
            Some(field) if self.chance(0.8) => format!("PARTITION BY {} ", field.sql),
            _ => String::new(),
        };
        let function = self.choose(&["row_number()", "row_number()", "rank()", "dense_rank()"]);
        let direction = self.choose(&["", " DESC", " NULLS FIRST"]);
        let bound = self.choose(&["<= 1", "= 1", "<= 2", "< 4", "= 2", "BETWEEN 2 AND 3"]);
        let order = shown.join(", ").replacen(',', &format!("{direction},"), 1);
        let inner = format!(
            "SELECT {list}, {function} OVER ({partition}ORDER BY {order}) AS n FROM {}{filter}",
            from.sql
        );
        let mut names: Vec<&str> = columns.iter().map(|(name, _)| name.as_str()).collect();
        if self.chance(0.4) {
            names.push("n");
        }
        let sql = format!(
            "SELECT {} FROM ({inner}) AS ranked WHERE n {bound}",
            names.join(", ")
        );
        if names.len() > columns.len() {
            columns.push(("n".to_owned(), Kind::Int));
        }
        Generated { sql, columns }
    }

    /// Common table expressions, which what follows may read more than once.
    fn with(&mut self) -> Generated {
        self.saw("WITH");
        let mut parts = vec![];
        let stored = self.sources.len();
        for _ in 0..1 + self.below(2) {
            let inner = match self.below(3) {
                0 => self.plain(2),
                _ => self.grouped(2),
            };
            let name = format!("e{}", self.sources.len());
            parts.push(format!("{name} AS ({})", inner.sql));
            let source = Source {
                name,
                columns: inner.columns,
                is_view: false,
            };
            // Twice, so that the rest reads it often.
            self.sources.push(source.clone());
            self.sources.push(source);
        }
        let main = match self.below(4) {
            0 => self.set_operation(),
            1 => self.grouped(2),
            _ => self.plain(3),
        };
        self.sources.truncate(stored);
        Generated {
            sql: format!("WITH {} {}", parts.join(", "), main.sql),
            columns: main.columns,
        }
    }

    /// WITH RECURSIVE over a relation taken as a graph: what is reached, or the ways of a few steps.
    fn recursive(&mut self) -> Generated {
        let (first, next) = (self.base(), self.base());
        let ends = |grammar: &mut Self, scope: &Scope| {
            let integers = (
                grammar.column(scope, &[Kind::Int]),
                grammar.column(scope, &[Kind::Int]),
            );
            Some((integers.0?.sql, integers.1?.sql))
        };
        let (Some((a, b)), Some((c, d))) = (ends(self, &first.scope), ends(self, &next.scope)) else {
            return self.constant();
        };
        let name = format!("e{}", self.sources.len());
        let more = match self.below(3) {
            0 => format!(" AND {}", self.condition(&next.scope, 1)),
            _ => String::new(),
        };
        let filter = match self.below(3) {
            0 => format!(" WHERE {}", self.condition(&first.scope, 1)),
            _ => String::new(),
        };
        let (from, step) = (first.sql, next.sql);
        let body = if self.chance(0.7) {
            self.saw("WITH RECURSIVE, UNION");
            format!(
                "SELECT {a}::bigint AS x, {b}::bigint AS y FROM {from}{filter} \
                 UNION SELECT w.x, {d}::bigint FROM {name} AS w JOIN {step} ON {c} = w.y{more}"
            )
        } else {
            self.saw("WITH RECURSIVE, UNION ALL");
            format!(
                "SELECT {a}::bigint AS x, 1::bigint AS y FROM {from}{filter} \
                 UNION ALL SELECT {d}::bigint, w.y + 1 FROM {name} AS w JOIN {step} ON {c} = w.x{more} WHERE w.y < 3"
            )
        };
        let stored = self.sources.len();
        let source = Source {
            name: name.clone(),
            columns: vec![("x".to_owned(), Kind::Int), ("y".to_owned(), Kind::Int)],
            is_view: false,
        };
        // So often that what follows rarely reads anything else.
        self.sources.resize(3 * stored, source);
        let main = match self.below(3) {
            0 => self.grouped(1),
            1 => self.plain(2),
            _ => Generated {
                sql: format!("SELECT x AS c1, y AS c2 FROM {name}"),
                columns: vec![("c1".to_owned(), Kind::Int), ("c2".to_owned(), Kind::Int)],
            },
        };
        self.sources.truncate(stored);
        Generated {
            sql: format!("WITH RECURSIVE {name} (x, y) AS ({body}) {}", main.sql),
            columns: main.columns,
        }
    }

    /// A query without FROM.
    fn constant(&mut self) -> Generated {
        self.saw("no FROM");
        let columns = vec![("c1".to_owned(), Kind::Int), ("c2".to_owned(), Kind::Text)];
        let sql = match self.below(2) {
            0 => "SELECT 1 + 1 AS c1, 'x' AS c2".to_owned(),
            _ => "SELECT count(*) AS c1, max('x') AS c2".to_owned(),
        };
        Generated { sql, columns }
    }
}

/// Columns as a SELECT list, with the names that it gives them.
fn listed(fields: &[Field]) -> (String, Vec<(String, Kind)>) {
    let names = fields.iter().enumerate();
    let columns: Vec<(String, Kind)> = names
        .map(|(index, field)| (format!("c{}", index + 1), field.kind))
        .collect();
    let list = fields.iter().zip(&columns);
    let list: Vec<String> = list
        .map(|(field, (name, _))| format!("{} AS {name}", field.sql))
        .collect();
    (list.join(", "), columns)
}
