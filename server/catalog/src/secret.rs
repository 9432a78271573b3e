//! Secrets that the catalog keeps: values under a name, encrypted, for the options of connectors.

use std::fmt;
use std::sync::Arc;

use millrace_auth::seal::Sealed;
use millrace_postgres::error::{SqlError, SqlResult, SqlState};
use millrace_storage::ObjectId;
use serde::{Deserialize, Serialize};

/// The property that has the value: a backup leaves it out.
pub const VALUE: &str = "value";

/// What there is of a secret.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct SecretDef {
    /// Its value; none: the server was restored from a backup, and nobody has given it again.
    pub value: Option<Sealed>,
}

/// Opens secrets.
pub trait Vault: Send + Sync {
    /// The value of a secret as it is now. `by`: what uses it, for the audit.
    ///
    /// # Errors
    /// There is no such secret, it has no value, or the key is not there or is another.
    fn open(&self, id: ObjectId, by: &str) -> SqlResult<Vec<u8>>;
}

/// How the definition of something that connects gets at the values of its secrets. It is no part of the definition.
#[derive(Clone, Default)]
pub struct Secrets(Option<(Arc<dyn Vault>, Arc<str>)>);

impl Secrets {
    /// Those in a vault, used by what is called so.
    pub fn new(vault: Arc<dyn Vault>, by: &str) -> Self {
        Secrets(Some((vault, by.into())))
    }

    /// The value of a secret as it is now.
    ///
    /// # Errors
    /// As [`Vault::open`].
    pub fn open(&self, id: ObjectId) -> SqlResult<Vec<u8>> {
        match &self.0 {
            Some((vault, by)) => vault.open(id, by),
            None => Err(SqlError::new(
                SqlState::ObjectNotInPrerequisiteState,
                "secrets cannot be used here",
            )),
        }
    }
}

/// Two definitions that differ only by who opens their secrets are the same.
impl PartialEq for Secrets {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Eq for Secrets {}

impl fmt::Debug for Secrets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secrets(..)")
    }
}
