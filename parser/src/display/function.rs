//! CREATE FUNCTION and CREATE AGGREGATE as text.

use std::fmt::{self, Display, Formatter};

use super::when;
use crate::ast::CreateFunction;

impl Display for CreateFunction {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let parameters: Vec<String> = (self.parameters.iter())
            .map(|(name, data_type)| format!("{name} {data_type}"))
            .collect();
        write!(
            f,
            "CREATE {}{} {}({}) RETURNS {} LANGUAGE SQL RETURN {}",
            when(self.or_replace, "OR REPLACE "),
            if self.is_aggregate {
                "AGGREGATE"
            } else {
                "FUNCTION"
            },
            self.name,
            parameters.join(", "),
            match self.rows.as_slice() {
                [] => self.returns.to_string(),
                rows => {
                    let rows: Vec<String> = (rows.iter())
                        .map(|(name, data_type)| format!("{name} {data_type}"))
                        .collect();
                    format!("TABLE ({})", rows.join(", "))
                }
            },
            self.body
        )
    }
}
