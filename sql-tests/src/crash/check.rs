//! What is there after a restart against what the writers know.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::path::Path;

use millrace_oracle::text::TextRow;
use tokio_postgres::Client;

use super::Seen;
use super::process::Process;
use super::relations::{PASSING, SINKS, VIEWS};
use super::writers::{Existence, Known, ROWS_MAX};
use crate::{Failure, connect, rows as query_rows, run, sorted_rows};

/// Compares what is there with what is known; what was in doubt is known afterwards.
///
/// # Errors
/// Something is lost, there twice, or wrong.
pub async fn rows(process: &Process, known: &mut Known, seen: &mut Seen) -> Result<(), Failure> {
    let client = connect(process.pg).await?;
    for row in query_rows(&client, "SELECT state, view, why_filled FROM mr_catalog.recovery").await? {
        match row[0].as_deref() {
            Some("restored") => seen.restored += 1,
            Some("filled") => seen.filled += 1,
            _ => return Err(format!("a view is {row:?}").into()),
        }
    }
    let away = "SELECT name FROM mr_catalog.views WHERE on_disk_bytes > 0";
    seen.away += query_rows(&client, away).await?.len() as u64;
    let events = ids(&client, "SELECT id FROM event ORDER BY id").await?;
    let in_doubt = std::mem::take(&mut known.in_doubt);
    let (kept, lost) = compare(&events, &mut known.acknowledged, in_doubt)?;
    seen.kept += kept;
    seen.lost += lost;
    posts(process, &client, known, seen).await?;
    passing_views(&client, known).await?;
    if ids(&client, "SELECT id FROM paired ORDER BY id").await? != events {
        return Err("a transaction is there in one relation and not in the other".into());
    }
    let passing = known
        .passing
        .iter()
        .filter(|(_, existence)| **existence == Existence::There);
    let passing = passing.map(|(name, _)| (name.as_str(), PASSING));
    for (name, query) in VIEWS.into_iter().chain(passing) {
        let view = sorted_rows(&client, &format!("SELECT * FROM {name}")).await?;
        let base = sorted_rows(&client, query).await?;
        if view != base {
            return Err(format!("{name} is\n{view:?}\nand its query says\n{base:?}").into());
        }
    }
    let looked_up: BTreeSet<TextRow> = query_rows(&client, "SELECT * FROM looked_up")
        .await?
        .into_iter()
        .collect();
    // A view that had to be filled again joins what exists by then.
    let is_filled = "SELECT 1 FROM mr_catalog.recovery WHERE view = 'looked_up' AND state = 'filled'";
    if !query_rows(&client, is_filled).await?.is_empty() {
        known.looked_up = looked_up.clone();
    }
    if let Some(gone) = known.looked_up.iter().find(|row| !looked_up.contains(*row)) {
        return Err(format!("{gone:?} of the lookup join was read, and is gone").into());
    }
    let last =
        "SELECT a.writer FROM account a JOIN per_writer p ON a.writer = p.writer WHERE a.last <> p.last";
    if !query_rows(&client, last).await?.is_empty() {
        return Err("an account does not know its last event".into());
    }
    // Of each writer the rows of the last write, and none of those before.
    let newest = format!(
        "SELECT a.writer FROM account a LEFT JOIN newest_of n ON n.writer = a.writer AND n.id = a.last \
         WHERE a.last > 0 AND n.id IS NULL \
         UNION ALL SELECT n.writer FROM newest_of n JOIN account a ON n.writer = a.writer \
         WHERE n.id > a.last OR n.id <= a.last - {ROWS_MAX}"
    );
    match query_rows(&client, &newest).await?.len() {
        0 => Ok(()),
        _ => Err("what was deleted is there, or what was put in its place is not".into()),
    }
}

/// Compares ids with those that were acknowledged; those of a write in doubt are all there, or none is. Returns how many of the
/// latter were which.
fn compare(
    stored: &[i64],
    acknowledged: &mut BTreeSet<i64>,
    in_doubt: Vec<Vec<i64>>,
) -> Result<(u64, u64), Failure> {
    let unique: BTreeSet<i64> = stored.iter().copied().collect();
    if unique.len() != stored.len() {
        return Err("a row is there twice".into());
    }
    if let Some(lost) = acknowledged.iter().find(|id| !unique.contains(id)) {
        return Err(format!("row {lost} was acknowledged and is lost").into());
    }
    let (mut kept, mut lost) = (0, 0);
    for write in in_doubt {
        match write.iter().filter(|id| unique.contains(id)).count() {
            0 => lost += 1,
            count if count == write.len() => {
                kept += 1;
                acknowledged.extend(write);
            }
            _ => return Err(format!("only a part of the write {write:?} is there").into()),
        }
    }
    if unique != *acknowledged {
        let unknown: Vec<&i64> = unique.difference(acknowledged).collect();
        return Err(format!("rows {unknown:?} come from nowhere").into());
    }
    Ok((kept, lost))
}

