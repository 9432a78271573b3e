//! What may be different from the machine and the input that were measured (Ousterhout 2017, sections 5.6.2-5.6.4).

use std::fmt::{self, Display, Formatter};

use serde::{Deserialize, Serialize};

use super::units::bytes;

/// Changes that are asked for together. The default changes nothing.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct Scenario {
    /// This many cores in all.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cores: Option<usize>,
    /// This many disks like those that there are, the data spread evenly.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub disks: Option<usize>,
    /// Every disk so much faster.
    pub disk: Speed,
    pub network: Speed,
    /// So many bytes of memory for what it holds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory: Option<u64>,
    /// The input is in memory as columns: neither read nor decoded.
    pub input_in_memory: bool,
}

/// How much faster a resource is than the one that was measured.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Speed {
    /// Above 1: faster. Positive and finite.
    Times(f64),
    /// It takes no time.
    Infinite,
}

impl Default for Speed {
    fn default() -> Self {
        Speed::Times(1.0)
    }
}

impl Speed {
    /// What is left of a time.
    pub fn of(self, time: f64) -> f64 {
        match self {
            Speed::Times(factor) => time / factor,
            Speed::Infinite => 0.0,
        }
    }
}

impl Display for Speed {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Speed::Times(factor) => write!(f, "x{factor}"),
            Speed::Infinite => f.write_str("infinite"),
        }
    }
}

impl Display for Scenario {
    /// As it is written in SQL, without quotes.
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let changed =
            |name: &str, speed: Speed| (speed != Speed::default()).then(|| format!("{name} = {speed}"));
        let entries: Vec<String> = [
            self.cores.map(|cores| format!("cores = {cores}")),
            self.disks.map(|disks| format!("disks = {disks}")),
            changed("disk", self.disk),
            changed("network", self.network),
            self.memory
                .map(|memory| format!("memory = {}", bytes(memory as f64))),
            self.input_in_memory.then(|| "input = memory".to_owned()),
        ]
        .into_iter()
        .flatten()
        .collect();
        f.write_str(&entries.join(", "))
    }
}
