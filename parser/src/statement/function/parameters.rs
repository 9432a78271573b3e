//! The parameters of `CREATE FUNCTION`: `[IN | OUT | INOUT] [name] type [DEFAULT value]`.

use sqlparser::ast::{DataType, Expr, Ident};
use sqlparser::tokenizer::Token;

use crate::error::Failure;
use crate::reader::{Parse, Reader};

/// What is taken, and what is given.
pub(super) struct Parameters {
    /// What a call gives.
    pub parameters: Vec<(Ident, DataType)>,
    /// Of the last of them.
    pub defaults: Vec<Expr>,
    /// `OUT` and `INOUT`.
    pub out: Vec<(Ident, DataType)>,
}

/// All of them, in parentheses.
pub(super) fn listed(reader: &mut Reader<'_>) -> Parse<Parameters> {
    reader.need_token(&Token::LParen)?;
    let mut all = Parameters {
        parameters: vec![],
        defaults: vec![],
        out: vec![],
    };
    if !reader.take_token(&Token::RParen) {
        reader.list(|reader| one(reader, &mut all))?;
        reader.need_token(&Token::RParen)?;
    }
    Ok(all)
}

/// `name type`, or a type alone.
fn one(reader: &mut Reader<'_>, all: &mut Parameters) -> Parse<()> {
    let at = reader.here();
    let (is_in, is_out) = match reader.take_one_of(&["INOUT", "OUT", "VARIADIC", "IN"]) {
        Some("VARIADIC") => {
            let hint = "Take an array.";
            return Err(Failure::unsupported(
                "VARIADIC parameters are not supported",
                at,
                hint,
            ));
        }
        Some("INOUT") => (true, true),
        // `IN OUT` is one word there, too.
        Some("IN") => (true, reader.take(&["OUT"])),
        Some(_) => (false, true),
        None => (true, false),
    };
    // Types of several words, which begin with none that is a name.
    const BEGINNINGS: [&[&str]; 7] = [
        &["DOUBLE", "PRECISION"],
        &["CHARACTER", "VARYING"],
        &["CHAR", "VARYING"],
        &["TIMESTAMP", "WITH"],
        &["TIMESTAMP", "WITHOUT"],
        &["TIME", "WITH"],
        &["TIME", "WITHOUT"],
    ];
    let is_type = BEGINNINGS.iter().any(|words| reader.at(words));
    let is_named = !is_type
        && matches!(reader.peek_nth_token_ref(1).token, Token::Word(_))
        && !is_before_default(reader);
    let given = is_named.then(|| reader.ident()).transpose()?;
    let data_type = reader.parse_data_type()?;
    if is_out {
        let place = all.out.len() + 1;
        let name = given
            .clone()
            .unwrap_or_else(|| Ident::new(format!("column{place}")));
        all.out.push((name, data_type.clone()));
    }
    let at = reader.here();
    let has_default = reader.take(&["DEFAULT"]) || reader.take_token(&Token::Eq);
    if !is_in {
        return match has_default {
            true => Err(Failure::invalid(
                "only input parameters can have default values",
                at,
            )),
            false => Ok(()),
        };
    }
    let place = all.parameters.len() + 1;
    let name = given.unwrap_or_else(|| Ident::with_quote('"', format!("${place}")));
    all.parameters.push((name, data_type));
    if has_default {
        all.defaults.push(reader.expr()?);
    } else if !all.defaults.is_empty() {
        let message = "input parameters after one with a default value must also have defaults";
        return Err(Failure::invalid(message, at));
    }
    Ok(())
}

/// Whether a type is followed by its default.
fn is_before_default(reader: &Reader<'_>) -> bool {
    matches!(&reader.peek_nth_token_ref(1).token, Token::Word(word) if word.value.eq_ignore_ascii_case("default"))
}
