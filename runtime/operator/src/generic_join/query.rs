//! A generic join that is made once, for a query: relations are kept, and the rows of one are looked at.

use millrace_planner::stage::generic_join::GenericJoinShape;
use millrace_storage::ChangeBatch;

use super::search::Search;
use super::{CHANGES_STEP, GenericJoinInstance, Value};
use crate::error::Result;

/// How far the rows of one relation are looked at.
pub struct Found {
    relation: usize,
    search: Search,
    rows: std::vec::IntoIter<(Vec<Value>, i64)>,
    /// The search after the row that was taken last goes on.
    is_searching: bool,
}

impl Found {
    /// Whether the rows were looked at, and all that was found was taken.
    pub fn is_over(&self) -> bool {
        !self.is_searching && self.rows.len() == 0 && self.search.found() == 0
    }
}

impl GenericJoinInstance {
    /// A join for the rows of one relation.
    ///
    /// # Errors
    /// As [`GenericJoinInstance::new`].
    pub fn for_query(shape: &GenericJoinShape, driving: usize) -> Result<Self> {
        Self::of(shape, driving..driving + 1)
    }

    /// Keeps rows of a relation, and looks for nothing.
    ///
    /// # Errors
    /// An attribute has too many values.
    pub fn keep(&mut self, relation: usize, batch: &ChangeBatch) -> Result<()> {
        for (assignment, weight) in self.changes(relation, batch)? {
            self.relations[relation].change(&assignment, weight);
        }
        Ok(())
    }

    /// Begins to look at the rows of a relation, of which there are none yet; what is found is taken so many rows at a time.
    pub fn find(&self, relation: usize, rows_max: usize) -> Found {
        Found {
            relation,
            search: Search::new(self.dictionaries.len(), &self.output, rows_max),
            rows: vec![].into_iter(),
            is_searching: false,
        }
    }

    /// Gives more rows to be looked at; those before [are over](Found::is_over).
    ///
    /// # Errors
    /// As [`GenericJoinInstance::keep`].
    pub fn look_at(&mut self, found: &mut Found, batch: &ChangeBatch) -> Result<()> {
        found.rows = self.changes(found.relation, batch)?.into_iter();
        Ok(())
    }

    /// Goes on for a while; returns rows if there are enough, or the last ones.
    ///
    /// # Errors
    /// The values of an attribute cannot be emitted.
    pub fn next_found(&self, found: &mut Found) -> Result<Option<ChangeBatch>> {
        for _ in 0..CHANGES_STEP {
            if !found.is_searching {
                let Some((assignment, weight)) = found.rows.next() else {
                    break;
                };
                found.search.begin(&assignment, weight);
            }
            found.is_searching = !self.search(found.relation, &mut found.search);
            if found.is_searching {
                break;
            }
        }
        let is_last = !found.is_searching && found.rows.len() == 0;
        if found.search.is_full() || is_last && found.search.found() > 0 {
            return self.rows(found.search.take()).map(Some);
        }
        Ok(None)
    }
}
