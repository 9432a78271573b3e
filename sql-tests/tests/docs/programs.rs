//! The programs in docs, in Python and for dbt, run where there is what they need: `MILLRACE_PYTHON` names an interpreter that has
//! psycopg, `MILLRACE_DBT` dbt with its adapter for PostgreSQL. Otherwise the tests say that they were skipped.

use std::ffi::{OsStr, OsString};
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use millrace_cli::test::virtual_clock;
use millrace_oracle::text::TextRow;
use millrace_sql_tests::{Failure, connect, run, sorted_rows, start_on};
use tokio::task::block_in_place;
use tokio_postgres::Client;

/// A program that is there, by the variable that names it.
fn program(variable: &str) -> Option<PathBuf> {
    let named = std::env::var_os(variable).map(PathBuf::from);
    if named.is_none() {
        println!("skipped: {variable} does not name a program");
    }
    named
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_program_in_python_follows_a_view() -> Result<(), Failure> {
    let Some(python) = program("MILLRACE_PYTHON") else {
        return Ok(());
    };
    let directory = tempfile::tempdir()?;
    let server = start_on(directory.path(), &virtual_clock()).await?;
    let (address, docs) = (
        server.pg_addr(),
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs"),
    );
    let mut follower = Command::new(python)
        .arg(docs.join("examples/follow.py"))
        .arg(format!("host={}", address.ip()))
        .arg(format!("port={}", address.port()))
        .args(["user=millrace", "dbname=millrace"])
        .stdout(Stdio::piped())
        .spawn()?;
    let mut lines = BufReader::new(follower.stdout.take().unwrap()).lines();
    let mut next = || block_in_place(|| lines.next().transpose());
    let first = next();
    if !matches!(first.as_ref().map(Option::as_deref), Ok(Some("[]"))) {
        follower.kill()?;
        return Err(format!("{first:?}").into());
    }
    let client = connect(address).await?;
    for (statement, totals) in [
        (
            "INSERT INTO orders VALUES (1, 'ann', 10), (2, 'bob', 7), (3, NULL, 5)",
            r#"[["ann", 10], ["bob", 7], [null, 5]]"#,
        ),
        (
            "UPDATE orders SET amount = 15 WHERE id = 1",
            r#"[["ann", 15], ["bob", 7], [null, 5]]"#,
        ),
        ("DELETE FROM orders WHERE id IN (2, 3)", r#"[["ann", 15]]"#),
    ] {
        run(&client, statement).await?;
        let said = next()?;
        if said.as_deref() != Some(totals) {
            follower.kill()?;
        }
        assert_eq!(said.as_deref(), Some(totals), "{statement}");
    }
    // ctrl-C ends it, and not with a trace of what it was doing.
    let asked = Command::new("kill")
        .args(["-INT", &follower.id().to_string()])
        .status()?;
    assert!(asked.success());
    assert!(block_in_place(|| follower.wait())?.success());
    drop(client);
    server.shutdown().await;
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_project_for_dbt_can_be_run_again() -> Result<(), Failure> {
    let Some(dbt) = program("MILLRACE_DBT") else {
        return Ok(());
    };
    let directory = tempfile::tempdir()?;
    let server = start_on(&directory.path().join("data"), &virtual_clock()).await?;
    // The repository, as far as the page is about it.
    let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/dbt");
    copy(&docs, &directory.path().join("docs/dbt"))?;
    let project = directory.path().join("docs/dbt/example");
    let home = directory.path().join("home");
    std::fs::create_dir(&home)?;
    let output = |command: &mut Command| -> Result<String, Failure> {
        command
            .env("HOME", &home)
            .env("DBT_SEND_ANONYMOUS_USAGE_STATS", "false")
            .env("MILLRACE_PORT", server.pg_addr().port().to_string());
        let output = block_in_place(|| command.output())?;
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{command:?}: {said}{error}");
        Ok(said)
    };
    let ask = |arguments: &[&str]| {
        let mut command = Command::new(&dbt);
        command
            .args(["--no-version-check", "--no-use-colors"])
            .args(arguments);
        command.current_dir(&project).env("DBT_PROFILES_DIR", &project);
        output(command.env("SHOP_OUT", home.join("shop")))
    };
    let client = connect(server.pg_addr()).await?;
    // As the page says it.
    let page = std::fs::read_to_string(docs.join("README.md"))?;
    let blocks = page.split("```text\n").skip(1);
    let mut blocks = blocks.filter_map(|rest| Some(rest.split_once("```")?.0));
    let commands = blocks.find(|block| block.contains("dbt run")).unwrap();
    let programs = [dbt.parent().unwrap().as_os_str(), ":".as_ref()].into_iter();
    let path: OsString = programs
        .map(OsStr::to_owned)
        .chain(std::env::var_os("PATH"))
        .collect();
    let mut shell = Command::new("sh");
    shell
        .args(["-ec", commands])
        .env("PATH", path)
        .env_remove("SHOP_OUT");
    output(shell.current_dir(directory.path()))?;
    run(&client, "INSERT INTO orders VALUES (1, 40), (2, 25), (1, 2)").await?;
    let ids = "SELECT name, id FROM mr_catalog.relations WHERE name IN ('orders', 'totals', 'totals_out') ORDER BY name";
    let (before, best) = (shown(&client, ids).await?, "SELECT customer, total FROM best");
    assert_eq!(before.len(), 3, "{before:?}");
    assert_eq!(shown(&client, best).await?, ["1|42", "2|25"]);
    ask(&["run"])?;
    // Nothing was made again.
    assert_eq!(shown(&client, ids).await?, before);
    ask(&["test"])?;
    // Nor for comments and spaces.
    let totals = project.join("models/totals.sql");
    let text = std::fs::read_to_string(&totals)?;
    let commented =
        text.replace("SELECT", "-- it's for the shop\nSELECT /* \"all\" */\n ") + " -- the end\n;\n";
    std::fs::write(&totals, &commented)?;
    ask(&["run"])?;
    assert_eq!(shown(&client, ids).await?, before);
    // A stream stays what it is, and it is told that its model is another.
    let orders = project.join("models/orders.sql");
    let columns = std::fs::read_to_string(&orders)?;
    std::fs::write(
        &orders,
        columns.replace("amount INT", "amount INT, at TIMESTAMPTZ"),
    )?;
    let said = ask(&["run", "--select", "orders"])?;
    assert!(said.contains("is not what its model says"), "{said}");
    run(&client, "ALTER STREAM orders ADD COLUMN at TIMESTAMPTZ").await?;
    let said = ask(&["run", "--select", "orders"])?;
    assert!(!said.contains("is not what its model says"), "{said}");
    // Another query, and what reads the view stays.
    run(&client, "DROP SINK totals_out").await?;
    std::fs::write(&totals, commented.replace("sum(amount)", "sum(2 * amount)"))?;
    ask(&["run", "--exclude", "totals_out"])?;
    assert_eq!(shown(&client, best).await?, ["1|84", "2|50"]);
    ask(&["run", "--full-refresh", "--exclude", "totals_out"])?;
    assert_eq!(shown(&client, best).await?, ["1|84", "2|50"]);
    drop(client);
    server.shutdown().await;
    Ok(())
}

/// The rows of a query, each as a line.
async fn shown(client: &Client, query: &str) -> Result<Vec<String>, Failure> {
    let rows = sorted_rows(client, query).await?;
    let line = |row: TextRow| {
        row.into_iter()
            .map(|value| value.unwrap_or_default())
            .collect::<Vec<_>>()
            .join("|")
    };
    Ok(rows.into_iter().map(line).collect())
}

/// Copies a folder.
fn copy(from: &Path, to: &Path) -> Result<(), Failure> {
    std::fs::create_dir_all(to)?;
    for entry in std::fs::read_dir(from)? {
        let entry = entry?;
        let (from, to) = (entry.path(), to.join(entry.file_name()));
        if from.is_dir() {
            copy(&from, &to)?;
        } else {
            std::fs::copy(from, to)?;
        }
    }
    Ok(())
}
