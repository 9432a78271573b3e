//! `to_char` of numbers, and the patterns of `to_number`.

use millrace_postgres::error::{SqlError, SqlResult, SqlState};

use super::moment::ordinal_suffix;
use super::pattern::{Case, check_length};

/// A part of a pattern.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Item {
    Nine,
    Zero,
    Point,
    Comma,
    /// `G`, which separates groups.
    Group,
    /// `L`, the currency's symbol.
    Currency,
    /// `S`
    Sign,
    /// `MI`
    Minus,
    /// `PL`
    Plus,
    /// `SG`
    PlusMinus,
    /// `PR`
    Brackets,
    Roman(Case),
    Ordinal(Case),
    /// `V`
    Shift,
    /// `EEEE`
    Exponent,
    /// `FM`
    Fill,
    Character(char),
}

const NAMES: [(&str, Item); 17] = [
    (",", Item::Comma),
    (".", Item::Point),
    ("0", Item::Zero),
    ("9", Item::Nine),
    ("D", Item::Point),
    ("EEEE", Item::Exponent),
    ("FM", Item::Fill),
    ("G", Item::Group),
    ("L", Item::Currency),
    ("MI", Item::Minus),
    ("PL", Item::Plus),
    ("PR", Item::Brackets),
    ("RN", Item::Roman(Case::Upper)),
    ("SG", Item::PlusMinus),
    ("S", Item::Sign),
    ("TH", Item::Ordinal(Case::Upper)),
    ("V", Item::Shift),
];

/// Where `S` puts the sign.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SignPlace {
    Before,
    After,
}

/// A pattern.
#[derive(Debug, Clone)]
pub struct Pattern {
    /// Its parts.
    pub items: Vec<Item>,
    /// Digits before and after the point.
    pub before: usize,
    /// See [`Self::before`].
    pub after: usize,
    /// There is a point.
    pub has_point: bool,
    /// `FM`
    pub fill: bool,
    /// The place of the first 0 before the point.
    first_zero: Option<usize>,
    /// The place behind the last 0; 0: there is none.
    zeros_end: usize,
    /// Places before the `S`.
    places_before_sign: usize,
    /// `S`
    pub sign: Option<SignPlace>,
    /// `PR`
    pub brackets: bool,
    /// `MI`, `SG`
    pub minus: bool,
    /// `PL`, `SG`
    pub plus: bool,
    is_roman: bool,
    /// Digits after `V`; none: there is no `V`.
    pub shift: Option<usize>,
    has_exponent: bool,
}

fn wrong(message: &str) -> SqlError {
    SqlError::new(SqlState::SyntaxError, message)
}

/// The part at the beginning of a text.
fn item(text: &str) -> Option<(Item, usize)> {
    NAMES
        .iter()
        .filter_map(|(name, item)| {
            let written = text.get(..name.len())?;
            if written == *name {
                return Some((*item, name.len()));
            }
            (written == name.to_ascii_lowercase()).then_some((
                match item {
                    Item::Roman(_) => Item::Roman(Case::Lower),
                    Item::Ordinal(_) => Item::Ordinal(Case::Lower),
                    other => *other,
                },
                name.len(),
            ))
        })
        .max_by_key(|(_, length)| *length)
}

impl Pattern {
    /// Reads a pattern.
    ///
    /// # Errors
    /// It is too long, its parts contradict each other (42601), or one of them is not supported.
    pub fn parse(text: &str) -> SqlResult<Pattern> {
        check_length(text)?;
        let mut pattern = Pattern {
            items: vec![],
            before: 0,
            after: 0,
            has_point: false,
            fill: false,
            first_zero: None,
            zeros_end: 0,
            places_before_sign: 0,
            sign: None,
            brackets: false,
            minus: false,
            plus: false,
            is_roman: false,
            shift: None,
            has_exponent: false,
        };
        let mut rest = text;
        let mut quoted = false;
        while let Some(first) = rest.chars().next() {
            let width = first.len_utf8();
            if quoted {
                match (first, rest[width..].chars().next()) {
                    ('"', _) => quoted = false,
                    ('\\', Some(next)) => {
                        pattern.items.push(Item::Character(next));
                        rest = &rest[width + next.len_utf8()..];
                        continue;
                    }
                    _ => pattern.items.push(Item::Character(first)),
                }
                rest = &rest[width..];
                continue;
            }
            if let Some((item, length)) = item(rest) {
                pattern.add(item)?;
                pattern.items.push(item);
                rest = &rest[length..];
                continue;
            }
            for name in ["SP", "sp", "B", "b", "C", "c"] {
                if rest.starts_with(name) {
                    return Err(SqlError::unsupported(format!(
                        "\"{name}\" in the pattern of a number is not supported"
                    ))
                    .with_hint("Put it in double quotes to output it literally."));
                }
            }
            rest = &rest[width..];
            match first {
                '"' => quoted = true,
                '\\' if rest.starts_with('"') => {
                    pattern.items.push(Item::Character('"'));
                    rest = &rest[1..];
                }
                _ => pattern.items.push(Item::Character(first)),
            }
        }
        Ok(pattern)
    }

