//! The texts of the 22 queries: `tpchgen`'s templates with the parameters of the specification's validation runs.

use tpchgen::q_and_a::queries::query;

use crate::Failure;

/// Parameters of each query, in order (TPC-H specification 3.0, section 2.4, "Query Validation"). Query 11's fraction
/// is divided by the scale factor, as the specification asks.
const PARAMETERS: [&[&str]; 22] = [
    &["90"],
    &["15", "BRASS", "EUROPE"],
    &["BUILDING", "1995-03-15"],
    &["1993-07-01"],
    &["ASIA", "1994-01-01"],
    &["1994-01-01", "0.06", "24"],
    &["FRANCE", "GERMANY"],
    &["BRAZIL", "AMERICA", "ECONOMY ANODIZED STEEL"],
    &["green"],
    &["1993-10-01"],
    &["GERMANY", "0.0001"],
    &["MAIL", "SHIP", "1994-01-01"],
    &["special", "requests"],
    &["1995-09-01"],
    &["1996-01-01"],
    &[
        "Brand#45",
        "MEDIUM POLISHED",
        "49",
        "14",
        "23",
        "45",
        "19",
        "3",
        "36",
        "9",
    ],
    &["Brand#23", "MED BOX"],
    &["300"],
    &["Brand#12", "Brand#23", "Brand#34", "1", "10", "20"],
    &["forest", "1994-01-01", "CANADA"],
    &["SAUDI ARABIA"],
    &["13", "31", "23", "29", "30", "18", "17"],
];

/// What the specification's "return the first n rows" is in SQL, for the queries that have it. Where the order leaves
/// ties, the grouping key breaks them, so that there is one answer.
const FIRST_ROWS: [(usize, &str); 5] = [
    (2, " limit 100"),
    (3, ", l_orderkey limit 10"),
    (10, ", c_custkey limit 20"),
    (18, ", o_orderkey limit 100"),
    (21, " limit 100"),
];

/// The text of a query, 1 to 22.
pub(super) fn text(number: usize, scale: f64) -> Result<String, Failure> {
    let template = i32::try_from(number).ok().and_then(query);
    let (Some(template), Some(parameters)) = (template, PARAMETERS.get(number.wrapping_sub(1))) else {
        return Err(format!("there is no query {number}").into());
    };
    // A precision that PostgreSQL has not.
    let mut text = template.replace(" day (3)", " day");
    // Query 15 makes a view first: here it is part of the query.
    let statements: Vec<&str> = text.split(';').map(str::trim).collect();
    if let [view, select, ..] = statements.as_slice()
        && let Some(view) = view.strip_prefix("create view ")
    {
        let view = view.replacen(" as\n", " as (", 1);
        text = format!("with {view})\n{select}").replace(":s", "0");
    }
    // From the last to the first: `:10` begins like `:1`.
    for (index, parameter) in parameters.iter().enumerate().rev() {
        let parameter = match (number, index) {
            (11, 1) => format!("{:.10}", parameter.parse::<f64>()? / scale),
            _ => (*parameter).to_owned(),
        };
        text = text.replace(&format!(":{}", index + 1), &parameter);
    }
    let text = text.trim().trim_end_matches(';');
    let more = FIRST_ROWS.iter().find(|(query, _)| *query == number);
    Ok(format!("{text}{}", more.map_or("", |(_, more)| more)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_parameter_is_in_its_place() {
        for number in 1..=22 {
            let text = text(number, 0.01).unwrap();
            assert!(!text.contains(':'), "{text}");
            assert!(!text.contains(';'), "{text}");
        }
        assert!(
            text(16, 1.0)
                .unwrap()
                .contains("p_size in (49, 14, 23, 45, 19, 3, 36, 9)")
        );
        assert!(text(11, 0.01).unwrap().contains("* 0.0100000000"));
        assert!(
            text(15, 1.0)
                .unwrap()
                .starts_with("with revenue0 (supplier_no, total_revenue) as (")
        );
        assert!(text(0, 1.0).is_err() && text(23, 1.0).is_err());
    }
}
