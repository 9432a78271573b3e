//! Stores and copies of them: what is restored is what was there at a moment, whatever fails in between.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use arrow::array::{AsArray, Int64Array, RecordBatch};
use arrow::datatypes::{DataType, Field, Int64Type, Schema, SchemaRef};
use object_store::memory::InMemory;
use object_store::path::Path as ObjectPath;
use object_store::{ObjectStore as _, ObjectStoreExt as _};
use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use rand::{Rng, SeedableRng};

use super::*;
use crate::catalog::tests::object;
use crate::checkpoint::{Manifest, StoredChunk, StoredSource, StoredTable, encode_rows};
use crate::{
    CatalogChange, ChangeBatch, LogOwner, LogWrite, RelationOptions, StorageError, Store, StoreOptions,
};

fn schema() -> SchemaRef {
    Arc::new(Schema::new(vec![Field::new("v", DataType::Int64, true)]))
}

fn write(relation: u64, value: i64, rows: usize) -> LogWrite {
    let column = Arc::new(Int64Array::from(vec![value; rows]));
    let rows = RecordBatch::try_new(schema(), vec![column]).unwrap();
    LogWrite {
        relation,
        changes: ChangeBatch::insertions(rows),
    }
}

fn open(directory: &Path) -> Store {
    let options = StoreOptions {
        segment_bytes_max: 20_000,
        ..StoreOptions::default()
    };
    Store::open(directory, options).unwrap()
}

/// All rows of a log, with where they begin.
fn rows(store: &Store, relation: u64) -> (u64, Vec<i64>) {
    let (first, head) = (store.logs().first(relation), store.logs().head(relation));
    let blocks = store.logs().read(relation, first, head).unwrap();
    let values = blocks.flat_map(|block| {
        let rows = block.unwrap().changes.rows;
        rows.column(0).as_primitive::<Int64Type>().values().to_vec()
    });
    (first, values.collect())
}

/// A copy in memory, on a clock that is set by hand.
struct Bed {
    objects: Arc<InMemory>,
    place: Place,
    now_ms: Arc<AtomicI64>,
    names: u64,
    directory: tempfile::TempDir,
}

impl Bed {
    fn new() -> Bed {
        let objects = Arc::new(InMemory::new());
        Bed {
            place: Place::over(Arc::clone(&objects) as _),
            objects,
            now_ms: Arc::new(AtomicI64::new(1_000_000)),
            names: 0,
            directory: tempfile::tempdir().unwrap(),
        }
    }

    fn at(&self, name: &str) -> std::path::PathBuf {
        self.directory.path().join(name)
    }

    fn options(&mut self) -> ShipOptions {
        self.names += 1;
        let now_ms = Arc::clone(&self.now_ms);
        let clock = Arc::new(move || now_ms.fetch_add(1, Ordering::Relaxed));
        ShipOptions {
            grace: Duration::ZERO,
            moments_per_base: 5,
            ..ShipOptions::new(
                format!("owner{}", self.names),
                format!("{:032x}", self.names),
                clock,
            )
        }
    }

    fn shipper(&mut self, store: &Store) -> Shipper {
        let options = self.options();
        Shipper::new(store, self.place.clone(), options)
    }

    async fn restored(&self, name: &str) -> (Store, Restored) {
        let restored = restore(&self.place, &self.at(name)).await.unwrap();
        (open(&self.at(name)), restored)
    }

    async fn names(&self) -> Vec<String> {
        use futures::TryStreamExt as _;
        let listed: Vec<_> = self.objects.list(None).try_collect().await.unwrap();
        listed.into_iter().map(|meta| meta.location.to_string()).collect()
    }
}

async fn step(shipper: &mut Shipper) -> Result<Step, StorageError> {
    shipper.step(&BTreeSet::new(), false).await
}

/// Checkpoints are sent beside the rest.
async fn until_idle(shipper: &mut Shipper) {
    while step(shipper).await.unwrap() == Step::Made || shipper.is_sending() {
        tokio::task::yield_now().await;
    }
}

