//! Cyclic joins of queries: whether a cycle is joined all at once or by binary joins, and the logical node of the former.
//!
//! How many results a cycle has at most follows from the sizes of its relations (A. Atserias, M. Grohe, D. Marx, "Size bounds
//! and query plans for relational joins", 2008), and a generic join takes that long; binary joins make on their way what the
//! bounds of the first two, three, .. relations allow. These bounds decide: of skew, which is what makes binary joins come
//! near theirs, nothing is known before. Where a relation is found by its key they say nothing; where that is not known, a
//! table has to be twice in the cycle, as in the patterns of a graph.

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex};

use arrow::datatypes::DataType;
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::common::{DFSchemaRef, TableReference};
use datafusion::datasource::source_as_provider;
use datafusion::error::{DataFusionError, Result};
use datafusion::logical_expr::{Expr, Extension, Join, LogicalPlan, UserDefinedLogicalNodeCore};

use crate::cyclic_join::{CyclicJoin, determines};
use crate::relation::relation_of;

/// A binding of a generic join takes as long as so many rows of a binary one.
const BINDING_COST: f64 = 8.0;

/// Which joins a query's cycles get.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum CyclicJoins {
    /// Those that the bounds say are faster.
    #[default]
    Auto,
    /// Generic ones, wherever they can be.
    Generic,
    Binary,
}

/// How a query's cycles are to be joined, and what was decided: an extension of a session's configuration.
#[derive(Debug, Default)]
pub struct CyclicJoinChoice {
    pub joins: CyclicJoins,
    /// The primary keys of the tables that the query reads, by the names of these.
    keys: BTreeMap<String, Vec<String>>,
    /// Why cycles are joined by binary joins.
    binary: Mutex<Vec<String>>,
}

impl CyclicJoinChoice {
    pub fn new(joins: CyclicJoins) -> Self {
        CyclicJoinChoice {
            joins,
            ..CyclicJoinChoice::default()
        }
    }

    /// Notes the keys of what a plan reads, while it names relations: snapshots do not tell them.
    ///
    /// # Errors
    /// None that DataFusion's walk over a plan does not have.
    pub fn note_keys(&mut self, plan: &LogicalPlan) -> Result<()> {
        plan.apply(|node| {
            if let LogicalPlan::TableScan(scan) = node
                && let Some(info) = relation_of(scan)
                && let Some(key) = &info.key
            {
                let names = key.iter().map(|column| info.schema.field(*column).name());
                self.keys
                    .insert(scan.table_name.to_string(), names.cloned().collect());
            }
            Ok(TreeNodeRecursion::Continue)
        })?;
        Ok(())
    }

    /// For each cycle of the plan that got binary joins, why.
    pub fn binary(&self) -> Vec<String> {
        self.binary.lock().map(|why| why.clone()).unwrap_or_default()
    }
}

/// An inner join of three or more relations by equal columns, all at once: see [`crate::stage::generic_join::GenericJoin`].
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct GenericJoinNode {
    relations: Vec<LogicalPlan>,
    /// For each relation, the attribute of each of its columns.
    pub attributes: Vec<Vec<usize>>,
    /// By attribute.
    pub types: Vec<DataType>,
    pub names: Vec<String>,
    /// The attribute of each column of the output.
    pub output: Vec<usize>,
    /// The relation whose rows are looked at one after the other, while the others are kept.
    pub driving: usize,
    /// Why it is not a tree of binary joins.
    pub reason: String,
    schema: DFSchemaRef,
}

impl PartialOrd for GenericJoinNode {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        self.relations.partial_cmp(&other.relations)
    }
}

impl UserDefinedLogicalNodeCore for GenericJoinNode {
    fn name(&self) -> &'static str {
        "GenericJoin"
    }

    fn inputs(&self) -> Vec<&LogicalPlan> {
        self.relations.iter().collect()
    }

    fn schema(&self) -> &DFSchemaRef {
        &self.schema
    }

    fn expressions(&self) -> Vec<Expr> {
        vec![]
    }

    fn fmt_for_explain(&self, f: &mut fmt::Formatter) -> fmt::Result {
        write!(
            f,
            "GenericJoin: {}, because {}",
            self.names.join(", "),
            self.reason
        )
    }

    fn with_exprs_and_inputs(&self, _: Vec<Expr>, inputs: Vec<LogicalPlan>) -> Result<Self> {
        if inputs.len() != self.relations.len() {
            return Err(DataFusionError::Internal(
                "a generic join lost one of its relations".into(),
            ));
        }
        Ok(GenericJoinNode {
            relations: inputs,
            ..self.clone()
        })
    }
}

