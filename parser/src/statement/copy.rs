//! `COPY`, with the options in PostgreSQL's list and in the spelling before 9.0.

use sqlparser::tokenizer::{Location, Token};

use super::{postgres, subscribe};
use crate::ast::{
    CopyColumns, CopyDirection, CopyEnd, CopyFormat, CopyHeader, CopyOptions, CopySource, CopyStatement,
    Statement,
};
use crate::error::Failure;
use crate::reader::{Parse, Reader};

/// After `COPY`.
pub(super) fn parse(reader: &mut Reader<'_>) -> Parse<Statement> {
    let mut options = CopyOptions::default();
    if reader.take(&["BINARY"]) {
        options.format = CopyFormat::Binary;
    }
    let source = source(reader)?;
    let direction = direction(reader, &source)?;
    let at = reader.here();
    if reader.take(&["USING", "DELIMITERS"]) || reader.take(&["DELIMITERS"]) {
        options.delimiter = Some(character(reader, "delimiter")?);
    }
    let _ = reader.take(&["WITH"]);
    if reader.take_token(&Token::LParen) {
        reader.list(|reader| listed_option(reader, &mut options))?;
        reader.need_token(&Token::RParen)?;
    } else {
        while bare_option(reader, &mut options)? {}
    }
    let filter = match direction {
        CopyDirection::From(_) if reader.take(&["WHERE"]) => Some(reader.expr()?),
        _ => None,
    };
    check(&options, &direction, at)?;
    Ok(Statement::Copy(Box::new(CopyStatement {
        source,
        direction,
        options,
        filter,
    })))
}

fn source(reader: &mut Reader<'_>) -> Parse<CopySource> {
    if !reader.take_token(&Token::LParen) {
        let name = reader.name()?;
        let columns = match reader.peek_token_ref().token {
            Token::LParen => reader.parenthesised(|reader| reader.ident())?,
            _ => Vec::new(),
        };
        return Ok(CopySource::Relation { name, columns });
    }
    let inner = reader.rest_of_parenthesis()?;
    let mut inner = reader.over(inner);
    let source = if inner.take(&["SUBSCRIBE"]) {
        CopySource::Subscribe(Box::new(subscribe::parse(&mut inner)?))
    } else {
        CopySource::Query(Box::new(postgres::parse_for_rows(&mut inner)?))
    };
    inner.end()?;
    Ok(source)
}

fn direction(reader: &mut Reader<'_>, source: &CopySource) -> Parse<CopyDirection> {
    let at = reader.here();
    if reader.take(&["TO"]) {
        return Ok(CopyDirection::To(end(reader)?));
    }
    reader.need(&["FROM"])?;
    if !matches!(source, CopySource::Relation { .. }) {
        return Err(Failure::invalid(
            "COPY FROM needs the name of a relation, not a query",
            at,
        ));
    }
    Ok(CopyDirection::From(end(reader)?))
}

fn end(reader: &mut Reader<'_>) -> Parse<CopyEnd> {
    if reader.take_one_of(&["STDIN", "STDOUT"]).is_some() {
        Ok(CopyEnd::Client)
    } else if reader.take(&["PROGRAM"]) {
        Ok(CopyEnd::Program(reader.string()?))
    } else {
        let failure = reader.unexpected("STDIN, STDOUT or a file's name in single quotes");
        reader.string().map(CopyEnd::File).map_err(|_| failure)
    }
}

/// One option of the list in parentheses.
fn listed_option(reader: &mut Reader<'_>, options: &mut CopyOptions) -> Parse<()> {
    let at = reader.here();
    let name = reader.option_name()?.value.to_lowercase();
    match name.as_str() {
        "format" => options.format = format(reader)?,
        "header" => {
            let matching = reader.take(&["MATCH"]);
            options.header = if matching {
                CopyHeader::Match
            } else {
                header(reader.boolean()?)
            };
        }
        "freeze" => options.freeze = reader.boolean()?,
        "delimiter" => options.delimiter = Some(character(reader, "delimiter")?),
        "quote" => options.quote = Some(character(reader, "quote")?),
        "escape" => options.escape = Some(character(reader, "escape")?),
        "null" => options.null = Some(reader.string()?),
        "default" => options.default = Some(reader.string()?),
        "encoding" => options.encoding = Some(reader.plain_value()?),
        "force_quote" => options.force_quote = columns(reader, true)?,
        "force_not_null" => options.force_not_null = columns(reader, true)?,
        "force_null" => options.force_null = columns(reader, true)?,
        _ => return Err(Failure::invalid(format!("option \"{name}\" not recognized"), at)),
    }
    Ok(())
}

