//! What of a statement nobody is to see: passwords and other secrets, wherever it is shown to others or written down.

mod values;

use sqlparser::tokenizer::{Location, Token};

use crate::source::Source;
use crate::tokens::{is_word, tokenize};

use super::{AlterOperation, ExplainTarget, Options, RoleChange, RoleOption, Statement};

/// The last words of names whose values nobody is to see, and that connectors refuse.
const SECRET: [&str; 6] = [
    "password",
    "secret",
    "passphrase",
    "secret_key",
    "secret_access_key",
    "access_token",
];

/// What stands in the place of a secret.
pub(crate) const STARS: &str = "'********'";

/// Whether the value of an option or a setting of this name is a password or another secret itself.
pub fn is_secret_name(name: &str) -> bool {
    let name = name.to_lowercase();
    let last = name.rsplit('.').next().unwrap_or_default();
    SECRET.contains(&last)
}

/// A text without the passwords and the queries of its URLs: `http://ann:********@host/path?********`.
pub fn without_passwords(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find("://") {
        let (before, authority) = rest.split_at(at + 3);
        shown.push_str(before);
        let end = authority.find(|character: char| {
            matches!(character, '/' | '?' | '#' | '\'' | '"') || character.is_whitespace()
        });
        let (authority, after) = authority.split_at(end.unwrap_or(authority.len()));
        let password = authority
            .rsplit_once('@')
            .and_then(|(user, host)| Some((user.split_once(':')?.0, host)));
        match password {
            Some((user, host)) => shown.push_str(&format!("{user}:********@{host}")),
            None => shown.push_str(authority),
        }
        // A query may have a token.
        let end = after
            .find(|character: char| matches!(character, '\'' | '"' | ',' | ')') || character.is_whitespace())
            .unwrap_or(after.len());
        match after[..end].find('?') {
            Some(query) => {
                shown.push_str(&after[..=query]);
                shown.push_str("********");
                rest = &after[end..];
            }
            None => rest = after,
        }
    }
    shown + rest
}

/// A text without the string behind each word PASSWORD.
fn without_literals(text: &str) -> String {
    let source = Source::new(text);
    let is_there = text.to_ascii_lowercase().contains("password");
    let Some(tokens) = is_there.then(|| tokenize(&source).ok()).flatten() else {
        return text.to_owned();
    };
    let (mut shown, mut from) = (String::new(), Location { line: 1, column: 1 });
    for pair in tokens.windows(2) {
        let is_string = matches!(
            pair[1].token,
            Token::SingleQuotedString(_)
                | Token::EscapedStringLiteral(_)
                | Token::UnicodeStringLiteral(_)
                | Token::DollarQuotedString(_)
        );
        if is_string && is_word(Some(&pair[0]), "PASSWORD") {
            shown.push_str(source.slice(from, pair[1].span.start));
            shown.push_str(STARS);
            from = pair[1].span.end;
        }
    }
    match tokens.last() {
        Some(last) => shown + source.slice(from, last.span.end),
        None => shown,
    }
}

impl Statement {
    /// Whether a secret stands in its text, and `Display` prints it with stars in its place.
    fn has_secret(&self) -> bool {
        let has = |options: &Options| options.0.iter().any(|option| is_secret_name(&option.name.value));
        let in_role = |options: &[RoleOption]| {
            let mut options = options.iter();
            options.any(|option| matches!(option, RoleOption::Password(Some(_))))
        };
        match self {
            Statement::CreateRole(create) => in_role(&create.options),
            Statement::AlterRole(alter) => match &alter.change {
                RoleChange::Options(options) => in_role(options),
                RoleChange::Set { name, .. } => is_secret_name(name),
                _ => false,
            },
            Statement::AlterSystemSet(set) => is_secret_name(&set.name),
            Statement::SetVariable(set) => is_secret_name(&set.name),
            Statement::CreateSecret(_) | Statement::AlterSecret(_) => true,
            Statement::CreateStream(create) => create.options.have_secret(create.format.as_ref()),
            Statement::CreateTable(create) => create.options.have_secret(create.format.as_ref()),
            Statement::CreateSink(create) => create.options.have_secret(create.format.as_ref()),
            Statement::CreateExternalTable(create) => has(&create.options),
            Statement::AlterRelation(alter) => alter
                .operations
                .iter()
                .any(|operation| matches!(operation, AlterOperation::SetOptions(options) if has(options))),
            Statement::Explain(explain) => match &explain.target {
                ExplainTarget::Statement(inner) => inner.has_secret(),
                _ => false,
            },
            _ => false,
        }
    }

