//! The scope of a message: which messages share a pause, a circuit and a rate limit. It knows no key, only
//! the hash of one.

use std::fmt;

use sha2::{Digest, Sha256};

/// The messages that call the same downstream service. A pause or an open circuit defers only
/// messages of its own scope.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Scope(pub(crate) Option<[u8; 32]>);

impl Scope {
    /// The scope of a key such as a host or a tenant; only its SHA-256 is kept. The default is the
    /// scope of all messages without a key. If a [`Worker`](crate::Worker) has met only that scope,
    /// it expects that scope of the next messages too.
    pub fn of(key: impl AsRef<[u8]>) -> Self {
        Self(Some(Sha256::digest(key).into()))
    }

    /// The scope of one value of a key within this scope, by the name of the value.
    pub(crate) fn of_key(&self, key: &impl fmt::Display, name: &str) -> Self {
        // A key has no line break, and all hashes have the same length.
        Self::of([self.bytes(), format!("{key}\n{name}").as_bytes()].concat())
    }

    /// Its part of the key of a shared item, the same in each process.
    pub(crate) fn bytes(&self) -> &[u8] {
        self.0.as_ref().map_or(&[], |hash| hash)
    }
}

/// The first eight digits of the key's SHA-256, since the key itself may be secret; `-` for the scope
/// of messages without a key.
impl fmt::Display for Scope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(hash) = &self.0 else { return f.write_str("-") };
        hash[..4].iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}
