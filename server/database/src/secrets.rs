//! The values of secrets: sealed in the catalog, and opened with the key that the server was started with.
//!
//! A value is looked up each time that something connects, so that what ALTER SECRET says counts from the next connection on. Which object
//! uses which value is written down for the audit the first time.

use std::collections::BTreeMap;
use std::sync::{Arc, Weak};

use arc_swap::ArcSwap;
use millrace_auth::seal::{SealError, Sealed, SealingKey};
use millrace_catalog::secret::{SecretDef, Vault};
use millrace_catalog::{CatalogSnapshot, Definition, Object};
use millrace_postgres::error::{SqlError, SqlResult, SqlState};
use millrace_storage::{ObjectId, ObjectKind};
use parking_lot::Mutex;

/// See the module.
pub struct Secrets {
    key: Option<SealingKey>,
    /// Objects of the catalog have the vault in turn.
    catalog: Weak<ArcSwap<CatalogSnapshot>>,
    /// By each object, of each secret: the value that it has used last.
    used: Mutex<BTreeMap<(ObjectId, String), Sealed>>,
}

/// Why there is no value of a secret to be had.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Missing {
    Key,
    Value,
    Opened(SealError),
}

impl Missing {
    /// In a word, for lists.
    fn name(self) -> &'static str {
        match self {
            Missing::Key => "no key",
            Missing::Value => "no value",
            Missing::Opened(SealError::OtherKey) => "other key",
            Missing::Opened(SealError::Damaged) => "damaged",
        }
    }

    fn error(self, secret: &Object) -> SqlError {
        let message = format!("{} cannot be used", secret.described());
        let error = SqlError::new(
            SqlState::ObjectNotInPrerequisiteState,
            match self {
                Missing::Key => format!("{message}: the server was started without the key of its secrets"),
                Missing::Value => format!("{message}: it has no value, as a backup has none"),
                Missing::Opened(why) => format!("{message}: {why}"),
            },
        );
        match self {
            Missing::Key => error.with_hint(KEY_HINT),
            Missing::Opened(SealError::OtherKey) => error.with_hint(
                "Start the server with the key that it had, or give the value again: ALTER SECRET .. AS '..'.",
            ),
            Missing::Value | Missing::Opened(_) => {
                error.with_hint("Give the value again: ALTER SECRET .. AS '..'.")
            }
        }
    }
}

const KEY_HINT: &str = "Set secrets_key_file in the configuration, or MILLRACE_SECRETS_KEY in the environment, and start the server again. \
                        `openssl rand -hex 32` makes a key.";

impl Secrets {
    pub(crate) fn new(key: Option<SealingKey>, catalog: &Arc<ArcSwap<CatalogSnapshot>>) -> Self {
        Secrets {
            key,
            catalog: Arc::downgrade(catalog),
            used: Mutex::default(),
        }
    }

    /// A value as the catalog keeps it for the secret of this identity.
    ///
    /// # Errors
    /// The server has no key.
    pub fn seal(&self, id: ObjectId, value: &[u8]) -> SqlResult<Sealed> {
        match &self.key {
            Some(key) => Ok(key.seal(id.0, value)),
            None => Err(SqlError::new(
                SqlState::ObjectNotInPrerequisiteState,
                "a secret cannot be kept: the server was started without a key for secrets",
            )
            .with_hint(KEY_HINT)),
        }
    }

