//! Nothing of a query runs outside the schedulers: the processor time of the process's threads is what its cpu monotasks are
//! said to have taken, files are touched by the threads of the disk scheduler alone, and no other thread comes into being.

#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow::array::{ArrayRef, Int64Array, RecordBatch, StringArray};
use datafusion::dataframe::DataFrameWriteOptions;
use datafusion::execution::disk_manager::DiskManagerBuilder;
use datafusion::execution::memory_pool::FairSpillPool;
use datafusion::execution::object_store::ObjectStoreUrl;
use datafusion::execution::runtime_env::RuntimeEnvBuilder;
use datafusion::prelude::{ParquetReadOptions, SessionConfig, SessionContext};
use futures::TryStreamExt;
use millrace_clarity::profile::{Kind, Profile, Resource, Usage};
use millrace_engine::{QueryOptions, Runtime, RuntimeOptions};
use millrace_schedule::cpu::QueryClass;
use millrace_schedule::cpu::shares::Tenant;
use millrace_storage::{Store, StoreOptions};

const ROWS: i64 = 400_000;

/// Rows that are not in order, as a file.
async fn write_file(path: &str) {
    let ids = Int64Array::from_iter_values((0..ROWS).map(|row| row * 7_919 % ROWS));
    let words = StringArray::from_iter_values((0..ROWS).map(|row| format!("word {}", row * 31 % 1_009)));
    let columns: Vec<(&str, ArrayRef)> = vec![("id", Arc::new(ids)), ("word", Arc::new(words))];
    let rows = RecordBatch::try_from_iter(columns).unwrap();
    let context = SessionContext::new_with_config(
        SessionConfig::new().set_usize("datafusion.execution.parquet.max_row_group_size", 50_000),
    );
    let frame = context.read_batch(rows).unwrap();
    let options = DataFrameWriteOptions::new().with_single_file_output(true);
    frame.write_parquet(path, options, None).await.unwrap();
}

/// Nanoseconds on the processor of each thread, with its name, by its number.
fn threads() -> BTreeMap<u32, (String, u64)> {
    let mut threads = BTreeMap::new();
    for entry in std::fs::read_dir("/proc/self/task").unwrap() {
        let entry = entry.unwrap();
        let read = |name: &str| std::fs::read_to_string(entry.path().join(name));
        // A thread may end meanwhile.
        let (Ok(name), Ok(times)) = (read("comm"), read("schedstat")) else {
            continue;
        };
        let number = entry.file_name().to_string_lossy().parse().unwrap();
        let ran = times.split(' ').next().unwrap().parse().unwrap();
        threads.insert(number, (name.trim().to_owned(), ran));
    }
    threads
}

/// What monotasks of some kind come to: service time and bytes.
fn sum(profile: &Profile, counts: impl Fn(&Usage) -> bool) -> (u64, u64) {
    let tasks = profile.stages.iter().flat_map(|stage| &stage.tasks);
    let usage = tasks.flat_map(|task| &task.usage).filter(|usage| counts(usage));
    usage.fold((0, 0), |(service, bytes), usage| {
        (service + usage.service, bytes + usage.bytes)
    })
}

#[test]
fn a_query_that_reads_and_spills_uses_the_schedulers_alone() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("rows.parquet").display().to_string();
    let setup = tokio::runtime::Runtime::new().unwrap();
    setup.block_on(write_file(&path));
    drop(setup);
    // The client's side, on this thread.
    let client = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    client.block_on(async {
        let store = Store::open(&directory.path().join("data"), StoreOptions::default()).unwrap();
        let runtime = Runtime::start(RuntimeOptions::new(2), Arc::clone(store.logs())).unwrap();
        let spills = DiskManagerBuilder::default().with_temp_file_factory(runtime.spill_files());
        let environment = RuntimeEnvBuilder::new()
            .with_memory_pool(Arc::new(FairSpillPool::new(12_000_000)))
            .with_disk_manager_builder(spills)
            .build_arc()
            .unwrap();
        environment.register_object_store(ObjectStoreUrl::local_filesystem().as_ref(), runtime.files());
        let config = SessionConfig::new()
            .with_target_partitions(4)
            .with_repartition_file_min_size(1)
            .with_sort_spill_reservation_bytes(500_000)
            .set_usize("datafusion.execution.batch_size", 1_024);
        let context = SessionContext::new_with_config_rt(config, environment);
        let options = ParquetReadOptions::default();
        context.register_parquet("t", &path, options).await.unwrap();
        let sql = "SELECT max(n), count(*) FROM \
                   (SELECT row_number() OVER (ORDER BY word, id) AS n FROM t) AS numbered";
        let plan = context.sql(sql).await.unwrap();
        let plan = plan.create_physical_plan().await.unwrap();
        let before = threads();
        let options = QueryOptions {
            class: QueryClass::Batch,
            tenant: Tenant::default(),
            context: context.task_ctx(),
        };
        let (rows, handle) = runtime.execute_profiled(plan, options).unwrap();
        let rows: Vec<RecordBatch> = rows.try_collect().await.unwrap();
        let profile = handle.profile(std::time::Duration::ZERO);
        let after = threads();
        for column in 0..2 {
            let value = arrow::util::display::array_value_to_string(rows[0].column(column), 0).unwrap();
            assert_eq!(value, ROWS.to_string());
        }

        let mut ran: BTreeMap<&str, u64> = BTreeMap::new();
        for (number, (name, ended)) in &after {
            let began = before.get(number).map(|(_, time)| *time);
            let classes = QueryClass::ALL.map(|class| format!("{class}-"));
            let kind = match name {
                name if classes.iter().any(|class| name.starts_with(class)) => "slots",
                name if name.starts_with("disk-") => "disk",
                name => {
                    assert!(began.is_some(), "the query started a thread: {name}");
                    "others"
                }
            };
            *ran.entry(kind).or_default() += ended - began.unwrap_or_default();
        }
        let cpu = sum(&profile, |usage| usage.resource == Resource::Cpu).0;
        let disk = sum(&profile, |usage| usage.resource != Resource::Cpu).0;
        println!("{ran:?}; monotasks: cpu {cpu}, disk {disk}");
        // Choosing what runs next is not part of a monotask.
        let slots = ran["slots"];
        assert!(
            cpu <= slots && slots - cpu < slots / 10 + 5_000_000,
            "{cpu} of {slots}"
        );
        // Copying pages takes the processor too: no more than the monotasks took.
        let on_disk = ran.get("disk").copied().unwrap_or_default();
        assert!(on_disk <= disk + 1_000_000, "{on_disk} of {disk}");
        // This thread took one row, others wake now and then.
        assert!(
            ran["others"] < slots / 20 + 5_000_000,
            "{} beside {slots}",
            ran["others"]
        );

        let bytes = |kind: Kind| sum(&profile, |usage| usage.kind == kind).1;
        assert!(bytes(Kind::Read) > 500_000, "the file was read elsewhere");
        assert!(bytes(Kind::Write) > 1_000_000, "nothing was spilled");
        assert!(
            bytes(Kind::Reread) >= bytes(Kind::Write) / 2,
            "what was spilled was read elsewhere"
        );
        runtime.shutdown().await;
    });
}
