//! The vocabulary of SQS that [Requeue](https://docs.rs/requeue) and its embedded SQS share: names
//! of queues, message attributes, limits, the clock. It knows neither retries nor a client.
//!
//! Do not depend on this crate but on `requeue`, which re-exports all of it in its module `queue`.

mod arn;
mod attribute;
mod clock;
mod limits;
mod url;

pub use arn::{InvalidQueueArn, QueueArn};
pub use attribute::{Attribute, AttributeValue, message_bytes};
pub use clock::{Clock, epoch_millis};
pub use limits::{MAX_BATCH_BYTES, MAX_BATCH_ENTRIES, MAX_VISIBILITY, MAX_WAIT};
pub use url::{InvalidQueueUrl, QueueUrl};
