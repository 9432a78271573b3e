//! What views must show: the same SELECTs, answered by plain DataFusion over the same rows in this process.

use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::util::display::{ArrayFormatter, FormatOptions};
use datafusion::datasource::MemTable;
use datafusion::error::DataFusionError;
use datafusion::prelude::SessionContext;

use crate::client::TextRow;
use crate::error::BenchError;

/// Base relations and views over them, evaluated anew by every query.
pub struct Oracle {
    context: SessionContext,
}

impl Oracle {
    /// An oracle over these base relations.
    pub fn new(relations: &[(&str, &[RecordBatch])]) -> Result<Self, BenchError> {
        let context = SessionContext::new();
        for (name, batches) in relations {
            let schema = batches
                .first()
                .map(RecordBatch::schema)
                .ok_or_else(|| DataFusionError::Plan(format!("the oracle was given no rows of {name}")))?;
            let table = MemTable::try_new(schema, vec![batches.to_vec()])?;
            context.register_table(*name, Arc::new(table))?;
        }
        Ok(Oracle { context })
    }

    /// Adds a view, for later views and queries to read.
    pub async fn create_view(&self, name: &str, select: &str) -> Result<(), BenchError> {
        let created = self
            .context
            .sql(&format!("CREATE VIEW {name} AS {select}"))
            .await?;
        created.collect().await?;
        Ok(())
    }

    /// The rows of a query, comparable with [`comparable`] ones of a server.
    pub async fn rows(&self, sql: &str) -> Result<Vec<TextRow>, BenchError> {
        let batches = self.context.sql(sql).await?.collect().await?;
        let options = FormatOptions::default();
        let mut rows = Vec::new();
        for batch in &batches {
            let columns = batch.columns().iter();
            let formatters = columns.map(|column| ArrayFormatter::try_new(column.as_ref(), &options));
            let formatters = formatters.collect::<Result<Vec<_>, _>>()?;
            for row in 0..batch.num_rows() {
                let values = batch.columns().iter().zip(&formatters);
                let values =
                    values.map(|(column, text)| (!column.is_null(row)).then(|| text.value(row).to_string()));
                rows.push(values.collect());
            }
        }
        Ok(comparable(rows))
    }
}

/// Rows in an order and a notation in which equal multisets of rows are equal: numbers are written in one way,
/// whatever their type, because types are not what is compared here.
pub fn comparable(mut rows: Vec<TextRow>) -> Vec<TextRow> {
    for value in rows.iter_mut().flatten().flatten() {
        if let Ok(number) = value.parse::<f64>() {
            *value = number.to_string();
        }
    }
    rows.sort_unstable();
    rows
}

/// Compares a relation's rows with the oracle's; both must be comparable.
///
/// # Errors
/// They differ; the first difference is named.
pub fn check(relation: &str, shown: &[TextRow], expected: &[TextRow]) -> Result<(), BenchError> {
    if shown == expected {
        return Ok(());
    }
    let same = shown
        .iter()
        .zip(expected)
        .take_while(|(left, right)| left == right);
    let place = same.count();
    Err(BenchError::Wrong(format!(
        "{relation} shows {} rows where the oracle has {}; the first difference is {:?} instead of {:?}",
        shown.len(),
        expected.len(),
        shown.get(place),
        expected.get(place)
    )))
}

#[cfg(test)]
mod tests {
    use arrow::array::{ArrayRef, Int64Array};

    use super::*;

    fn rows(values: &[&[&str]]) -> Vec<TextRow> {
        let row = |row: &&[&str]| row.iter().map(|value| Some((*value).to_owned())).collect();
        values.iter().map(row).collect()
    }

    #[tokio::test]
    async fn views_are_evaluated_over_views() {
        let values: ArrayRef = Arc::new(Int64Array::from(vec![1, 2, 3]));
        let batch = RecordBatch::try_from_iter([("v", values)]).unwrap();
        let oracle = Oracle::new(&[("t", &[batch])]).unwrap();
        oracle
            .create_view("big", "SELECT v FROM t WHERE v > 1")
            .await
            .unwrap();
        oracle
            .create_view("total", "SELECT avg(v) AS a FROM big")
            .await
            .unwrap();
        assert_eq!(
            oracle.rows("SELECT * FROM total").await.unwrap(),
            rows(&[&["2.5"]])
        );
        assert_eq!(
            oracle.rows("SELECT v FROM big").await.unwrap(),
            rows(&[&["2"], &["3"]])
        );
    }

    #[test]
    fn order_and_notation_do_not_matter_but_values_do() {
        let shown = comparable(rows(&[&["b", "2.0"], &["a", "1e0"]]));
        let expected = comparable(rows(&[&["a", "1"], &["b", "2"]]));
        assert!(check("v", &shown, &expected).is_ok());
        let fewer = check("v", &shown[..1], &expected).unwrap_err().to_string();
        assert!(fewer.contains("v shows 1 rows where the oracle has 2"), "{fewer}");
        let mut nulls = shown.clone();
        nulls[0][1] = None;
        assert!(check("v", &nulls, &expected).is_err());
    }
}
