//! Some rounds of [`millrace_sql_tests::soak`].

use libtest_mimic::{Arguments, Failed, Trial};
use millrace_sql_tests::soak::{Length, soak};
use millrace_sql_tests::{crash, seed};

const ROUNDS: usize = 24;

fn main() {
    if crash::serve_if_child() {
        return;
    }
    let arguments = Arguments::from_args();
    let trial = Trial::test("what_comes_and_goes_leaves_nothing_behind", || {
        let seed = seed();
        let runtime = tokio::runtime::Runtime::new()?;
        let tell = |round: usize, taken: &millrace_sql_tests::soak::Taken| println!("{round}: {taken:?}");
        let outcome = runtime.block_on(soak(seed, Length::Rounds(ROUNDS), tell));
        outcome
            .map(|_| ())
            .map_err(|error| Failed::from(format!("seed {seed}: {error}")))
    });
    libtest_mimic::run(&arguments, vec![trial]).exit();
}
