//! Samples and what is said of them.

use std::borrow::Borrow;
use std::time::Instant;

use serde::Serialize;

/// Order statistics of a sample.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Summary {
    /// How many values there are.
    pub count: usize,
    /// The smallest value.
    pub min: f64,
    /// The 5th percentile.
    pub p5: f64,
    /// The middle.
    pub median: f64,
    /// The 95th percentile.
    pub p95: f64,
    /// The 99th percentile.
    pub p99: f64,
    /// The largest value.
    pub max: f64,
}

/// Values in ascending order.
#[derive(Debug, Clone, PartialEq)]
pub struct Sample(Vec<f64>);

impl Sample {
    /// The sample of these values; a sample of nothing says nothing.
    pub fn new(mut values: Vec<f64>) -> Option<Self> {
        values.sort_by(f64::total_cmp);
        (!values.is_empty()).then_some(Sample(values))
    }

    /// The value that `fraction` of the sample does not exceed, interpolated between neighbours.
    pub fn quantile(&self, fraction: f64) -> f64 {
        let place = fraction.clamp(0.0, 1.0) * (self.0.len() - 1) as f64;
        let (below, above) = (self.0[place.floor() as usize], self.0[place.ceil() as usize]);
        below + (above - below) * place.fract()
    }

    /// Order statistics.
    pub fn summary(&self) -> Summary {
        Summary {
            count: self.0.len(),
            min: self.quantile(0.0),
            p5: self.quantile(0.05),
            median: self.quantile(0.5),
            p95: self.quantile(0.95),
            p99: self.quantile(0.99),
            max: self.quantile(1.0),
        }
    }
}

/// The value in the middle; NaN if there are none.
pub fn median(values: impl IntoIterator<Item = impl Borrow<f64>>) -> f64 {
    quantile(values, 0.5)
}

/// The value that `fraction` of the values do not exceed; NaN if there are none.
pub fn quantile(values: impl IntoIterator<Item = impl Borrow<f64>>, fraction: f64) -> f64 {
    let values = values.into_iter().map(|value| *value.borrow());
    Sample::new(values.collect()).map_or(f64::NAN, |sample| sample.quantile(fraction))
}

/// Milliseconds since `start`.
pub fn ms_since(start: Instant) -> f64 {
    start.elapsed().as_secs_f64() * 1e3
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_interpolate_and_do_not_depend_on_order() {
        let sample = Sample::new(vec![4.0, 1.0, 3.0, 2.0, 5.0]).unwrap();
        assert_eq!(sample.quantile(0.5), 3.0);
        assert_eq!(sample.quantile(0.125), 1.5);
        let summary = sample.summary();
        assert_eq!((summary.min, summary.max, summary.count), (1.0, 5.0, 5));
        assert!((summary.p95 - 4.8).abs() < 1e-9);
    }

    #[test]
    fn one_value_is_all_its_quantiles_and_none_is_no_sample() {
        let summary = Sample::new(vec![7.0]).unwrap().summary();
        assert_eq!((summary.p5, summary.median, summary.p99), (7.0, 7.0, 7.0));
        assert_eq!(Sample::new(Vec::new()), None);
    }
}