    fn add(&mut self, item: Item) -> SqlResult<()> {
        if self.has_exponent && !matches!(item, Item::Exponent) {
            return Err(wrong("\"EEEE\" must be the last pattern used"));
        }
        match item {
            Item::Nine => {
                if self.brackets {
                    return Err(wrong("\"9\" must be ahead of \"PR\""));
                }
                match &mut self.shift {
                    Some(shift) => *shift += 1,
                    None if self.has_point => self.after += 1,
                    None => self.before += 1,
                }
            }
            Item::Zero => {
                if self.brackets {
                    return Err(wrong("\"0\" must be ahead of \"PR\""));
                }
                if self.has_point {
                    self.after += 1;
                } else {
                    self.first_zero = self.first_zero.or(Some(self.before));
                    self.before += 1;
                }
                self.zeros_end = self.before + self.after;
            }
            Item::Point => {
                if self.has_point {
                    return Err(wrong("multiple decimal points"));
                }
                if self.shift.is_some() {
                    return Err(wrong("cannot use \"V\" and decimal point together"));
                }
                self.has_point = true;
            }
            Item::Fill => self.fill = true,
            Item::Sign => {
                if self.sign.is_some() {
                    return Err(wrong("cannot use \"S\" twice"));
                }
                if self.plus || self.minus || self.brackets {
                    return Err(wrong("cannot use \"S\" and \"PL\"/\"MI\"/\"SG\"/\"PR\" together"));
                }
                if self.has_point {
                    self.sign = Some(SignPlace::After);
                } else {
                    self.sign = Some(SignPlace::Before);
                    self.places_before_sign = self.before;
                }
            }
            Item::Minus | Item::Plus | Item::PlusMinus => {
                if self.sign.is_some() {
                    let name = match item {
                        Item::Minus => "MI",
                        Item::Plus => "PL",
                        _ => "SG",
                    };
                    return Err(wrong(&format!("cannot use \"S\" and \"{name}\" together")));
                }
                self.minus |= item != Item::Plus;
                self.plus |= item != Item::Minus;
            }
            Item::Brackets => {
                if self.sign.is_some() || self.plus || self.minus {
                    return Err(wrong("cannot use \"PR\" and \"S\"/\"PL\"/\"MI\"/\"SG\" together"));
                }
                self.brackets = true;
            }
            Item::Roman(_) => self.is_roman = true,
            Item::Shift => {
                if self.has_point {
                    return Err(wrong("cannot use \"V\" and decimal point together"));
                }
                self.shift = Some(self.shift.unwrap_or(0));
            }
            Item::Exponent => {
                if self.has_exponent {
                    return Err(wrong("cannot use \"EEEE\" twice"));
                }
                if self.fill
                    || self.sign.is_some()
                    || self.brackets
                    || self.minus
                    || self.plus
                    || self.is_roman
                    || self.shift.is_some()
                {
                    return Err(wrong("\"EEEE\" is incompatible with other formats").with_detail(
                        "\"EEEE\" may only be used together with digit and decimal point patterns.",
                    ));
                }
                self.has_exponent = true;
            }
            Item::Comma | Item::Group | Item::Currency | Item::Ordinal(_) | Item::Character(_) => {}
        }
        Ok(())
    }

