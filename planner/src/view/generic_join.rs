//! Cyclic joins of views: three or more relations joined all at once, one attribute after the other.
//!
//! An incremental join keeps what it reads; binary joins over a cycle keep all the pairs that most often find no third (see
//! [`crate::cyclic_join`]). Where the joins have no cycle, binary joins are as good and spread over all tasks; so they are where
//! a relation is found by its key, which multiplies nothing.

use std::sync::Arc;

use datafusion::logical_expr::Join as LogicalJoin;

use super::fragment::{Fragment, Part, Placement};
use super::lower::{Lowering, arrow_schema};
use crate::cyclic_join::{CyclicJoin, determines};
use crate::error::Result;
use crate::stage::Output;
use crate::stage::generic_join::{GenericJoin, GenericJoinShape};
use crate::stage::operator::Operator;

impl Lowering {
    /// A join as a generic one, if it is cyclic and can be.
    pub(super) fn generic_join(&mut self, join: &LogicalJoin) -> Result<Option<Fragment>> {
        if !self.options.generic_joins {
            return Ok(None);
        }
        let Some(cyclic) = CyclicJoin::of(join) else {
            return Ok(None);
        };
        let closed = self.stages.stages.len();
        let mut fragments = vec![];
        for relation in &cyclic.relations {
            let fragment = self.node(relation)?;
            // Of what goes by watermarks binary joins know what to forget.
            if fragment.reads_working_table() || !fragment.watermarks.is_empty() {
                self.stages.stages.truncate(closed);
                return Ok(None);
            }
            fragments.push(fragment);
        }
        let keys: Vec<_> = fragments.iter().map(|fragment| fragment.key.clone()).collect();
        if determines(&keys, &cyclic.attributes) {
            self.stages.stages.truncate(closed);
            return Ok(None);
        }
        let append_only = fragments.iter().all(|fragment| fragment.append_only);
        let inputs = fragments.into_iter();
        let schema = arrow_schema(&join.schema);
        let operator = Operator::GenericJoin(Box::new(GenericJoin {
            inputs: inputs
                .map(|fragment| self.stages.exchange(fragment, Output::Single))
                .collect(),
            shape: GenericJoinShape {
                attributes: cyclic.attributes,
                names: cyclic.names,
                types: cyclic.types,
                output: cyclic.output,
                schema: Arc::clone(&schema),
            },
        }));
        Ok(Some(Fragment {
            parts: vec![Part {
                operator,
                placement: Placement::Keyed,
            }],
            append_only,
            key: None,
            watermarks: vec![],
            schema,
        }))
    }
}
