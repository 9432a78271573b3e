//! Every file under `slt/`, against a real server over PostgreSQL's wire: in the simple and in the extended protocol, and
//! once more after a restart on the same data.
//!
//! After the restart every materialized view must hold the rows that it held before; a file `name.restart.slt` beside
//! `name.slt` says what else must be true then. One server is started for each run of a file, so files are independent.

use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use libtest_mimic::{Arguments, Failed, Trial};
use millrace_cli::test::{Protocol, VirtualClock, run_file, run_file_on, virtual_clock};
use millrace_oracle::text::TextRow;
use millrace_sql_tests::machines::start_on;
use millrace_sql_tests::{Failure, connect, rows, sorted_rows};
use millrace_wire::Server;
use tempfile::TempDir;
use tokio::runtime::Runtime;

/// What is asked after a restart, by the name of the file that came before.
const RESTART: &str = ".restart.slt";

fn main() {
    let arguments = Arguments::from_args();
    let runtime = Runtime::new().expect("a thread and an epoll instance can be had");
    let runtime = Arc::new(runtime);
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("slt");
    let mut files = Vec::new();
    find(&root, &mut files);
    files.sort();
    assert!(!files.is_empty(), "no files under {}", root.display());
    let trials = files
        .into_iter()
        .flat_map(|file| trials(&root, file, &runtime))
        .collect();
    libtest_mimic::run(&arguments, trials).exit();
}

/// All files to run, without those that only make sense after another.
fn find(directory: &Path, files: &mut Vec<PathBuf>) {
    let entries = std::fs::read_dir(directory).expect("the tests' own directory can be read");
    for entry in entries {
        let path = entry.expect("the tests' own directory can be read").path();
        let name = path.to_string_lossy();
        if path.is_dir() {
            find(&path, files);
        } else if name.ends_with(".slt") && !name.ends_with(RESTART) {
            files.push(path);
        }
    }
}

fn trials(root: &Path, file: PathBuf, runtime: &Arc<Runtime>) -> [Trial; 3] {
    let name = file
        .strip_prefix(root)
        .unwrap_or(&file)
        .with_extension("")
        .display()
        .to_string();
    let first = Arc::new(FirstRun {
        file,
        left: OnceLock::new(),
    });
    let (simple, extended, restarted) = (Arc::clone(&first), Arc::clone(&first), first);
    let (on_simple, on_extended, on_restarted) =
        (Arc::clone(runtime), Arc::clone(runtime), Arc::clone(runtime));
    [
        Trial::test(format!("{name} simple"), move || {
            Ok(simple.left(&on_simple).map(|_| ())?)
        }),
        Trial::test(format!("{name} extended"), move || {
            let outcome = on_extended.block_on(run_file(&extended.file, Protocol::Extended));
            outcome.map_err(Failed::from)
        }),
        Trial::test(format!("{name} after restart"), move || {
            let left = restarted.left(&on_restarted)?;
            let outcome = on_restarted.block_on(restart(&restarted.file, left));
            outcome.map_err(|error| Failed::from(error.to_string()))
        }),
    ]
}

/// A file's run in the simple protocol, which two tests need: whoever comes first does it.
struct FirstRun {
    file: PathBuf,
    left: OnceLock<Result<Left, String>>,
}

impl FirstRun {
    fn left(&self, runtime: &Runtime) -> Result<&Left, String> {
        let run = || {
            runtime
                .block_on(first_run(&self.file))
                .map_err(|error| error.to_string())
        };
        self.left.get_or_init(run).as_ref().map_err(String::clone)
    }
}

/// What a stopped server left behind.
struct Left {
    directory: TempDir,
    views: Vec<ViewRows>,
    /// The restarted server goes on at the same time, so that its views hold the same.
    clock: Arc<VirtualClock>,
}

/// A materialized view's name and its rows, sorted.
type ViewRows = (String, Vec<TextRow>);

async fn first_run(file: &Path) -> Result<Left, Failure> {
    let directory = tempfile::tempdir()?;
    let clock = virtual_clock();
    let server = start_on(directory.path(), &clock).await?;
    let outcome = match run_file_on(&server, file, Protocol::Simple).await {
        Ok(()) => views(&server).await,
        Err(message) => Err(message.into()),
    };
    server.shutdown().await;
    Ok(Left {
        directory,
        views: outcome?,
        clock,
    })
}

async fn restart(file: &Path, left: &Left) -> Result<(), Failure> {
    let server = start_on(left.directory.path(), &left.clock).await?;
    let outcome = check_again(&server, file, left).await;
    server.shutdown().await;
    outcome
}

async fn check_again(server: &Server, file: &Path, left: &Left) -> Result<(), Failure> {
    let views = views(server).await?;
    let names = |views: &[ViewRows]| views.iter().map(|(name, _)| name.clone()).collect::<Vec<_>>();
    if names(&left.views) != names(&views) {
        return Err(format!("views were {:?} and are {:?}", names(&left.views), names(&views)).into());
    }
    for ((name, before), (_, after)) in left.views.iter().zip(&views) {
        if before != after {
            return Err(format!("{name} was\n{before:?}\nand is\n{after:?}").into());
        }
    }
    let more = PathBuf::from(file.to_string_lossy().replace(".slt", RESTART));
    if more.exists() {
        run_file_on(server, &more, Protocol::Simple).await?;
    }
    Ok(())
}

/// All materialized views.
async fn views(server: &Server) -> Result<Vec<ViewRows>, Failure> {
    let client = connect(server.pg_addr()).await?;
    let names = "SELECT quote_ident(schemaname), quote_ident(matviewname) FROM pg_matviews ORDER BY 1, 2";
    let mut views = Vec::new();
    for name in rows(&client, names).await? {
        let name = name.into_iter().flatten().collect::<Vec<_>>().join(".");
        let rows = sorted_rows(&client, &format!("SELECT * FROM {name}")).await?;
        views.push((name, rows));
    }
    Ok(views)
}
