//! Statements about secrets. A value is printed as stars.

use std::fmt::{self, Display, Formatter};

use crate::ast::{AlterSecret, CreateSecret, STARS};
use crate::display::when;

impl Display for CreateSecret {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let exists = when(self.if_not_exists, "IF NOT EXISTS ");
        write!(f, "CREATE SECRET {exists}{} AS {STARS}", self.name)
    }
}

impl Display for AlterSecret {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let exists = when(self.if_exists, "IF EXISTS ");
        write!(f, "ALTER SECRET {exists}{} AS {STARS}", self.name)
    }
}
