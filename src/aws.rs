//! The parts of every client of the AWS SDK: credentials, region and endpoints by AWS's own
//! rules, and one HTTP client. It knows no service.
//!
//! Your own clients of the same configuration link no second HTTP client and no second TLS stack.
//!
//! ```no_run
//! # async fn example() {
//! let queue = requeue::queue::SqsQueue::new(&aws_sdk_sqs::Client::new(&requeue::aws::config().await));
//! # }
//! ```

use std::error::Error;
use std::iter::successors;

use aws_config::BehaviorVersion;
use aws_smithy_runtime_api::client::http::SharedHttpClient;
use futures_util::FutureExt;

mod connections;
mod credentials;

use credentials::Credentials;

pub use aws_config::SdkConfig;
pub(crate) use connections::UNUSED;

/// Whether a call failed for lack of credentials. The SDK says so only in words.
pub fn lacks_credentials(error: &(dyn Error + 'static)) -> bool {
    successors(Some(error), |error| Error::source(*error))
        .any(|error| error.to_string().contains("credentials"))
}

/// The code of a call without credentials, in errors and logs.
pub const NO_CREDENTIALS: &str = "NoCredentials";

/// The code of a call that failed because no connection could be made: it never left.
pub const NO_CONNECTION: &str = "NoConnection";

/// The code of a call whose connection broke: it may have been carried out.
pub const CONNECTION_LOST: &str = "ConnectionLost";

/// [`NO_CONNECTION`] or [`CONNECTION_LOST`], for a call that the HTTP client could not complete.
pub fn connection_code(error: &(dyn Error + 'static)) -> &'static str {
    let is_unmade = successors(Some(error), |error| Error::source(*error))
        .filter_map(|error| error.downcast_ref::<hyper_util::client::legacy::Error>())
        .any(hyper_util::client::legacy::Error::is_connect);
    if is_unmade { NO_CONNECTION } else { CONNECTION_LOST }
}

/// The configuration by AWS's standard environment variables and files.
///
/// If a service refuses the credentials, they are read anew for the next request. A connection that
/// was unused for 2 s is not used again: while Lambda freezes a function, its connections may die.
pub async fn config() -> SdkConfig {
    config_with(connections::of_sdk).await
}

/// As [`config`], with clients of HTTP that `make` makes. Public for `requeue-lambda` alone.
#[doc(hidden)]
pub async fn config_with(make: impl Fn() -> SharedHttpClient + Send + Sync + 'static) -> SdkConfig {
    let credentials =
        Credentials::new(|| load(connections::http_client(connections::of_sdk, None)).boxed());
    let http = connections::http_client(make, Some(credentials.clone()));
    credentials.within(load(http).await)
}

async fn load(http: SharedHttpClient) -> SdkConfig {
    aws_config::defaults(BehaviorVersion::latest()).http_client(http).load().await
}
