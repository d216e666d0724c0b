//! Requeue: the retry layer that SQS and Lambda lack.

mod clock;
mod disposition;
#[cfg(feature = "embedded")]
pub mod embedded;
mod failure;
pub mod policy;
pub mod queue;
mod state;

pub use clock::{Clock, Sampler};
pub use disposition::{DeadLetterReason, Deferral, Delay, Disposition, ReleaseReason, Wait};
pub use failure::{Evidence, Failure, FailureClass};
