//! Delivery over HTTP: the handler that posts each SQS message to a URL, and its settings from the
//! environment. The binary of this package is the ready-made function. The commands
//! `requeue work` and `requeue invoke` use the same library.
//!
//! ```no_run
//! use requeue_lambda::{Config, HttpTarget};
//!
//! #[tokio::main]
//! async fn main() -> Result<(), requeue::Error> {
//!     let config = Config::load().await?;
//!     let target = HttpTarget::new(config.required_target()?.clone(), config.http)?;
//!     requeue::run_with(target, config.settings).await
//! }
//! ```

use std::future::poll_fn;
use std::pin::pin;
use std::task::Poll;

mod config;
mod function;
mod http;
mod secrets;

pub use config::Config;
#[doc(hidden)]
pub use function::call_limit;
pub use function::{
    FunctionName, FunctionSettings, FunctionTarget, InvalidFunctionName, Invoke, InvokeError,
    Invoked, LambdaFunction,
};
pub use http::{
    ClientCertificate, Connector, Delivery, HeaderError, HttpSettings, HttpTarget,
    InvalidClientCertificate, InvalidSigningSecret, Proxy, SigningSecret, TargetRules, TargetUrl,
    TargetUrlError, TlsConnector,
};

// Types of other crates that users of this one need.
#[doc(no_inline)]
pub use ::http::{HeaderMap, Method};
#[doc(no_inline)]
pub use bytes::Bytes;

/// The result of a future; `None` if the handler's time is over before it.
async fn before_last_poll<F: Future>(future: F) -> Option<F::Output> {
    let mut future = pin!(future);
    poll_fn(|context| match future.as_mut().poll(context) {
        Poll::Pending if requeue::is_last_poll() => Poll::Ready(None),
        polled => polled.map(Some),
    })
    .await
}
