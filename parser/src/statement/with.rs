//! `WITH (..)` and `FORMAT .. ENCODE ..`, which streams, tables, views and sinks share.

use sqlparser::tokenizer::Token;

use crate::ast::{FormatEncode, Options};
use crate::reader::{Parse, Reader};

/// `[WITH (key = value, ..)]`.
pub(super) fn options(reader: &mut Reader<'_>) -> Parse<Options> {
    if reader.at(&["WITH"]) && reader.peek_nth_token_ref(1).token == Token::LParen {
        reader.need(&["WITH"])?;
        return Ok(Options(reader.option_list()?));
    }
    Ok(Options::default())
}

/// `[FORMAT f ENCODE e [(options)]]`.
pub(super) fn format(reader: &mut Reader<'_>) -> Parse<Option<FormatEncode>> {
    if !reader.take(&["FORMAT"]) {
        return Ok(None);
    }
    let format = reader.ident()?.value.to_lowercase();
    reader.need(&["ENCODE"])?;
    let encode = reader.ident()?.value.to_lowercase();
    let options = if reader.peek_token_ref().token == Token::LParen {
        reader.option_list()?
    } else {
        Vec::new()
    };
    Ok(Some(FormatEncode {
        format,
        encode,
        options: Options(options),
    }))
}
