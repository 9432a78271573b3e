//! CREATE FUNCTION and CREATE AGGREGATE as text.

use std::fmt::{self, Display, Formatter};

use super::when;
use crate::ast::{CreateFunction, FunctionBody};

impl Display for CreateFunction {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let required = self.parameters.len() - self.defaults.len();
        let mut parameters: Vec<String> = (self.parameters.iter().enumerate())
            .map(|(place, (name, data_type))| {
                let default = place.checked_sub(required).and_then(|at| self.defaults.get(at));
                let default = default.map_or_else(String::new, |value| format!(" DEFAULT {value}"));
                format!("{name} {data_type}{default}")
            })
            .collect();
        if self.is_row {
            let out = self.rows.iter();
            parameters.extend(out.map(|(name, data_type)| format!("OUT {name} {data_type}")));
        }
        write!(
            f,
            "CREATE {}{} {}({}) RETURNS {} LANGUAGE {}{}",
            when(self.or_replace, "OR REPLACE "),
            match (self.is_aggregate, &self.body) {
                (true, FunctionBody::Sql(_)) => "AGGREGATE",
                (true, FunctionBody::Javascript(_)) => "REDUCER",
                (false, _) => "FUNCTION",
            },
            self.name,
            parameters.join(", "),
            match self.rows.as_slice() {
                _ if self.is_row => self.returns.to_string(),
                [] => self.returns.to_string(),
                [_] if self.is_setof => format!("SETOF {}", self.returns),
                rows => {
                    let rows: Vec<String> = (rows.iter())
                        .map(|(name, data_type)| format!("{name} {data_type}"))
                        .collect();
                    format!("TABLE ({})", rows.join(", "))
                }
            },
            match &self.body {
                FunctionBody::Sql(body) => format!("SQL RETURN {body}"),
                FunctionBody::Javascript(text) => format!("javascript AS '{}'", text.replace('\'', "''")),
            },
            when(self.strict, " STRICT"),
        )
    }
}