    /// Writes a number.
    pub fn write(&self, number: &dyn Number) -> String {
        if self.is_roman {
            let text = number.whole().and_then(roman).unwrap_or_else(|| "#".repeat(15));
            return self.write_roman(&text);
        }
        if self.has_exponent {
            return match number.scientific(self.after) {
                Some(text) if text.starts_with('-') => text,
                Some(text) => format!(" {text}"),
                None => {
                    let mut text = "#".repeat(self.before + self.after + 6);
                    text.replace_range(..1, " ");
                    let point = self.before + 1;
                    text.replace_range(point..=point, ".");
                    text
                }
            };
        }
        let shift = self.shift.unwrap_or(0);
        let before = self.before + shift;
        let (text, after) = number.fixed(shift, self.after);
        let (negative, digits) = match text.strip_prefix('-') {
            Some(digits) => (true, digits.to_string()),
            None => (false, text),
        };
        let length = digits.find('.').unwrap_or(digits.len());
        let digits = if length > before {
            let mut hashes = "#".repeat(before);
            hashes.push('.');
            hashes.push_str(&"#".repeat(after));
            hashes
        } else {
            digits
        };
        let blanks = before.saturating_sub(length);
        Writer::new(self, digits.into_bytes(), negative, blanks, before, after).run()
    }

    fn write_roman(&self, text: &str) -> String {
        let mut out = String::new();
        for item in &self.items {
            match item {
                Item::Roman(case) => {
                    let text = match case {
                        Case::Lower => text.to_lowercase(),
                        _ => text.to_string(),
                    };
                    if self.fill {
                        out.push_str(&text);
                    } else {
                        out.push_str(&format!("{text:>15}"));
                    }
                }
                Item::Character(character) => out.push(*character),
                _ => {}
            }
        }
        out
    }
}

/// A number to be written.
pub trait Number {
    /// Rounded to a whole number; none: it is too large, or no number.
    fn whole(&self) -> Option<i64>;
    /// As `1.23e+05`, with so many digits after the point; none: it is no finite number.
    fn scientific(&self, after: usize) -> Option<String>;
    /// Times a power of ten, with so many digits after the point or as many as it is precise to: that text, and how many
    /// they are.
    fn fixed(&self, shift: usize, after: usize) -> (String, usize);
}

/// A number from 1 to 3999 in Roman numerals.
fn roman(number: i64) -> Option<String> {
    const SIGNS: [(i64, &str); 13] = [
        (1000, "M"),
        (900, "CM"),
        (500, "D"),
        (400, "CD"),
        (100, "C"),
        (90, "XC"),
        (50, "L"),
        (40, "XL"),
        (10, "X"),
        (9, "IX"),
        (5, "V"),
        (4, "IV"),
        (1, "I"),
    ];
    if !(1..=3999).contains(&number) {
        return None;
    }
    let mut rest = number;
    let mut out = String::new();
    for (value, sign) in SIGNS {
        while rest >= value {
            out.push_str(sign);
            rest -= value;
        }
    }
    Some(out)
}

/// Writes the digits of a number into a pattern.
struct Writer<'a> {
    pattern: &'a Pattern,
    sign_place: Option<SignPlace>,
    /// The digits and the point.
    digits: Vec<u8>,
    /// The next of them.
    at: usize,
    negative: bool,
    /// Places before the first digit.
    blanks: usize,
    /// The places that have been passed.
    place: usize,
    /// Places for digits, and one for the sign if it has no blank to stand in.
    places: usize,
    /// Behind this one nothing is written, if places are not filled up.
    last: Option<usize>,
    sign_written: bool,
    brackets: bool,
    /// A digit was written: separators are written, too.
    in_number: bool,
    after: usize,
    out: String,
}

impl<'a> Writer<'a> {
    fn new(
        pattern: &'a Pattern,
        digits: Vec<u8>,
        negative: bool,
        blanks: usize,
        before: usize,
        after: usize,
    ) -> Self {
        let mut brackets = pattern.brackets;
        let sign_written = if pattern.plus || pattern.minus {
            !pattern.plus || pattern.minus
        } else {
            if pattern.fill && !negative {
                brackets = false;
            }
            !negative && pattern.fill && pattern.sign.is_none()
        };
        // Zeros at the end are left out, but for those that a 0 asks for.
        let last = (pattern.fill && pattern.has_point)
            .then(|| last_relevant(&digits))
            .flatten()
            .map(|last| match pattern.zeros_end.checked_sub(blanks) {
                Some(kept) if kept > 0 => last.max((digits.len() - 1).min(kept)),
                _ => last,
            });
        // An S behind all digits of a pattern without a point is behind the number.
        let sign_place = match pattern.sign {
            Some(SignPlace::Before) if pattern.places_before_sign == before => Some(SignPlace::After),
            place => place,
        };
        let places = (before + after).saturating_sub(1) + usize::from(!sign_written && blanks == 0);
        Writer {
            pattern,
            sign_place,
            digits,
            at: 0,
            negative,
            blanks,
            place: 0,
            places,
            last,
            sign_written,
            brackets,
            in_number: false,
            after,
            out: String::new(),
        }
    }

