//! `requeue simulate outage`: a backlog, a service that is down and later rate-limited, and the
//! execution environments of a function. It runs without and with pause and circuit breaker, or
//! without and with a table that the execution environments share, in virtual time, over the
//! embedded queue.

use std::process::ExitCode;
use std::time::Duration;

use requeue::policy::{RateLimit, RetryPolicy};
use serde_json::Value;

mod simulation;

use simulation::{CONCURRENT_CALLS, ENVIRONMENTS, Environments, simulate};

use crate::Error;
use crate::duration_argument::within;
use crate::progress::CommandProgress;
use crate::simulated::{Comparison, Run, RunProgress, SimulationArguments};
use crate::stop::Stop;
use crate::table::{span, thousands};

#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Messages in the queue when the service goes down.
    #[arg(long, help_heading = "Messages", default_value_t = 20_000,
          value_parser = clap::value_parser!(u32).range(1..=100_000))]
    messages: u32,
    /// The time for which the service is down.
    #[arg(long, help_heading = "Service", value_name = "DURATION", default_value = "10m", value_parser = within(0..=86_400))]
    outage: Duration,
    /// Percentage of calls that succeed while the service is down, chosen at random; the others get
    /// 503.
    #[arg(long, help_heading = "Service", value_name = "PERCENT", default_value_t = 0,
          value_parser = clap::value_parser!(u32).range(0..=100))]
    availability: u32,
    /// Calls in a second that the service accepts when it works, also as a burst; the others get
    /// 429 and `Retry-After: 1`.
    #[arg(long, help_heading = "Service", default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    rate: u32,
    /// Scopes, such as tenants, over which the messages are spread. Each has its own pause and
    /// circuit, as with `REQUEUE_SCOPE`.
    #[arg(long, help_heading = "Messages", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    scopes: u32,
    /// Calls in a second that the policy allows: `limit` of its `rateLimit`. [default: that of the
    /// policy, or none]
    #[arg(long, value_name = "CALLS", value_parser = clap::value_parser!(u32).range(1..=10_000))]
    limit: Option<u32>,
    /// Let Lambda deliver batches of 10 to this number of execution environments. Compare those that
    /// share nothing with those that share a table, both with pause and circuit breaker.
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u32).range(1..=1_000))]
    environments: Option<u32>,
    #[command(flatten)]
    simulation: SimulationArguments,
}

impl Arguments {
    /// The time that the service needs for all messages at its rate.
    fn least(&self) -> Duration {
        Duration::from_secs_f64(f64::from(self.messages) / f64::from(self.rate))
    }
}

pub(crate) fn run(arguments: &Arguments) -> Result<ExitCode, Error> {
    let options = &arguments.simulation;
    let runs = runs(arguments, options.policy.read()?);
    let simulate = async |run, progress: RunProgress<'_>| simulate(arguments, run, progress).await;
    Comparison::shown(options, &head(arguments), runs, &simulate)?.print(options)
}

/// The rows of both runs, for the local page.
pub(crate) fn rows(
    arguments: &Arguments,
    policy: RetryPolicy,
    progress: &CommandProgress,
    stop: &Stop,
) -> Result<Value, Error> {
    let simulate = async |run, progress: RunProgress<'_>| simulate(arguments, run, progress).await;
    Ok(Comparison::of(runs(arguments, policy), progress, stop, &simulate)?.page())
}

fn runs(arguments: &Arguments, mut policy: RetryPolicy) -> [Run<(RetryPolicy, Environments)>; 2] {
    if let Some(calls) = arguments.limit {
        policy.limit = Some(RateLimit::new(calls, Duration::from_secs(1)));
    }
    let run = |name, key, policy, environments| Run { name, key, settings: (policy, environments) };
    let Some(count) = arguments.environments else {
        let mut unprotected = policy.clone();
        (unprotected.max_pause, unprotected.circuit_breaker) = (None, None);
        let polling = Environments::Polling;
        return [
            run("without pause and circuit breaker", "without", unprotected, polling),
            run("with both", "with", policy, polling),
        ];
    };
    [
        run("without a table", "withoutTable", policy.clone(), Environments::Alone(count)),
        run("with a table", "withTable", policy, Environments::Sharing(count)),
    ]
}

fn head(arguments: &Arguments) -> String {
    let Arguments { messages, outage, rate, scopes, availability, .. } = arguments;
    let of_scopes = if *scopes > 1 { format!(" of {scopes} scopes") } else { String::new() };
    let down = match availability {
        0 => "is down".to_owned(),
        some => format!("accepts {some} % of the calls"),
    };
    let function = match arguments.environments {
        None => format!(
            "{ENVIRONMENTS} execution environments with {CONCURRENT_CALLS} concurrent calls in all"
        ),
        Some(count) => {
            format!("{count} execution environments, with pause and circuit breaker")
        }
    };
    format!(
        "{} messages{of_scopes}; a service that {down} for {} and then accepts {} calls a second; \
         all messages need at least {}; {function}",
        thousands(*messages),
        span(*outage),
        thousands(*rate),
        span(Duration::from_secs(arguments.least().as_secs())),
    )
}
