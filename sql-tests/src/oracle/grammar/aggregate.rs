//! Aggregates, and functions over windows.

use super::{Grammar, Kind, Scope};

/// Kinds whose values have an order and can be put out as they are.
const ORDERED: [Kind; 7] = [
    Kind::Int,
    Kind::Float,
    Kind::Decimal,
    Kind::Text,
    Kind::Bool,
    Kind::Date,
    Kind::Timestamp,
];

impl Grammar<'_> {
    /// An aggregate, and the kind of its value.
    pub(super) fn aggregate(&mut self, scope: &Scope) -> (String, Kind) {
        let (call, kind) = self.aggregate_call(scope);
        if self.chance(0.15) {
            self.saw("FILTER");
            return (
                format!("{call} FILTER (WHERE {})", self.condition(scope, 1)),
                kind,
            );
        }
        (call, kind)
    }

    fn aggregate_call(&mut self, scope: &Scope) -> (String, Kind) {
        let Some(any) = self.comparable(scope) else {
            return ("count(*)".to_owned(), Kind::Int);
        };
        let number = self.column(scope, &[Kind::Int, Kind::Decimal, Kind::Float]);
        let Some(number) = number else {
            return (format!("count({})", any.sql), Kind::Int);
        };
        let number_value = match self.below(3) {
            0 => self.value(scope, number.kind, 1),
            _ => number.sql.clone(),
        };
        let sum = if number.kind == Kind::Float {
            Kind::Float
        } else {
            Kind::Decimal
        };
        let chosen = self.below(26);
        match chosen {
            0 | 1 => ("count(*)".to_owned(), Kind::Int),
            2 => (format!("count({})", any.sql), Kind::Int),
            3..=5 => (format!("sum({number_value})"), sum),
            6 => (format!("avg({number_value})"), Kind::Result),
            7 | 8 => (format!("min({})", any.sql), any.kind),
            9 | 10 => (format!("max({})", any.sql), any.kind),
            11 | 12 => {
                self.saw("DISTINCT in an aggregate");
                (format!("count(DISTINCT {})", any.sql), Kind::Int)
            }
            13 => {
                self.saw("DISTINCT in an aggregate");
                (format!("sum(DISTINCT {})", number.sql), sum)
            }
            14 => match self.column(scope, &[Kind::Bool]) {
                Some(flag) => (
                    format!("{}({})", self.choose(&["bool_and", "bool_or"]), flag.sql),
                    Kind::Bool,
                ),
                None => (format!("bool_or({})", self.condition(scope, 0)), Kind::Bool),
            },
            15 => match self.column(scope, &[Kind::Int]) {
                Some(number) => {
                    let function = self.choose(&["bit_and", "bit_or", "bit_xor"]);
                    (format!("{function}({})", number.sql), Kind::Int)
                }
                None => ("count(*)".to_owned(), Kind::Int),
            },
            16 => {
                let function = self.choose(&["stddev", "var_pop", "stddev_pop", "var_samp"]);
                (format!("{function}({number_value})"), Kind::Result)
            }
            17 => {
                let function = self.choose(&["covar_samp", "covar_pop", "corr", "regr_slope", "regr_count"]);
                let other = self.column(scope, &[Kind::Int, Kind::Float]);
                let other = other.map_or(number.sql.clone(), |field| field.sql);
                (format!("{function}({}, {other})", number.sql), Kind::Result)
            }
            18 => (format!("median({})", number.sql), Kind::Result),
            19 => {
                self.saw("WITHIN GROUP");
                (
                    format!("percentile_cont(0.25) WITHIN GROUP (ORDER BY {})", number.sql),
                    Kind::Result,
                )
            }
            20 | 21 => {
                self.saw("ORDER BY in an aggregate");
                let function = self.choose(&["first_value", "last_value"]);
                let by = self.comparable(scope).filter(|field| field.sql != any.sql);
                let direction = self.choose(&["", " DESC", " NULLS FIRST"]);
                let by = by.map_or(String::new(), |field| format!("{}{direction}, ", field.sql));
                (
                    format!("{function}({} ORDER BY {by}{})", any.sql, any.sql),
                    any.kind,
                )
            }
            22 => {
                self.saw("ORDER BY in an aggregate");
                let direction = self.choose(&["", " DESC"]);
                (
                    format!("array_agg({} ORDER BY {}{direction})", any.sql, any.sql),
                    Kind::Result,
                )
            }
            23 => {
                self.saw("DISTINCT in an aggregate");
                (
                    format!("array_agg(DISTINCT {} ORDER BY {})", any.sql, any.sql),
                    Kind::Result,
                )
            }
            24 => match self.column(scope, &[Kind::Text]) {
                Some(text) => {
                    self.saw("ORDER BY in an aggregate");
                    (
                        format!("string_agg({}, ',' ORDER BY {})", text.sql, text.sql),
                        Kind::Text,
                    )
                }
                None => (format!("count({})", any.sql), Kind::Int),
            },
            _ => {
                let counted = self.column(scope, &[Kind::Int, Kind::Text]).unwrap_or(any);
                let function = match counted.kind {
                    Kind::Int | Kind::Text => "approx_distinct",
                    _ => "count",
                };
                (format!("{function}({})", counted.sql), Kind::Result)
            }
        }
    }

    /// A function over a window of rows that are told apart by the columns `shown`, and the kind of its value. With
    /// `equal_alike` it is the same for all rows that are equal in what it orders and partitions by, which it shows.
    pub(super) fn window(&mut self, scope: &Scope, shown: &[String], equal_alike: bool) -> (String, Kind) {
        if equal_alike {
            let shown = scope
                .iter()
                .filter(|field| shown.contains(&field.sql))
                .cloned()
                .collect();
            return self.over_peers(&shown);
        }
        let partition = match self.below(3) {
            0 => String::new(),
            _ => match self.comparable(scope) {
                Some(field) => format!("PARTITION BY {} ", field.sql),
                None => String::new(),
            },
        };
        let by = self.comparable(scope).map_or("1".to_owned(), |field| field.sql);
        let direction = self.choose(&["", " DESC", " NULLS FIRST", " DESC NULLS LAST"]);
        // Rows that tie in this order are the same in all that is put out.
        let total = format!("ORDER BY {by}{direction}, {}", shown.join(", "));
        let shown_field = scope
            .iter()
            .filter(|field| ORDERED.contains(&field.kind) && shown.contains(&field.sql))
            .cloned()
            .collect::<Scope>();
        let argument = match self.comparable(&shown_field) {
            Some(field) => field,
            None => return (format!("row_number() OVER ({partition}{total})"), Kind::Int),
        };
        let number = self.column(&shown_field, &[Kind::Int, Kind::Decimal, Kind::Float]);
        let value = argument.sql.clone();
        match self.below(8) {
            0 | 1 => {
                self.saw("row_number");
                (format!("row_number() OVER ({partition}{total})"), Kind::Int)
            }
            2 => {
                self.saw("ntile");
                (format!("ntile(3) OVER ({partition}{total})"), Kind::Result)
            }
            3 | 4 => {
                self.saw("lag, lead");
                let function = self.choose(&["lag", "lead"]);
                let offset = self.choose(&["", ", 2"]);
                (
                    format!("{function}({value}{offset}) OVER ({partition}{total})"),
                    argument.kind,
                )
            }
            5 => {
                self.saw("first_value, last_value, nth_value over a window");
                let call = match self.below(3) {
                    0 => format!("nth_value({value}, 2)"),
                    1 => format!("last_value({value})"),
                    _ => format!("first_value({value})"),
                };
                (format!("{call} OVER ({partition}{total})"), argument.kind)
            }
            _ => {
                self.saw("aggregate over a frame");
                let frame = self.choose(&[
                    "ROWS BETWEEN 1 PRECEDING AND CURRENT ROW",
                    "ROWS BETWEEN UNBOUNDED PRECEDING AND 1 FOLLOWING",
                    "ROWS BETWEEN CURRENT ROW AND UNBOUNDED FOLLOWING",
                    "ROWS BETWEEN 2 PRECEDING AND 1 PRECEDING",
                    "GROUPS BETWEEN 1 PRECEDING AND CURRENT ROW",
                    "ROWS BETWEEN 1 PRECEDING AND 1 FOLLOWING EXCLUDE CURRENT ROW",
                    "ROWS BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING EXCLUDE GROUP",
                    "GROUPS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW EXCLUDE TIES",
                ]);
                let call = match number {
                    Some(number) if self.chance(0.6) => format!("sum({})", number.sql),
                    _ => match self.below(3) {
                        0 => "count(*)".to_owned(),
                        1 => format!("min({value})"),
                        _ => format!("max({value})"),
                    },
                };
                (format!("{call} OVER ({partition}{total} {frame})"), Kind::Result)
            }
        }
    }

    /// A function whose value is the same for all rows that tie.
    fn over_peers(&mut self, scope: &Scope) -> (String, Kind) {
        let partition = match self.comparable(scope) {
            Some(field) if self.chance(0.6) => format!("PARTITION BY {} ", field.sql),
            _ => String::new(),
        };
        let Some(argument) = self.comparable(scope) else {
            return (format!("count(*) OVER ({partition})"), Kind::Result);
        };
        let direction = self.choose(&["", " DESC", " NULLS FIRST", " DESC NULLS LAST"]);
        let by = self.comparable(scope).map_or("1".to_owned(), |field| field.sql);
        let order = format!("ORDER BY {by}{direction}");
        if self.chance(0.4) {
            self.saw("rank");
            let function = self.choose(&["rank()", "dense_rank()", "percent_rank()", "cume_dist()"]);
            return (format!("{function} OVER ({partition}{order})"), Kind::Result);
        }
        self.saw("aggregate over a window");
        let order = if self.chance(0.5) { order } else { String::new() };
        let number = self.column(scope, &[Kind::Int, Kind::Decimal, Kind::Float]);
        let call = match number {
            Some(number) if self.chance(0.6) => {
                format!("{}({})", self.choose(&["sum", "avg", "count"]), number.sql)
            }
            _ => format!("{}({})", self.choose(&["min", "max", "count"]), argument.sql),
        };
        (format!("{call} OVER ({partition}{order})"), Kind::Result)
    }
}
