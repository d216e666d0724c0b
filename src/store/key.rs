//! The keys of items.

use std::fmt;

use sha2::{Digest, Sha256};

/// The key of an item: a hash of all its parts. A hash of a short value can be guessed, so a key is
/// no secret, but a table shows no value as such.
///
/// ```
/// use requeue::store::Key;
///
/// assert_ne!(Key::of(["ab", "c"]), Key::of(["a", "bc"]));
/// assert_eq!(Key::of(["a"]).to_string().len(), 64);
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key([u8; 32]);

impl Key {
    /// The key of these parts.
    #[must_use]
    pub fn of(parts: impl IntoIterator<Item = impl AsRef<[u8]>>) -> Self {
        let mut hash = Sha256::new();
        for part in parts {
            let part = part.as_ref();
            hash.update((part.len() as u64).to_le_bytes());
            hash.update(part);
        }
        Self(hash.finalize().into())
    }
}

/// In hexadecimal digits.
impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Key({self})")
    }
}