async fn checkpoint(store: &Store, relation: u64) {
    let mut draft = store.checkpoints().begin();
    let mut manifest = Manifest::new(draft.number(), 5, 6, 1);
    let rows = write(relation, 7, 300).changes.rows;
    let chunk = StoredChunk {
        rows: 300,
        data: draft.put(encode_rows(&rows).unwrap()).await.unwrap(),
        alive: None,
    };
    manifest.sources = vec![StoredSource {
        relation,
        end: store.logs().head(relation),
        watermark: None,
        rows: Some(StoredTable {
            chunks: vec![chunk],
            tags: None,
        }),
    }];
    draft.commit(manifest, [relation].into()).await.unwrap();
}

/// Retention by bytes, as soon as it may.
struct Forgetful;

impl LogOwner for Forgetful {
    fn needed(&self, _: u64) -> u64 {
        u64::MAX
    }

    fn settled(&self, _: u64) -> u64 {
        u64::MAX
    }

    fn forgetting(&self, _: u64) -> Result<(), StorageError> {
        Ok(())
    }

    fn needs_note(&self, _: &crate::LogNote) -> bool {
        false
    }
}

#[tokio::test]
async fn a_copy_is_the_store_as_of_its_last_moment() {
    let mut bed = Bed::new();
    let store = open(&bed.at("data"));
    for relation in [1, 2, 3] {
        store.logs().create(relation, schema()).unwrap();
        store
            .catalog()
            .apply(vec![CatalogChange::Put(object(relation, "t"))])
            .unwrap();
    }
    let mut shipper = bed.shipper(&store);
    let seed = 20_261_128;
    println!("seed {seed}");
    let mut random = StdRng::seed_from_u64(seed);
    store
        .logs()
        .set_options(
            2,
            RelationOptions {
                retention_bytes: Some(60_000),
                ..RelationOptions::default()
            },
        )
        .unwrap();
    for round in 0..60 {
        for value in 0..random.random_range(1..10) {
            let count = random.random_range(1..200);
            store
                .logs()
                .append(vec![write(1, value, 1), write(2, value, count)])
                .await
                .unwrap();
        }
        if round % 7 == 3 {
            store.logs().maintain(1_000_000 + round, &Forgetful);
        }
        if round % 10 == 4 {
            checkpoint(&store, 1).await;
        }
        if round == 30 {
            store.logs().remove(3).unwrap();
            store
                .catalog()
                .apply(vec![CatalogChange::Remove(crate::ObjectId(3))])
                .unwrap();
        }
        store
            .catalog()
            .put_fact("round", round.to_string().as_bytes())
            .unwrap();
        if round % 17 == 16 {
            // Another process goes on.
            shipper = bed.shipper(&store);
        }
        assert_eq!(step(&mut shipper).await.unwrap(), Step::Made);
        bed.now_ms.fetch_add(1_000, Ordering::Relaxed);
        if round % 6 != 5 {
            continue;
        }
        let (copy, restored) = bed.restored(&format!("copy{round}")).await;
        assert_eq!(restored.moment, shipper.shipped().lock().moment);
        assert_eq!(
            copy.catalog().fact("round").unwrap(),
            Some(round.to_string().into_bytes())
        );
        assert_eq!(copy.catalog().objects(), store.catalog().objects());
        assert_eq!(copy.logs().relations(), store.logs().relations());
        for relation in store.logs().relations() {
            assert_eq!(
                rows(&copy, relation),
                rows(&store, relation),
                "log {relation} in round {round}"
            );
        }
        assert!(
            copy.checkpoints().damaged().is_empty(),
            "{:?}",
            copy.checkpoints().damaged()
        );
        drop(copy);
        let checked = crate::check::check(&bed.at(&format!("copy{round}"))).unwrap();
        assert_eq!(checked.worst(), None, "{checked:?}");
    }
    assert!(store.logs().first(2) > 0, "retention has removed rows");
    until_idle(&mut shipper).await;
    assert_eq!(shipper.shipped().lock().waiting_bytes, 0);
    let (copy, _) = bed.restored("copy").await;
    assert_eq!(copy.checkpoints().manifests().len(), 1);
    // What nobody needs any more goes: 60 rounds are not 60 moments.
    store.catalog().put_fact("round", b"last").unwrap();
    for _ in 0..3 {
        bed.now_ms.fetch_add(100_000, Ordering::Relaxed);
        step(&mut shipper).await.unwrap();
    }
    let names = bed.names().await;
    let moments = names.iter().filter(|name| name.starts_with("moments/")).count();
    assert!(moments < 50, "{names:?}");
    let (copy, _) = bed.restored("swept").await;
    for relation in store.logs().relations() {
        assert_eq!(rows(&copy, relation), rows(&store, relation));
    }
}