/// One option of the old spelling; false if there is none.
fn bare_option(reader: &mut Reader<'_>, options: &mut CopyOptions) -> Parse<bool> {
    if reader.take(&["BINARY"]) {
        options.format = CopyFormat::Binary;
    } else if reader.take(&["CSV"]) {
        options.format = CopyFormat::Csv;
    } else if reader.take(&["HEADER"]) {
        options.header = CopyHeader::Present;
    } else if reader.take(&["FREEZE"]) {
        options.freeze = true;
    } else if reader.take(&["FORCE", "QUOTE"]) {
        options.force_quote = columns(reader, false)?;
    } else if reader.take(&["FORCE", "NOT", "NULL"]) {
        options.force_not_null = columns(reader, false)?;
    } else if reader.take(&["FORCE", "NULL"]) {
        options.force_null = columns(reader, false)?;
    } else if let Some(word) =
        reader.take_one_of(&["DELIMITER", "DELIMITERS", "NULL", "QUOTE", "ESCAPE", "ENCODING"])
    {
        let _ = reader.take(&["AS"]);
        match word {
            "NULL" => options.null = Some(reader.string()?),
            "QUOTE" => options.quote = Some(character(reader, "quote")?),
            "ESCAPE" => options.escape = Some(character(reader, "escape")?),
            "ENCODING" => options.encoding = Some(reader.string()?),
            _ => options.delimiter = Some(character(reader, "delimiter")?),
        }
    } else {
        return Ok(false);
    }
    Ok(true)
}

fn format(reader: &mut Reader<'_>) -> Parse<CopyFormat> {
    let at = reader.here();
    let name = reader.plain_value()?;
    match name.as_str() {
        "text" => Ok(CopyFormat::Text),
        "csv" => Ok(CopyFormat::Csv),
        "binary" => Ok(CopyFormat::Binary),
        _ => Err(
            Failure::invalid(format!("COPY format \"{name}\" not recognized"), at)
                .with_hint("The formats are text, csv and binary."),
        ),
    }
}

fn header(present: bool) -> CopyHeader {
    if present {
        CopyHeader::Present
    } else {
        CopyHeader::Absent
    }
}

fn character(reader: &mut Reader<'_>, what: &str) -> Parse<char> {
    let at = reader.here();
    let text = reader.string()?;
    match (text.len(), text.chars().next()) {
        (1, Some(c)) => Ok(c),
        _ => Err(Failure::invalid(
            format!("COPY {what} must be a single one-byte character"),
            at,
        )),
    }
}

fn columns(reader: &mut Reader<'_>, parenthesised: bool) -> Parse<CopyColumns> {
    if reader.take_token(&Token::Mul) {
        return Ok(CopyColumns::All);
    }
    let names = match parenthesised {
        true => reader.parenthesised(|reader| reader.ident())?,
        false => reader.list(|reader| reader.ident())?,
    };
    Ok(CopyColumns::Some(names))
}