    /// The statement, whose text this is, as others may see it.
    pub fn shown(&self, text: &str) -> String {
        let said = match self {
            // One that is only known to be refused: its text tells where a password may be.
            Statement::Sql(_) => without_literals(text),
            _ if self.has_secret() => self.to_string(),
            _ => text.to_owned(),
        };
        let said = match self.has_options() {
            true => values::starred(&said, values::of_options),
            false => said,
        };
        let said = match said.to_ascii_lowercase().contains("set_config") {
            true => values::starred(&said, values::of_set_config),
            false => said,
        };
        without_passwords(&said)
    }

    /// Whether options of a connector may stand in its text.
    fn has_options(&self) -> bool {
        match self {
            Statement::CreateStream(_)
            | Statement::CreateTable(_)
            | Statement::CreateSink(_)
            | Statement::CreateExternalTable(_)
            | Statement::AlterRelation(_) => true,
            Statement::Explain(explain) => match &explain.target {
                ExplainTarget::Statement(inner) => inner.has_options(),
                _ => false,
            },
            _ => false,
        }
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn no_secret_is_shown() {
        for sql in [
            "PREPARE p AS ALTER ROLE ann PASSWORD 'abracadabra' LOGIN",
            "PREPARE p AS ALTER ROLE ann LOGIN PASSWORD\n  E'abra\\'cadabra'",
            "CREATE USER ann PASSWORD 'abracadabra'",
            "ALTER ROLE ann ENCRYPTED PASSWORD E'abracadabra' LOGIN",
            "ALTER ROLE ann SET password = 'abracadabra'",
            "ALTER ROLE ann IN DATABASE d SET my.secret TO abracadabra",
            "ALTER SYSTEM SET password = 'abracadabra'",
            "SET my.password = 'abracadabra'",
            "SET LOCAL ssl.passphrase TO abracadabra",
            "CREATE SECRET pw AS 'abracadabra'",
            "ALTER SECRET pw AS 'abracadabra'",
            "CREATE SINK s FROM t WITH (connector = 'postgres', password = 'abracadabra')",
            "CREATE STREAM s (a INT) WITH (connector = 'kafka', properties.sasl.password = 'abracadabra')",
            "CREATE TABLE t (a INT) WITH (connector = 's3', s3.secret_access_key = 'abracadabra')",
            "ALTER STREAM s SET (properties.sasl.password = 'abracadabra')",
            "CREATE EXTERNAL TABLE e (a INT) STORED AS CSV LOCATION 'x' OPTIONS ('aws.secret_access_key' 'abracadabra')",
            "CREATE EXTERNAL TABLE e (a INT) STORED AS CSV LOCATION 's3://ann:abracadabra@host/x'",
            "EXPLAIN CREATE SINK s FROM t WITH (password = 'abracadabra')",
            "CREATE SINK s FROM t WITH (connector = 'kafka') FORMAT PLAIN ENCODE AVRO (schema.registry.password = 'abracadabra')",
            "CREATE STREAM s (a INT) WITH (connector = 'kafka', properties.sasl.jaas.config = 'x abracadabra')",
            "CREATE SINK s FROM t WITH (connector = 'webhook', url = 'https://h/x?access_token=abracadabra')",
            "ALTER STREAM s SET (pasword = 'abracadabra')",
            "CREATE EXTERNAL TABLE e (a INT) STORED AS CSV LOCATION 'x' OPTIONS ('aws.sas' 'abracadabra')",
            "SELECT set_config('my.password', 'abracadabra', false)",
            "SELECT pg_catalog.set_config('api_token', E'abracadabra', true), 1",
            "COPY (SELECT set_config('my.secret.key', 'abracadabra', false)) TO STDOUT",
            "CREATE STREAM s (a INT) WITH (url = 'http://ann:abracadabra@a, https://b, http://c:abracadabra@d/x')",
        ] {
            let parsed = crate::parse(sql).expect("it parses").remove(0);
            let shown = parsed.statement.shown(&parsed.text);
            assert!(
                !shown.contains("cadabra") && shown.contains("********"),
                "{shown}"
            );
        }
    }

    #[test]
    fn everything_else_is() {
        for sql in [
            "SELECT 'http://a/b:c@d', 'x@y:z'",
            "CREATE STREAM s (a INT) WITH (url = 'http://ann@host:80/x@y:z')",
            "ALTER ROLE ann SET jit = 'off'",
            "SELECT set_config('search_path', 's', false)",
            "CREATE SINK s FROM t WITH (connector = 'postgres', password = SECRET pw, hostname = 'db', port = 5432)",
            "CREATE STREAM s (a INT DEFAULT (1)) WITH (connector = 'kafka', topic = 'x') FORMAT PLAIN ENCODE JSON",
            "ALTER ROLE ann PASSWORD NULL",
        ] {
            let parsed = crate::parse(sql).expect("it parses").remove(0);
            assert_eq!(parsed.statement.shown(&parsed.text), sql);
        }
    }
}
