//! SQL as DataFusion itself reads it, over base relations whose rows are set.

use std::collections::BTreeMap;

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use datafusion::error::Result;
use datafusion::execution::SessionState;
use datafusion::prelude::{SessionConfig, SessionContext};

use crate::base::Base;

/// Plain DataFusion with base relations, and views that are evaluated again by every query.
pub struct Plain {
    context: SessionContext,
    relations: BTreeMap<String, Base>,
}

impl Default for Plain {
    fn default() -> Self {
        Plain::new()
    }
}

impl Plain {
    /// DataFusion as it is, with texts of the type that millrace has for them.
    pub fn new() -> Plain {
        Plain::of(SessionContext::new_with_config(config()))
    }

    /// As DataFusion plans with these functions and rules. The state's configuration should be [`config`].
    pub fn with(state: SessionState) -> Plain {
        Plain::of(SessionContext::new_with_state(state))
    }

    fn of(context: SessionContext) -> Plain {
        Plain {
            context,
            relations: BTreeMap::new(),
        }
    }

    /// Makes a base relation with these rows, or gives an existing one these rows.
    ///
    /// # Errors
    /// The name cannot be used.
    pub fn set_rows(&mut self, name: &str, schema: SchemaRef, rows: Vec<RecordBatch>) -> Result<()> {
        if let Some(base) = self.relations.get(name) {
            base.set_rows(rows);
            return Ok(());
        }
        let base = Base::new(schema, None);
        base.set_rows(rows);
        let table = base.table(
            false,
            self.context.state_ref().read().config().target_partitions(),
        );
        self.context.register_table(name, table)?;
        self.relations.insert(name.to_owned(), base);
        Ok(())
    }

    /// Adds a view, for later views and queries to read.
    ///
    /// # Errors
    /// DataFusion does not plan it.
    pub async fn create_view(&self, name: &str, select: &str) -> Result<()> {
        let sql = format!("CREATE VIEW {name} AS {select}");
        self.context.sql(&sql).await?.collect().await?;
        Ok(())
    }

    /// What a query answers over the rows of this moment.
    ///
    /// # Errors
    /// DataFusion does not plan it, or an expression fails on a row.
    pub async fn answer(&self, sql: &str) -> Result<Vec<RecordBatch>> {
        self.context.sql(sql).await?.collect().await
    }
}

/// One partition, so that answers do not depend on the machine; texts are of the type that millrace has for them.
pub fn config() -> SessionConfig {
    SessionConfig::new()
        .with_target_partitions(1)
        .set_bool("datafusion.sql_parser.map_string_types_to_utf8view", false)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::array::{ArrayRef, AsArray, Int64Array};
    use arrow::datatypes::Float64Type;

    use super::*;

    fn numbers(values: &[i64]) -> RecordBatch {
        let values: ArrayRef = Arc::new(Int64Array::from(values.to_vec()));
        RecordBatch::try_from_iter([("v", values)]).unwrap()
    }

    #[tokio::test]
    async fn views_over_views_follow_the_rows() {
        let mut plain = Plain::new();
        let rows = numbers(&[1, 2, 3]);
        plain.set_rows("t", rows.schema(), vec![rows.clone()]).unwrap();
        plain
            .create_view("big", "SELECT v FROM t WHERE v > 1")
            .await
            .unwrap();
        plain
            .create_view("total", "SELECT avg(v) AS a FROM big")
            .await
            .unwrap();
        let mut seen = vec![];
        for more in [vec![], vec![numbers(&[7])]] {
            let all = [vec![rows.clone()], more].concat();
            plain.set_rows("t", rows.schema(), all).unwrap();
            let answer = plain.answer("SELECT * FROM total").await.unwrap();
            seen.push(answer[0].column(0).as_primitive::<Float64Type>().value(0));
        }
        assert_eq!(seen, [2.5, 4.0]);
    }
}