    fn run(mut self) -> String {
        for item in &self.pattern.items {
            match item {
                Item::Nine | Item::Zero | Item::Point => self.digit(*item),
                Item::Comma | Item::Group => {
                    if self.in_number {
                        self.out.push(',');
                    } else {
                        self.blank();
                    }
                }
                // Without a locale the symbol is a space.
                Item::Currency => self.out.push(' '),
                Item::Ordinal(case) => {
                    if self.digits.first() != Some(&b'#') && !self.negative && !self.pattern.has_point {
                        let number = String::from_utf8_lossy(&self.digits).into_owned();
                        self.out.push_str(&ordinal_suffix(&number, *case));
                    }
                }
                Item::Minus if self.negative => self.out.push('-'),
                Item::Plus if !self.negative => self.out.push('+'),
                Item::Minus | Item::Plus => self.blank(),
                Item::PlusMinus => self.out.push(self.sign()),
                Item::Character(character) => self.out.push(*character),
                Item::Sign | Item::Brackets | Item::Roman(_) | Item::Shift | Item::Exponent | Item::Fill => {}
            }
        }
        self.out
    }

    fn sign(&self) -> char {
        if self.negative { '-' } else { '+' }
    }

    fn blank(&mut self) {
        if !self.pattern.fill {
            self.out.push(' ');
        }
    }

    /// The zero before a point, for which there is a place but no 0 in the pattern.
    fn is_lone_zero(&self) -> bool {
        self.pattern.first_zero.is_none()
            && self.at == 0
            && self.digits.first() == Some(&b'0')
            && self.after != 0
    }

    /// Nothing but a point is left of what is behind the point.
    fn ends_in_point(&self) -> bool {
        self.last.is_some_and(|last| self.digits.get(last) == Some(&b'.'))
    }

    fn digit(&mut self, item: Item) {
        let first_zero = self.pattern.first_zero;
        self.in_number = false;
        let begins = self.place >= self.blanks || first_zero == Some(self.place);
        if !self.sign_written && begins && (!self.is_lone_zero() || self.ends_in_point()) {
            match self.sign_place {
                Some(SignPlace::Before) => {
                    let sign = self.sign();
                    self.out.push(sign);
                    self.sign_written = true;
                }
                Some(SignPlace::After) => {}
                None => {
                    match (self.negative, self.brackets) {
                        (true, true) => self.out.push('<'),
                        (true, false) => self.out.push('-'),
                        (false, true) => self.out.push(' '),
                        (false, false) => self.blank(),
                    }
                    self.sign_written = true;
                }
            }
        }
        let zero_reached = first_zero.is_some_and(|first| first <= self.place);
        if self.place < self.blanks && !zero_reached {
            self.blank();
        } else if self.place < self.blanks {
            self.out.push('0');
            self.in_number = true;
        } else {
            match self.digits.get(self.at) {
                Some(b'.') if !self.ends_in_point() || self.pattern.fill => self.out.push('.'),
                Some(b'.') => {}
                Some(digit) => {
                    let is_cut = self.last.is_some_and(|last| self.at > last) && item != Item::Zero;
                    if !is_cut && self.is_lone_zero() {
                        if !self.pattern.fill {
                            self.out.push(' ');
                        } else if self.ends_in_point() {
                            self.out.push('0');
                        }
                    } else if !is_cut {
                        self.out.push(char::from(*digit));
                        self.in_number = true;
                    }
                }
                None => {}
            }
            if self.at < self.digits.len() {
                self.at += 1;
            }
        }
        let mut end = self.places + usize::from(self.blanks > 0) + usize::from(self.pattern.has_point);
        if self.last.is_some_and(|last| last == self.at) {
            end = self.place;
        }
        if self.place + 1 == end {
            if self.sign_written && self.brackets {
                self.out.push(if self.negative { '>' } else { ' ' });
            } else if self.sign_place == Some(SignPlace::After) {
                let sign = self.sign();
                self.out.push(sign);
            }
        }
        self.place += 1;
    }
}

/// The last digit behind the point that is no zero, or the point.
fn last_relevant(digits: &[u8]) -> Option<usize> {
    let point = digits.iter().position(|digit| *digit == b'.')?;
    let behind = digits[point + 1..].iter().rposition(|digit| *digit != b'0');
    Some(behind.map_or(point, |at| point + 1 + at))
}
