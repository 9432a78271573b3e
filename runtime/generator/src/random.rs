//! Random numbers that belong to a place: a seed, and the position of what they are for.

/// The increment of SplitMix64 (Steele, Lea and Flood, 2014): the golden ratio.
const GAMMA: u64 = 0x9E37_79B9_7F4A_7C15;

/// A sequence of random numbers, the same on every machine.
#[derive(Debug, Clone)]
pub struct Random(u64);

impl Random {
    /// The numbers of one place. `purpose` keeps those of different columns apart.
    pub fn at(seed: u64, purpose: u64, position: u64) -> Self {
        let place = mixed(seed ^ mixed(purpose.wrapping_mul(GAMMA)));
        Random(mixed(place.wrapping_add(position.wrapping_mul(GAMMA))))
    }

    /// The next 64 bits.
    pub fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(GAMMA);
        mixed(self.0)
    }

    /// A number in `0..end`; 0 if that is empty.
    pub fn below(&mut self, end: u64) -> u64 {
        ((u128::from(self.bits()) * u128::from(end)) >> 64) as u64
    }

    /// A number in `0..end` as a position.
    pub fn index(&mut self, end: usize) -> usize {
        self.below(end as u64) as usize
    }

    /// A number in `0.0..1.0`.
    pub fn fraction(&mut self) -> f64 {
        (self.bits() >> 11) as f64 / (1u64 << 53) as f64
    }
}

fn mixed(bits: u64) -> u64 {
    let bits = (bits ^ (bits >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let bits = (bits ^ (bits >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    bits ^ (bits >> 31)
}

/// Ranks of which the first is the most frequent: rank k comes in proportion to k to the power of minus the exponent.
///
/// Drawn by rejection-inversion (Hörmann and Derflinger, 1996): in constant time, whatever the number of ranks.
#[derive(Debug, Clone)]
pub struct Zipf {
    ranks: u64,
    exponent: f64,
    /// The integral of the density up to the first rank, and up to the last.
    first: f64,
    last: f64,
    /// How close to a rank is close enough without looking further.
    squeeze: f64,
}

impl Zipf {
    /// Ranks from 1 to `ranks` (at least one), and an exponent that is not negative.
    pub fn new(ranks: u64, exponent: f64) -> Self {
        let mut zipf = Zipf {
            ranks: ranks.max(1),
            exponent,
            first: 0.0,
            last: 0.0,
            squeeze: 0.0,
        };
        zipf.first = zipf.integral(1.5) - 1.0;
        zipf.last = zipf.integral(zipf.ranks as f64 + 0.5);
        zipf.squeeze = 2.0 - zipf.inverse(zipf.integral(2.5) - zipf.density(2.0));
        zipf
    }

    /// A rank, from 1 on.
    pub fn rank(&self, random: &mut Random) -> u64 {
        loop {
            let area = self.last + random.fraction() * (self.first - self.last);
            let at = self.inverse(area);
            let rank = at.round().clamp(1.0, self.ranks as f64);
            if rank - at <= self.squeeze || area >= self.integral(rank + 0.5) - self.density(rank) {
                return rank as u64;
            }
        }
    }

    fn density(&self, at: f64) -> f64 {
        (-self.exponent * at.ln()).exp()
    }

    fn integral(&self, at: f64) -> f64 {
        let log = at.ln();
        exp_m1_ratio((1.0 - self.exponent) * log) * log
    }

    fn inverse(&self, area: f64) -> f64 {
        let scaled = (area * (1.0 - self.exponent)).max(-1.0);
        (ln_1p_ratio(scaled) * area).exp()
    }
}

/// `(e^x - 1) / x`, also near 0.
fn exp_m1_ratio(x: f64) -> f64 {
    if x.abs() > 1e-8 {
        x.exp_m1() / x
    } else {
        1.0 + x / 2.0
    }
}

/// `ln(1 + x) / x`, also near 0.
fn ln_1p_ratio(x: f64) -> f64 {
    if x.abs() > 1e-8 {
        x.ln_1p() / x
    } else {
        1.0 - x / 2.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_belong_to_their_place() {
        let bits = |seed, purpose, position| Random::at(seed, purpose, position).bits();
        assert_eq!(bits(1, 2, 3), bits(1, 2, 3));
        // A file format of its own: what was generated yesterday comes again tomorrow.
        assert_eq!(bits(0, 0, 0), 0xE220_A839_7B1D_CDAF);
        let others = [
            bits(1, 2, 3),
            bits(2, 2, 3),
            bits(1, 3, 3),
            bits(1, 2, 4),
            bits(1, 3, 2),
        ];
        let different: std::collections::BTreeSet<u64> = others.into_iter().collect();
        assert_eq!(different.len(), others.len());
    }

    #[test]
    fn ranks_come_as_often_as_their_power_says() {
        for (ranks, exponent) in [(1, 1.0), (10, 0.0), (100, 0.5), (1_000, 1.0), (1_000, 2.0)] {
            let zipf = Zipf::new(ranks, exponent);
            let draws = 200_000;
            let mut counts = vec![0u64; ranks as usize + 1];
            for position in 0..draws {
                counts[zipf.rank(&mut Random::at(7, 0, position)) as usize] += 1;
            }
            let whole: f64 = (1..=ranks).map(|rank| (rank as f64).powf(-exponent)).sum();
            for rank in [1, 2, ranks / 2, ranks] {
                let Some(count) = counts.get(rank as usize).filter(|_| rank > 0) else {
                    continue;
                };
                let expected = draws as f64 * (rank as f64).powf(-exponent) / whole;
                let deviation = (*count as f64 - expected).abs();
                assert!(
                    deviation <= 5.0 * expected.sqrt() + 1.0,
                    "rank {rank} of {ranks}, exponent {exponent}: {count} times, expected {expected}"
                );
            }
        }
    }
}
