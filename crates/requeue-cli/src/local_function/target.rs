//! A function on this machine as the target of Requeue in this process.

use std::time::Duration;

use requeue::{InBulk, Settings, bulk};
use requeue_lambda::{Config, FunctionTarget};

use super::LocalFunction;
use super::environment::INIT_TIMEOUT;

/// The handler that invokes the function.
pub(crate) type LocalTarget = InBulk<FunctionTarget<LocalFunction>>;

/// The time of Requeue's own invocation beyond the timeout of the function: for the start of a
/// process, for settling, and a margin.
pub(crate) const BEYOND_TARGET: Duration = Duration::from_secs(20);

/// The handler for a function with this timeout and at most so many processes. The settings get
/// their limits from it.
pub(crate) fn local_target(
    function: LocalFunction,
    timeout: Duration,
    most: u16,
    config: &mut Config,
) -> LocalTarget {
    let Settings { limits, queues, .. } = &mut config.settings;
    // As long as the function may run, so that no answer is lost.
    limits.timeout = timeout + INIT_TIMEOUT;
    limits.concurrency = limits.concurrency.min(most.into());
    for queue in queues.values_mut() {
        queue.timeout = None;
        queue.concurrency = queue.concurrency.map(|count| count.min(most.into()));
    }
    bulk(FunctionTarget::new(function, config.function_settings.clone()))
}
