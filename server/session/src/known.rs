//! Statements that a client has sent before: what was found out of them is kept, for as long as names mean the same.
//!
//! Drivers that do not prepare send the text of a statement anew each time, and so do programs that put values into their texts.

use std::collections::VecDeque;
use std::sync::Arc;

use postgres_types::Type;

use crate::key_select::Understanding;
use crate::prepared::Prepared;

/// How many are kept for a session.
const STATEMENTS_MAX: usize = 16;
/// Longer texts are not kept.
const BYTES_MAX: usize = 2 << 10;

/// What is known of a text.
#[derive(Debug, Clone)]
pub(crate) enum Seen {
    /// It has come once.
    Once,
    /// It has come more often, and gains nothing by being known.
    Plain,
    /// It was prepared.
    Prepared(Arc<Prepared>),
}

#[derive(Debug)]
struct Entry {
    text: String,
    /// The types that the client said; none of a simple query.
    types: Option<Vec<Option<Type>>>,
    understanding: Understanding,
    seen: Seen,
}

/// The statements of a session, those that came last at the end.
#[derive(Debug, Default)]
pub(crate) struct KnownStatements {
    entries: VecDeque<Entry>,
}

impl KnownStatements {
    /// What is known of a text. `types`: those that the client said, if it is to be prepared; the template of a simple query has none.
    pub fn get(&mut self, text: &str, types: Option<&[Option<Type>]>, now: &Understanding) -> Option<Seen> {
        let place = self.place(text, types)?;
        if !self.entries[place].understanding.is_still(now) {
            self.entries.remove(place);
            return None;
        }
        let seen = self.entries[place].seen.clone();
        if place + 1 < self.entries.len()
            && let Some(entry) = self.entries.remove(place)
        {
            self.entries.push_back(entry);
        }
        Some(seen)
    }

    /// Keeps what is known of a text. What came longest ago is forgotten for it.
    pub fn put(
        &mut self,
        text: &str,
        types: Option<&[Option<Type>]>,
        understanding: Understanding,
        seen: Seen,
    ) {
        if text.len() > BYTES_MAX {
            return;
        }
        if let Some(place) = self.place(text, types) {
            self.entries.remove(place);
        }
        if self.entries.len() == STATEMENTS_MAX {
            self.entries.pop_front();
        }
        self.entries.push_back(Entry {
            text: text.to_owned(),
            types: types.map(<[_]>::to_vec),
            understanding,
            seen,
        });
    }

    /// Forgets all of them.
    pub fn clear(&mut self) {
        self.entries.clear();
    }

    fn place(&self, text: &str, types: Option<&[Option<Type>]>) -> Option<usize> {
        self.entries
            .iter()
            .rposition(|entry| entry.text == text && entry.types.as_deref() == types)
    }
}

#[cfg(test)]
mod tests {
    use millrace_catalog::settings::Settings;

    use super::*;

    fn understanding(catalog: u64) -> Understanding {
        Understanding {
            catalog,
            settings: Settings::new("millrace"),
            is_checked: false,
        }
    }

    #[test]
    fn what_came_longest_ago_is_forgotten() {
        let (now, mut known) = (understanding(1), KnownStatements::default());
        for number in 0..STATEMENTS_MAX {
            known.put(&number.to_string(), None, now.clone(), Seen::Once);
        }
        assert!(known.get("0", None, &now).is_some());
        known.put("next", None, now.clone(), Seen::Plain);
        assert!(known.get("0", None, &now).is_some());
        assert!(known.get("1", None, &now).is_none());
        assert!(known.get("next", Some(&[]), &now).is_none());
        assert_eq!(known.entries.len(), STATEMENTS_MAX);
    }

    #[test]
    fn another_catalog_and_other_settings_end_it() {
        let mut known = KnownStatements::default();
        known.put("a", None, understanding(1), Seen::Once);
        assert!(known.get("a", None, &understanding(2)).is_none());
        assert!(known.get("a", None, &understanding(1)).is_none());
        known.put("a", None, understanding(1), Seen::Once);
        let mut other = understanding(1);
        other.settings.set("search_path", "s").unwrap();
        assert!(known.get("a", None, &other).is_none());
    }
}
