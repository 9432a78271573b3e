//! Streams that are kept beside a relation (`name$errors`, `name$files`, `name$late`): they are called as it is, and go where it goes.

use std::collections::BTreeSet;

use millrace_catalog::Object;
use millrace_catalog::scope::Scope;
use millrace_database::database::ddl::DdlGuard;
use millrace_postgres::error::{SqlError, SqlResult, SqlState};
use millrace_storage::ObjectId;

use super::renamed;

/// Gives objects other names, each with the schema of it, and with them what is kept beside them.
///
/// # Errors
/// A name is taken, and not by one of those that give theirs away.
pub(super) fn rename(guard: &DdlGuard<'_>, scope: &Scope, names: &[(&Object, &str, &str)]) -> SqlResult<()> {
    let mut all = vec![];
    for (object, schema, name) in names {
        all.push(renamed(object, schema, name));
        let beside = object
            .relation()
            .into_iter()
            .flat_map(|relation| relation.beside());
        for stream in beside.filter_map(|id| scope.catalog.object(id)) {
            // One of before may be called after a name that the relation had once.
            if let Some((_, what)) = stream.name.rsplit_once('$') {
                all.push(renamed(stream, schema, &format!("{name}${what}")));
            }
        }
    }
    let ids: BTreeSet<ObjectId> = all.iter().map(|object| object.id).collect();
    for new in &all {
        let catalog = guard.catalog();
        let taken = catalog.relation(&new.database, &new.schema, &new.name);
        let is_given_away = taken.is_some_and(|taken| ids.contains(&taken.id));
        // To be called what one is called is no new name.
        let stays = names.len() == 1 && taken.is_some_and(|taken| taken.id == names[0].0.id);
        if !is_given_away || stays {
            guard.check_free(&new.database, &new.schema, &new.name)?;
        }
    }
    guard.put_all(all)
}

/// Why a stream that is kept beside a relation gets no name or schema of its own.
pub(super) fn goes_with(stream: &Object, of: &Object) -> SqlError {
    SqlError::new(
        SqlState::WrongObjectType,
        format!("{} cannot be renamed or moved by itself", stream.described()),
    )
    .with_detail(format!(
        "The server keeps in it what it notes of {}.",
        of.described()
    ))
    .with_hint("It goes with that one: rename or move that.")
}

/// Whether a stream has the files that were read.
pub(super) fn are_files_read(scope: &Scope, stream: &Object) -> bool {
    let of = scope.catalog.kept_for(stream).and_then(|of| of.relation());
    of.is_some_and(|relation| relation.files == Some(stream.id))
}

/// Why a stream of files that were read keeps all of them.
pub(super) fn all_are_needed(stream: &Object) -> SqlError {
    SqlError::new(
        SqlState::WrongObjectType,
        format!("{} keeps all of its rows", stream.described()),
    )
    .with_detail("A file that it does not have any more would be read again.")
}
