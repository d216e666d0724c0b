//! Requeue: the retry layer that SQS and Lambda lack.

pub mod classify;
mod clock;
mod disposition;
mod failure;
#[cfg(feature = "http")]
pub mod http;
pub mod policy;
pub mod queue;
mod result_ext;
mod state;

pub use clock::{Clock, Sampler};
pub use disposition::{DeadLetterReason, Deferral, Delay, Disposition, ReleaseReason, Wait};
pub use failure::{Evidence, Failure, FailureClass};
pub use result_ext::ResultExt;
