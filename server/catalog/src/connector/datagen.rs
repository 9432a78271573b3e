//! `connector = 'datagen'`: `fields.<column>.<option>`, by the type of the column.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, StringArray};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Field, Int64Type, TimeUnit};
use millrace_generator::datagen::{Column, Datagen, Values};
use millrace_generator::random::Zipf;
use millrace_postgres::error::{SqlError, SqlResult, SqlState};
use millrace_postgres::types::{parse, type_name};

use super::options::{Given, invalid, length};
use super::{Made, is_given};
use crate::column::ColumnDef;

/// The range of random numbers where none is given.
const MIN_DEFAULT: i64 = 0;
const MAX_DEFAULT: i64 = 1_000;
const LETTERS_DEFAULT: u64 = 10;
const LETTERS_MAX: u64 = 1_000;
const RANKS_MAX: u64 = 1_000_000_000;
const EXPONENT_MAX: f64 = 10.0;
const MICROS_PER_DAY: i64 = 86_400_000_000;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Sequence,
    Random,
    OneOf,
    Zipf,
}

const KINDS: [(&str, Kind); 4] = [
    ("sequence", Kind::Sequence),
    ("random", Kind::Random),
    ("one_of", Kind::OneOf),
    ("zipf", Kind::Zipf),
];

/// What a column's type lets one do with whole numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Whole {
    Number,
    Time,
    Day,
}

pub(super) fn source(given: &mut Given<'_>, columns: &[ColumnDef], rows: Option<u64>) -> SqlResult<Made> {
    let seed = given.seed()?;
    let mut positions = vec![];
    let mut made = vec![];
    for (position, column) in columns.iter().enumerate().filter(|(_, column)| is_given(column)) {
        let mut options = Options {
            given,
            field: &column.field,
        };
        let values = options.values()?;
        made.push(Column {
            field: Field::new(column.field.name(), column.field.data_type().clone(), true),
            values,
            seed: options.seed()?.unwrap_or(seed),
        });
        positions.push(position);
    }
    Ok((Arc::new(Datagen::new(made, rows)), positions))
}

/// The options of one column.
struct Options<'a, 'b> {
    given: &'a mut Given<'b>,
    field: &'a Field,
}

