//! What all queries have together, by whether it can be spilled.

use datafusion::execution::memory_pool::MemoryReservation;

/// What all queries have together.
#[derive(Debug, Default)]
pub(crate) struct Shares {
    /// Operators that can spill.
    pub spilling: usize,
    pub spillable: usize,
    pub unspillable: usize,
}

impl Shares {
    /// What operators like this one have.
    pub fn bytes(&mut self, reservation: &MemoryReservation) -> &mut usize {
        match reservation.consumer().can_spill() {
            true => &mut self.spillable,
            false => &mut self.unspillable,
        }
    }
}
