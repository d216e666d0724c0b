//! Scopes: groups of messages that call the same downstream service.

use std::hash::{DefaultHasher, Hash, Hasher};

/// The messages that call the same downstream service. A pause or an open circuit defers only
/// messages of its own scope.
///
/// ```
/// use requeue::Scope;
/// assert_eq!(Scope::of("tenant 7"), Scope::of(&"tenant 7".to_owned()));
/// assert_ne!(Scope::of("tenant 7"), Scope::default());
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Scope(pub(super) Option<u64>);

impl Scope {
    /// The scope of a key such as a host or a tenant; only a hash of the key is kept. The default
    /// is the scope of all messages without a key. A [`Worker`](crate::Worker) that has met only
    /// that scope expects it of the next messages too.
    #[must_use]
    pub fn of(key: &(impl Hash + ?Sized)) -> Self {
        Self(Some(hash(key)))
    }
}

pub(super) fn hash(key: &(impl Hash + ?Sized)) -> u64 {
    let mut hasher = DefaultHasher::new();
    key.hash(&mut hasher);
    hasher.finish()
}
