//! What is written down of who did what: definitions, privileges, settings of the server, backups and files.
//!
//! Lines of the log with the target `millrace::audit`, each with its fields by name. Logins that failed are written where they fail, and
//! connections where they begin and end (`millrace-wire`). No line has a secret: a statement is written as others may see it.

use millrace_parser::ast::{CopyDirection, CopyEnd, Options, Statement};
use millrace_postgres::error::SqlResult;

use crate::session::Session;

/// What a statement is called in the audit; `None`: it is not written down.
fn event(statement: &Statement, is_ddl: bool) -> Option<&'static str> {
    match statement {
        Statement::CreateRole(_)
        | Statement::AlterRole(_)
        | Statement::DropRole(_)
        | Statement::ReassignOwned(_)
        | Statement::DropOwned(_)
        | Statement::CreateToken(_)
        | Statement::DropToken(_) => Some("role"),
        Statement::CreateSecret(_) | Statement::AlterSecret(_) => Some("secret"),
        Statement::GrantRole(_) | Statement::Grant(_) | Statement::AlterDefaultPrivileges(_) => Some("grant"),
        Statement::AlterSystemSet(_) => Some("alter system"),
        Statement::Backup { .. } => Some("backup"),
        Statement::CreateExternalTable(_) | Statement::CreateSink(_) => Some("files"),
        Statement::CreateStream(create) if reads_files(&create.options) => Some("files"),
        Statement::CreateTable(create) if reads_files(&create.options) => Some("files"),
        Statement::Copy(copy) => match &copy.direction {
            CopyDirection::From(CopyEnd::Client) | CopyDirection::To(CopyEnd::Client) => None,
            CopyDirection::From(_) | CopyDirection::To(_) => Some("files"),
        },
        Statement::AddWorker | Statement::DropWorker(_) | Statement::KillWorker(_) => Some("workers"),
        _ => is_ddl.then_some("ddl"),
    }
}

/// Whether a stream or table of these options is filled from files, of the server or in a bucket.
fn reads_files(options: &Options) -> bool {
    options.0.iter().any(|option| {
        let connector = option.name.value.eq_ignore_ascii_case("connector");
        connector && matches!(option.value.to_lowercase().as_str(), "file" | "s3")
    })
}

/// A statement that is written down when it has ended.
pub(crate) struct Entry {
    event: &'static str,
    statement: String,
    id: u64,
}

/// Begins the entry of a statement, if it gets one.
pub(crate) fn begin(session: &Session, statement: &Statement, text: &str, is_ddl: bool) -> Option<Entry> {
    let event = event(statement, is_ddl)?;
    Some(Entry {
        event,
        statement: statement.shown(text),
        id: session.next_statement_id(),
    })
}

impl Entry {
    /// Writes it down.
    pub(crate) fn end<T>(self, session: &Session, outcome: &SqlResult<T>) {
        let (user, role) = (session.session_user(), session.current_user());
        let info = session.info();
        let code = outcome.as_ref().err().map_or("00000", |error| error.code.code());
        tracing::info!(
            target: "millrace::audit",
            event = self.event,
            user,
            role,
            database = info.database,
            peer = info.peer,
            session = session.id(),
            statement_id = self.id,
            code,
            statement = self.statement,
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event_of(sql: &str) -> (Option<&'static str>, String) {
        let statement = millrace_parser::parse(sql).unwrap().remove(0).statement;
        (event(&statement, false), statement.to_string())
    }

    #[test]
    fn what_changes_who_may_do_what_is_written_down_without_secrets() {
        let (event, text) = event_of("ALTER ROLE ann PASSWORD 'abracadabra'");
        assert_eq!(event, Some("role"));
        assert!(!text.contains("abracadabra"), "{text}");
        assert_eq!(event_of("GRANT SELECT ON t TO ann").0, Some("grant"));
        assert_eq!(
            event_of("ALTER SYSTEM SET durability = off").0,
            Some("alter system")
        );
        for (sql, expected) in [
            ("CREATE SECRET pw AS 'abracadabra'", Some("secret")),
            ("ALTER SECRET pw AS 'abracadabra'", Some("secret")),
            (
                "CREATE SINK s FROM t WITH (connector = 'postgres', password = 'abracadabra')",
                Some("files"),
            ),
            (
                "CREATE STREAM s (a INT) WITH (connector = 's3', s3.credentials.secret = 'abracadabra')",
                Some("files"),
            ),
        ] {
            let parsed = millrace_parser::parse(sql).unwrap().remove(0).statement;
            assert_eq!(super::event(&parsed, false), expected, "{sql}");
            assert!(!parsed.shown(sql).contains("abracadabra"), "{sql}");
        }
        assert_eq!(event_of("BACKUP TO '/tmp/x'").0, Some("backup"));
        assert_eq!(event_of("COPY t FROM '/tmp/x'").0, Some("files"));
        assert_eq!(event_of("COPY t FROM STDIN").0, None);
        assert_eq!(event_of("SELECT 1").0, None);
    }
}
