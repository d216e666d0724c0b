//! The ready Lambda: sends each SQS message to `REQUEUE_TARGET_URL` and settles it by the response.

use requeue::Error;

use requeue_lambda::{Config, HttpTarget};

#[tokio::main(worker_threads = 2)]
async fn main() -> Result<(), Error> {
    let config = Config::load().await?;
    let target = HttpTarget::new(config.required_target()?.clone(), config.http)?;
    requeue::run_with(target, config.settings).await
}
