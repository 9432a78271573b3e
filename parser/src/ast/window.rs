//! EXCLUDE of a window's frame, for which sqlparser has no node.

/// Begins the texts that stand for an EXCLUDE. No text of a user does: the character means nothing.
const MARK: &str = "\u{10fffd}exclude ";

/// Which rows of its frame a window function leaves out: `EXCLUDE ..`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Exclusion {
    /// `EXCLUDE CURRENT ROW`.
    CurrentRow,
    /// `EXCLUDE GROUP`: the row, and those that ORDER BY cannot tell from it.
    Group,
    /// `EXCLUDE TIES`: those that ORDER BY cannot tell from the row, but not the row.
    Ties,
}

impl Exclusion {
    /// All of them.
    pub const ALL: [Exclusion; 3] = [Exclusion::CurrentRow, Exclusion::Group, Exclusion::Ties];

    /// What stands behind EXCLUDE.
    pub fn words(self) -> &'static str {
        match self {
            Exclusion::CurrentRow => "current row",
            Exclusion::Group => "group",
            Exclusion::Ties => "ties",
        }
    }

    /// The text by which the AST says it: `'text' IS NULL` is the first column of PARTITION BY.
    pub fn mark(self) -> String {
        format!("{MARK}{}", self.words())
    }

    /// What such a text says.
    pub fn of_mark(text: &str) -> Option<Exclusion> {
        let words = text.strip_prefix(MARK)?;
        Exclusion::ALL.into_iter().find(|one| one.words() == words)
    }
}