/// Rows that came over HTTP. Requests whose answer was lost are sent again.
async fn posts(
    process: &Process,
    client: &Client,
    known: &mut Known,
    seen: &mut Seen,
) -> Result<(), Failure> {
    let select = "SELECT id FROM posted ORDER BY id";
    let in_doubt = std::mem::take(&mut known.posts_in_doubt);
    let ids_in_doubt = in_doubt.iter().map(|post| post.ids.clone()).collect();
    compare(&ids(client, select).await?, &mut known.posted, ids_in_doubt)?;
    for post in in_doubt {
        post.send(process.http).await?;
        known.posted.extend(post.ids);
        seen.posted_again += 1;
    }
    // The rows are durable by then; other sessions see them an epoch later.
    run(client, "FLUSH").await?;
    compare(&ids(client, select).await?, &mut known.posted, vec![])?;
    Ok(())
}

/// The views that come and go.
async fn passing_views(client: &Client, known: &mut Known) -> Result<(), Failure> {
    let named = "SELECT name FROM mr_catalog.views WHERE name LIKE 'passing_%'";
    let there: BTreeSet<String> = query_rows(client, named)
        .await?
        .into_iter()
        .flatten()
        .flatten()
        .collect();
    for (name, existence) in &mut known.passing {
        let is_there = there.contains(name);
        match (*existence, is_there) {
            (Existence::There, false) => return Err(format!("{name} was made and is lost").into()),
            (Existence::Gone, true) => return Err(format!("{name} was dropped and is there").into()),
            (_, true) => *existence = Existence::There,
            (_, false) => *existence = Existence::Gone,
        }
    }
    match there.iter().find(|name| !known.passing.contains_key(*name)) {
        Some(unknown) => Err(format!("{unknown} comes from nowhere").into()),
        None => Ok(()),
    }
}

/// Compares what files of sinks say with what they were written from, and with what they said before.
///
/// # Errors
/// They say something else, or one was changed.
pub async fn sinks(address: SocketAddr, sinks: &Path, known: &mut Known) -> Result<(), Failure> {
    let client = connect(address).await?;
    run(&client, "FLUSH").await?;
    let failing = "SELECT name, error FROM mr_catalog.sinks WHERE state <> 'running'";
    if let Some(row) = query_rows(&client, failing).await?.first() {
        return Err(format!("a sink does not run: {row:?}").into());
    }
    for (place, (_, sink_type, format, columns, query)) in SINKS.iter().enumerate() {
        let path = sinks.join(place.to_string());
        for entry in std::fs::read_dir(&path)? {
            let file = entry?.path();
            if file.to_string_lossy().ends_with(".tmp") {
                return Err(format!("{} is not finished", file.display()).into());
            }
            let bytes = std::fs::read(&file)?;
            if let Some(before) = known.files.insert(file.clone(), bytes.clone())
                && before != bytes
            {
                return Err(format!("{} was changed", file.display()).into());
            }
        }
        let op = if *sink_type == "changelog" {
            "op TEXT, "
        } else {
            ""
        };
        run(
            &client,
            &format!(
                "CREATE EXTERNAL TABLE files_{place} ({op}{columns}) STORED AS {format} LOCATION '{}/'",
                path.display()
            ),
        )
        .await?;
        let names: Vec<&str> = columns
            .split(", ")
            .filter_map(|column| column.split(' ').next())
            .collect();
        let names = names.join(", ");
        let change = match op {
            "" => "1",
            _ => "CASE op WHEN 'insert' THEN 1 WHEN 'delete' THEN -1 END",
        };
        let added_up = format!(
            "SELECT {names}, sum({change}) FROM files_{place} GROUP BY {names} HAVING sum({change}) <> 0"
        );
        let files = sorted_rows(&client, &added_up).await?;
        let rows = sorted_rows(
            &client,
            &format!("SELECT {names}, count(*) FROM ({query}) GROUP BY {names}"),
        )
        .await?;
        if files != rows {
            return Err(format!("the files of sink {place} say\n{files:?}\nand {query}\n{rows:?}").into());
        }
        run(&client, &format!("DROP TABLE files_{place}")).await?;
    }
    Ok(())
}

async fn ids(client: &Client, sql: &str) -> Result<Vec<i64>, Failure> {
    let rows = query_rows(client, sql).await?;
    let ids = rows.into_iter().flatten().flatten();
    Ok(ids.map(|id| id.parse()).collect::<Result<_, _>>()?)
}