impl<'b> Options<'_, 'b> {
    fn name(&self, option: &str) -> String {
        format!("fields.{}.{option}", self.field.name())
    }

    fn text(&mut self, option: &str) -> Option<&'b str> {
        let name = self.name(option);
        self.given.text(&name)
    }

    fn seed(&mut self) -> SqlResult<Option<u64>> {
        let name = self.name("seed");
        self.given.number(&name, 0..=u64::MAX)
    }

    fn whole(&self) -> Option<Whole> {
        match self.field.data_type() {
            DataType::Int16 | DataType::Int32 | DataType::Int64 => Some(Whole::Number),
            DataType::Timestamp(..) => Some(Whole::Time),
            DataType::Date32 => Some(Whole::Day),
            _ => None,
        }
    }

    fn values(&mut self) -> SqlResult<Values> {
        let name = self.name("kind");
        let kind = self.given.one_of(&name, &KINDS)?;
        let is_time = matches!(self.whole(), Some(Whole::Time | Whole::Day));
        match kind.unwrap_or(if is_time { Kind::Sequence } else { Kind::Random }) {
            Kind::Sequence => self.sequence(),
            Kind::Random => self.random(),
            Kind::OneOf => {
                let values = self.list()?;
                let values = values.ok_or_else(|| self.given.missing(&self.name("values"), "'a, b, c'"))?;
                Ok(Values::OneOf(values))
            }
            Kind::Zipf => self.zipf(),
        }
    }

    fn sequence(&mut self) -> SqlResult<Values> {
        let whole = match (self.whole(), self.field.data_type()) {
            (Some(whole), _) => whole,
            (None, DataType::Utf8 | DataType::Float32 | DataType::Float64 | DataType::Decimal128(..)) => {
                Whole::Number
            }
            _ => return Err(self.unsuitable("sequence")),
        };
        let default = match whole {
            Whole::Number => 1,
            Whole::Time => super::start()?,
            Whole::Day => super::start()? / MICROS_PER_DAY,
        };
        let start = self.value("start", whole)?.unwrap_or(default);
        let step = self.step("step", whole)?;
        let step = step.unwrap_or(if whole == Whole::Time { 1_000_000 } else { 1 });
        let end = self.value("end", whole)?;
        if let Some(end) = end
            && (step == 0 || (end < start) != (step < 0) && end != start)
        {
            let (name, why) = (self.name("end"), "steps from the start do not lead there");
            return Err(invalid(&name, &end.to_string(), why));
        }
        let jitter = self.step("jitter", whole)?.unwrap_or_default();
        let jitter = u64::try_from(jitter).map_err(|_| {
            invalid(
                &self.name("jitter"),
                &jitter.to_string(),
                "it must not be negative",
            )
        })?;
        Ok(Values::Sequence {
            start,
            step,
            end,
            jitter,
        })
    }

    fn random(&mut self) -> SqlResult<Values> {
        if let Some(whole) = self.whole() {
            let (min, max) = (self.value("min", whole)?, self.value("max", whole)?);
            let (min, max) = match whole {
                Whole::Number => (min.unwrap_or(MIN_DEFAULT), max.unwrap_or(MAX_DEFAULT)),
                Whole::Time | Whole::Day => {
                    let needed = |name: &str| self.given.missing(&self.name(name), "a time");
                    (
                        min.ok_or_else(|| needed("min"))?,
                        max.ok_or_else(|| needed("max"))?,
                    )
                }
            };
            self.ordered(min <= max)?;
            return Ok(Values::Whole { min, max });
        }
        match self.field.data_type() {
            DataType::Boolean => Ok(Values::Truth),
            DataType::Float32 | DataType::Float64 | DataType::Decimal128(..) => {
                let (min, max) = (self.real("min")?, self.real("max")?);
                let (min, max) = (
                    min.unwrap_or(MIN_DEFAULT as f64),
                    max.unwrap_or(MAX_DEFAULT as f64),
                );
                self.ordered(min <= max)?;
                Ok(Values::Real { min, max })
            }
            DataType::Utf8 if type_name(self.field) != "jsonb" && type_name(self.field) != "json" => {
                let name = self.name("length");
                let length = self
                    .given
                    .number(&name, 1..=LETTERS_MAX)?
                    .unwrap_or(LETTERS_DEFAULT);
                Ok(Values::Letters(usize::try_from(length).unwrap_or(usize::MAX)))
            }
            _ => Err(self.unsuitable("random")),
        }
    }

    fn zipf(&mut self) -> SqlResult<Values> {
        let of = self.list()?;
        let name = self.name("n");
        let ranks = match &of {
            Some(values) => values.len() as u64,
            None => {
                if !matches!(self.whole(), Some(Whole::Number))
                    && !matches!(self.field.data_type(), DataType::Utf8)
                {
                    return Err(self.unsuitable("zipf"));
                }
                let ranks = self.given.number(&name, 1..=RANKS_MAX)?;
                ranks.ok_or_else(|| self.given.missing(&name, "how many ranks there are"))?
            }
        };
        let exponent = self.real("exponent")?.unwrap_or(1.0);
        if !(0.0..=EXPONENT_MAX).contains(&exponent) {
            let why = format!("it must be a number from 0 to {EXPONENT_MAX}");
            return Err(invalid(&self.name("exponent"), &exponent.to_string(), &why));
        }
        Ok(Values::Ranked {
            zipf: Zipf::new(ranks, exponent),
            of,
        })
    }

    /// The values of a list, as the column's type has them.
    fn list(&mut self) -> SqlResult<Option<ArrayRef>> {
        let Some(text) = self.text("values") else {
            return Ok(None);
        };
        let texts: StringArray = text.split(',').map(|value| Some(value.trim())).collect();
        let values = parse::column(self.field, &texts);
        let values = values.map_err(|cell| invalid(&self.name("values"), text, &cell.error.message))?;
        Ok(Some(values))
    }

    /// A value of the column's type as a whole number.
    fn value(&mut self, option: &str, whole: Whole) -> SqlResult<Option<i64>> {
        let Some(text) = self.text(option) else {
            return Ok(None);
        };
        let name = self.name(option);
        let number = Field::new("", DataType::Int64, false);
        let field = if whole == Whole::Number {
            &number
        } else {
            self.field
        };
        let read = parse::value(field, Some(text)).and_then(|value| {
            let value = match value.data_type() {
                DataType::Timestamp(_, zone) => {
                    cast(&value, &DataType::Timestamp(TimeUnit::Microsecond, zone.clone()))
                        .and_then(|value| cast(&value, &DataType::Int64))
                }
                DataType::Date32 => {
                    cast(&value, &DataType::Int32).and_then(|value| cast(&value, &DataType::Int64))
                }
                _ => cast(&value, &DataType::Int64),
            };
            value.map_err(millrace_postgres::from_internal::arrow)
        });
        let value = read.map_err(|error| invalid(&name, text, &error.message))?;
        Ok(Some(value.as_primitive::<Int64Type>().value(0)))
    }

    /// The distance from one value to another.
    fn step(&mut self, option: &str, whole: Whole) -> SqlResult<Option<i64>> {
        let Some(text) = self.text(option) else {
            return Ok(None);
        };
        let distance = match whole {
            Whole::Number => text
                .trim()
                .parse()
                .map_err(|_| "it must be a whole number".to_owned()),
            Whole::Time => length(text),
            Whole::Day => length(text).map(|micros| micros / MICROS_PER_DAY),
        };
        distance
            .map(Some)
            .map_err(|why| invalid(&self.name(option), text, &why))
    }

    fn real(&mut self, option: &str) -> SqlResult<Option<f64>> {
        let Some(text) = self.text(option) else {
            return Ok(None);
        };
        let number = text.trim().parse().ok().filter(|number: &f64| number.is_finite());
        number
            .map(Some)
            .ok_or_else(|| invalid(&self.name(option), text, "it must be a number"))
    }

    fn ordered(&self, is_ordered: bool) -> SqlResult<()> {
        if is_ordered {
            return Ok(());
        }
        let message = format!(
            "option \"{}\" is less than \"{}\"",
            self.name("max"),
            self.name("min")
        );
        Err(SqlError::new(SqlState::InvalidParameterValue, message))
    }

    fn unsuitable(&self, kind: &str) -> SqlError {
        SqlError::new(
            SqlState::InvalidParameterValue,
            format!(
                "kind '{kind}' is not possible for column \"{}\" of type {}",
                self.field.name(),
                type_name(self.field)
            ),
        )
        .with_hint(format!(
            "Kind 'one_of' with \"{}\" is possible for all types.",
            self.name("values")
        ))
    }
}
