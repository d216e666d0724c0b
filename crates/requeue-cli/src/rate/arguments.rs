//! The options of `requeue simulate rate`.

use std::path::PathBuf;
use std::time::Duration;

use requeue::policy::RateLimit;

use crate::document::PolicyArgument;
use crate::duration_argument::{parse, within};

#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Messages that are in the queue at the beginning.
    #[arg(long, help_heading = "Messages", default_value_t = 100_000,
          value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub(super) messages: u32,
    /// Calls in each period that the service takes: `limit` of `rateLimit`.
    #[arg(long, help_heading = "Service", default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub(super) limit: u32,
    /// The period: `periodSeconds` of `rateLimit`.
    #[arg(long, help_heading = "Service", value_name = "DURATION", default_value = "1s", value_parser = within(1..=3_600))]
    pub(super) period: Duration,
    /// Calls that may come at once: `burst` of `rateLimit`.
    #[arg(long, help_heading = "Service", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub(super) burst: u32,
    /// Calls in each period that the service really takes, and refuses the others by a 429.
    /// [default: it takes all calls, and counts]
    #[arg(long, help_heading = "Service", value_name = "LIMIT", value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub(super) true_limit: Option<u32>,
    /// Let the limit adapt to refused calls: `adaptive` of `rateLimit`.
    #[arg(long, help_heading = "Service")]
    pub(super) adaptive: bool,
    /// Execution environments of the function.
    #[arg(long, help_heading = "Function", default_value_t = 200, value_parser = clap::value_parser!(u32).range(1..=1_000))]
    pub(super) environments: u32,
    /// Begin with all execution environments. Otherwise Lambda begins with 5, and adds 5 each second.
    #[arg(long, help_heading = "Function")]
    pub(super) warm: bool,
    /// Other scopes, such as tenants. Each sends one message within the first minute, and has a
    /// limit of its own.
    #[arg(long, help_heading = "Messages", default_value_t = 0, value_parser = clap::value_parser!(u32).range(0..=100_000))]
    pub(super) tenants: u32,
    /// The time in which the table does not respond, as in `60-120` or `1m-2m`.
    #[arg(long, help_heading = "Function", value_name = "FROM-TO", value_parser = times)]
    pub(super) store_down: Option<(Duration, Duration)>,
    /// Percentage of receives after which SQS delivers the same message again, up to 20 s later.
    #[arg(long, help_heading = "Function", value_name = "PERCENT", default_value_t = 0,
          value_parser = clap::value_parser!(u32).range(0..=50))]
    pub(super) duplicates: u32,
    /// The most by which the clocks of execution environments are wrong.
    #[arg(long, help_heading = "Function", value_name = "DURATION", default_value = "0s", value_parser = within(0..=3_600))]
    pub(super) skew: Duration,
    #[command(flatten)]
    pub(super) policy: PolicyArgument,
    /// The seed of all random numbers: the same seed gives the same run.
    #[arg(long, default_value_t = 1)]
    pub(super) seed: u64,
    /// Print JSON.
    #[arg(long, help_heading = "Output")]
    pub(super) json: bool,
    /// Write a chart of the calls to this file.
    #[arg(long, value_name = "FILE", help_heading = "Output")]
    pub(super) svg: Option<PathBuf>,
}

impl Arguments {
    pub(super) fn rate_limit(&self) -> RateLimit {
        let mut limit = RateLimit::new(self.limit, self.period);
        limit.burst = self.burst;
        limit.adaptive = self.adaptive;
        limit
    }
}

fn times(text: &str) -> Result<(Duration, Duration), String> {
    const LATEST: Duration = Duration::from_secs(1_000_000);
    let times = text.split_once('-').and_then(|(from, to)| parse(from).ok().zip(parse(to).ok()));
    let times = times.filter(|(from, to)| from < to && *to <= LATEST);
    times.ok_or_else(|| {
        "it must be two times, the earlier one first, as in 60-120 or 1m-2m".to_owned()
    })
}
