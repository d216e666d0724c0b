//! The options of `requeue simulate outage`.

use std::time::Duration;

use crate::document::PolicyArgument;
use crate::duration_argument::within;

#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Messages in the queue when the service goes down.
    #[arg(long, help_heading = "Messages", default_value_t = 20_000,
          value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub(super) messages: u32,
    /// The time for which the service is down.
    #[arg(long, help_heading = "Service", value_name = "DURATION", default_value = "10m", value_parser = within(0..=86_400))]
    pub(super) outage: Duration,
    /// Percentage of calls that succeed while the service is down, chosen at random; the others get
    /// 503.
    #[arg(long, help_heading = "Service", value_name = "PERCENT", default_value_t = 0,
          value_parser = clap::value_parser!(u32).range(0..=100))]
    pub(super) availability: u32,
    /// Calls in a second that the service accepts when it works, also as a burst; the others get
    /// 429 and `Retry-After: 1`.
    #[arg(long, help_heading = "Service", default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub(super) rate: u32,
    /// Scopes, such as tenants, over which the messages are spread. Each has its own pause and
    /// circuit, as with `REQUEUE_SCOPE`.
    #[arg(long, help_heading = "Messages", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub(super) scopes: u32,
    /// Calls in a second that the policy allows: `limit` of its `rateLimit`. [default: that of the
    /// policy, or none]
    #[arg(long, value_name = "CALLS", value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub(super) limit: Option<u32>,
    /// Let Lambda deliver batches of 10 to this number of execution environments. Compare those that
    /// share nothing with those that share a table, both with pause and circuit breaker.
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u32).range(1..=1_000))]
    pub(super) environments: Option<u32>,
    #[command(flatten)]
    pub(super) policy: PolicyArgument,
    /// The seed of all random numbers: the same seed gives the same run.
    #[arg(long, default_value_t = 1)]
    pub(super) seed: u64,
    /// Print JSON.
    #[arg(long, help_heading = "Output")]
    pub(super) json: bool,
}

impl Arguments {
    /// The time that the service needs for all messages at its rate.
    pub(super) fn least(&self) -> Duration {
        Duration::from_secs_f64(f64::from(self.messages) / f64::from(self.rate))
    }
}
