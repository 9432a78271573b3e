//! Which fields of an interval count: `interval day to hour`.

use arrow::datatypes::IntervalMonthDayNano;

const NANOS_PER_HOUR: i64 = 3600 * 1_000_000_000;
const NANOS_PER_MINUTE: i64 = 60 * 1_000_000_000;

/// A unit of time. Years come by tens, hundreds and thousands, too.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unit {
    Year(u32),
    Month,
    Week,
    Day,
    Hour,
    Minute,
    Second,
    Millisecond,
    Microsecond,
}

impl Unit {
    /// The unit of a name, in lower case.
    pub fn named(name: &str) -> Option<Unit> {
        Some(match name {
            "millennium" | "millennia" | "millenniums" | "mil" | "mils" => Unit::Year(1000),
            "century" | "centuries" | "c" | "cent" => Unit::Year(100),
            "decade" | "decades" | "dec" | "decs" => Unit::Year(10),
            "year" | "years" | "yr" | "yrs" | "y" => Unit::Year(1),
            "month" | "months" | "mon" | "mons" => Unit::Month,
            "week" | "weeks" | "w" => Unit::Week,
            "day" | "days" | "d" => Unit::Day,
            "hour" | "hours" | "hr" | "hrs" | "h" => Unit::Hour,
            "minute" | "minutes" | "min" | "mins" | "m" => Unit::Minute,
            "second" | "seconds" | "sec" | "secs" | "s" => Unit::Second,
            "millisecond" | "milliseconds" | "ms" | "msec" | "msecs" | "msecond" | "mseconds" => {
                Unit::Millisecond
            }
            "microsecond" | "microseconds" | "us" | "usec" | "usecs" | "usecond" | "useconds" => {
                Unit::Microsecond
            }
            _ => return None,
        })
    }

    /// A bit of its own: a text says each unit once.
    pub fn mask(self) -> u32 {
        1 << match self {
            Unit::Month => 1,
            Unit::Year(1) => 2,
            Unit::Day => 3,
            Unit::Hour => 10,
            Unit::Minute => 11,
            Unit::Second => 12,
            Unit::Millisecond => 13,
            Unit::Microsecond => 14,
            Unit::Week => 24,
            Unit::Year(10) => 25,
            Unit::Year(100) => 26,
            Unit::Year(_) => 27,
        }
    }
}

/// The fields of a type of intervals.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Fields {
    /// What stands behind `interval`.
    pub name: &'static str,
    /// The bits of these in a modifier of PostgreSQL's, see [`Unit::mask`].
    pub bits: i32,
    last: Unit,
}

const fn fields(name: &'static str, bits: i32, last: Unit) -> Fields {
    Fields { name, bits, last }
}

impl Fields {
    /// All of them.
    pub const ALL: Fields = fields("", 0x7fff, Unit::Second);
    /// A clock of two numbers has no hours.
    pub const MINUTE_TO_SECOND: Fields = fields("minute to second", 0x1800, Unit::Second);
    /// The types that there are.
    const KNOWN: [Fields; 13] = [
        fields("year", 0x4, Unit::Year(1)),
        fields("month", 0x2, Unit::Month),
        fields("day", 0x8, Unit::Day),
        fields("hour", 0x400, Unit::Hour),
        fields("minute", 0x800, Unit::Minute),
        fields("second", 0x1000, Unit::Second),
        fields("year to month", 0x6, Unit::Month),
        fields("day to hour", 0x408, Unit::Hour),
        fields("day to minute", 0xc08, Unit::Minute),
        fields("day to second", 0x1c08, Unit::Second),
        fields("hour to minute", 0xc00, Unit::Minute),
        fields("hour to second", 0x1c00, Unit::Second),
        Fields::MINUTE_TO_SECOND,
    ];

    /// Those of a name, in lower case and without digits.
    pub fn named(name: &str) -> Option<Fields> {
        Fields::KNOWN.into_iter().find(|known| known.name == name)
    }

    /// Those that a modifier of PostgreSQL's says.
    pub fn of_bits(bits: i32) -> Option<Fields> {
        Fields::KNOWN.into_iter().find(|known| known.bits == bits)
    }

    /// What a number without a unit counts.
    pub fn last(self) -> Unit {
        self.last
    }

    /// The value without what is smaller than the last field.
    pub fn cut(self, value: IntervalMonthDayNano) -> IntervalMonthDayNano {
        let of = |months, days, nanos| IntervalMonthDayNano::new(months, days, nanos);
        let (months, days, nanos) = (value.months, value.days, value.nanoseconds);
        match self.last {
            Unit::Year(_) => of(months - months % 12, 0, 0),
            Unit::Month => of(months, 0, 0),
            Unit::Day | Unit::Week => of(months, days, 0),
            Unit::Hour => of(months, days, nanos - nanos % NANOS_PER_HOUR),
            Unit::Minute => of(months, days, nanos - nanos % NANOS_PER_MINUTE),
            Unit::Second | Unit::Millisecond | Unit::Microsecond => value,
        }
    }
}
