//! Logs that do not go as far as they were durable ([`heads`]): they are damaged.

use std::collections::BTreeMap;
use std::path::Path;

use super::{DamagedLog, Scan, Scanned};
use crate::StorageError;
use crate::log::heads::{self, Heads};

/// Leaves out each log that ends before the offset up to which it was durable, or that is gone. `head`: where one ends.
pub(super) fn leave_out(
    scan: &mut Scan,
    relations: &mut BTreeMap<u64, Scanned>,
    logs: &Path,
    durable: &Heads,
    head: impl Fn(&Scanned) -> u64,
) -> Result<(), StorageError> {
    for (id, durable) in durable {
        if scan.damaged.contains_key(id) {
            continue;
        }
        let found = relations.get(id).map(&head);
        let Some(why) = heads::missing(found, *durable) else {
            continue;
        };
        let directory = logs.join(id.to_string());
        let error = StorageError::corrupt(&directory, 0, why);
        if relations.remove(id).is_some() {
            scan.leave_out(*id, &directory, error)?;
            continue;
        }
        // Whoever has dropped it does not ask for it.
        let log = DamagedLog {
            error,
            last_write_id: None,
        };
        scan.damaged.insert(*id, log);
    }
    Ok(())
}
