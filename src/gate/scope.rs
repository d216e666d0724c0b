//! Scopes: groups of messages that call the same downstream service.

use std::fmt;
use std::hash::{DefaultHasher, Hash, Hasher};

use sha2::{Digest, Sha256};

/// The messages that call the same downstream service. A pause or an open circuit defers only
/// messages of its own scope.
///
/// ```
/// use requeue::Scope;
/// assert_eq!(Scope::of("tenant 7"), Scope::of("tenant 7".to_owned()));
/// assert_ne!(Scope::of("tenant 7"), Scope::default());
/// assert_eq!(Scope::of("tenant 7").to_string().len(), 8);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Scope(pub(super) Option<[u8; 32]>);

impl Scope {
    /// The scope of a key such as a host or a tenant; only its SHA-256 is kept. The default is the
    /// scope of all messages without a key. A [`Worker`](crate::Worker) that has met only that scope
    /// expects it of the next messages too.
    #[must_use]
    pub fn of(key: impl AsRef<[u8]>) -> Self {
        Self(Some(Sha256::digest(key).into()))
    }

    /// Its part of the key of a shared item: the same in each process.
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

pub(super) fn hash(key: &(impl Hash + ?Sized)) -> u64 {
    let mut hasher = DefaultHasher::new();
    key.hash(&mut hasher);
    hasher.finish()
}
