//! Requeue is the retry layer that SQS and Lambda lack.
//!
//! Many Lambda functions read from SQS and call a service that limits its rate, has quotas, or is
//! down at times. SQS and Lambda alone retry every failure alike: at a fixed pace, a handful of
//! times. Requeue retries each class of failure with its own delays and budgets, and keeps the
//! retry state in the message. It sends a failed message again as a copy with a delay and a count.
//! Requeue deletes the original after SQS confirms the copy, so no message is lost while its queue
//! keeps it.
//!
//! ```no_run
//! use requeue::{Failure, Message, ResultExt};
//! # async fn bank_charge(_: &str) -> Result<(), std::io::Error> { Ok(()) }
//!
//! #[derive(serde::Deserialize)]
//! struct Order { id: String }
//!
//! async fn charge(message: Message<Order>) -> Result<(), Failure> {
//!     if message.body().id.is_empty() {
//!         return Err(Failure::non_retryable("an order without an id"));
//!     }
//!     bank_charge(&message.body().id).await.classified()
//! }
//!
//! #[tokio::main]
//! async fn main() -> Result<(), requeue::Error> {
//!     requeue::run(charge).await
//! }
//! ```
//!
//! # The type for each need
//!
//! | I want to … | use | default |
//! |---|---|---|
//! | run a handler as a Lambda | [`run`]; [`run_with`] for settings from code | |
//! | run it in a container or on a laptop | [`Worker`] | |
//! | run it in a runtime of my own, or with `tower` layers | [`BatchProcessor`] | |
//! | write a handler | `async fn(Message<T>) -> Result<(), Failure>`; [`Handler`] for one with state | |
//! | put my own code around another handler | [`around`] | |
//! | choose a handler at run time | [`BoxHandler`] | |
//! | call an API that takes many items at once | [`BulkHandler`], with [`run_bulk`] or [`bulk`] | ten messages a call |
//! | let a service recognise a repeated request | [`Message::idempotency_key`] | |
//! | pass a message on to another function | [`Message::to_event_record`] | |
//! | read body, attributes and attempt | [`Message`]; [`Raw`] for the text of the body | `Message<Raw>` |
//! | give an error its class | [`ResultExt`], as `.temporary()?`; [`Failure`] with words of my own | |
//! | have an error or a response classified | `.classified()?`; [`Failure::from_response`], [`Failure::aws`], [`Failure::from_grpc`] | the tables of [`classify`] |
//! | change the class of an error or a response | [`classify::Rules`], in code or in the policy document | none |
//! | see a message again later, without a failure | [`Failure::postpone`] | |
//! | change delays, retries and age | [`policy::RetryPolicy`], with the built-in ones in seconds | `standard` |
//! | leave a failing service alone | [`policy::CircuitBreaker`], [`max_pause`](policy::RetryPolicy::max_pause) | circuit: five failures in a row, of five messages, or of fewer for those alone; pause: 60 s at most |
//! | call a service no more often than it takes | [`policy::RateLimit`] | none |
//! | drop duplicates of a message | [`policy::Idempotency`], with a [`SharedTable`] | none |
//! | keep one tenant's failures from the others | [`scoped`], or [`Handler::scope`], with a [`Scope`] | one scope |
//! | work on several queues, with a policy each | [`Settings::policy_for`], or `queues` of the policy document | one policy |
//! | let messages wait without copies | [`Strategy`], with the cost of each | in a copy; in flight on a FIFO queue |
//! | choose how messages reach the dead-letter queue | [`DeadLetterMode`], with the cost of each | [`Redrive`](DeadLetterMode::Redrive) |
//! | work on a dead-letter queue | [`Message::dead_letter`]; [`DeadLetter`] for a body alone | |
//! | set all else | [`Settings`]; [`Settings::from_env`] reads the environment | |
//! | test one call of a handler | [`Message::builder`] | |
//! | test retries, dead letters, FIFO order | [`testing::World`], by the feature `embedded` | |
//! | have an SQS in a test of mine | [`embedded::EmbeddedSqs`], by the feature `embedded` | |
//! | look at the outcome of a batch | [`Report`], of [`BatchProcessor::process`] | |
//! | connect another client or queue | [`queue::Queue`]; [`queue::Source`] for a worker | [`queue::SqsQueue`] |
//! | make AWS clients of my own | [`aws::config`] | |
//!
//! The repository's page `docs/project/guarantees.md` says what Requeue guarantees, and
//! `docs/project/versioning.md` what a compatible version keeps. Settings, reports and reasons may grow, so they are `#[non_exhaustive]`: begin with a default and assign.
//!
//! # Features
//!
//! | feature | content |
//! |---|---|
//! | `embedded` | [`testing`]: tests of a handler in virtual time; [`embedded::EmbeddedSqs`]: SQS in this process |
//! | `table` | [`table::DynamoTable`]: a table that execution environments share |
//!
//! Both are off by default.
//!
//! Until the crate is published, depend on a checkout: `requeue = { path = "../requeue" }`. After
//! that, depend on `requeue = "0.1"`. The package `requeue-lambda` is the ready-made function. It
//! also has the handler `HttpTarget`, which posts each message to a URL. The command line is
//! `requeue-cli`.

