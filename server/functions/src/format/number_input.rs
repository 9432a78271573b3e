//! `to_number`: a number read by a pattern.

use super::number::{Item, Pattern};

/// The digits of a number with its sign and its point, as PostgreSQL finds them; the value is that, divided by ten for each
/// digit behind `V`.
pub fn digits(pattern: &Pattern, text: &str) -> String {
    let mut reader = Reader {
        pattern,
        text: text.chars().collect(),
        at: 0,
        sign: None,
        out: String::new(),
        before: 0,
        after: 0,
        point: false,
        is_first: true,
    };
    reader.run();
    let sign = if reader.sign == Some('-') { "-" } else { "" };
    format!("{sign}{}", reader.out)
}

struct Reader<'a> {
    pattern: &'a Pattern,
    text: Vec<char>,
    at: usize,
    sign: Option<char>,
    out: String,
    before: usize,
    after: usize,
    point: bool,
    is_first: bool,
}

impl Reader<'_> {
    fn peek(&self) -> Option<char> {
        self.text.get(self.at).copied()
    }

    fn run(&mut self) {
        let pattern = self.pattern;
        for item in &pattern.items {
            if self.at >= self.text.len() {
                return;
            }
            match *item {
                Item::Nine | Item::Zero | Item::Point => {
                    self.digit(*item);
                    self.at += 1;
                }
                Item::Comma | Item::Group => {
                    // Before the first digit nothing is grouped, if places are not filled up.
                    if !(self.is_first && self.pattern.fill) && self.peek() == Some(',') {
                        self.at += 1;
                    }
                }
                Item::Currency => self.skip(1),
                Item::Ordinal(_) => self.skip(2),
                Item::Minus | Item::Plus | Item::PlusMinus => match self.peek() {
                    Some(sign @ ('-' | '+')) if self.sign.is_none() => {
                        if sign == '-' || *item != Item::Minus {
                            self.sign = Some(sign);
                        }
                        self.at += 1;
                    }
                    _ => self.skip(1),
                },
                Item::Character(_) => self.at += 1,
                Item::Sign | Item::Brackets | Item::Roman(_) | Item::Shift | Item::Exponent | Item::Fill => {}
            }
        }
    }

    /// Passes characters that are not part of a number.
    fn skip(&mut self, most: usize) {
        for _ in 0..most {
            match self.peek() {
                Some(other) if !matches!(other, '0'..='9' | '.' | ',' | '+' | '-') => self.at += 1,
                _ => return,
            }
        }
    }

    fn digit(&mut self, item: Item) {
        if self.peek() == Some(' ') {
            self.at += 1;
        }
        let seen = self.before + self.after;
        if self.sign.is_none() && item != Item::Point && seen == 0 {
            let brackets = self.pattern.brackets;
            match self.peek() {
                Some('-') => self.take_sign('-'),
                Some('<') if brackets => self.take_sign('-'),
                Some('+') => self.take_sign('+'),
                _ => {}
            }
        }
        let mut is_read = false;
        match self.peek() {
            Some(digit @ '0'..='9') => {
                if self.point && self.after == self.pattern.after {
                    return;
                }
                self.out.push(digit);
                if self.point {
                    self.after += 1;
                } else {
                    self.before += 1;
                }
                is_read = true;
            }
            Some('.') if self.pattern.has_point && !self.point => {
                self.out.push('.');
                self.point = true;
                is_read = true;
            }
            _ => {}
        }
        self.is_first = false;
        if self.sign.is_some() || self.before + self.after == 0 {
            return;
        }
        let lone = self.pattern.sign.is_some();
        if lone && is_read {
            if let Some(sign @ ('-' | '+')) = self.text.get(self.at + 1).copied() {
                self.sign = Some(sign);
                self.at += 1;
            }
        } else if !is_read
            && !lone
            && (self.pattern.plus || self.pattern.minus)
            && let Some(sign @ ('-' | '+')) = self.peek()
        {
            self.sign = Some(sign);
        }
    }

    fn take_sign(&mut self, sign: char) {
        self.sign = Some(sign);
        self.at += 1;
    }
}
