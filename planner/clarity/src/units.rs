//! Numbers as people read them: three digits and a unit.

const DURATIONS: [(f64, &str); 3] = [(1e9, "s"), (1e6, "ms"), (1e3, "µs")];
const BYTES: [(f64, &str); 4] = [(1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "kB")];

/// Nanoseconds, such as `1.84 s`.
pub fn duration(nanoseconds: f64) -> String {
    with_unit(nanoseconds, &DURATIONS, "ns")
}

/// Bytes, such as `286 MB`; a megabyte is a million bytes, as in the data sheets of disks.
pub fn bytes(count: f64) -> String {
    with_unit(count, &BYTES, "B")
}

/// A share of one, such as `71 %`.
pub fn percent(share: f64) -> String {
    match share * 100.0 {
        tiny if tiny > 0.0 && tiny < 0.5 => "< 1 %".to_owned(),
        percent => format!("{percent:.0} %"),
    }
}

/// A whole number, such as `6,001,215`.
pub fn count(value: u64) -> String {
    let digits = value.to_string();
    let mut grouped = String::new();
    for (position, digit) in digits.chars().enumerate() {
        if position > 0 && (digits.len() - position).is_multiple_of(3) {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    grouped
}

fn with_unit(value: f64, units: &[(f64, &str)], smallest: &str) -> String {
    // Half a digit below the unit still rounds up to it.
    let unit = units.iter().find(|(size, _)| value >= size * 0.9995);
    let Some((size, name)) = unit else {
        if value == 0.0 {
            return "0".to_owned();
        }
        return format!("{value:.0} {smallest}");
    };
    let value = value / size;
    let digits = match value {
        large if large >= 99.95 => 0,
        large if large >= 9.995 => 1,
        _ => 2,
    };
    format!("{value:.digits$} {name}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn three_digits() {
        for (nanoseconds, text) in [
            (0.0, "0"),
            (999.0, "999 ns"),
            (1_000.0, "1.00 µs"),
            (12_345.0, "12.3 µs"),
            (999_960.0, "1.00 ms"),
            (99_960_000.0, "100 ms"),
            (1_840_000_000.0, "1.84 s"),
            (3_600e9, "3600 s"),
        ] {
            assert_eq!(duration(nanoseconds), text);
        }
        assert_eq!(bytes(286_000_000.0), "286 MB");
        assert_eq!(bytes(17.0), "17 B");
        assert_eq!(percent(0.714), "71 %");
        assert_eq!(percent(0.001), "< 1 %");
        assert_eq!(percent(0.0), "0 %");
        assert_eq!(count(6_001_215), "6,001,215");
        assert_eq!(count(12), "12");
        assert_eq!(count(123_456), "123,456");
    }
}