#[tokio::test]
async fn of_two_servers_one_is_told_that_it_is_not_the_one_any_more() {
    let mut bed = Bed::new();
    let old = open(&bed.at("old"));
    old.logs().create(1, schema()).unwrap();
    let mut old_shipper = bed.shipper(&old);
    old.logs().append(vec![write(1, 1, 3)]).await.unwrap();
    step(&mut old_shipper).await.unwrap();
    let (new, _) = bed.restored("new").await;
    let (third, _) = bed.restored("third").await;
    let mut new_shipper = bed.shipper(&new);
    new.logs().append(vec![write(1, 2, 3)]).await.unwrap();
    assert_eq!(step(&mut new_shipper).await.unwrap(), Step::Made);
    // The old one finds out when it has something to ship, and says so from then on.
    old.logs().append(vec![write(1, 3, 3)]).await.unwrap();
    for _ in 0..2 {
        let error = step(&mut old_shipper).await.unwrap_err();
        assert!(matches!(error, StorageError::Fenced { number: 2, .. }), "{error}");
    }
    // At its next start it is refused, and so is another one that was restored from the same moment.
    for store in [&old, &third] {
        let error = bed.shipper(store).connect().await.unwrap_err();
        assert!(
            matches!(error, StorageError::NotOurs { number: 2, .. }),
            "{error}"
        );
    }
    // The new one goes on, also as another process.
    let mut new_shipper = bed.shipper(&new);
    new.logs().append(vec![write(1, 4, 3)]).await.unwrap();
    step(&mut new_shipper).await.unwrap();
    let (copy, _) = bed.restored("copy").await;
    assert_eq!(rows(&copy, 1).1, [1, 1, 1, 2, 2, 2, 4, 4, 4]);
    // Unless it is told to take over.
    let options = ShipOptions {
        take_over: true,
        ..bed.options()
    };
    let mut old_shipper = Shipper::new(&old, bed.place.clone(), options);
    step(&mut old_shipper).await.unwrap();
    new.logs().append(vec![write(1, 5, 3)]).await.unwrap();
    let error = step(&mut new_shipper).await.unwrap_err();
    assert!(matches!(error, StorageError::Fenced { .. }), "{error}");
    let (copy, _) = bed.restored("taken").await;
    assert_eq!(rows(&copy, 1).1, [1, 1, 1, 3, 3, 3]);
}

#[tokio::test]
async fn an_idle_server_finds_out_too() {
    let mut bed = Bed::new();
    let old = open(&bed.at("old"));
    let mut old_shipper = bed.shipper(&old);
    step(&mut old_shipper).await.unwrap();
    until_idle(&mut old_shipper).await;
    let (new, _) = bed.restored("new").await;
    let mut new_shipper = bed.shipper(&new);
    step(&mut new_shipper).await.unwrap();
    bed.now_ms.fetch_add(20_000, Ordering::Relaxed);
    let error = step(&mut old_shipper).await.unwrap_err();
    assert!(matches!(error, StorageError::Fenced { .. }), "{error}");
}

