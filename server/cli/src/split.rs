//! Where a statement ends: text that arrives line by line is cut at the semicolons that end statements, and at no
//! other. Semicolons in strings, quoted names, dollar quotes and comments are part of the text.

/// Collects text and gives out whole statements.
#[derive(Debug, Default)]
pub struct Splitter {
    pending: String,
}

/// Inside what the scan is.
enum Inside {
    Statement,
    Quoted(char),
    /// The whole tag, `$` included.
    DollarQuoted(String),
    LineComment,
    BlockComment(usize),
}

impl Splitter {
    /// Adds text.
    pub fn push(&mut self, text: &str) {
        self.pending.push_str(text);
    }

    /// Whether nothing but white space waits for its semicolon.
    pub fn is_empty(&self) -> bool {
        self.pending.trim().is_empty()
    }

    /// The next whole statement, its semicolon included.
    pub fn next_statement(&mut self) -> Option<String> {
        let end = statement_end(&self.pending)?;
        let rest = self.pending.split_off(end);
        Some(std::mem::replace(&mut self.pending, rest).trim().to_owned())
    }

    /// What is left at the end of the input.
    pub fn finish(self) -> Option<String> {
        let rest = self.pending.trim();
        (!rest.is_empty()).then(|| rest.to_owned())
    }
}

/// The offset behind the first semicolon that ends a statement.
fn statement_end(text: &str) -> Option<usize> {
    let mut inside = Inside::Statement;
    let mut at = 0;
    while let Some(c) = text[at..].chars().next() {
        let rest = &text[at..];
        let mut step = c.len_utf8();
        inside = match inside {
            Inside::Statement if c == ';' => return Some(at + 1),
            Inside::Statement if rest.starts_with("--") => Inside::LineComment,
            Inside::Statement if rest.starts_with("/*") => {
                step = 2;
                Inside::BlockComment(1)
            }
            Inside::Statement if c == '\'' || c == '"' => Inside::Quoted(c),
            Inside::Statement if c == '$' => match dollar_tag(rest) {
                Some(tag) => {
                    step = tag.len();
                    Inside::DollarQuoted(tag.to_owned())
                }
                None => Inside::Statement,
            },
            // A doubled quote leaves and enters again: the same in the end.
            Inside::Quoted(quote) if c == quote => Inside::Statement,
            Inside::DollarQuoted(tag) if rest.starts_with(&tag) => {
                step = tag.len();
                Inside::Statement
            }
            Inside::LineComment if c == '\n' => Inside::Statement,
            Inside::BlockComment(depth) if rest.starts_with("/*") => {
                step = 2;
                Inside::BlockComment(depth + 1)
            }
            Inside::BlockComment(depth) if rest.starts_with("*/") => {
                step = 2;
                if depth == 1 {
                    Inside::Statement
                } else {
                    Inside::BlockComment(depth - 1)
                }
            }
            same => same,
        };
        at += step;
    }
    None
}

/// `$$` or `$name$` at the start of the text; `$1` is a parameter.
fn dollar_tag(text: &str) -> Option<&str> {
    let name = &text[1..];
    let end = name.find('$')?;
    let name = &name[..end];
    let valid = !name.starts_with(|c: char| c.is_ascii_digit())
        && name.chars().all(|c| c.is_alphanumeric() || c == '_');
    valid.then(|| &text[..end + 2])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn split(text: &str) -> Vec<String> {
        let mut splitter = Splitter::default();
        // One character at a time: the result must not depend on where the pieces end.
        let mut statements = Vec::new();
        for c in text.chars() {
            splitter.push(&c.to_string());
            statements.extend(splitter.next_statement());
        }
        statements.extend(splitter.finish());
        statements
    }

    #[test]
    fn semicolons_end_statements_only_where_they_are_sql() {
        assert_eq!(split("select 1; select 2"), ["select 1;", "select 2"]);
        assert_eq!(split("select 'a;''b;';x"), ["select 'a;''b;';", "x"]);
        assert_eq!(split("select \"a;b\"; $1;"), ["select \"a;b\";", "$1;"]);
        assert_eq!(split("do $x$ a; $$ b; $x$; c"), ["do $x$ a; $$ b; $x$;", "c"]);
        assert_eq!(
            split("a -- ;\n; /* ; /* ; */ ; */ b;"),
            ["a -- ;\n;", "/* ; /* ; */ ; */ b;"]
        );
        assert_eq!(split(" \n "), Vec::<String>::new());
    }
}
