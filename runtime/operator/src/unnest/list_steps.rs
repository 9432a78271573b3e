//! Of how many rows lists are computed at a time.

use millrace_schedule::cpu::CHUNK_ROWS;

/// Bytes of lists that are made at a time, unless those of one row are more.
const LIST_BYTES_STEP: usize = 4 << 20;

/// Of how many rows lists are computed at a time, so that the lists fit: from one row on, as long as they are small.
#[derive(Debug)]
pub struct ListSteps {
    rows: usize,
}

impl Default for ListSteps {
    fn default() -> Self {
        ListSteps { rows: 1 }
    }
}

impl ListSteps {
    /// The rows of the next step, of so many that are left.
    pub fn next(&self, left: usize) -> usize {
        self.rows.min(left)
    }

    /// So many rows' lists took so many bytes.
    pub fn made(&mut self, rows: usize, bytes: usize) {
        let row_bytes = bytes / rows.max(1) + 1;
        self.rows = (LIST_BYTES_STEP / row_bytes).min(8 * rows).clamp(1, CHUNK_ROWS);
    }
}
