//! What the server writes of a statement is read again as what it was: statements are put together from parts of others as texts.

use std::path::Path;

use super::planned::statements;

/// A statement as it is held, without the places in the text.
fn held(sql: &str) -> Option<(String, String)> {
    let mut parsed = millrace_parser::parse(sql).ok()?;
    let statement = match parsed.len() {
        1 => parsed.remove(0),
        _ => return None,
    };
    let printed = statement.statement.to_string();
    let debug = format!("{:?}", statement.statement);
    let mut pieces = debug.split("Span(Location(");
    let mut without = pieces.next().unwrap_or_default().to_owned();
    for piece in pieces {
        without.push_str(piece.split_once("))").map_or("", |(_, rest)| rest));
    }
    // Keywords are held as they were written.
    Some((printed, without.to_lowercase()))
}

#[test]
fn statements_are_read_again_as_they_were_written() {
    let mut all = vec![];
    statements(&Path::new(env!("CARGO_MANIFEST_DIR")).join("slt"), &mut all);
    for text in [
        r"''", r"a''", r"''a", r"a''b", r"'''", r"''''", r"\'", r"\\'", r"a\'b''c", r"\", r"\''", "\n''\t",
        "é''",
    ] {
        let literal = text.replace('\'', "''");
        all.push(format!(
            "SELECT v FROM t WHERE v = '{literal}' AND w LIKE '{literal}' ESCAPE '#'"
        ));
        all.push(format!(
            "UPDATE t SET v = v || '{literal}' WHERE v IN ('{literal}', 'x')"
        ));
        all.push(format!(
            "INSERT INTO t VALUES (DEFAULT, ARRAY['{literal}'], '{literal}'::jsonb)"
        ));
    }
    for signs in [
        "- -1",
        "- - v",
        "-(-v)",
        "-(- -1)",
        "1 - -1",
        "a - - - 1",
        "+ -1",
        "~ -1",
        "- ~1",
        "@ -1",
        "NOT NOT a",
        "- -1::int",
        "(-1)::text",
        "-1::text",
    ] {
        all.push(format!("SELECT {signs} FROM t WHERE ({signs}) IS NULL"));
    }
    let mut read = 0;
    let mut wrong = vec![];
    for sql in &all {
        let Some((printed, before)) = held(sql) else {
            continue;
        };
        read += 1;
        match held(&printed) {
            Some((_, after)) if after == before => {}
            // Is not written anywhere.
            _ if sql.starts_with("MERGE") && sql.contains("DO NOTHING") => {}
            // Nobody is told secrets.
            _ if printed.contains("'********'") => {}
            Some(_) => wrong.push(format!("{sql}\n   is written as another: {printed}")),
            None => wrong.push(format!("{sql}\n   is written as none: {printed}")),
        }
    }
    assert!(read > 5_000, "{read} statements of {}", all.len());
    assert!(
        wrong.is_empty(),
        "{} of {read}:\n{}",
        wrong.len(),
        wrong.join("\n")
    );
}
