//! BACKUP TO: a copy of everything as of one moment, made while others write.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use millrace_catalog::secret::VALUE;
use millrace_database::database::maintenance::streams_of;
use millrace_postgres::error::{SqlError, SqlResult, SqlState};
use millrace_storage::ObjectKind;
use millrace_storage::checkpoint::Manifest;

use crate::notice::Severity;
use crate::outcome::Outcome;
use crate::session::Session;
use crate::statement::done;

/// Copies the database into a directory of the server's machine. Definitions may not change only until the moment is fixed.
pub async fn execute(session: &Arc<Session>, to: &str) -> SqlResult<Outcome> {
    let target = PathBuf::from(to);
    if !target.is_absolute() {
        return Err(SqlError::new(
            SqlState::InvalidParameterValue,
            format!("\"{to}\" is not an absolute path"),
        )
        .with_hint("BACKUP writes on the server's machine, whose working directory may differ from yours."));
    }
    let db = session.database();
    if target.starts_with(absolute(db.store().directory())) {
        return Err(SqlError::new(
            SqlState::InvalidParameterValue,
            "a backup cannot be inside the data directory",
        ));
    }
    let moment = {
        let guard = session.ddl().await?;
        say_what_is_gone(session)?;
        let mut moment = guard.database().store().begin_backup()?;
        moment.leave_out(&guard.database().all_temporary());
        moment.leave_out_property(ObjectKind::Secret, VALUE);
        moment
    };
    tokio::task::spawn_blocking(move || moment.write(&target))
        .await
        .map_err(|error| SqlError::internal(format!("a backup ended early: {error}")))??;
    done("BACKUP")
}

/// Views that a restored server cannot make again are said: their streams have forgotten rows, and no checkpoint has them.
fn say_what_is_gone(session: &Session) -> SqlResult<()> {
    let db = session.database();
    let catalog = db.catalog();
    for object in catalog.objects() {
        if object.kind != ObjectKind::MaterializedView {
            continue;
        }
        let has = |manifest: &Arc<Manifest>| manifest.relations().any(|relation| relation == object.id.0);
        if db.store().checkpoints().manifests().iter().any(has) {
            continue;
        }
        let streams = streams_of(&catalog, object).into_iter();
        let gone = db.forgotten(object.id, streams, u64::MAX)?;
        if let Some((stream, first)) = gone {
            let stream = catalog.object(stream).map(|stream| stream.described());
            session.notice(
                Severity::Notice,
                format!(
                    "{} will fail to load where this backup is restored: retention has removed the first \
                     {first} rows of {}",
                    object.described(),
                    stream.unwrap_or_default()
                ),
            );
        }
    }
    Ok(())
}

fn absolute(path: &Path) -> PathBuf {
    std::path::absolute(path).unwrap_or_else(|_| path.to_owned())
}

#[cfg(test)]
mod tests {
    use crate::session::Session;
    use crate::tests::{Fixture, run};
    use millrace_database::DatabaseOptions;
    use millrace_database::sessions::SessionInfo;
    use millrace_postgres::error::SqlState;

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_view_of_which_rows_are_gone_is_restored_with_the_rest() {
        let f = Fixture::new().await;
        f.db.stop_maintenance().await;
        let dir = tempfile::tempdir().unwrap();
        let (backup, data) = (dir.path().join("backup"), dir.path().join("data"));
        f.ok("CREATE STREAM s (v INT) WITH (retention = '1 second')")
            .await;
        f.ok("CREATE VIEW plain AS SELECT v FROM s").await;
        f.ok("INSERT INTO s VALUES (1), (2)").await;
        for name in ["mv", "over"] {
            let from = if name == "mv" { "plain" } else { "mv" };
            f.ok(&format!(
                "CREATE MATERIALIZED VIEW {name} AS SELECT count(*) AS n FROM {from}"
            ))
            .await;
        }
        f.ok("FLUSH").await;
        f.db.runtime().checkpoint().await;
        let forget = async || {
            for _ in 0..2 {
                let now = millrace_database::clock::now_ms() + 1_000_000;
                f.db.maintain(now, now).await;
            }
        };
        forget().await;
        // Made of what is left: all of that is in the backup.
        f.ok("CREATE MATERIALIZED VIEW later AS SELECT count(*) AS n FROM plain")
            .await;
        f.ok("INSERT INTO s VALUES (3)").await;
        f.session.take_notices();
        f.ok(&format!("BACKUP TO '{}'", backup.display())).await;
        assert!(f.session.take_notices().is_empty());
        // What comes later is not in it, whatever becomes of the checkpoints that it has.
        f.ok("INSERT INTO s VALUES (4)").await;
        f.ok("CHECKPOINT").await;
        millrace_storage::restore(&backup, &data).unwrap();
        let db = millrace_system::system::open(DatabaseOptions::new(&data))
            .await
            .unwrap();
        let session = Session::new(db.clone(), SessionInfo::default()).unwrap();
        for (view, expected) in [("mv", "3"), ("over", "1"), ("later", "1")] {
            let rows = run(&session, &format!("SELECT n FROM {view}")).await.unwrap();
            assert_eq!(rows, [expected], "{view}");
        }
        run(&session, "INSERT INTO s VALUES (5)").await.unwrap();
        assert_eq!(run(&session, "SELECT n FROM mv").await.unwrap(), ["4"]);
        db.close().await.unwrap();
    }

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
        let db = millrace_system::system::open(DatabaseOptions::new(&data))
            .await
            .unwrap();
        let session = Session::new(db.clone(), SessionInfo::default()).unwrap();
        assert_eq!(run(&session, "SELECT total FROM mv").await.unwrap(), ["25"]);
        run(&session, "INSERT INTO t VALUES (4, 1)").await.unwrap();
        assert_eq!(run(&session, "SELECT total FROM mv").await.unwrap(), ["26"]);
        db.close().await.unwrap();
    }
}
