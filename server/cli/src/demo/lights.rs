//! What changed of late: a cell of a view is lit when its value is another than the last time. Pure: whoever calls says what
//! time it is.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::table::ResultTable;

/// For how long a change is bright, and for how long it is seen at all.
const BRIGHT: Duration = Duration::from_millis(300);
const SEEN: Duration = Duration::from_millis(1200);

/// How a cell is lit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Light {
    /// It changed just now.
    Bright,
    /// It changed a moment ago.
    Fading,
    /// It did not change of late.
    Off,
}

/// The values of one view's rows and when each changed. A row is known by its first column.
#[derive(Debug, Default)]
pub struct Lights {
    /// `None` before the first look.
    rows: Option<BTreeMap<String, Vec<Cell>>>,
}

#[derive(Debug)]
struct Cell {
    value: String,
    /// `None` where it is what it was at the first look.
    changed: Option<Duration>,
}

impl Lights {
    /// Takes in what the view holds `now`. What it held at the first look did not change.
    pub fn observe(&mut self, table: &ResultTable, now: Duration) {
        let before = self.rows.take();
        let changed_now = before.is_some().then_some(now);
        let before = before.unwrap_or_default();
        let rows = table.rows.iter().filter_map(|row| {
            let mut values = row.iter().map(|value| value.clone().unwrap_or_default());
            let key = row.first()?.clone().unwrap_or_default();
            let old = before.get(&key);
            let cells = (0..).zip(&mut values).map(|(column, value)| {
                let old = old.and_then(|cells| cells.get::<usize>(column));
                let changed = match old {
                    Some(old) if old.value == value => old.changed,
                    _ => changed_now,
                };
                Cell { value, changed }
            });
            Some((key, cells.collect()))
        });
        self.rows = Some(rows.collect());
    }

    /// How a cell of the row that begins with `key` is lit `now`.
    pub fn light(&self, key: &str, column: usize, now: Duration) -> Light {
        let cells = self.rows.as_ref().and_then(|rows| rows.get(key));
        let changed = cells.and_then(|cells| cells.get(column)?.changed);
        match changed.map(|changed| now.saturating_sub(changed)) {
            Some(age) if age <= BRIGHT => Light::Bright,
            Some(age) if age <= SEEN => Light::Fading,
            _ => Light::Off,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(rows: &[[&str; 2]]) -> ResultTable {
        ResultTable {
            columns: vec!["carrier".into(), "departed".into()],
            rows: rows
                .iter()
                .map(|row| row.iter().map(|value| Some((*value).to_owned())).collect())
                .collect(),
        }
    }

    #[test]
    fn what_changed_is_lit_and_fades() {
        let at = Duration::from_millis;
        let mut lights = Lights::default();
        lights.observe(&table(&[["UA", "1"], ["B6", "2"]]), at(100));
        assert_eq!(lights.light("UA", 1, at(100)), Light::Off);
        // The rows change places; one value changes, and a row comes.
        lights.observe(&table(&[["B6", "3"], ["UA", "1"], ["EV", "1"]]), at(200));
        assert_eq!(lights.light("B6", 1, at(200)), Light::Bright);
        assert_eq!(lights.light("B6", 0, at(200)), Light::Off);
        assert_eq!(lights.light("UA", 1, at(200)), Light::Off);
        assert_eq!(lights.light("EV", 0, at(200)), Light::Bright);
        assert_eq!(lights.light("B6", 1, at(900)), Light::Fading);
        assert_eq!(lights.light("B6", 1, at(1500)), Light::Off);
        // A row that went and came again is new.
        lights.observe(&table(&[["UA", "1"]]), at(1600));
        lights.observe(&table(&[["UA", "1"], ["B6", "3"]]), at(1700));
        assert_eq!(lights.light("B6", 1, at(1700)), Light::Bright);
        assert_eq!(lights.light("none", 7, at(1700)), Light::Off);
    }
}
