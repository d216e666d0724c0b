//! Which messages call the same downstream service.

use std::hash::{DefaultHasher, Hash, Hasher};

/// The messages that call the same downstream service: a pause or an open circuit keeps back those
/// of its scope, and none of another scope.
///
/// ```
/// use requeue::Scope;
/// assert_eq!(Scope::of("tenant 7"), Scope::of(&"tenant 7".to_owned()));
/// assert_ne!(Scope::of("tenant 7"), Scope::default());
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Scope(pub(super) Option<u64>);

impl Scope {
    /// By a key such as the host or the tenant, of which only a hash is kept. The default is the
    /// scope of all messages where none has a key: a [`Worker`](crate::Worker) that has only met it
    /// takes it for that of the next ones too.
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
