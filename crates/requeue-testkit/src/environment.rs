//! The environment variables of Lambda for a function's process.

use std::ffi::OsStr;
use std::process::Stdio;

use tokio::process::Command;

/// A process with only these variables and the Runtime API at `runtime_api`. Dropping it ends the
/// process.
pub fn process(binary: impl AsRef<OsStr>, runtime_api: String) -> Command {
    let mut command = Command::new(binary);
    command
        .env_clear()
        .env("AWS_LAMBDA_RUNTIME_API", runtime_api)
        .env("AWS_LAMBDA_FUNCTION_NAME", "orders")
        .env("AWS_LAMBDA_FUNCTION_VERSION", "$LATEST")
        .env("AWS_LAMBDA_FUNCTION_MEMORY_SIZE", "256")
        .env("AWS_LAMBDA_LOG_FORMAT", "JSON")
        .env("AWS_ACCESS_KEY_ID", "test")
        .env("AWS_SECRET_ACCESS_KEY", "canary-secret-key")
        .env("AWS_SESSION_TOKEN", "canary-session-token")
        .env("AWS_REGION", "us-east-1")
        .stdin(Stdio::null())
        .kill_on_drop(true);
    command
}
