//! The ready Lambda: posts each SQS message to `REQUEUE_TARGET_URL` and settles it by the answer.

use requeue::http::HttpTarget;
use requeue::{Config, Error};

#[tokio::main]
async fn main() -> Result<(), Error> {
    let config = Config::from_env()?;
    let target = config.required_target()?.clone();
    requeue::run_with(HttpTarget::new(target), config).await
}