/// Puts generic joins in place of cycles, where they are chosen. Last of what is done to a logical plan.
///
/// # Errors
/// DataFusion cannot make the plan again over its new inputs.
pub fn choose(plan: LogicalPlan, choice: &CyclicJoinChoice) -> Result<LogicalPlan> {
    if choice.joins == CyclicJoins::Binary {
        return Ok(plan);
    }
    let chosen = plan.transform_down(|node| {
        let LogicalPlan::Join(join) = &node else {
            return Ok(Transformed::no(node));
        };
        let Some(cyclic) = CyclicJoin::of(join) else {
            return Ok(Transformed::no(node));
        };
        match decide(&cyclic, choice) {
            Ok(reason) => {
                let node = Arc::new(generic(&cyclic, join, reason));
                Ok(Transformed::yes(LogicalPlan::Extension(Extension { node })))
            }
            Err(why) => {
                if let Ok(mut binary) = choice.binary.lock() {
                    binary.push(why);
                }
                Ok(Transformed::no(node))
            }
        }
    })?;
    Ok(chosen.data)
}

fn generic(cyclic: &CyclicJoin<'_>, join: &Join, reason: String) -> GenericJoinNode {
    let rows = |number: &usize| rows_max(cyclic.relations[*number]).unwrap_or(f64::MAX);
    let numbers = 0..cyclic.relations.len();
    // The largest: it is not kept. Of several the first.
    let driving = numbers
        .rev()
        .max_by(|left, right| rows(left).total_cmp(&rows(right)));
    GenericJoinNode {
        relations: cyclic.relations.iter().copied().cloned().collect(),
        attributes: cyclic.attributes.clone(),
        types: cyclic.types.clone(),
        names: cyclic.names.clone(),
        output: cyclic.output.clone(),
        driving: driving.unwrap_or(0),
        reason,
        schema: Arc::clone(&join.schema),
    }
}

/// Why a cycle is joined all at once, or why by binary joins.
fn decide(cyclic: &CyclicJoin<'_>, choice: &CyclicJoinChoice) -> std::result::Result<String, String> {
    if choice.joins == CyclicJoins::Generic {
        return Ok("cyclic_joins is generic".to_owned());
    }
    let relations = cyclic.relations.iter();
    let keys: Vec<_> = relations.map(|relation| key(relation, &choice.keys)).collect();
    if determines(&keys, &cyclic.attributes) {
        return Err("a relation of the cycle is found by its key".to_owned());
    }
    let mut tables: Vec<_> = cyclic
        .relations
        .iter()
        .filter_map(|relation| table(relation))
        .collect();
    tables.sort_unstable();
    if !tables.windows(2).any(|two| two[0] == two[1]) {
        return Err(
            "no table is in the cycle twice: joins of different tables are mostly by keys".to_owned(),
        );
    }
    let rows: Option<Vec<f64>> = cyclic
        .relations
        .iter()
        .map(|relation| rows_max(relation))
        .collect();
    let Some(rows) = rows else {
        return Err("the number of rows in the cycle's relations is not known".to_owned());
    };
    let results = results_max(&rows, &cyclic.attributes);
    let made = binary_max(&rows, &cyclic.attributes);
    match BINDING_COST * results < made {
        true => Ok(format!(
            "the cycle has at most {results:.1e} results, and binary joins make up to {made:.1e} \
             intermediate rows"
        )),
        false => Err(format!(
            "binary joins make at most {made:.1e} intermediate rows, and the cycle has up to {results:.1e} \
             results"
        )),
    }
}

