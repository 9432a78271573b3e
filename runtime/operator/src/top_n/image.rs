//! The rows of a Top-N for the checkpoint store: each with its partition and how often it is there.

use arrow::array::Array;

use super::{Bounds, Changes, Partitions, TopNInstance};
use crate::error::Result;
use crate::image::{Part, Parts, bytes, bytes_at, number_at, numbers};

impl TopNInstance {
    pub(super) fn add_parts(&self, parts: &mut Vec<Part>) {
        let mut rows: Vec<(&[u8], &[u8], i64)> = vec![];
        match &self.partitions {
            Partitions::Zones(partitions) => {
                for (partition, zones) in partitions {
                    rows.extend(zones.iter().map(|(key, count)| (partition.as_ref(), key, count)));
                }
            }
            Partitions::Prefix(partitions) => {
                for (partition, prefix) in partitions {
                    rows.extend(prefix.iter().map(|(key, count)| (partition.as_ref(), key, count)));
                }
            }
        }
        parts.push(Part::Columns(vec![
            bytes(rows.iter().map(|(partition, ..)| *partition)),
            bytes(rows.iter().map(|(_, key, _)| *key)),
            numbers(rows.iter().map(|(.., count)| *count)),
        ]));
    }

    pub(super) fn take_parts(&mut self, parts: &mut Parts) -> Result<()> {
        let columns = parts.columns(3)?;
        // What is behind the first rows was in the image only if it may come back.
        let bounds = Bounds {
            append_only: false,
            ..self.bounds
        };
        for row in 0..columns[0].len() {
            let (partition, key) = (bytes_at(&columns[0], row), bytes_at(&columns[1], row));
            let count = number_at(&columns[2], row);
            match &mut self.partitions {
                Partitions::Zones(partitions) => {
                    let zones = partitions.entry_ref(partition).or_default();
                    zones.change(key, count, &bounds, &mut Changes::new());
                }
                Partitions::Prefix(partitions) => {
                    partitions.entry_ref(partition).or_default().change(key, count);
                }
            }
        }
        Ok(())
    }
}
