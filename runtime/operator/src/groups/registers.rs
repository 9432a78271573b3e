//! HyperLogLog registers of one group: how many distinct values there are, about, from the hashes of the values.
//!
//! ```text
//!  few registers are set:   [(7, 2), (19, 1), (4012, 5)]     in order, 4 bytes each
//!  from then on:            16,384 bytes, one a register
//! ```
//! What is kept depends on the set of values alone, so that states merge in any order and by any way to the same estimate. Hashes
//! are put into registers as DataFusion's `approx_distinct` does; the estimator is that of Ertl, "New cardinality estimation
//! algorithms for HyperLogLog sketches" (arXiv:1702.01284), algorithm 6.

/// Bits of a hash that tell the register.
const INDEX_BITS: u32 = 14;
/// Bits that are looked at for the first one that is set.
const VALUE_BITS: u32 = 64 - INDEX_BITS;
const REGISTERS: usize = 1 << INDEX_BITS;
/// With more registers that are set, all are kept: half the memory of all is spent then, and each new one moves up to as much.
const FEW_MAX: usize = 2_048;

/// See the module.
#[derive(Debug, Clone)]
pub(super) enum Registers {
    /// Register and value of those that are set, in order: the register's number is in the upper bits.
    Few(Vec<u32>),
    All(Box<[u8]>),
}

impl Default for Registers {
    fn default() -> Self {
        Registers::Few(vec![])
    }
}

impl Registers {
    pub fn add(&mut self, hash: u64) {
        let value = ((hash >> INDEX_BITS) | 1 << VALUE_BITS).trailing_zeros() + 1;
        self.raise((hash as u32 & (REGISTERS as u32 - 1)) << 8 | value);
    }

    /// Sets a register to a value, if it has less.
    fn raise(&mut self, entry: u32) {
        match self {
            Registers::All(values) => {
                let value = &mut values[(entry >> 8) as usize];
                *value = (*value).max(entry as u8);
            }
            Registers::Few(entries) => {
                let position = entries.partition_point(|known| known >> 8 < entry >> 8);
                let is_set = entries
                    .get(position)
                    .is_some_and(|known| known >> 8 == entry >> 8);
                if is_set {
                    entries[position] = entries[position].max(entry);
                } else if entries.len() < FEW_MAX {
                    entries.insert(position, entry);
                } else {
                    self.spread();
                    self.raise(entry);
                }
            }
        }
    }

    /// Keeps all registers from here on.
    fn spread(&mut self) {
        if let Registers::Few(entries) = self {
            let mut values = vec![0; REGISTERS].into_boxed_slice();
            for entry in entries {
                values[(*entry >> 8) as usize] = *entry as u8;
            }
            *self = Registers::All(values);
        }
    }

    /// Adds all values that the other ones have seen.
    pub fn merge(&mut self, other: &Registers) {
        match other {
            Registers::Few(entries) => entries.iter().for_each(|entry| self.raise(*entry)),
            Registers::All(values) => self.merge_all(values),
        }
    }

    fn merge_all(&mut self, others: &[u8]) {
        self.spread();
        if let Registers::All(values) = self {
            for (value, other) in values.iter_mut().zip(others) {
                *value = (*value).max(*other);
            }
        }
    }

    /// As bytes, to be sent and kept; appended.
    pub fn write(&self, bytes: &mut Vec<u8>) {
        match self {
            Registers::Few(entries) => {
                bytes.extend(entries.iter().flat_map(|entry| entry.to_le_bytes()));
            }
            Registers::All(values) => bytes.extend_from_slice(values),
        }
    }

    /// Adds all values that those have seen that were written.
    pub fn merge_written(&mut self, bytes: &[u8]) {
        // Fewer than all take less room than all.
        if bytes.len() == REGISTERS {
            return self.merge_all(bytes);
        }
        for entry in bytes.as_chunks::<4>().0 {
            self.raise(u32::from_le_bytes(*entry));
        }
    }

