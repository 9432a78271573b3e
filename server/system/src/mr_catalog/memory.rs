//! `mr_catalog.memory`: who holds how much of the memory.

use std::sync::Arc;

use arrow::array::StringArray;
use millrace_database::Database;
use millrace_resource::memory::{AccountStatus, Holder, MemoryStatus, Use};
use millrace_storage::{ObjectId, ObjectKind};

use super::{Columns, numbers, texts};

/// A row.
struct Row {
    holder: &'static str,
    id: Option<u64>,
    name: Option<String>,
    account: Option<AccountStatus>,
    bytes: u64,
}

/// The holder as the catalog knows it.
fn of_account(database: &Database, account: AccountStatus) -> Row {
    let bytes = account.total() as u64;
    let (holder, id, name) = match account.holder {
        Holder::Query(_) => ("query", None, Some(account.name.clone())),
        Holder::Clients => ("clients", None, None),
        Holder::Relation(id) => {
            let catalog = database.catalog();
            let object = catalog.object(ObjectId(id.0));
            let holder = match object.map(|object| object.kind) {
                Some(ObjectKind::Stream) => "stream",
                Some(ObjectKind::Table) => "table",
                // One that is being made is not in the catalog.
                _ => "view",
            };
            let name = object.map(|object| object.display_name());
            (holder, Some(id.0), name.or_else(|| Some(account.name.clone())))
        }
    };
    Row {
        holder,
        id,
        name,
        bytes,
        account: Some(account),
    }
}

/// What is known of the process as a whole.
fn of_process(status: &MemoryStatus) -> Vec<Row> {
    let row = |name: &str, bytes: usize| Row {
        holder: "process",
        id: None,
        name: Some(name.to_owned()),
        account: None,
        bytes: bytes as u64,
    };
    let mut rows = vec![
        row("used", status.used),
        row("charged", status.charged),
        row("resident", status.resident),
    ];
    rows.extend(status.limit.map(|limit| row("limit", limit)));
    rows
}

/// One row a view, table, stream or query that uses memory: how much, for what, how much of a view's state is spilled to disk, and
/// the process as a whole: the limit, what counts against it, the sum of all accounts, the resident size.
pub fn columns(database: &Database) -> Columns {
    let memory = database.runtime().memory();
    let accounts = memory
        .accounts()
        .into_iter()
        .filter(|account| account.total() > 0 || account.on_disk > 0);
    let mut rows: Vec<Row> = accounts.map(|account| of_account(database, account)).collect();
    rows.extend(of_process(&memory.status()));
    let of = |what: Use| {
        let bytes = rows.iter().map(|row| {
            row.account
                .as_ref()
                .map_or(0, |account| account.bytes[what as usize])
        });
        numbers(bytes.map(|bytes| bytes as u64))
    };
    vec![
        ("holder", texts(rows.iter().map(|row| row.holder.to_owned()))),
        ("relation", super::optional_numbers(rows.iter().map(|row| row.id))),
        (
            "name",
            Arc::new(StringArray::from_iter(rows.iter().map(|row| row.name.clone()))),
        ),
        ("bytes", numbers(rows.iter().map(|row| row.bytes))),
        ("state_bytes", of(Use::State)),
        ("in_flight_bytes", of(Use::InFlight)),
        ("input_bytes", of(Use::Input)),
        ("query_bytes", of(Use::Query)),
        ("result_bytes", of(Use::Result)),
        (
            "on_disk_bytes",
            numbers(rows.iter().map(|row| {
                let account = row.account.as_ref();
                account.map_or(0, |account| account.on_disk as u64)
            })),
        ),
    ]
}
