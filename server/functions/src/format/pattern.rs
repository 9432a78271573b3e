//! The patterns of `to_char`, `to_timestamp` and `to_date`, cut into their parts.
//!
//! The parts are known in upper and in lower case, names of months and days also with a capital. What is no part stands
//! for itself, and so does everything in double quotes.

use millrace_postgres::error::{SqlError, SqlResult, SqlState};

/// What a part of a pattern says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Field {
    /// `AM`, `A.M.`; with points or not.
    Half {
        points: bool,
    },
    /// `AD`, `A.D.`
    Era {
        points: bool,
    },
    Century,
    /// `MONTH`, `MON`.
    MonthName {
        short: bool,
    },
    /// `DAY`, `DY`.
    DayName {
        short: bool,
    },
    /// `RM`
    RomanMonth,
    Month,
    Day,
    /// `DDD`, `IDDD`.
    DayOfYear {
        iso: bool,
    },
    /// `D`, `ID`.
    DayOfWeek {
        iso: bool,
    },
    /// `WW`, `IW`.
    WeekOfYear {
        iso: bool,
    },
    WeekOfMonth,
    Quarter,
    Julian,
    /// So many of the last digits of the year.
    Year {
        digits: u32,
        iso: bool,
    },
    /// `Y,YYY`
    YearWithComma,
    Hour,
    Hour12,
    Minute,
    Second,
    /// Digits of the fraction of a second.
    Fraction {
        digits: u32,
        name: Fraction,
    },
    SecondsOfDay,
    /// `TZ`
    ZoneName,
    /// `OF`
    ZoneOffset,
    ZoneHour,
    ZoneMinute,
    /// `FX`
    Exact,
}

/// How a fraction of a second is called, which tells how it is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fraction {
    Millis,
    Micros,
    /// `FF1` to `FF6`
    Digits,
}

impl Field {
    /// Whether it is a number when it is read, so that what stands before it ends after so many digits.
    pub fn is_number(self) -> bool {
        !matches!(
            self,
            Field::Half { .. }
                | Field::Era { .. }
                | Field::MonthName { .. }
                | Field::DayName { .. }
                | Field::RomanMonth
                | Field::ZoneName
                | Field::ZoneOffset
                | Field::Exact
        )
    }
}

/// The letters of a name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Case {
    Upper,
    Lower,
    /// The first one is upper.
    Capital,
}

/// A part of a pattern.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Item {
    /// A field.
    Field {
        /// What it says.
        field: Field,
        /// As it is written in the pattern.
        name: String,
        /// How names are written.
        case: Case,
        /// `FM` or `TM`: without padding.
        fill: bool,
        /// `TH` or `th`: an ordinal number.
        ordinal: Option<Case>,
    },
    /// A space outside of quotes.
    Space,
    /// Punctuation outside of quotes.
    Separator(char),
    /// Another character, or any in quotes.
    Character(char),
}

/// The names of the fields, of which the longest that fits counts.
const FIELDS: &[(&str, Field)] = &[
    ("A.D.", Field::Era { points: true }),
    ("A.M.", Field::Half { points: true }),
    ("AD", Field::Era { points: false }),
    ("AM", Field::Half { points: false }),
    ("B.C.", Field::Era { points: true }),
    ("BC", Field::Era { points: false }),
    ("CC", Field::Century),
    ("DAY", Field::DayName { short: false }),
    ("DDD", Field::DayOfYear { iso: false }),
    ("DD", Field::Day),
    ("DY", Field::DayName { short: true }),
    ("D", Field::DayOfWeek { iso: false }),
    ("FF1", fraction(1, Fraction::Digits)),
    ("FF2", fraction(2, Fraction::Digits)),
    ("FF3", fraction(3, Fraction::Digits)),
    ("FF4", fraction(4, Fraction::Digits)),
    ("FF5", fraction(5, Fraction::Digits)),
    ("FF6", fraction(6, Fraction::Digits)),
    ("FX", Field::Exact),
    ("HH24", Field::Hour),
    ("HH12", Field::Hour12),
    ("HH", Field::Hour12),
    ("IDDD", Field::DayOfYear { iso: true }),
    ("ID", Field::DayOfWeek { iso: true }),
    ("IW", Field::WeekOfYear { iso: true }),
    ("IYYY", year(4, true)),
    ("IYY", year(3, true)),
    ("IY", year(2, true)),
    ("I", year(1, true)),
    ("J", Field::Julian),
    ("MI", Field::Minute),
    ("MM", Field::Month),
    ("MONTH", Field::MonthName { short: false }),
    ("MON", Field::MonthName { short: true }),
    ("MS", fraction(3, Fraction::Millis)),
    ("OF", Field::ZoneOffset),
    ("P.M.", Field::Half { points: true }),
    ("PM", Field::Half { points: false }),
    ("Q", Field::Quarter),
    ("RM", Field::RomanMonth),
    ("SSSSS", Field::SecondsOfDay),
    ("SSSS", Field::SecondsOfDay),
    ("SS", Field::Second),
    ("TZH", Field::ZoneHour),
    ("TZM", Field::ZoneMinute),
    ("TZ", Field::ZoneName),
    ("US", fraction(6, Fraction::Micros)),
    ("WW", Field::WeekOfYear { iso: false }),
    ("W", Field::WeekOfMonth),
    ("Y,YYY", Field::YearWithComma),
    ("YYYY", year(4, false)),
    ("YYY", year(3, false)),
    ("YY", year(2, false)),
    ("Y", year(1, false)),
];

