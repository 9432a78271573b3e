//! BACKUP TO: a copy of everything as of one moment, made while others write.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::error::{SqlError, SqlResult, SqlState};
use crate::session::statement::done;
use crate::session::{Outcome, Session};

/// Copies the database into a directory of the server's machine. Definitions may not change only until the moment is fixed.
pub(crate) async fn execute(session: &Arc<Session>, to: &str) -> SqlResult<Outcome> {
    let target = PathBuf::from(to);
    if !target.is_absolute() {
        return Err(SqlError::new(
            SqlState::InvalidParameterValue,
            format!("\"{to}\" is no absolute path"),
        )
        .with_hint("BACKUP writes on the server's machine, which has its own working directory."));
    }
    let db = session.database();
    if target.starts_with(absolute(db.store().directory())) {
        return Err(SqlError::new(
            SqlState::InvalidParameterValue,
            "a backup inside of the data directory would go with it",
        ));
    }
    let moment = {
        let guard = db.ddl().await;
        guard.database().store().begin_backup()?
    };
    tokio::task::spawn_blocking(move || moment.write(&target))
        .await
        .map_err(|error| SqlError::internal(format!("a backup ended early: {error}")))??;
    done("BACKUP")
}

fn absolute(path: &Path) -> PathBuf {
    std::path::absolute(path).unwrap_or_else(|_| path.to_owned())
}

#[cfg(test)]
mod tests {
    use crate::database::{Database, DatabaseOptions};
    use crate::error::SqlState;
    use crate::session::tests::{Fixture, run};
    use crate::session::{Session, SessionInfo};

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_backup_is_restored_with_its_views() {
        let f = Fixture::new().await;
        let dir = tempfile::tempdir().unwrap();
        let (backup, data) = (dir.path().join("backup"), dir.path().join("data"));
        f.ok("CREATE TABLE t (id INT PRIMARY KEY, v INT)").await;
        f.ok("CREATE MATERIALIZED VIEW mv AS SELECT sum(v) AS total FROM t")
            .await;
        f.ok("INSERT INTO t VALUES (1, 10), (2, 20)").await;
        f.ok("UPDATE t SET v = 5 WHERE id = 1").await;
        let statement = format!("BACKUP TO '{}'", backup.display());
        f.ok(&statement).await;
        f.ok("INSERT INTO t VALUES (3, 30)").await;
        let error = run(&f.session, &statement).await.unwrap_err();
        assert_eq!(error.code, SqlState::ObjectNotInPrerequisiteState);
        let error = run(&f.session, "BACKUP TO 'somewhere'").await.unwrap_err();
        assert_eq!(error.code, SqlState::InvalidParameterValue);
        millrace_storage::restore(&backup, &data).unwrap();
        let db = Database::open(DatabaseOptions::new(&data)).await.unwrap();
        let session = Session::new(db.clone(), SessionInfo::default()).unwrap();
        assert_eq!(run(&session, "SELECT total FROM mv").await.unwrap(), ["25"]);
        run(&session, "INSERT INTO t VALUES (4, 1)").await.unwrap();
        assert_eq!(run(&session, "SELECT total FROM mv").await.unwrap(), ["26"]);
        db.close().await.unwrap();
    }
}
