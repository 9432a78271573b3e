//! What a SELECT is optimised with.

use std::sync::Arc;

use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_optimizer::optimizer::PhysicalOptimizer;

/// DataFusion's physical rules without those that give wrong answers.
///
/// `FilterPushdown` moves a filter on one side's key of an outer join to the other side's key once the sides have been
/// swapped: `FROM u RIGHT JOIN s ON u.k = s.k WHERE u.k IS NULL` then keeps only the rows of `s` whose key is NULL (found by
/// the random queries of the oracle). Filters reach the scans by the logical rules already.
pub fn physical_optimizer_rules() -> Vec<Arc<dyn PhysicalOptimizerRule + Send + Sync>> {
    PhysicalOptimizer::new()
        .rules
        .into_iter()
        .filter(|rule| !rule.name().starts_with("FilterPushdown"))
        .collect()
}
