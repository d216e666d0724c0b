//! The ready Lambda: posts each SQS message to `REQUEUE_TARGET_URL` and settles it by the answer.

use requeue::http::{HttpSettings, HttpTarget};
use requeue::{Config, Error};

#[tokio::main(worker_threads = 2)]
async fn main() -> Result<(), Error> {
    let config = Config::from_env()?;
    let settings = HttpSettings::new(config.required_target()?.clone()).timeout(config.limits.timeout);
    requeue::run_with(HttpTarget::new(settings)?, config).await
}
