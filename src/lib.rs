//! Requeue: the retry layer that SQS and Lambda lack.

pub mod classify;
mod clock;
mod config;
mod disposition;
#[cfg(feature = "embedded")]
pub mod embedded;
mod failure;
mod gate;
mod handler;
#[cfg(feature = "http")]
pub mod http;
mod lambda;
mod message;
pub mod policy;
mod processor;
pub mod queue;
mod report;
mod result_ext;
mod settle;
mod state;
mod telemetry;
mod wire;

pub use clock::{Clock, Sampler};
pub use config::{Config, InvalidConfig};
pub use disposition::{DeadLetterReason, Deferral, Delay, Disposition, ReleaseReason, Wait};
pub use failure::{Evidence, Failure, FailureClass};
pub use handler::Handler;
pub use lambda::{Error, InvocationError, SqsEvent, respond, run, run_with};
pub use message::{Attempt, Body, Message, Raw, Record};
pub use processor::{BatchProcessor, Limits, Settings};
pub use report::{Outcome, Report, Settlement, Unreportable};
pub use result_ext::ResultExt;
pub use wire::Wrap;