/// The combinations that PostgreSQL refuses.
fn check(options: &CopyOptions, direction: &CopyDirection, at: Location) -> Parse<()> {
    let csv = options.format == CopyFormat::Csv;
    let from = matches!(direction, CopyDirection::From(_));
    let (delimiter, quote, null) = (options.delimiter(), options.quote(), options.null());
    let problem = if options.format == CopyFormat::Binary
        && (options.delimiter.is_some() || options.null.is_some())
    {
        "cannot specify DELIMITER or NULL in BINARY mode"
    } else if options.format == CopyFormat::Binary && options.header != CopyHeader::Absent {
        "cannot specify HEADER in BINARY mode"
    } else if matches!(delimiter, '\n' | '\r') {
        "COPY delimiter cannot be newline or carriage return"
    } else if null.contains(['\n', '\r']) {
        "COPY null representation cannot use newline or carriage return"
    } else if !csv
        && (delimiter.is_ascii_lowercase() || delimiter.is_ascii_digit() || "\\.".contains(delimiter))
    {
        "COPY delimiter cannot be a lower-case letter, a digit, a period or a backslash"
    } else if !csv && options.quote.is_some() {
        "COPY quote available only in CSV mode"
    } else if !csv && options.escape.is_some() {
        "COPY escape available only in CSV mode"
    } else if !csv && options.force_quote != CopyColumns::None {
        "COPY force quote available only in CSV mode"
    } else if from && options.force_quote != CopyColumns::None {
        "COPY force quote only available using COPY TO"
    } else if !csv && (options.force_null != CopyColumns::None || options.force_not_null != CopyColumns::None)
    {
        "COPY force null and force not null available only in CSV mode"
    } else if !from
        && (options.force_null != CopyColumns::None || options.force_not_null != CopyColumns::None)
    {
        "COPY force null and force not null only available using COPY FROM"
    } else if csv && delimiter == quote {
        "COPY delimiter and quote must be different"
    } else if null.contains(delimiter) {
        "COPY delimiter must not appear in the NULL specification"
    } else if csv && null.contains(quote) {
        "CSV quote character must not appear in the NULL specification"
    } else if !from && options.header == CopyHeader::Match {
        "cannot use \"match\" with HEADER in COPY TO"
    } else {
        return Ok(());
    };
    Err(Failure::invalid(problem, at))
}

#[cfg(test)]
mod tests {
    use crate::ast::*;
    use crate::parse_one;

    fn copy(sql: &str) -> CopyStatement {
        match parse_one(sql) {
            Ok(Statement::Copy(copy)) => *copy,
            other => panic!("{sql}: {other:?}"),
        }
    }

    #[test]
    fn old_and_new_spelling_mean_the_same() {
        let new =
            copy("COPY t (a, b) FROM STDIN (FORMAT csv, HEADER, DELIMITER '|', NULL 'x', FORCE_NULL (a))");
        let old = copy("COPY t (a, b) FROM STDIN WITH DELIMITER AS '|' NULL AS 'x' CSV HEADER FORCE NULL a");
        assert_eq!(new, old);
        assert_eq!(new.options.delimiter(), '|');
        assert_eq!(copy("COPY t FROM STDIN CSV").options.null(), "");
        assert_eq!(
            copy("COPY t FROM stdin WITH (DELIMITER E'\\t')")
                .options
                .delimiter,
            Some('\t')
        );
    }

    #[test]
    fn psql_sends_these() {
        assert_eq!(
            copy("COPY  t FROM STDIN with csv header").options.header,
            CopyHeader::Present
        );
        assert!(matches!(
            copy("COPY  ( select 1 ) TO STDOUT ").source,
            CopySource::Query(_)
        ));
        assert!(matches!(
            copy("COPY (SUBSCRIBE TO mv) TO STDOUT").source,
            CopySource::Subscribe(_)
        ));
    }

    #[test]
    fn combinations_that_make_no_sense_are_refused() {
        for (sql, part) in [
            ("COPY t FROM STDIN (QUOTE '\"')", "only in CSV"),
            ("COPY t FROM STDIN (DELIMITER 'ab')", "single one-byte"),
            ("COPY t FROM STDIN (FORMAT xml)", "not recognized"),
            ("COPY t FROM STDIN (COLOUR blue)", "\"colour\" not recognized"),
            ("COPY (SELECT 1) FROM STDIN", "name of a relation"),
            (
                "COPY t TO STDOUT (FORMAT csv, DELIMITER '\"')",
                "must be different",
            ),
        ] {
            let error = parse_one(sql).expect_err(sql);
            assert!(error.message.contains(part), "{sql}: {error}");
            assert!(error.position.is_some(), "{sql}");
        }
    }
}
