//! Written by hand in differential dataflow, the ceiling of incremental engines: keyed sums, and a join with a small collection and then
//! sums. In memory, nothing durable.
//!
//! usage: differential sum|join ROWS BATCH WORKERS. Prints the seconds from the first row to the last batch's result.

use std::time::Instant;

use differential_dataflow::input::{Input as _, InputSession};
use differential_dataflow::operators::count::CountTotal;
use timely::dataflow::operators::probe::Handle;
use timely::worker::Worker;

const KEYS: u64 = 100_000;
const GROUPS: u64 = 50;

type Input = InputSession<u64, (u32, u32), isize>;

/// Ends an epoch and waits for its result.
fn settle(worker: &mut Worker, facts: &mut Input, groups: &mut Input, probe: &Handle<u64>, epoch: u64) {
    for input in [facts, groups] {
        input.advance_to(epoch);
        input.flush();
    }
    while probe.less_than(&epoch) {
        worker.step();
    }
}

fn main() {
    let said: Vec<String> = std::env::args().collect();
    let [_, what, rows, batch, workers] = said.as_slice() else {
        panic!("usage: differential sum|join ROWS BATCH WORKERS");
    };
    let is_join = match what.as_str() {
        "sum" => false,
        "join" => true,
        other => panic!("there is no {other}: sum or join"),
    };
    let rows: u64 = rows.parse().expect("a number of rows");
    let batch: u64 = batch.parse().expect("rows in a batch");
    let workers: usize = workers.parse().expect("a number of workers");
    timely::execute(timely::Config::process(workers), move |worker| {
        let (index, peers) = (worker.index() as u64, worker.peers() as u64);
        let mut probe = Handle::new();
        let (mut facts, mut groups) = worker.dataflow::<u64, _, _>(|scope| {
            let (facts_in, facts) = scope.new_collection::<(u32, u32), isize>();
            let (groups_in, groups) = scope.new_collection::<(u32, u32), isize>();
            let keyed = if is_join {
                facts.join(groups).map(|(_key, (value, group))| (group, value))
            } else {
                facts
            };
            keyed
                .explode(|(key, value)| Some((key, value as isize)))
                .count_total()
                .probe_with(&mut probe);
            (facts_in, groups_in)
        });
        if is_join {
            for key in (index..KEYS).step_by(peers as usize) {
                groups.insert((key as u32, (key % GROUPS) as u32));
            }
        }
        let mut epoch = 1;
        settle(worker, &mut facts, &mut groups, &probe, epoch);
        let begun = Instant::now();
        let mut from = 0;
        while from < rows {
            let to = (from + batch).min(rows);
            for row in (from + index..to).step_by(peers as usize) {
                facts.insert(((row * 7919 % KEYS) as u32, (row % 1000) as u32));
            }
            from = to;
            epoch += 1;
            settle(worker, &mut facts, &mut groups, &probe, epoch);
        }
        if index == 0 {
            println!("{}", begun.elapsed().as_secs_f64());
        }
    })
    .expect("the workers run");
}
