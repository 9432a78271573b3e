//! What FROM reads: relations, subqueries and joins of them.

use super::{Field, Grammar, Kind, Scope};

/// The text of a FROM clause and the columns that it gives.
pub(super) struct From {
    pub sql: String,
    pub scope: Scope,
}

impl Grammar<'_> {
    /// One stored relation or common table expression, under an alias.
    pub(super) fn base(&mut self) -> From {
        let index = self.below(self.sources.len());
        let source = self.sources[index].clone();
        if source.is_view {
            self.saw("view over a view");
        }
        let alias = self.alias();
        let fields = source.columns.into_iter();
        From {
            sql: format!("{} AS {alias}", source.name),
            scope: fields
                .map(|(name, kind)| Field {
                    sql: format!("{alias}.{name}"),
                    name,
                    kind,
                })
                .collect(),
        }
    }

    /// A stored relation with the windows of its rows.
    fn windows(&mut self) -> Option<From> {
        let index = self.below(self.sources.len());
        let source = self.sources[index].clone();
        let times = source.columns.iter().filter(|(_, kind)| *kind == Kind::Timestamp);
        let time = times.map(|(name, _)| name.clone()).next()?;
        let alias = self.alias();
        let name = &source.name;
        let call = match self.below(4) {
            0 => {
                self.saw("TUMBLE");
                format!("TUMBLE({name}, {time}, INTERVAL '11 hours')")
            }
            1 => {
                self.saw("HOP");
                format!("HOP({name}, {time}, INTERVAL '11 hours', INTERVAL '30 hours')")
            }
            2 => {
                self.saw("CUMULATE");
                format!("CUMULATE({name}, {time}, INTERVAL '12 hours', INTERVAL '1 day')")
            }
            _ => {
                self.saw("SESSION");
                let key = source.columns.iter().find(|(_, kind)| *kind == Kind::Int);
                let keys = key.map_or(String::new(), |(key, _)| format!(" PARTITION BY {key}"));
                format!("SESSION({name}{keys}, {time}, INTERVAL '11 hours')")
            }
        };
        let mut columns = source.columns;
        columns.push(("window_start".to_owned(), Kind::Timestamp));
        columns.push(("window_end".to_owned(), Kind::Timestamp));
        Some(self.named(format!("{call} AS {alias}"), &alias, columns))
    }

    /// Something with an alias.
    fn item(&mut self) -> From {
        if self.chance(0.03)
            && let Some(windows) = self.windows()
        {
            return windows;
        }
        match self.below(12) {
            0 | 1 => {
                self.saw("derived table");
                let inner = match self.below(3) {
                    0 => self.plain(1),
                    _ => self.grouped(1),
                };
                let alias = self.alias();
                self.named(format!("({}) AS {alias}", inner.sql), &alias, inner.columns)
            }
            2 => {
                self.saw("VALUES");
                let alias = self.alias();
                let columns = vec![("k".to_owned(), Kind::Int), ("t".to_owned(), Kind::Text)];
                let sql = format!("(VALUES (1, 'a'), (2, 'b'), (NULL, 'ab'), (2, NULL)) AS {alias} (k, t)");
                self.named(sql, &alias, columns)
            }
            _ => self.base(),
        }
    }

    fn named(&mut self, sql: String, alias: &str, columns: Vec<(String, Kind)>) -> From {
        let scope = columns.into_iter().map(|(name, kind)| Field {
            sql: format!("{alias}.{name}"),
            name,
            kind,
        });
        From {
            sql,
            scope: scope.collect(),
        }
    }

    /// One relation, or up to `relations` of them joined.
    pub(super) fn from(&mut self, relations: usize) -> From {
        let mut all = self.item();
        for _ in 1..relations {
            if self.chance(0.1) {
                all = self.lateral(all);
                continue;
            }
            if self.chance(0.55) {
                break;
            }
            let next = self.item();
            all = self.join(all, next);
        }
        all
    }

    /// A function or subquery that reads the row beside it.
    fn lateral(&mut self, left: From) -> From {
        let alias = self.alias();
        let join = self.choose(&["CROSS JOIN LATERAL", "INNER JOIN LATERAL", "LEFT JOIN LATERAL"]);
        let on = if join.starts_with("CROSS") { "" } else { " ON true" };
        let (item, columns) = match (self.column(&left.scope, &[Kind::IntArray]), self.below(4)) {
            (Some(array), 0..=2) => {
                self.saw("UNNEST");
                let columns = vec![("x".to_owned(), Kind::Int)];
                (format!("unnest({}) AS {alias}(x)", array.sql), columns)
            }
            (_, 3) => {
                self.saw("generate_series");
                let until = match self.column(&left.scope, &[Kind::Int]) {
                    Some(number) => format!("{} % 4", number.sql),
                    None => "2".to_owned(),
                };
                let columns = vec![("x".to_owned(), Kind::Int)];
                (format!("generate_series(1, {until}) AS {alias}(x)"), columns)
            }
            _ => {
                let inner = self.base();
                let Some((outer, same)) = self.pair(&left.scope, &inner.scope) else {
                    return left;
                };
                self.saw("LATERAL subquery");
                let shown = self
                    .comparable(&inner.scope)
                    .map_or(same.clone(), |field| field.sql);
                let kind = inner.scope.iter().find(|field| field.sql == shown);
                let kind = kind.map_or(Kind::Result, |field| field.kind);
                let (list, rest, columns) = match self.below(3) {
                    0 => {
                        let (call, of) = self.aggregate(&inner.scope);
                        (format!("{call} AS x"), String::new(), vec![("x".to_owned(), of)])
                    }
                    1 => {
                        let direction = self.choose(&["", " DESC"]);
                        let rest = format!(" ORDER BY {shown}{direction} LIMIT {}", 1 + self.below(2));
                        (format!("{shown} AS x"), rest, vec![("x".to_owned(), kind)])
                    }
                    _ => (
                        format!("{shown} AS x"),
                        String::new(),
                        vec![("x".to_owned(), kind)],
                    ),
                };
                let sql = format!(
                    "(SELECT {list} FROM {} WHERE {same} = {outer}{rest}) AS {alias}",
                    inner.sql
                );
                (sql, columns)
            }
        };
        let right = self.named(String::new(), &alias, columns);
        both(format!("{} {join} {item}{on}", left.sql), left.scope, right.scope)
    }

    fn join(&mut self, left: From, right: From) -> From {
        if self.chance(0.1)
            && let Some(joined) = self.by_name(&left, &right)
        {
            return joined;
        }
        if self.chance(0.06)
            && let Some(nearest) = self.nearest(&left)
        {
            return nearest;
        }
        let kind = self.choose(&["INNER", "INNER", "LEFT", "LEFT", "RIGHT", "FULL"]);
        let Some((l, r)) = self.pair(&left.scope, &right.scope) else {
            self.saw("CROSS JOIN");
            return both(
                format!("{} CROSS JOIN {}", left.sql, right.sql),
                left.scope,
                right.scope,
            );
        };
        self.saw(match kind {
            "LEFT" => "LEFT JOIN",
            "RIGHT" => "RIGHT JOIN",
            "FULL" => "FULL JOIN",
            _ => "JOIN",
        });
        let joined: Scope = left.scope.iter().chain(&right.scope).cloned().collect();
        let on = match self.below(12) {
            0..=5 => format!("{l} = {r}"),
            6 => match self.pair(&left.scope, &right.scope) {
                Some((l2, r2)) => format!("{l} = {r} AND {l2} = {r2}"),
                None => format!("{l} = {r}"),
            },
            7 | 8 => {
                self.saw("join with a further condition");
                let operator = self.choose(&["<", "<=", "<>"]);
                match self.pair(&left.scope, &right.scope) {
                    Some((l2, r2)) => format!("{l} = {r} AND {l2} {operator} {r2}"),
                    None => format!("{l} = {r} AND {}", self.condition(&joined, 0)),
                }
            }
            9 => {
                self.saw("join with a condition on one side");
                let side = if self.chance(0.5) {
                    &left.scope
                } else {
                    &right.scope
                };
                format!("{l} = {r} AND {}", self.condition(side, 1))
            }
            10 => {
                self.saw("join IS NOT DISTINCT FROM");
                format!("{l} IS NOT DISTINCT FROM {r}")
            }
            _ => {
                self.saw("non-equi join");
                format!("{l} {} {r}", self.choose(&["<", ">=", "<>"]))
            }
        };
        both(
            format!("{} {kind} JOIN {} ON {on}", left.sql, right.sql),
            left.scope,
            right.scope,
        )
    }

    /// An ASOF join with a relation.
    fn nearest(&mut self, left: &From) -> Option<From> {
        let right = self.base();
        let time = self.column(&left.scope, &[Kind::Timestamp, Kind::Int, Kind::Date])?;
        let other = self.column(&right.scope, &[time.kind])?;
        let (l, r) = self.pair(&left.scope, &right.scope)?;
        self.saw("ASOF JOIN");
        let outer = self.choose(&["", "LEFT "]);
        let operator = self.choose(&[">=", ">", "<=", "<"]);
        let (time, other) = (time.sql, other.sql);
        let sql = format!(
            "{} ASOF {outer}JOIN {} ON {l} = {r} AND {time} {operator} {other}",
            left.sql, right.sql
        );
        Some(both(sql, left.scope.clone(), right.scope))
    }

    /// USING or NATURAL, where the sides have a name in common.
    fn by_name(&mut self, left: &From, right: &From) -> Option<From> {
        let common: Vec<(Field, Field)> = left
            .scope
            .iter()
            .filter_map(|l| {
                right
                    .scope
                    .iter()
                    .find(|r| r.name == l.name)
                    .map(|r| (l.clone(), r.clone()))
            })
            .collect();
        let once = |scope: &Scope, name: &str| scope.iter().filter(|field| field.name == name).count() == 1;
        let usable = common.iter().all(|(l, r)| {
            l.kind == r.kind
                && !matches!(l.kind, Kind::IntArray | Kind::Result)
                && once(&left.scope, &l.name)
                && once(&right.scope, &r.name)
        });
        if common.is_empty() || !usable {
            return None;
        }
        let kind = self.choose(&["INNER", "LEFT", "RIGHT", "FULL"]);
        let (sql, names): (String, Vec<String>) = if self.chance(0.4) {
            self.saw("NATURAL JOIN");
            let names = common.iter().map(|(field, _)| field.name.clone()).collect();
            (format!("{} NATURAL {kind} JOIN {}", left.sql, right.sql), names)
        } else {
            self.saw("JOIN USING");
            let name = common[self.below(common.len())].0.name.clone();
            let sql = format!("{} {kind} JOIN {} USING ({name})", left.sql, right.sql);
            (sql, vec![name])
        };
        // A merged column is named without a side.
        let mut scope: Scope = left.scope.iter().chain(&right.scope).cloned().collect();
        scope.retain(|field| !names.contains(&field.name));
        for name in names {
            let kind = left.scope.iter().find(|field| field.name == name)?.kind;
            scope.push(Field {
                sql: name.clone(),
                name,
                kind,
            });
        }
        Some(From { sql, scope })
    }

    /// A column of each side, of one kind.
    fn pair(&mut self, left: &Scope, right: &Scope) -> Option<(String, String)> {
        for _ in 0..3 {
            let l = self.comparable(left)?;
            if let Some(r) = self.column(right, &[l.kind]) {
                return Some((l.sql, r.sql));
            }
        }
        None
    }
}

fn both(sql: String, left: Scope, right: Scope) -> From {
    From {
        sql,
        scope: left.into_iter().chain(right).collect(),
    }
}
