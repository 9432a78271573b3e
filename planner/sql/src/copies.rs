//! Names of columns that a query has twice: `SELECT 1 AS x, 2 AS x`. DataFusion wants the columns of a relation to have
//! distinct names, PostgreSQL refuses only to read such a column by its name. So the second is called after the first with
//! a mark in it that no client writes, and that none sees.

/// Stands between the name and the number of the copy. It takes no place where it is printed.
const MARK: char = '\u{2060}';

/// The name under which a plan knows a further column called `name`.
pub fn copy(name: &str, number: usize) -> String {
    format!("{name}{MARK}{number}")
}

/// What the column is called that a plan knows under this name.
pub fn original(name: &str) -> &str {
    name.split(MARK).next().unwrap_or(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_copy_is_called_as_the_first() {
        assert_ne!(copy("x", 1), "x");
        assert_ne!(copy("x", 1), copy("x", 2));
        assert_eq!(original(&copy("x", 12)), "x");
        assert_eq!(original("x_1"), "x_1");
    }
}
