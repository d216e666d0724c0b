//! The types that a body can be read into.

use std::any::Any;
use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

use bytes::Bytes;
use serde::de::DeserializeOwned;

use crate::delivery::Delivery;
use crate::failure::{Evidence, Failure, FailureClass};

/// A type that can be read from a message body:
///
/// | type | body |
/// |---|---|
/// | a type of your own that serde can deserialize | JSON of that shape; any other is non-retryable |
/// | `String` | any text, byte for byte |
/// | [`Raw`] | any text, byte for byte, without a copy of it |
pub trait Body: Sized + Send + 'static {
    /// Reads the body as first delivered.
    fn read(raw: Raw) -> Result<Self, Failure>;
}

impl<T: DeserializeOwned + Send + 'static> Body for T {
    /// The failure names the place where the body does not fit, but not the text there.
    fn read(raw: Raw) -> Result<Self, Failure> {
        // serde would read a `String` only from a JSON string, but here a `String` is any text.
        let mut text = None::<Self>;
        if let Some(text) = (&mut text as &mut dyn Any).downcast_mut::<Option<String>>() {
            *text = Some(raw.to_string());
        }
        if let Some(text) = text {
            return Ok(text);
        }
        serde_json::from_str(&raw).map_err(|error| {
            let place = format_args!(
                "the body does not fit the handler's type (line {}, column {})",
                error.line(),
                error.column()
            );
            Failure::new(FailureClass::NonRetryable, Evidence::Body, place)
        })
    }
}

impl Body for Raw {
    fn read(raw: Raw) -> Result<Self, Failure> {
        Ok(raw)
    }
}

/// The text of a body, byte for byte as first delivered. Cheap to clone.
#[derive(Clone)]
pub struct Raw(Arc<Delivery>);

impl Raw {
    pub(super) fn of(delivery: &Arc<Delivery>) -> Self {
        Self(Arc::clone(delivery))
    }
}

/// For tests of handlers; see [`Message::builder`](super::Message::builder).
impl From<&str> for Raw {
    fn from(text: &str) -> Self {
        Self(Arc::new(Delivery::of_text(text.to_owned())))
    }
}

impl Deref for Raw {
    type Target = str;

    fn deref(&self) -> &str {
        self.0.payload()
    }
}

impl AsRef<[u8]> for Raw {
    fn as_ref(&self) -> &[u8] {
        self.0.payload().as_bytes()
    }
}

impl From<Raw> for Bytes {
    /// Shares the text; nothing is copied.
    fn from(raw: Raw) -> Self {
        Bytes::from_owner(raw)
    }
}

impl AsRef<str> for Raw {
    fn as_ref(&self) -> &str {
        self
    }
}

/// Prints the text unchanged.
impl fmt::Display for Raw {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self)
    }
}

/// Prints the length alone, since the text may be secret.
impl fmt::Debug for Raw {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Raw({} bytes)", self.len())
    }
}