// Without a feature, its links lead to the published documentation.
#![cfg_attr(
    not(feature = "embedded"),
    doc = "",
    doc = "[`testing`]: https://docs.rs/requeue/latest/requeue/testing/",
    doc = "[`testing::World`]: https://docs.rs/requeue/latest/requeue/testing/struct.World.html",
    doc = "[`embedded::EmbeddedSqs`]: https://docs.rs/requeue/latest/requeue/embedded/struct.EmbeddedSqs.html"
)]
#![cfg_attr(
    not(feature = "table"),
    doc = "",
    doc = "[`table::DynamoTable`]: https://docs.rs/requeue/latest/requeue/table/struct.DynamoTable.html"
)]
// The badges of features on docs.rs.
#![cfg_attr(docsrs, feature(doc_cfg))]

/// The examples of the documents compile.
#[cfg(doctest)]
mod documents {
    #[doc = include_str!("../README.md")]
    struct Readme;
    #[doc = include_str!("../docs/concepts/classification.md")]
    struct Classification;
    #[doc = include_str!("../docs/concepts/dead-letters.md")]
    struct DeadLetters;
    #[doc = include_str!("../docs/concepts/idempotency.md")]
    struct Idempotency;
    #[doc = include_str!("../docs/concepts/protection.md")]
    struct Protection;
    #[doc = include_str!("../docs/concepts/rate-limits.md")]
    struct RateLimits;
    #[doc = include_str!("../docs/recipes/nightly-quota.md")]
    struct NightlyQuota;
    #[doc = include_str!("../docs/recipes/sns.md")]
    struct Sns;
    #[doc = include_str!("../docs/project/versioning.md")]
    struct Versioning;
}

// In the order of the data path; then the modules on which the path rests.
mod lambda;
mod worker;
pub mod queue;
mod wire;
mod sender;
mod producer;
mod arrivals;
mod delivery;
mod message;
pub mod table;
mod gate;
mod handler;
pub mod classify;
mod failure;
mod result_ext;
mod scope;
pub mod policy;
mod limit;
mod shared_table;
mod disposition;
mod plan;
mod processor;
mod settle;
mod report;
mod observer;
mod telemetry;

mod config;
mod settings;
mod state;
mod delay;
mod pointer;
mod json;
mod words;
mod lock;
mod clock;
mod trace;
pub mod aws;
#[cfg(feature = "embedded")]
#[doc(inline)]
pub use requeue_embedded as embedded;
#[cfg(feature = "embedded")]
pub mod testing;
#[doc(hidden)]
pub mod measured;

#[doc(hidden)]
pub use requeue_sqs::{debug_by_name, printable};

#[doc(hidden)]
pub use clock::rfc3339;
#[doc(inline)]
pub use clock::{Clock, Sampler};
pub use config::{Error, InvalidConfig, InvalidPolicy, QueueConfig};
#[doc(hidden)]
pub use config::{Variables, duration_secs};
pub use delay::{Delay, Wait};
pub use disposition::{
    DeadLetterReason, Deferral, Disposition, IdempotencyNotes, ReleaseReason, Retry, Strategy,
};
pub use failure::{DetailText, Evidence, Failure, FailureClass};
#[doc(hidden)]
pub use handler::DynBulk;
pub use handler::{
    Around, BoxHandler, Bulk, BulkHandler, Each, Handler, InBulk, IntoBulk, Scoped, around, bulk,
    each, is_last_poll, scoped,
};
pub use lambda::{
    BatchItemFailure, InvocationError, SqsBatchResponse, SqsEvent, init_logging, init_logging_to,
    log_panics_by_place, may_be_logged, respond, run, run_bulk, run_with,
};
#[doc(hidden)]
pub use lambda::{init_logging_in_lambda, log_start_error, run_on_this_thread};
pub use limit::{LimitStatus, PausedKey, TenantStatus};
pub use message::{Attempt, Body, Message, MessageBuilder, Raw};
pub use observer::{Event, Observer, Observers};
pub use pointer::{InvalidJsonPointer, JsonPointer};
pub use processor::{BatchProcessor, ScopePause};
#[doc(inline)]
pub use queue::{InvalidPrincipal, Principal, Record};
pub use report::{Outcome, Report, Settlement};
pub use result_ext::ResultExt;
pub use scope::Scope;
pub use sender::TrustedSenders;
pub use settings::{
    DeadLetterMode, Limits, Metrics, Mode, ProducerLimits, QueueSettings, RecursiveLoop, Settings,
    SharedTable,
};
pub use shared_table::LimitControl;
pub use telemetry::LogLines;
pub use wire::{DeadLetter, DeadLetterInfo, Wrap};
pub use worker::{Progress, StartError, Until, WithoutDeadLetterQueue, Worker, WorkerSettings};

// Users need the types of these crates. The re-exports have the version and the features that fit.
#[doc(no_inline)]
pub use {aws_sdk_sqs, lambda_runtime};
