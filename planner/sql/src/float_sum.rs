//! A floating-point sum from which values can be taken away again.
//!
//! The plain sum of `f64` forgets: `(1e20 + 1) - 1e20` is 0. This one carries the rounding error of every step in a second
//! number (Knuth's two-sum, 106 bits in all), and counts what has no inverse: NaN and the infinities.

/// The sum.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct FloatSum {
    /// Of the finite values.
    pub high: f64,
    /// What rounding took from it.
    pub low: f64,
    /// How many of the values are none.
    pub nan: i64,
    pub infinity: i64,
    pub negative_infinity: i64,
}

/// `a + b` and its rounding error.
fn two_sum(a: f64, b: f64) -> (f64, f64) {
    let sum = a + b;
    let b_part = sum - a;
    (sum, (a - (sum - b_part)) + (b - b_part))
}

/// `a * b` and its rounding error.
fn two_product(a: f64, b: f64) -> (f64, f64) {
    let product = a * b;
    (product, a.mul_add(b, -product))
}

impl FloatSum {
    /// Adds `value` `weight` times.
    pub fn add(&mut self, value: f64, weight: i64) {
        if value.is_nan() {
            self.nan += weight;
        } else if value == f64::INFINITY {
            self.infinity += weight;
        } else if value == f64::NEG_INFINITY {
            self.negative_infinity += weight;
        } else if weight == 1 {
            self.add_parts(value, 0.0);
        } else {
            let (high, low) = two_product(value, weight as f64);
            self.add_parts(high, low);
        }
    }

    /// Adds `value * value`, `weight` times.
    pub fn add_square(&mut self, value: f64, weight: i64) {
        if !value.is_finite() {
            return;
        }
        let (high, low) = two_product(value, value);
        let (scaled, error) = two_product(high, weight as f64);
        self.add_parts(scaled, error + low * weight as f64);
    }

    fn add_parts(&mut self, high: f64, low: f64) {
        let (sum, error) = two_sum(self.high, high);
        let (high, low) = two_sum(sum, error + self.low + low);
        if high.is_finite() {
            self.high = high;
            self.low = low;
        } else {
            // The finite sum left the range of f64: what f64 addition says.
            self.high = sum;
            self.low = 0.0;
        }
    }

    /// Adds another sum.
    pub fn merge(&mut self, other: &FloatSum) {
        self.add_parts(other.high, other.low);
        self.nan += other.nan;
        self.infinity += other.infinity;
        self.negative_infinity += other.negative_infinity;
    }

    /// Takes another sum away that is a part of this one.
    pub fn take_away(&mut self, other: &FloatSum) {
        self.add_parts(-other.high, -other.low);
        self.nan -= other.nan;
        self.infinity -= other.infinity;
        self.negative_infinity -= other.negative_infinity;
    }

    /// The sum, as IEEE 754 defines it over all values.
    pub fn value(&self) -> f64 {
        if self.nan > 0 || (self.infinity > 0 && self.negative_infinity > 0) {
            f64::NAN
        } else if self.infinity > 0 {
            f64::INFINITY
        } else if self.negative_infinity > 0 {
            f64::NEG_INFINITY
        } else {
            self.high + self.low
        }
    }

    /// The sum of squared distances from the mean, given the sum of squares.
    pub fn squared_distances(&self, squares: &FloatSum, count: i64) -> f64 {
        if self.nan > 0 || self.infinity > 0 || self.negative_infinity > 0 {
            return f64::NAN;
        }
        // sum^2 / n to twice the precision, by one step of correction.
        let n = count as f64;
        let (square, square_error) = two_product(self.high, self.high);
        let square_low = square_error + 2.0 * self.high * self.low;
        let quotient = square / n;
        let (back, back_error) = two_product(quotient, n);
        let rest = ((square - back) - back_error + square_low) / n;
        let (difference, error) = two_sum(squares.high, -quotient);
        (difference + (error + squares.low - rest)).max(0.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_added_can_be_taken_away() {
        let mut sum = FloatSum::default();
        for value in [1e20, 1.0, f64::NAN, f64::INFINITY] {
            sum.add(value, 1);
        }
        assert!(sum.value().is_nan());
        sum.add(f64::NAN, -1);
        assert_eq!(sum.value(), f64::INFINITY);
        sum.add(f64::INFINITY, -1);
        sum.add(1e20, -1);
        assert_eq!(sum.value(), 1.0);
        sum.add(1.0, -1);
        assert_eq!(sum.value(), 0.0);
    }

    #[test]
    fn variance_of_far_away_values_is_right() {
        let (mut sum, mut squares) = (FloatSum::default(), FloatSum::default());
        for value in [1e9 + 4.0, 1e9 + 7.0, 1e9 + 13.0, 1e9 + 16.0] {
            sum.add(value, 1);
            squares.add_square(value, 1);
        }
        assert!((sum.squared_distances(&squares, 4) - 90.0).abs() < 1e-6);
    }
}