#[tokio::test]
async fn damage_is_named_and_nothing_is_restored() {
    let mut bed = Bed::new();
    let store = open(&bed.at("data"));
    store.logs().create(1, schema()).unwrap();
    let mut shipper = bed.shipper(&store);
    for value in 0..4 {
        let rows = if value == 2 { 100_000 } else { 3 };
        store.logs().append(vec![write(1, value, rows)]).await.unwrap();
        checkpoint(&store, 1).await;
        shipper.step(&BTreeSet::new(), true).await.unwrap();
    }
    let named: BTreeSet<String> = moment::load(&bed.place).await.unwrap().unwrap().objects();
    assert!(named.iter().any(|name| name.starts_with("packs/")), "{named:?}");
    assert!(
        named.iter().any(|name| name.starts_with("checkpoints/")),
        "{named:?}"
    );
    for (i, name) in named.iter().enumerate() {
        let path = ObjectPath::from(name.as_str());
        let whole = bed.objects.get(&path).await.unwrap().bytes().await.unwrap();
        let mut damages = vec![
            Some(whole.slice(..whole.len() / 2)),
            Some(whole.slice(..whole.len() - 1)),
        ];
        for at in [0, whole.len() / 2, whole.len() - 1] {
            let mut flipped = whole.to_vec();
            flipped[at] ^= 4;
            damages.push(Some(flipped.into()));
        }
        // Without the last moment the one before it is the last.
        let is_last = name.ends_with(&format!("{:020}", shipper.shipped().lock().moment));
        damages.extend((!is_last).then_some(None));
        for (j, damage) in damages.into_iter().enumerate() {
            match damage {
                Some(bytes) => drop(bed.objects.put(&path, bytes.into()).await.unwrap()),
                None => bed.objects.delete(&path).await.unwrap(),
            }
            let target = bed.at(&format!("restored{i}-{j}"));
            let error = restore(&bed.place, &target).await.unwrap_err();
            let StorageError::OffsiteDamaged { object, .. } = &error else {
                panic!("{name}, damage {j}: {error}");
            };
            assert_eq!(object, &format!("memory://x/{name}"), "{error}");
            assert!(!target.join("FORMAT").exists());
            bed.objects.put(&path, whole.clone().into()).await.unwrap();
            // What was left does not stand in the way.
            if j == 0 {
                restore(&bed.place, &target).await.unwrap();
                assert_eq!(rows(&open(&target), 1), rows(&store, 1));
            }
        }
    }
    let (copy, restored) = bed.restored("well").await;
    assert!(restored.is_last && restored.has_checkpoints);
    assert_eq!(rows(&copy, 1), rows(&store, 1));
    drop(copy);
    let error = restore(&bed.place, &bed.at("well")).await.unwrap_err();
    assert!(matches!(error, StorageError::NotEmpty { .. }), "{error}");
    let nothing = Place::over(Arc::new(InMemory::new()));
    let error = restore(&nothing, &bed.at("nothing")).await.unwrap_err();
    assert!(matches!(error, StorageError::NothingOffsite { .. }), "{error}");
}

#[tokio::test]
async fn rows_that_the_store_has_lost_are_not_taken_for_others() {
    let mut bed = Bed::new();
    let data = bed.at("data");
    let store = open(&data);
    store.logs().create(1, schema()).unwrap();
    let mut shipper = bed.shipper(&store);
    store.logs().append(vec![write(1, 1, 3)]).await.unwrap();
    step(&mut shipper).await.unwrap();
    store.logs().append(vec![write(1, 2, 3)]).await.unwrap();
    step(&mut shipper).await.unwrap();
    drop((shipper, store));
    // As after a loss of power with durability = off.
    std::fs::remove_file(data.join("log/HEADS")).unwrap();
    let segment = data.join("log/1").join(crate::log::segment_name(0));
    let whole = std::fs::metadata(&segment).unwrap().len();
    std::fs::OpenOptions::new()
        .write(true)
        .open(&segment)
        .unwrap()
        .set_len(whole - 64)
        .unwrap();
    let store = open(&data);
    assert_eq!(rows(&store, 1).1, [1, 1, 1]);
    let mut shipper = bed.shipper(&store);
    store.logs().append(vec![write(1, 3, 3)]).await.unwrap();
    step(&mut shipper).await.unwrap();
    let (copy, _) = bed.restored("copy").await;
    assert_eq!(rows(&copy, 1).1, [1, 1, 1, 3, 3, 3]);
}

