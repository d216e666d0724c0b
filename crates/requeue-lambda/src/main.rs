//! The ready Lambda: sends each SQS message to `REQUEUE_TARGET_URL` and settles it by the response.

use requeue::{Error, Settings};

use requeue_lambda::{Config, HttpTarget};

#[tokio::main(worker_threads = 2)]
async fn main() -> Result<(), Error> {
    if requeue_lambda::answers_an_option() {
        return Ok(());
    }
    // Fetching logs the version of each stored text.
    requeue::init_logging_in_lambda();
    let (target, settings) = start().await.inspect_err(|error| requeue::log_start_error(error))?;
    requeue::run_with(target, settings).await
}

async fn start() -> Result<(HttpTarget, Settings), Error> {
    let config = Config::load().await?;
    let target = HttpTarget::new(config.required_target()?.clone(), config.http)?;
    Ok((target, config.settings))
}
