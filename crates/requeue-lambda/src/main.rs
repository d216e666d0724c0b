//! The ready Lambda: sends each SQS message to `REQUEUE_TARGET_URL` and settles it by the answer.

use requeue::http::HttpTarget;
use requeue::{Config, Error};

#[tokio::main(worker_threads = 2)]
async fn main() -> Result<(), Error> {
    let config = Config::load().await?;
    let target = HttpTarget::new(config.required_target()?.clone(), config.http.clone())?;
    requeue::run_with(target, config).await
}