/// Columns whose values tell the rows of a relation apart, as far as the key of its table is among them under its names.
fn key(relation: &LogicalPlan, keys: &BTreeMap<String, Vec<String>>) -> Option<Vec<usize>> {
    let names = keys.get(&table(relation)?.to_string())?;
    let fields = relation.schema().fields();
    let column = |name: &String| fields.iter().position(|field| field.name() == name);
    names.iter().map(column).collect()
}

/// The table of which a relation has rows, and each once.
fn table(relation: &LogicalPlan) -> Option<&TableReference> {
    match relation {
        LogicalPlan::TableScan(scan) => Some(&scan.table_name),
        LogicalPlan::Filter(_)
        | LogicalPlan::Projection(_)
        | LogicalPlan::SubqueryAlias(_)
        | LogicalPlan::Distinct(_) => table(relation.inputs().first()?),
        _ => None,
    }
}

/// How many rows a relation has at most, as far as its tables tell.
fn rows_max(relation: &LogicalPlan) -> Option<f64> {
    match relation {
        LogicalPlan::TableScan(scan) => {
            let statistics = source_as_provider(&scan.source).ok()?.statistics()?;
            let rows = statistics.num_rows.get_value().copied()?;
            Some(scan.fetch.map_or(rows, |fetch| rows.min(fetch)).max(1) as f64)
        }
        LogicalPlan::Values(values) => Some(values.values.len().max(1) as f64),
        LogicalPlan::Filter(_)
        | LogicalPlan::Projection(_)
        | LogicalPlan::SubqueryAlias(_)
        | LogicalPlan::Sort(_)
        | LogicalPlan::Limit(_)
        | LogicalPlan::Distinct(_)
        | LogicalPlan::Aggregate(_) => rows_max(relation.inputs().first()?),
        LogicalPlan::Union(union) => union.inputs.iter().map(|input| rows_max(input)).sum(),
        _ => None,
    }
}

/// The bound on the results, with one cover of the attributes: a relation that alone has some attribute counts in full, the
/// others in equal parts, so that each attribute is covered.
fn results_max(rows: &[f64], attributes: &[Vec<usize>]) -> f64 {
    let having = |attribute: &usize| attributes.iter().filter(|of| of.contains(attribute)).count();
    let shared = attributes.iter().flatten().map(having).filter(|count| *count > 1);
    let part = 1.0 / shared.min().unwrap_or(1) as f64;
    let parts = attributes
        .iter()
        .map(|of| match of.iter().any(|attribute| having(attribute) == 1) {
            true => 1.0,
            false => part,
        });
    rows.iter()
        .zip(parts)
        .map(|(rows, part)| rows.powf(part))
        .product()
}

/// The rows that binary joins may make on their way, one relation after the other.
fn binary_max(rows: &[f64], attributes: &[Vec<usize>]) -> f64 {
    let made = (2..=rows.len()).map(|joined| results_max(&rows[..joined], &attributes[..joined]));
    made.fold(0.0, f64::max)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bounds_are_those_of_triangles_and_cliques() {
        let triangle = [vec![0, 1], vec![1, 2], vec![0, 2]];
        assert!((results_max(&[1e4; 3], &triangle) / 1e6 - 1.0).abs() < 1e-9);
        assert!((binary_max(&[1e4; 3], &triangle) / 1e8 - 1.0).abs() < 1e-9);
        let clique = [
            vec![0, 1],
            vec![1, 2],
            vec![0, 2],
            vec![0, 3],
            vec![1, 3],
            vec![2, 3],
        ];
        assert!((results_max(&[1e4; 6], &clique) / 1e8 - 1.0).abs() < 1e-9);
        // Triangles, each with the edges of one of its nodes.
        assert!((binary_max(&[1e4; 6], &clique) / 1e10 - 1.0).abs() < 1e-9);
        // A tail multiplies.
        let tail = [vec![0, 1], vec![1, 2], vec![0, 2], vec![2, 3]];
        assert!((results_max(&[1e4, 1e4, 1e4, 10.0], &tail) / 1e7 - 1.0).abs() < 1e-9);
        // A small relation makes few pairs.
        assert!((binary_max(&[10.0, 1e6, 1e6], &triangle) / 1e7 - 1.0).abs() < 1e-9);
    }
}
