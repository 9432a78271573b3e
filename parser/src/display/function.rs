//! CREATE FUNCTION and CREATE AGGREGATE as text.

use std::fmt::{self, Display, Formatter};

use super::when;
use crate::ast::{CreateFunction, FunctionBody};

impl Display for CreateFunction {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let parameters: Vec<String> = (self.parameters.iter())
            .map(|(name, data_type)| format!("{name} {data_type}"))
            .collect();
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