#[tokio::test]
async fn moments_are_consistent_while_others_write() {
    let mut bed = Bed::new();
    let store = open(&bed.at("data"));
    for relation in [1, 2] {
        store.logs().create(relation, schema()).unwrap();
    }
    let mut shipper = bed.shipper(&store);
    let logs = Arc::clone(store.logs());
    let stop = Arc::new(std::sync::atomic::AtomicBool::new(false));
    let stopped = Arc::clone(&stop);
    let writer = std::thread::spawn(move || {
        let mut value = 0;
        while !stopped.load(Ordering::Acquire) {
            logs.append(vec![write(1, value, 2), write(2, value, 2)])
                .wait()
                .unwrap();
            value += 1;
        }
    });
    let mut random = StdRng::seed_from_u64(7);
    for round in 0..20 {
        for _ in 0..*[1, 3, 9].choose(&mut random).unwrap() {
            step(&mut shipper).await.unwrap();
        }
        let acknowledged = store.logs().head(1);
        step(&mut shipper).await.unwrap();
        let (copy, _) = bed.restored(&format!("copy{round}")).await;
        assert!(copy.logs().head(1) >= acknowledged);
        assert_eq!(rows(&copy, 1), rows(&copy, 2));
    }
    stop.store(true, Ordering::Release);
    writer.join().unwrap();
}

/// A copy of a data directory, and one that was put back to an earlier state, have no right to the copy.
#[tokio::test]
async fn a_copied_directory_is_another_one() {
    let mut bed = Bed::new();
    let store = open(&bed.at("data"));
    store.logs().create(1, schema()).unwrap();
    let mut shipper = bed.shipper(&store);
    step(&mut shipper).await.unwrap();
    drop((shipper, store));
    std::fs::create_dir(bed.at("twin")).unwrap();
    copy_all(&bed.at("data"), &bed.at("twin"));
    // As long as neither has written, nobody can tell: the first one that does has it.
    let store = open(&bed.at("data"));
    let mut shipper = bed.shipper(&store);
    store.logs().append(vec![write(1, 1, 3)]).await.unwrap();
    step(&mut shipper).await.unwrap();
    let twin = open(&bed.at("twin"));
    let mut other = bed.shipper(&twin);
    let refused = other.connect().await.unwrap_err();
    assert!(matches!(refused, StorageError::NotOurs { .. }), "{refused}");
    drop((shipper, store));
    let store = open(&bed.at("data"));
    let mut shipper = bed.shipper(&store);
    store.logs().append(vec![write(1, 2, 3)]).await.unwrap();
    step(&mut shipper).await.unwrap();
    let (copy, _) = bed.restored("copy").await;
    assert_eq!(rows(&copy, 1).1, [1, 1, 1, 2, 2, 2]);
}

fn copy_all(from: &Path, to: &Path) {
    for entry in std::fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let to = to.join(entry.file_name());
        match entry.file_type().unwrap().is_dir() {
            true => {
                std::fs::create_dir(&to).unwrap();
                copy_all(&entry.path(), &to);
            }
            false => drop(std::fs::copy(entry.path(), to).unwrap()),
        }
    }
}

/// A directory that is empty where a copy was, is no place for a new one; and what was written to goes nowhere else meanwhile.
#[tokio::test]
async fn a_disk_that_goes_away_is_no_new_place() {
    let mut bed = Bed::new();
    let mount = bed.at("mount");
    let url = format!("file://{}", mount.display());
    let store = open(&bed.at("data"));
    store.logs().create(1, schema()).unwrap();
    let options = bed.options();
    let mut shipper = Shipper::new(&store, Place::open(&url).unwrap(), options);
    step(&mut shipper).await.unwrap();
    let away = bed.at("away");
    std::fs::rename(&mount, &away).unwrap();
    std::fs::create_dir(&mount).unwrap();
    store.logs().append(vec![write(1, 1, 3)]).await.unwrap();
    let error = step(&mut shipper).await.unwrap_err();
    assert!(
        error.to_string().contains("a disk was mounted or went away"),
        "{error}"
    );
    assert_eq!(std::fs::read_dir(&mount).unwrap().count(), 0);
    drop((shipper, store));
    let store = open(&bed.at("data"));
    let options = bed.options();
    let mut shipper = Shipper::new(&store, Place::open(&url).unwrap(), options);
    let error = step(&mut shipper).await.unwrap_err();
    assert!(matches!(error, StorageError::CopyGone { .. }), "{error}");
    std::fs::remove_dir_all(&mount).unwrap();
    std::fs::rename(&away, &mount).unwrap();
    assert_eq!(step(&mut shipper).await.unwrap(), Step::Made);
    restore(&Place::find(&url).unwrap(), &bed.at("copy"))
        .await
        .unwrap();
    assert_eq!(rows(&open(&bed.at("copy")), 1).1, [1, 1, 1]);
    // One that is gone for good is made anew where somebody says so.
    drop((shipper, store));
    std::fs::remove_dir_all(&mount).unwrap();
    let store = open(&bed.at("data"));
    let options = ShipOptions {
        take_over: true,
        ..bed.options()
    };
    let mut shipper = Shipper::new(&store, Place::open(&url).unwrap(), options);
    assert_eq!(step(&mut shipper).await.unwrap(), Step::Made);
}

