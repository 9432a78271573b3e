//! What coordinator and hosts say to each other, and hosts among themselves.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use millrace_mesh::Body;
use millrace_planner::RelationId;
use millrace_schedule::id::{Part, PipelineId, TaskId, WorkerId};
use millrace_schedule::message::{ToDriver, ToPeer, ToWorker};
use millrace_schedule::template::ViewShape;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::worker::ActivityCounts;
use crate::worker::flow::{BatchId, FlowId};
use crate::worker::shuffle::Block;

/// What a process says of itself when it wants to take part.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Hello {
    /// To the coordinator.
    Join(About),
    /// To another host, by a host that has joined.
    Peer { from: WorkerId },
}

/// A host.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct About {
    /// Hosts of another build are not taken: plans and messages may differ.
    pub build: String,
    /// Where other hosts reach it.
    pub address: String,
    /// CPU slots.
    pub cores: usize,
    /// Bytes of memory that it may use.
    pub memory_limit: u64,
    pub process: u32,
}

/// A view, as a host makes it.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Installed {
    pub name: String,
    pub shape: Arc<ViewShape>,
    /// See [`ViewSpec::definition`](crate::ViewSpec::definition).
    pub definition: Arc<[u8]>,
    /// What the host has to come to, by [`millrace_planner::state_identity`].
    pub identity: Vec<String>,
    /// Nothing of it has run anywhere: all parts are empty. Else they are where the driver says.
    pub is_new: bool,
}

/// How far a view is that is being filled.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Filling {
    pub view: RelationId,
    pub incarnation: u64,
    pub is_filling: bool,
    pub is_bulk: bool,
    /// For each stage, whether its fixed rows are still to come.
    pub first: Vec<bool>,
}

/// To a host.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub enum ToHost {
    /// Its name, before anything else, and how often it is to say that it is there.
    Welcome {
        worker: WorkerId,
        heartbeat_ns: u64,
    },
    Command(ToWorker),
    Peer(ToPeer),
    Install(Installed),
    Uninstall(RelationId),
    Filling(Filling),
    /// A view failed, here or on another host.
    Failed {
        view: RelationId,
        incarnation: u64,
        why: String,
    },
    /// Back-fills that run at the priority of streams.
    Urgent(BTreeSet<PipelineId>),
    /// Where the other hosts are.
    Hosts(BTreeMap<WorkerId, String>),
    /// The coordinator is there.
    Alive,
    /// The host is not needed any more.
    Leave,
}

/// What tasks of a stage did on a partition.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Ran {
    pub view: RelationId,
    pub incarnation: u64,
    pub stage: usize,
    pub partition: usize,
    pub counts: ActivityCounts,
}

/// What a host keeps of a view.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Keeps {
    pub view: RelationId,
    pub incarnation: u64,
    pub in_memory: u64,
    pub on_disk: u64,
}

/// To the coordinator.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub enum ToCoordinator {
    /// It leaves: it cannot make a view.
    Unfit(String),
    /// Messages to another host may be lost: the link to it is closed.
    Unlinked {
        from: WorkerId,
    },
    Ran(Vec<Ran>),
    Keeps(Vec<Keeps>),
    Report(ToDriver),
    Peer {
        to: WorkerId,
        message: ToPeer,
    },
    Due {
        task: TaskId,
        due: Option<i64>,
    },
    EmittedFixedRows {
        view: RelationId,
        incarnation: u64,
        stage: usize,
    },
    Failed {
        view: RelationId,
        incarnation: u64,
        why: String,
        is_memory: bool,
    },
    /// Expressions of a view failed on so many more rows.
    ExpressionErrors {
        view: RelationId,
        incarnation: u64,
        rows: u64,
        last: String,
    },
}

/// From host to host.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct ToOther {
    pub to: WorkerId,
    pub message: ToPeer,
}

/// What is asked for; rows and images come with it, or with the answer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Request {
    /// Rows that wait on a worker.
    Fetch {
        of: WorkerId,
        pipeline: PipelineId,
        epoch: u64,
        block: Block,
    },
    /// The next batch of a channel there; without one when there are no more.
    NextBatch {
        of: WorkerId,
        flow: FlowId,
        partition: usize,
        done: Option<BatchId>,
    },
    /// To the coordinator: applies the rows that come with it to a view.
    Materialize { task: TaskId, incarnation: u64 },
    /// To the coordinator: keeps the image that comes with it.
    Keep {
        part: Part,
        epoch: u64,
        incarnation: u64,
    },
    /// To the coordinator: the image of a part.
    Image { part: Part },
}

/// Any of these as bytes.
///
/// # Errors
/// It is too large for its encoding.
pub fn encode<M: Serialize>(message: &M) -> Result<Vec<u8>, String> {
    millrace_schedule::message::encode(message).map_err(|error| error.to_string())
}

/// What the bytes are of.
///
/// # Errors
/// They are something else.
pub fn decode<M: DeserializeOwned>(bytes: &[u8]) -> Result<M, String> {
    millrace_schedule::message::decode(bytes).map_err(|error| error.to_string())
}

/// Puts a header before a body, whose own header becomes its first part.
///
/// # Errors
/// The header cannot be encoded.
pub fn with_header(header: &impl Serialize, what: Body) -> Result<Body, String> {
    let mut parts = what.parts;
    parts.insert(0, what.header);
    Ok(Body {
        header: encode(header)?.into(),
        parts,
    })
}

/// Takes apart what [`with_header`] joined.
pub fn without_header(body: Body) -> Body {
    let mut parts = body.parts;
    let header = match parts.is_empty() {
        true => bytes::Bytes::new(),
        false => parts.remove(0),
    };
    Body { header, parts }
}
