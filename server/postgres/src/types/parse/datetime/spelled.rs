//! Dates as people write them: `January 8, 1999`, `8-Jan-1999`, `1/8/1999` (the month first), `990108`, `1999.008`, `J2451187`, and
//! `Mon Feb 16 20:38:40 2001`.

use super::{civil_from_days, days_from_civil};

const MONTHS: [&str; 12] = [
    "january",
    "february",
    "march",
    "april",
    "may",
    "june",
    "july",
    "august",
    "september",
    "october",
    "november",
    "december",
];
const DAYS: [&str; 7] = [
    "sunday",
    "monday",
    "tuesday",
    "wednesday",
    "thursday",
    "friday",
    "saturday",
];
/// The Julian day of 1970-01-01.
const JULIAN_EPOCH: i64 = 2_440_588;

/// The text with its date as `YYYY-MM-DD`, in front; `None`: it has none.
pub(super) fn iso(text: &str) -> Option<String> {
    let words = || {
        let all = text.split(|c: char| c.is_ascii_whitespace() || c == ',');
        all.filter(|word| !word.is_empty())
    };
    let mut before_christ = words().any(|word| word.eq_ignore_ascii_case("bc"));
    let (mut month, mut numbers, mut rest, mut date) = (None, vec![], vec![], None);
    for word in words() {
        if named(&DAYS, word).is_some() || word.eq_ignore_ascii_case("bc") {
            continue;
        }
        let is_number = word.bytes().all(|byte| byte.is_ascii_digit());
        if let Some(known) = named(&MONTHS, word).filter(|_| month.is_none()) {
            month = Some(known);
        } else if is_number && word.len() <= 4 && numbers.len() < 2 {
            numbers.push(word);
        } else if let Some(found) = in_one_word(word, before_christ).filter(|_| date.is_none()) {
            date = Some(found);
        } else {
            rest.push(word);
        }
    }
    let (mut year, month, day) = match (date, month, numbers.as_slice()) {
        (Some(date), None, []) => date,
        (None, Some(month), [one, other]) => by_name(month, one, other, before_christ)?,
        _ => return None,
    };
    // A Julian day may be one before Christ. The year 0 is refused where it is read.
    if year <= 0 && numbers.is_empty() && text.trim_start().starts_with(['J', 'j']) {
        (year, before_christ) = (1 - year, true);
    }
    let mut text = format!("{year:04}-{month:02}-{day:02}");
    for word in rest {
        text.push(' ');
        text.push_str(word);
    }
    if before_christ {
        text.push_str(" BC");
    }
    Some(text)
}

/// The place of a name, or of its first letters, three at least.
fn named(names: &[&str], word: &str) -> Option<i64> {
    let lower = word.trim_end_matches('.').to_ascii_lowercase();
    let place = names.iter().position(|name| {
        lower.len() >= 3 && (*name == lower || lower.len() <= 4 && name.starts_with(lower.as_str()))
    });
    place.and_then(|place| i64::try_from(place + 1).ok())
}

/// A date with the name of its month: the longer of the two numbers is the year.
fn by_name(month: i64, one: &str, other: &str, before_christ: bool) -> Option<(i64, i64, i64)> {
    let (day, year) = if one.len() > 2 { (other, one) } else { (one, other) };
    Some((year_of(year, before_christ)?, month, short(day)?))
}

fn short(number: &str) -> Option<i64> {
    (number.len() <= 2).then(|| number.parse().ok())?
}

/// Years of two digits are of 1970 to 2069, if they are not before Christ.
fn year_of(number: &str, before_christ: bool) -> Option<i64> {
    let year: i64 = number.parse().ok()?;
    Some(match number.len() {
        1 | 2 if year < 70 && !before_christ => 2000 + year,
        1 | 2 if !before_christ => 1900 + year,
        _ => year,
    })
}

/// A date without spaces.
fn in_one_word(word: &str, before_christ: bool) -> Option<(i64, i64, i64)> {
    let is_number = |part: &&str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
    if let Some(julian) = word.strip_prefix(['J', 'j']).filter(is_number) {
        let day: i64 = julian.parse().ok().filter(|day| *day < 100_000_000)?;
        return Some(civil_from_days(day - JULIAN_EPOCH));
    }
    if word.len() == 6 && is_number(&word) {
        return Some((
            year_of(&word[..2], before_christ)?,
            short(&word[2..4])?,
            short(&word[4..])?,
        ));
    }
    let separator = word.chars().find(|c| matches!(c, '-' | '/' | '.'))?;
    let parts: Vec<&str> = word.split(separator).collect();
    match parts.as_slice() {
        [year, day] if year.len() == 4 && day.len() == 3 && is_number(year) && is_number(day) => {
            let (year, day): (i64, i64) = (year.parse().ok()?, day.parse().ok()?);
            (1..=366)
                .contains(&day)
                .then(|| civil_from_days(days_from_civil(year, 1, 1) + day - 1))
        }
        [month, day, year] if parts.iter().all(is_number) && month.len() <= 2 => {
            Some((year_of(year, before_christ)?, short(month)?, short(day)?))
        }
        [day, month, year] if is_number(day) && is_number(year) => {
            by_name(named(&MONTHS, month)?, day, year, before_christ)
        }
        [month, day, year] if is_number(day) && is_number(year) => {
            by_name(named(&MONTHS, month)?, day, year, before_christ)
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_have_many_spellings() {
        for text in [
            "January 8, 1999",
            "Jan 8 1999",
            "8 January 1999",
            "1/8/1999",
            "1/8/99",
            "8-Jan-1999",
            "08-Jan-99",
            "Jan-08-1999",
            "1999-Jan-08",
            "990108",
            "1999.008",
            "J2451187",
            "Fri Jan 8 1999",
        ] {
            assert_eq!(iso(text).as_deref(), Some("1999-01-08"), "{text}");
        }
        assert_eq!(
            iso("Mon Feb 16 20:38:40 2001 PST").as_deref(),
            Some("2001-02-16 20:38:40 PST")
        );
        assert_eq!(iso("January 8, 99 BC").as_deref(), Some("0099-01-08 BC"));
        assert_eq!(iso("J0").as_deref(), Some("4714-11-24 BC"));
        for text in [
            "",
            "nope",
            "today",
            "1999",
            "Jan",
            "8 Nope 1999",
            "1/2",
            "1-2-3-4",
            "Jan 8",
        ] {
            assert_eq!(iso(text), None, "{text}");
        }
    }
}
