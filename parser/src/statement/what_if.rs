//! `WHAT IF (cores = 8, disk = 'x2', ..)` of EXPLAIN.

use sqlparser::tokenizer::{Location, Token};

use crate::ast::{Speed, WhatIf};
use crate::error::Failure;
use crate::reader::{Parse, Reader};

/// More cores or disks than this are a slip of the finger.
const DEVICES_MAX: usize = 100_000;

/// After `WHAT IF`.
pub(super) fn parse(reader: &mut Reader<'_>) -> Parse<WhatIf> {
    let mut changes = WhatIf::default();
    let mut seen: Vec<String> = vec![];
    reader.parenthesised(|reader| {
        let at = reader.here();
        let name = reader.option_name()?.value.to_lowercase();
        if seen.contains(&name) {
            return Err(Failure::invalid(
                format!("WHAT IF option \"{name}\" specified more than once"),
                at,
            ));
        }
        reader.need_token(&Token::Eq)?;
        let value_at = reader.here();
        let value = reader.plain_value()?;
        match name.as_str() {
            "cores" => changes.cores = Some(count(&name, &value, value_at)?),
            "disks" => changes.disks = Some(count(&name, &value, value_at)?),
            "disk" => changes.disk = Some(speed(&name, &value, value_at)?),
            "network" => changes.network = Some(speed(&name, &value, value_at)?),
            "memory" => changes.memory = Some(value),
            "input" if value.eq_ignore_ascii_case("memory") => changes.input_in_memory = true,
            "input" => {
                return Err(bad_value(&name, &value, value_at).with_hint(
                    "The only value is 'memory': the run is predicted without reading and \
                     decoding its input.",
                ));
            }
            _ => {
                return Err(
                    Failure::invalid(format!("unrecognized WHAT IF option \"{name}\""), at)
                        .with_hint("The options are cores, disks, disk, network, memory and input."),
                );
            }
        }
        seen.push(name);
        Ok(())
    })?;
    Ok(changes)
}

fn count(name: &str, value: &str, at: Location) -> Parse<usize> {
    (value.parse().ok())
        .filter(|count| (1..=DEVICES_MAX).contains(count))
        .ok_or_else(|| {
            bad_value(name, value, at).with_hint(format!("Give a whole number from 1 to {DEVICES_MAX}."))
        })
}

fn speed(name: &str, value: &str, at: Location) -> Parse<Speed> {
    let value = value.to_lowercase();
    if value == "infinite" {
        return Ok(Speed::Infinite);
    }
    value
        .strip_prefix('x')
        .and_then(|factor| factor.parse().ok())
        .filter(|factor: &f64| factor.is_finite() && *factor > 0.0)
        .map(Speed::Times)
        .ok_or_else(|| {
            bad_value(name, &value, at).with_hint(
                "Give a factor: 'x2' is twice as fast, 'x0.5' is half as fast, and 'infinite' takes no time.",
            )
        })
}

fn bad_value(name: &str, value: &str, at: Location) -> Failure {
    Failure::invalid(
        format!("invalid value for \"{name}\" in WHAT IF: \"{value}\""),
        at,
    )
}
