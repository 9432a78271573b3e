//! The examples under `docs/examples`, run as they are; `sql-tests/examples` then says of each what its views hold.

use std::path::{Path, PathBuf};

use millrace_cli::split::Splitter;
use millrace_cli::test::{Protocol, run_file_on, virtual_clock};
use millrace_sql_tests::{Failure, connect, run, start_on};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_example_runs_and_its_views_hold_what_is_said() -> Result<(), Failure> {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let examples = std::fs::read_dir(here.join("../docs/examples"))?;
    let examples = examples.map(|entry| Ok(entry?.path()));
    let mut examples = examples.collect::<Result<Vec<PathBuf>, Failure>>()?;
    examples.retain(|path| path.extension().is_some_and(|extension| extension == "sql"));
    examples.sort();
    assert!(examples.len() >= 6, "{examples:?}");
    for example in examples {
        let name = example.file_stem().unwrap().to_string_lossy().into_owned();
        let directory = tempfile::tempdir()?;
        let server = start_on(directory.path(), &virtual_clock()).await?;
        let client = connect(server.pg_addr()).await?;
        // Statement by statement, as `millrace sql` and psql do.
        let mut splitter = Splitter::default();
        splitter.push(&std::fs::read_to_string(&example)?);
        while let Some(statement) = splitter.next_statement() {
            run(&client, &statement).await?;
        }
        let checked = run_file_on(
            &server,
            &here.join(format!("examples/{name}.slt")),
            Protocol::Simple,
        )
        .await;
        checked.map_err(|error| format!("{name}: {error}"))?;
        drop(client);
        server.shutdown().await;
    }
    Ok(())
}
