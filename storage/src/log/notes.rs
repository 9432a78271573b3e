//! Which notes a start tells of.

use crate::log::types::LogNote;

/// So many at most, the newest; and the newest of each relation, however old it is.
pub(super) const NOTES_MAX: usize = 100_000;

/// Those to tell of, the oldest first, of what each relation has, the oldest first.
pub(super) fn newest(of_relations: Vec<Vec<LogNote>>) -> Vec<LogNote> {
    let mut found = vec![];
    for notes in of_relations {
        let last = notes.len().saturating_sub(1);
        let notes = notes.into_iter().enumerate();
        found.extend(notes.map(|(at, note)| (note, at == last)));
    }
    found.sort_by_key(|(note, _)| note.write_id);
    let surplus = found.len().saturating_sub(NOTES_MAX);
    let told = found.into_iter().enumerate();
    let told = told.filter(|(at, (_, is_last))| *at >= surplus || *is_last);
    told.map(|(_, (note, _))| note).collect()
}