/// What is written seldom does not keep the objects in which it lies beside what goes soon.
#[tokio::test]
async fn objects_of_little_use_go() {
    let mut bed = Bed::new();
    let store = open(&bed.at("data"));
    let options = RelationOptions {
        retention_bytes: Some(60_000),
        ..RelationOptions::default()
    };
    store.logs().create(1, schema()).unwrap();
    store.logs().set_options(1, options).unwrap();
    let mut shipper = bed.shipper(&store);
    for round in 0..120 {
        let seldom = 10 + round;
        store.logs().create(seldom, schema()).unwrap();
        let mut values = StdRng::seed_from_u64(round);
        let column: Vec<i64> = (0..60_000).map(|_| values.random()).collect();
        let batch = RecordBatch::try_new(schema(), vec![Arc::new(Int64Array::from(column))]).unwrap();
        let large = LogWrite {
            relation: 1,
            changes: ChangeBatch::insertions(batch),
        };
        store
            .logs()
            .append(vec![large, write(seldom, 1, 1)])
            .await
            .unwrap();
        store.logs().maintain(1_000_000 + round as i64, &Forgetful);
        step(&mut shipper).await.unwrap();
        bed.now_ms.fetch_add(30_000, Ordering::Relaxed);
    }
    until_idle(&mut shipper).await;
    let shipped = shipper.shipped().lock().clone();
    assert!(shipped.sent_bytes > 40_000_000, "{shipped:?}");
    assert!(shipped.bytes < 12_000_000, "{shipped:?}");
    let (copy, _) = bed.restored("copy").await;
    for round in 0..120 {
        assert_eq!(rows(&copy, 10 + round).1, [1]);
    }
}

/// What is noted before a write, as sequences note their values, is in each moment that has the write.
#[test]
fn what_is_noted_before_a_write_is_there_with_it() {
    let directory = tempfile::tempdir().unwrap();
    let store = open(directory.path());
    store.logs().create(1, schema()).unwrap();
    let (parts, is_done) = (store.parts(), std::sync::atomic::AtomicBool::new(false));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for number in 1..=300_u64 {
                store
                    .catalog()
                    .put_fact("noted", number.to_string().as_bytes())
                    .unwrap();
                store.logs().append(vec![write(1, 1, 1)]).wait().unwrap();
            }
            is_done.store(true, Ordering::Release);
        });
        // What a moment waits for, others hold.
        scope.spawn(|| {
            for relation in 2.. {
                if is_done.load(Ordering::Acquire) {
                    return;
                }
                store.logs().create(relation, schema()).unwrap();
                store.logs().remove(relation).unwrap();
            }
        });
        let mut moments = 0;
        while !is_done.load(Ordering::Acquire) {
            let (catalog, logs) = parts.moment().unwrap();
            let noted = catalog.fact("noted");
            let noted: u64 = noted.map_or(0, |noted| String::from_utf8(noted).unwrap().parse().unwrap());
            let log = logs.iter().find(|log| log.relation() == 1).unwrap();
            assert!(
                log.span().end <= noted,
                "row {} is there, and {noted} was noted",
                log.span().end
            );
            moments += 1;
        }
        assert!(moments > 3, "{moments}");
    });
}
