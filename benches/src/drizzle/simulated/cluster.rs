//! A simulated cluster with what the experiments put on it: views, each over a source of its own.

use std::sync::Arc;

use millrace_planner::RelationId;
use millrace_schedule::driver::CheckpointPolicy;
use millrace_schedule::group_size::GroupSize;
use millrace_schedule::id::{PipelineId, Ticket};
use millrace_schedule::simulation::{Costs, Setup, Simulation};
use millrace_schedule::template::{StageShape, ViewShape};

use super::{MESSAGE_NS, SLOTS, SPARK_NS, STEPS_MAX};
use crate::error::BenchError;

/// A simulated cluster.
pub(crate) struct Cluster {
    pub simulation: Simulation,
    tickets: u64,
}

impl Cluster {
    pub fn new(workers: u32, task_ns: u64, group_size: GroupSize, is_slow: bool, seed: u64) -> Self {
        let simulation = Simulation::new(Setup {
            workers,
            cores: SLOTS,
            group_size,
            checkpoints: CheckpointPolicy::Never,
            costs: Costs {
                message_ns: (MESSAGE_NS, MESSAGE_NS),
                task_ns,
                driver_ns: is_slow.then_some(SPARK_NS),
                worker_ns: None,
                doubled_per_mille: 0,
                dropped_per_mille: 0,
                slow: (0, 0),
            },
            seed,
        });
        Cluster {
            simulation,
            tickets: 0,
        }
    }

    /// A view over a new source, in a pipeline of its own, at rest.
    pub fn view(
        &mut self,
        source: RelationId,
        stages: &[StageShape],
        partitions: usize,
    ) -> Result<PipelineId, BenchError> {
        let pipeline = PipelineId(source.0);
        self.simulation.add_source(source, pipeline);
        self.rest()?;
        self.tickets += 1;
        let unused = PipelineId(1_000 + self.tickets);
        self.simulation
            .quiesce(Ticket(self.tickets), vec![source], unused);
        self.rest()?;
        let (ticket, pipeline) = self
            .simulation
            .held
            .pop()
            .ok_or_else(|| BenchError::engine("the simulated driver did not let a view in"))?;
        let view = Arc::new(ViewShape {
            id: RelationId(100 + source.0),
            partitions,
            incarnation: 0,
            stages: stages.to_vec(),
            is_batch: false,
        });
        self.simulation.resume(ticket, pipeline, vec![view], vec![]);
        self.rest()?;
        Ok(pipeline)
    }

    pub fn rest(&mut self) -> Result<(), BenchError> {
        if self.simulation.run(STEPS_MAX) {
            return Ok(());
        }
        Err(BenchError::engine("the simulation does not come to rest"))
    }
}
