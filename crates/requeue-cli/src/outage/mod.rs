//! `requeue simulate outage`: a backlog, a service that is down and later rate-limited, and the
//! execution environments of a function. It runs without and with pause and circuit breaker, or
//! without and with a table that the execution environments share, in virtual time, over the
//! embedded queue.

use std::io::stdout;
use std::process::ExitCode;
use std::time::Duration;

use requeue::policy::{RateLimit, RetryPolicy};
use serde_json::{Map, Value, json};

mod figures;
mod service;
mod simulation;

use figures::{ROWS, TABLE_ROW};
use simulation::{CONCURRENT_CALLS, ENVIRONMENTS, Environments, simulate};

use crate::Error;
use crate::document::PolicyArgument;
use crate::duration_argument::within;
use crate::output::outln;
use crate::progress::CommandProgress;
use crate::stop::Stop;
use crate::table::Head::{Number, Text};
use crate::table::{Rows, columns, span, thousands, wrapped};

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
    policy: PolicyArgument,
    /// The seed of all random numbers: the same seed gives the same run.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Print JSON.
    #[arg(long, help_heading = "Output")]
    json: bool,
}

impl Arguments {
    /// The time that the service needs for all messages at its rate.
    fn least(&self) -> Duration {
        Duration::from_secs_f64(f64::from(self.messages) / f64::from(self.rate))
    }
}

pub(crate) fn run(arguments: &Arguments) -> Result<ExitCode, Error> {
    let policy = arguments.policy.read()?;
    let Comparison { names, keys, runs, function } = Comparison::of(arguments, policy);
    if !arguments.json {
        head(arguments, &function)?;
    }
    Stop::end_at_once()?;
    let (_never, stop) = Stop::by_hand();
    let progress = CommandProgress::shown("simulating");
    let mut figures = Vec::new();
    for ((policy, environments), name) in runs.into_iter().zip(names) {
        figures.push(simulate(arguments, policy, environments, name, &progress, &stop)?);
    }
    drop(progress);
    if arguments.json {
        let figures: Map<_, _> = keys
            .into_iter()
            .zip(&figures)
            .map(|(key, figures)| (key.to_owned(), figures.json()))
            .collect();
        outln!("{:#}", Value::from(figures))?;
        return Ok(ExitCode::SUCCESS);
    }
    let mut rows = Rows::under([Text(""), Number(names[0]), Number(names[1])]);
    let of_table = arguments.environments.map(|_| TABLE_ROW);
    for (name, value) in ROWS.into_iter().chain(of_table) {
        rows.add([name.to_owned()].into_iter().chain(figures.iter().map(value)));
    }
    outln!("{}", rows.text())?;
    Ok(ExitCode::SUCCESS)
}

/// Two runs to compare.
struct Comparison {
    names: [&'static str; 2],
    keys: [&'static str; 2],
    runs: [(RetryPolicy, Environments); 2],
    function: String,
}

impl Comparison {
    fn of(arguments: &Arguments, mut protected: RetryPolicy) -> Self {
        if let Some(calls) = arguments.limit {
            protected.limit = Some(RateLimit::new(calls, Duration::from_secs(1)));
        }
        let (names, keys, runs, function) = match arguments.environments {
            None => {
                let mut unprotected = protected.clone();
                (unprotected.max_pause, unprotected.circuit_breaker) = (None, None);
                let runs =
                    [(unprotected, Environments::Polling), (protected, Environments::Polling)];
                let function = format!(
                    "{ENVIRONMENTS} execution environments with {CONCURRENT_CALLS} concurrent calls in all"
                );
                (
                    ["without pause and circuit breaker", "with both"],
                    ["without", "with"],
                    runs,
                    function,
                )
            }
            Some(count) => {
                let runs = [
                    (protected.clone(), Environments::Alone(count)),
                    (protected, Environments::Sharing(count)),
                ];
                let function =
                    format!("{count} execution environments, with pause and circuit breaker");
                (["without a table", "with a table"], ["withoutTable", "withTable"], runs, function)
            }
        };
        Self { names, keys, runs, function }
    }
}

/// The rows of both runs, for the local page: names, and a value of each run.
pub(crate) fn rows(
    arguments: &Arguments,
    policy: RetryPolicy,
    progress: &CommandProgress,
    stop: &Stop,
) -> Result<Value, Error> {
    let Comparison { names, runs, .. } = Comparison::of(arguments, policy);
    let mut figures = Vec::new();
    for ((policy, environments), name) in runs.into_iter().zip(names) {
        figures.push(simulate(arguments, policy, environments, name, progress, stop)?);
    }
    let of_table = arguments.environments.map(|_| TABLE_ROW);
    let rows = ROWS.into_iter().chain(of_table).map(|(name, value)| {
        json!({ "name": name, "values": figures.iter().map(value).collect::<Vec<_>>() })
    });
    Ok(json!({ "names": names, "rows": rows.collect::<Vec<_>>() }))
}

/// Says what is simulated, before it takes its time.
fn head(arguments: &Arguments, function: &str) -> Result<(), Error> {
    let Arguments { messages, outage, rate, scopes, availability, .. } = arguments;
    let of_scopes = if *scopes > 1 { format!(" of {scopes} scopes") } else { String::new() };
    let down = match availability {
        0 => "is down".to_owned(),
        some => format!("accepts {some} % of the calls"),
    };
    let text = format!(
        "{} messages{of_scopes}; a service that {down} for {} and then accepts {} calls a second; \
         all messages need at least {}; {function}",
        thousands(*messages),
        span(*outage),
        thousands(*rate),
        span(Duration::from_secs(arguments.least().as_secs())),
    );
    outln!("{}\n", wrapped(&text, columns(stdout())))?;
    Ok(())
}
