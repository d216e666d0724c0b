//! The SDK's configuration of commands that ask SQS.

use std::time::Duration;

use aws_smithy_types::timeout::TimeoutConfig;
use requeue::aws::{self, SdkConfig};

/// The longest time of a try, and of all tries of a request. A server may accept a connection and
/// never respond.
const ATTEMPT_TIMEOUT: Duration = Duration::from_secs(15);
const OPERATION_TIMEOUT: Duration = Duration::from_secs(30);

/// That of AWS's environment, with bounds of time.
pub(crate) async fn config() -> SdkConfig {
    let timeouts = TimeoutConfig::builder()
        .operation_attempt_timeout(ATTEMPT_TIMEOUT)
        .operation_timeout(OPERATION_TIMEOUT)
        .build();
    aws::config().await.into_builder().timeout_config(timeouts).build()
}