    /// Whether a secret can be used: `ok`, or why not.
    pub fn state(&self, id: ObjectId, def: &SecretDef) -> &'static str {
        self.value(id, def).map_or_else(Missing::name, |_| "ok")
    }

    fn value(&self, id: ObjectId, def: &SecretDef) -> Result<(Vec<u8>, Sealed), Missing> {
        let sealed = def.value.as_ref().ok_or(Missing::Value)?;
        let key = self.key.as_ref().ok_or(Missing::Key)?;
        let opened = key.open(id.0, sealed).map_err(Missing::Opened)?;
        Ok((opened, sealed.clone()))
    }

    /// Says of each secret that cannot be used why, and what uses it.
    pub(crate) fn say_what_is_missing(&self, catalog: &CatalogSnapshot) {
        for object in catalog.objects() {
            let Definition::Secret(def) = &object.definition else {
                continue;
            };
            let Err(missing) = self.value(object.id, def) else {
                continue;
            };
            let users = catalog.dependents(&[object.id].into());
            let users: Vec<String> = users.iter().map(|user| user.described()).collect();
            let error = missing.error(object);
            tracing::error!(used_by = users.join(", "), hint = error.hint, "{}", error.message);
        }
    }

    /// Writes down that an object uses a value, if it did not before.
    fn note(&self, secret: &Object, by: &str, sealed: Sealed) {
        let before = self
            .used
            .lock()
            .insert((secret.id, by.to_owned()), sealed.clone());
        if before.as_ref() != Some(&sealed) {
            note(secret, by, "00000");
        }
    }
}

fn note(secret: &Object, by: &str, code: &str) {
    tracing::info!(
        target: "millrace::audit",
        event = "secret",
        database = secret.database,
        secret = secret.display_name(),
        used_by = by,
        code,
    );
}

impl Vault for Secrets {
    fn open(&self, id: ObjectId, by: &str) -> SqlResult<Vec<u8>> {
        let catalog = self.catalog.upgrade().map(|catalog| catalog.load_full());
        let found = catalog.as_ref().and_then(|catalog| catalog.object(id));
        let found = found.filter(|object| object.kind == ObjectKind::Secret);
        let Some((object, Definition::Secret(def))) = found.map(|object| (object, &object.definition)) else {
            return Err(SqlError::new(
                SqlState::UndefinedObject,
                "the secret does not exist, or the transaction that makes it has not committed",
            ));
        };
        match self.value(id, def) {
            Ok((value, sealed)) => {
                self.note(object, by, sealed);
                Ok(value)
            }
            Err(missing) => {
                let error = missing.error(object);
                note(object, by, error.code.code());
                Err(error)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use millrace_catalog::rights::Rights;

    fn catalog(value: Option<Sealed>) -> Arc<ArcSwap<CatalogSnapshot>> {
        let object = Object {
            id: ObjectId(7),
            kind: ObjectKind::Secret,
            database: "millrace".into(),
            schema: "public".into(),
            name: "pw".into(),
            sql: String::new(),
            comment: None,
            created_at_ms: 0,
            depends: vec![],
            definition: Definition::Secret(Arc::new(SecretDef { value })),
            rights: Rights::default(),
        };
        Arc::new(ArcSwap::from_pointee(CatalogSnapshot::new(0, [Arc::new(object)])))
    }

    fn key(byte: &str) -> SealingKey {
        SealingKey::parse(&byte.repeat(32)).unwrap()
    }

    #[test]
    fn a_value_is_had_with_its_key_only() {
        let none = catalog(None);
        let sealed = Secrets::new(Some(key("aa")), &none).seal(ObjectId(7), b"hidden");
        let catalog = catalog(Some(sealed.unwrap()));
        let of = |key: Option<SealingKey>| Secrets::new(key, &catalog);
        assert_eq!(
            of(Some(key("aa"))).open(ObjectId(7), "stream s").unwrap(),
            b"hidden"
        );
        for (key, catalog, says) in [
            (None, &catalog, "without the key"),
            (Some(key("bb")), &catalog, "another key"),
            (Some(key("aa")), &none, "no value"),
        ] {
            let error = Secrets::new(key, catalog)
                .open(ObjectId(7), "stream s")
                .unwrap_err();
            assert_eq!(error.code, SqlState::ObjectNotInPrerequisiteState);
            assert!(
                error.message.contains("secret pw") && error.message.contains(says),
                "{error:?}"
            );
            assert!(error.hint.is_some() && !format!("{error:?}").contains("hidden"));
        }
        let unknown = of(Some(key("aa"))).open(ObjectId(8), "stream s").unwrap_err();
        assert_eq!(unknown.code, SqlState::UndefinedObject);
        let error = of(None).seal(ObjectId(7), b"hidden").unwrap_err();
        assert!(error.hint.unwrap().contains("secrets_key_file"));
    }
}