    /// How many distinct values were added, about: the standard error is 0.8 %.
    pub fn estimate(&self) -> u64 {
        let mut histogram = [0_u32; VALUE_BITS as usize + 2];
        match self {
            Registers::Few(entries) => {
                histogram[0] = (REGISTERS - entries.len()) as u32;
                for entry in entries {
                    histogram[usize::from(*entry as u8)] += 1;
                }
            }
            Registers::All(values) => {
                for value in values {
                    histogram[usize::from(*value)] += 1;
                }
            }
        }
        let registers = REGISTERS as f64;
        let [unset, counts @ .., full] = &histogram;
        let mut sum = registers * tau(1.0 - f64::from(*full) / registers);
        for count in counts.iter().rev() {
            sum = 0.5 * (sum + f64::from(*count));
        }
        sum += registers * sigma(f64::from(*unset) / registers);
        (registers * registers / (2.0 * std::f64::consts::LN_2 * sum)).round() as u64
    }

    pub fn memory_bytes(&self) -> usize {
        match self {
            Registers::Few(entries) => entries.capacity() * size_of::<u32>(),
            Registers::All(values) => values.len(),
        }
    }
}

/// The part of registers that are not set: x + the sum over k from 1 on of x^(2^k) 2^(k-1).
fn sigma(share: f64) -> f64 {
    if share == 1.0 {
        return f64::INFINITY;
    }
    let (mut power, mut factor, mut sum) = (share, 1.0, share);
    loop {
        power *= power;
        let before = sum;
        sum += power * factor;
        factor *= 2.0;
        if sum == before {
            return sum;
        }
    }
}

/// The part of registers that no value is too large for: a third of 1 - x - the sum over k from 1 on of
/// (1 - x^(2^-k))^2 2^-k.
fn tau(share: f64) -> f64 {
    if share == 0.0 || share == 1.0 {
        return 0.0;
    }
    let (mut root, mut factor, mut sum) = (share, 1.0, 1.0 - share);
    loop {
        root = root.sqrt();
        let before = sum;
        factor *= 0.5;
        sum -= (1.0 - root).powi(2) * factor;
        if sum == before {
            return sum / 3.0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Hashes as a good function makes them, in 64 bits.
    fn hashes(seed: u64) -> impl Iterator<Item = u64> {
        (0..).map(move |number: u64| {
            let mixed = (number + 1 + (seed << 32)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
            let mixed = (mixed ^ mixed >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
            mixed ^ mixed >> 31
        })
    }

    fn of(hashes: impl Iterator<Item = u64>) -> Registers {
        let mut registers = Registers::default();
        hashes.for_each(|hash| registers.add(hash));
        registers
    }

    #[test]
    fn estimates_are_near_whether_few_registers_are_kept_or_all() {
        assert_eq!(Registers::default().estimate(), 0);
        for count in [1, 10, 1_000, 2_040, 2_500, 20_000, 500_000] {
            let registers = of(hashes(1).take(count));
            assert_eq!(matches!(registers, Registers::Few(_)), count < 2_500);
            let error = (registers.estimate() as f64 - count as f64).abs() / count as f64;
            assert!(error < 0.025, "{} for {count}", registers.estimate());
        }
        // Registers that are full, all and one.
        let full = of((0..REGISTERS as u64).chain([0]));
        assert!(full.estimate() > 1 << 60);
        assert_eq!(of([5].into_iter()).estimate(), 1);
    }

    #[test]
    fn the_way_of_merging_does_not_matter() {
        let sizes = [(10, 20), (1_500, 1_800), (3_000, 50), (50, 3_000), (9_000, 9_000)];
        for (left, right) in sizes {
            let (a, b) = (of(hashes(1).take(left)), of(hashes(2).take(right)));
            let all = of(hashes(2).take(right).chain(hashes(1).take(left)));
            let mut merged = a.clone();
            merged.merge(&b);
            let mut read = Registers::default();
            for part in [&b, &a, &b] {
                let mut bytes = vec![];
                part.write(&mut bytes);
                read.merge_written(&bytes);
            }
            for other in [&merged, &read] {
                let (mut bytes, mut expected) = (vec![], vec![]);
                other.write(&mut bytes);
                all.write(&mut expected);
                assert_eq!(bytes, expected, "{left} and {right}");
            }
        }
    }
}