const fn fraction(digits: u32, name: Fraction) -> Field {
    Field::Fraction { digits, name }
}

const fn year(digits: u32, iso: bool) -> Field {
    Field::Year { digits, iso }
}

/// The field at the beginning of a text.
fn field(text: &str) -> Option<(Field, &'static str, Case)> {
    FIELDS
        .iter()
        .filter_map(|(name, field)| {
            let written = text.get(..name.len())?;
            let named = matches!(field, Field::MonthName { .. } | Field::DayName { .. });
            let case = if written == *name {
                Case::Upper
            } else if written == name.to_ascii_lowercase() {
                Case::Lower
            } else if named
                && written.starts_with(&name[..1])
                && written[1..] == name[1..].to_ascii_lowercase()
            {
                Case::Capital
            } else {
                return None;
            };
            Some((*field, *name, case))
        })
        .max_by_key(|(_, name, _)| name.len())
}

/// Bytes of a pattern. Each becomes many times as many, for which nobody asks.
const BYTES_MAX: usize = 64 << 10;

/// Refuses a pattern that is too long.
///
/// # Errors
/// It is.
pub fn check_length(pattern: &str) -> SqlResult<()> {
    match pattern.len() > BYTES_MAX {
        true => Err(SqlError::new(
            SqlState::ProgramLimitExceeded,
            format!(
                "a pattern of {} bytes exceeds the limit of {BYTES_MAX} bytes",
                pattern.len()
            ),
        )),
        false => Ok(()),
    }
}

/// Cuts a pattern.
///
/// # Errors
/// It is too long, or asks for `SP`, which writes numbers in words in some day.
pub fn parse(pattern: &str) -> SqlResult<Vec<Item>> {
    check_length(pattern)?;
    let mut items = vec![];
    let mut rest = pattern;
    let mut quoted = false;
    while let Some(first) = rest.chars().next() {
        let width = first.len_utf8();
        if quoted {
            match (first, rest[width..].chars().next()) {
                ('"', _) => quoted = false,
                ('\\', Some(next)) => {
                    items.push(Item::Character(next));
                    rest = &rest[width + next.len_utf8()..];
                    continue;
                }
                _ => items.push(Item::Character(first)),
            }
            rest = &rest[width..];
            continue;
        }
        let mut body = rest;
        let mut fill = false;
        for prefix in ["FM", "fm", "TM", "tm"] {
            if let Some(after) = rest.strip_prefix(prefix) {
                (body, fill) = (after, true);
            }
        }
        if let Some((field, name, case)) = field(body) {
            let written = &body[..name.len()];
            rest = &body[name.len()..];
            let mut ordinal = None;
            for (suffix, case) in [("TH", Case::Upper), ("th", Case::Lower)] {
                if let Some(after) = rest.strip_prefix(suffix) {
                    (rest, ordinal) = (after, Some(case));
                    break;
                }
            }
            if rest.starts_with("SP") {
                return Err(SqlError::unsupported(format!(
                    "the suffix \"SP\" of \"{written}\" is not supported"
                )));
            }
            items.push(Item::Field {
                field,
                name: written.into(),
                case,
                fill,
                ordinal,
            });
            continue;
        }
        if fill {
            rest = body;
            continue;
        }
        rest = &rest[width..];
        match first {
            '"' => quoted = true,
            '\\' if rest.starts_with('"') => {
                items.push(Item::Character('"'));
                rest = &rest[1..];
            }
            ' ' | '\t' | '\n' | '\r' => items.push(Item::Space),
            _ if first.is_ascii_punctuation() => items.push(Item::Separator(first)),
            _ => items.push(Item::Character(first)),
        }
    }
    Ok(items)
}
