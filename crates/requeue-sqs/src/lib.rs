//! The parts of SQS that [Requeue](https://docs.rs/requeue) and its embedded SQS share: the trait
//! of a queue with its records and errors, names of queues, message attributes, limits, the clock.
//! This crate knows neither retries nor a client.
//!
//! Do not depend on this crate but on `requeue`, which re-exports all of it in its module `queue`.

/// Prints an error by `Debug` as by `Display`: Rust prints the `Debug` of an error that `main` returns.
#[doc(hidden)]
#[macro_export]
macro_rules! debug_as_display {
    ($($error:ty),+) => {$(
        impl ::std::fmt::Debug for $error {
            fn fmt(&self, f: &mut ::std::fmt::Formatter<'_>) -> ::std::fmt::Result {
                ::std::fmt::Display::fmt(self, f)
            }
        }
    )+};
}

/// The `Debug` of types that hold code, or values that may be secret: their names, and these values.
#[doc(hidden)]
#[macro_export]
macro_rules! debug_by_name {
    ($name:ident $(<$($of:tt),+>)? $(; |$it:ident| $($field:ident: $value:expr),+)?) => {
        impl $(<$($of),+>)? ::std::fmt::Debug for $name $(<$($of),+>)? {
            fn fmt(&self, f: &mut ::std::fmt::Formatter<'_>) -> ::std::fmt::Result {
                $(let $it = self;)?
                f.debug_struct(stringify!($name))
                    $($(.field(stringify!($field), &$value))+)?
                    .finish_non_exhaustive()
            }
        }
    };
}

mod port;
mod record;
mod error;
mod principal;
mod arn;
mod url;
mod attribute;
mod limits;
mod clock;
#[doc(hidden)]
pub mod digest;
pub mod printable;

pub use arn::{Arn, InvalidQueueArn, QueueArn};
pub use attribute::{Attribute, AttributeValue, is_attribute_name, message_bytes};
pub use clock::{Clock, epoch_millis};
pub use error::{
    CallError, CallErrorKind, Confirmation, EntryError, MESSAGE_TOO_LONG, code_with_text,
};
pub use limits::{
    Delay, MAX_BATCH_BYTES, MAX_BATCH_ENTRIES, MAX_DELAY, MAX_EVENT, MAX_IN_FLIGHT,
    MAX_MAPPING_BATCH, MAX_QUEUE_NAME, MAX_RECEIVES, MAX_RETENTION, MAX_RUN, MAX_VISIBILITY,
    MAX_WAIT, whole_secs,
};
pub use port::{Description, Outgoing, Queue, ReceiveRequest, Source};
pub use principal::{InvalidPrincipal, Principal};
pub use record::Record;
pub use url::{InvalidQueueUrl, QueueUrl};
