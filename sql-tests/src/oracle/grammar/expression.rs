//! Values and conditions over the columns in scope.

use super::{Grammar, Kind, NOW, Scope};

impl Grammar<'_> {
    /// A value of a kind.
    pub(super) fn value(&mut self, scope: &Scope, kind: Kind, depth: usize) -> String {
        let column = self.column(scope, &[kind]).map(|field| field.sql);
        let simple = |grammar: &mut Self| match column.clone() {
            Some(column) if grammar.chance(0.8) => column,
            _ => grammar.literal(kind),
        };
        if depth == 0 || self.chance(0.4) {
            return simple(self);
        }
        let next = depth - 1;
        match self.below(4) {
            0 => {
                let (first, second) = (simple(self), self.value(scope, kind, next));
                format!("coalesce({first}, {second})")
            }
            1 => {
                let condition = self.condition(scope, next);
                let (then, other) = (self.value(scope, kind, next), self.value(scope, kind, next));
                self.saw("CASE");
                match self.below(3) {
                    0 => format!("CASE WHEN {condition} THEN {then} END"),
                    _ => format!("CASE WHEN {condition} THEN {then} ELSE {other} END"),
                }
            }
            2 if kind != Kind::IntArray => {
                let (first, second) = (simple(self), self.literal(kind));
                format!("nullif({first}, {second})")
            }
            _ => self.computed(scope, kind, next),
        }
    }

    /// A value that a function or operator computes.
    fn computed(&mut self, scope: &Scope, kind: Kind, depth: usize) -> String {
        let first = self.value(scope, kind, depth);
        match kind {
            Kind::Int => match self.below(9) {
                0 => format!("({first} + {})", self.value(scope, kind, depth)),
                1 => format!("({first} - {})", self.value(scope, kind, depth)),
                2 => format!("{first} * 2"),
                3 => format!("abs({first})"),
                4 => format!("({first}) % 3"),
                5..=7 => {
                    self.saw("division");
                    format!("(({first}) / ({}))", self.value(scope, kind, depth))
                }
                _ => match self.column(scope, &[Kind::Text, Kind::Date]) {
                    Some(text) if text.kind == Kind::Text => format!("length({})", text.sql),
                    Some(date) => format!("extract(day FROM {})::int", date.sql),
                    None => format!("-({first})"),
                },
            },
            Kind::Float => match self.below(3) {
                0 => format!("({first} + {})", self.value(scope, kind, depth)),
                1 => format!("{first} * 2"),
                _ => format!("abs({first})"),
            },
            Kind::Decimal => match self.below(3) {
                0 => format!("({first} + {})", self.value(scope, kind, depth)),
                1 => format!("({first} - {})", self.value(scope, kind, depth)),
                _ => format!("abs({first})"),
            },
            Kind::Text => match self.below(4) {
                0 => format!("({first} || {})", self.value(scope, kind, depth)),
                1 => format!("upper({first})"),
                2 => format!("substring({first} FROM 1 FOR 1)"),
                _ => match self.column(scope, &[Kind::Int]) {
                    Some(number) => format!("{}::text", number.sql),
                    None => format!("lower({first})"),
                },
            },
            Kind::Bool => format!("({})", self.condition(scope, depth)),
            Kind::Date => match self.column(scope, &[Kind::Timestamp]) {
                Some(time) => format!("{}::date", time.sql),
                None => first,
            },
            Kind::Timestamp => match self.below(2) {
                0 => format!("date_trunc('day', {first})"),
                _ => format!("({first} + INTERVAL '90 minutes')"),
            },
            Kind::IntArray => {
                let element = self.value(scope, Kind::Int, 0);
                format!("ARRAY[{element}, 2]::int[]")
            }
            Kind::Result => first,
        }
    }

    pub(super) fn literal(&mut self, kind: Kind) -> String {
        let from: &[&str] = match kind {
            Kind::Int => &["0", "1", "2", "3", "5"],
            Kind::Float => &[
                "0.5::double precision",
                "1::double precision",
                "-1.5::double precision",
            ],
            Kind::Decimal => &["0.25", "1.00", "2.50"],
            Kind::Text => &["'a'", "'b'", "'ab'", "''"],
            Kind::Bool => &["true", "false"],
            Kind::Date => &["DATE '2028-02-28'", "DATE '2028-02-29'", "DATE '2028-03-01'"],
            Kind::Timestamp => &[
                "TIMESTAMP '2028-02-27 11:00:00'",
                "TIMESTAMP '2028-02-28 09:00:01.5'",
            ],
            Kind::IntArray => &["ARRAY[1, 2]::int[]", "ARRAY[3]::int[]"],
            Kind::Result => &["NULL"],
        };
        self.choose(from).to_owned()
    }

    /// A condition on the columns in scope.
    pub(super) fn condition(&mut self, scope: &Scope, depth: usize) -> String {
        if depth > 0 && self.chance(0.35) {
            let left = self.condition(scope, depth - 1);
            return match self.below(4) {
                0 => format!("NOT ({left})"),
                1 => format!("({left} OR {})", self.condition(scope, depth - 1)),
                _ => format!("({left} AND {})", self.condition(scope, depth - 1)),
            };
        }
        let Some(field) = self.comparable(scope) else {
            return self.choose(&["true", "1 = 1", "1 = 2"]).to_owned();
        };
        let column = field.sql;
        match self.below(9) {
            0..=2 => {
                let operator = self.choose(&["=", "<>", "<", "<=", ">", ">=", "=", "IS DISTINCT FROM"]);
                let other = self.value(scope, field.kind, depth.min(1));
                format!("{column} {operator} {other}")
            }
            3 => {
                let (low, high) = (self.literal(field.kind), self.value(scope, field.kind, 0));
                format!("{column} BETWEEN {low} AND {high}")
            }
            4 => {
                let not = self.choose(&["", "NOT "]);
                let (first, second) = (self.literal(field.kind), self.literal(field.kind));
                format!("{column} {not}IN ({first}, {second})")
            }
            5 => format!("{column} IS {}NULL", self.choose(&["", "NOT "])),
            6 if field.kind == Kind::Text => {
                let pattern = self.choose(&["a%", "%b", "%", "_"]);
                format!("{column} LIKE '{pattern}'")
            }
            7 if field.kind == Kind::Bool => column,
            _ => {
                let operator = self.choose(&["=", "<", ">=", "IS NOT DISTINCT FROM"]);
                format!("{column} {operator} {}", self.literal(field.kind))
            }
        }
    }

    /// A condition for WHERE, which may have subqueries in it.
    pub(super) fn filter(&mut self, scope: &Scope) -> String {
        if self.chance(0.05)
            && let Some(temporal) = self.temporal(scope)
        {
            return match self.chance(0.3) {
                true => format!(" WHERE {temporal} AND {}", self.condition(scope, 1)),
                false => format!(" WHERE {temporal}"),
            };
        }
        let condition = match self.below(10) {
            0..=3 => return String::new(),
            4..=6 => self.condition(scope, 2),
            _ => {
                let subquery = self.subquery_condition(scope);
                match self.below(4) {
                    0 => format!("{} AND {subquery}", self.condition(scope, 1)),
                    1 => format!("({} OR {subquery})", self.condition(scope, 0)),
                    _ => subquery,
                }
            }
        };
        format!(" WHERE {condition}")
    }

    /// A condition on the clock.
    pub(super) fn temporal(&mut self, scope: &Scope) -> Option<String> {
        let field = self.column(scope, &[Kind::Timestamp, Kind::Date])?;
        self.saw(NOW);
        let time = field.sql;
        let hours = 11 * self.below(4);
        let operator = self.choose(&["<", "<=", ">", ">="]);
        Some(match (field.kind, self.below(5)) {
            (Kind::Date, 0 | 1) => format!(
                "{time} {} current_date",
                self.choose(&["<", "<=", ">", ">=", "="])
            ),
            (Kind::Date, _) => format!("{time} {operator} current_date - {}", self.below(3)),
            (_, 0) => format!("{time} {operator} localtimestamp"),
            (_, 1) => format!("CAST({time} AS TIMESTAMPTZ) {operator} now() - INTERVAL '{hours} hours'"),
            (_, 2) => format!(
                "{time} BETWEEN localtimestamp - INTERVAL '{hours} hours' AND localtimestamp + INTERVAL '12 hours'"
            ),
            (_, 3) => format!("{time} >= date_trunc('day', localtimestamp)"),
            _ => format!("localtimestamp - INTERVAL '{hours} hours' {operator} {time}"),
        })
    }

    /// A condition with a subquery of one kind or another.
    fn subquery_condition(&mut self, scope: &Scope) -> String {
        let inner = self.base();
        let outer = self.comparable(scope);
        let Some(outer) = outer else {
            self.saw("EXISTS");
            return format!("EXISTS (SELECT 1 FROM {})", inner.sql);
        };
        let Some(same) = self.column(&inner.scope, &[outer.kind]) else {
            self.saw("EXISTS");
            let condition = self.condition(&inner.scope, 1);
            return format!("EXISTS (SELECT 1 FROM {} WHERE {condition})", inner.sql);
        };
        let (inner_sql, outer, same) = (inner.sql, outer.sql, same.sql);
        let more = match self.below(3) {
            0 => format!(" AND {}", self.condition(&inner.scope, 1)),
            _ => String::new(),
        };
        match self.below(12) {
            0..=2 => {
                self.saw("EXISTS, correlated");
                // Equality with the outer row, and sometimes another comparison with it.
                let other = self
                    .column(scope, &[Kind::Int])
                    .zip(self.column(&inner.scope, &[Kind::Int]));
                let mixed = match other {
                    Some((left, right)) if self.chance(0.3) => format!(" AND {} < {}", right.sql, left.sql),
                    _ => String::new(),
                };
                let not = self.choose(&["", "NOT "]);
                format!("{not}EXISTS (SELECT 1 FROM {inner_sql} WHERE {same} = {outer}{mixed}{more})")
            }
            3..=5 => {
                self.saw("IN (subquery)");
                format!("{outer} IN (SELECT {same} FROM {inner_sql} WHERE true{more})")
            }
            6 => {
                self.saw("NOT IN (subquery)");
                format!("{outer} NOT IN (SELECT {same} FROM {inner_sql} WHERE {same} IS NOT NULL{more})")
            }
            7 => {
                self.saw("= ANY (subquery)");
                format!("{outer} = ANY (SELECT {same} FROM {inner_sql} WHERE true{more})")
            }
            8 | 9 => {
                self.saw("scalar subquery");
                let (operator, function) = (self.choose(&["=", "<", ">="]), self.choose(&["min", "max"]));
                format!("{outer} {operator} (SELECT {function}({same}) FROM {inner_sql} WHERE true{more})")
            }
            10 => {
                self.saw("scalar subquery, correlated");
                let (operator, function) = (self.choose(&["=", "<", ">="]), self.choose(&["min", "max"]));
                let other = self
                    .column(scope, &[Kind::Int])
                    .zip(self.column(&inner.scope, &[Kind::Int]));
                let (left, right) = other.map_or((outer.clone(), same.clone()), |(l, r)| (l.sql, r.sql));
                format!(
                    "{outer} {operator} (SELECT {function}({same}) FROM {inner_sql} WHERE {right} = {left}{more})"
                )
            }
            _ => {
                self.saw("scalar subquery, correlated");
                let bound = self.choose(&["= 0", "> 0", "> 1"]);
                format!("(SELECT count(*) FROM {inner_sql} WHERE {same} = {outer}{more}) {bound}")
            }
        }
    }
}
