//! `requeue simulate rate`, in virtual time: without a limit, with it in each environment, with a
//! table that all share, and with fair shares of tenants.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use requeue::policy::{RateLimit, RetryPolicy};
use serde_json::Value;

mod calls;
mod chart;
mod simulation;

pub(crate) use calls::{Call, Calls};
use simulation::{Sharing, simulate};

use crate::Error;
use crate::duration_argument::{parse, within};
use crate::output::ChartFile;
use crate::progress::CommandProgress;
use crate::simulated::{Comparison, Run, RunProgress, SimulationArguments};
use crate::stop::Stop;
use crate::table::{span, thousands};

const RUNS: [Run<Sharing>; 3] = [
    Run { name: "without a rate limit", key: "withoutLimit", settings: Sharing::None },
    Run { name: "limit without a table", key: "withoutTable", settings: Sharing::Nothing },
    Run { name: "limit with a table", key: "withTable", settings: Sharing::Table },
];
const FAIR: Run<Sharing> =
    Run { name: "and fair shares", key: "withFairShares", settings: Sharing::Fair };
/// The tenants' part of the limit, in percent.
const LOAD: u32 = 30;

#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Messages that are in the queue at the beginning.
    #[arg(long, help_heading = "Messages", default_value_t = 100_000,
          value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    messages: u32,
    /// Calls in each period that the service takes: `limit` of `rateLimit`.
    #[arg(long, help_heading = "Service", default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    limit: u32,
    /// The period: `periodSeconds` of `rateLimit`.
    #[arg(long, help_heading = "Service", value_name = "DURATION", default_value = "1s", value_parser = within(1..=3_600))]
    period: Duration,
    /// Calls that may come at once: `burst` of `rateLimit`.
    #[arg(long, help_heading = "Service", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    burst: u32,
    /// Calls in each period that the service really takes, and refuses the others by a 429.
    /// [default: it takes all calls, and counts]
    #[arg(long, help_heading = "Service", value_name = "LIMIT", value_parser = clap::value_parser!(u32).range(1..=10_000))]
    true_limit: Option<u32>,
    /// Let the limit adapt to refused calls: `adaptive` of `rateLimit`.
    #[arg(long, help_heading = "Service")]
    adaptive: bool,
    /// Execution environments of the function.
    #[arg(long, help_heading = "Function", default_value_t = 200, value_parser = clap::value_parser!(u32).range(1..=1_000))]
    environments: u32,
    /// Begin with all execution environments. Otherwise Lambda begins with 5, and adds 5 each second.
    #[arg(long, help_heading = "Function")]
    warm: bool,
    /// Other tenants. Each sends one message within the first minute, and is a scope with a limit of
    /// its own. With --load, or `fairBy` in the policy, they share the limit instead.
    #[arg(long, help_heading = "Messages", default_value_t = 0, value_parser = clap::value_parser!(u32).range(0..=100_000))]
    tenants: u32,
    /// Percentage of the limit that the other tenants send together, until the backlog is done. They
    /// are in one scope. [default: 30 if the policy has `fairBy`]
    #[arg(long, help_heading = "Messages", value_name = "PERCENT", requires = "tenants",
          value_parser = clap::value_parser!(u32).range(1..=500))]
    load: Option<u32>,
    /// The weights of the tenants of the backlog, as in `1,1,2,4`. Each sends an equal part of it.
    /// [default: one tenant]
    #[arg(long, help_heading = "Messages", value_delimiter = ',', value_parser = clap::value_parser!(u8).range(1..))]
    weights: Vec<u8>,
    /// The time in which the table does not respond, as in `60-120` or `1m-2m`.
    #[arg(long, help_heading = "Function", value_name = "FROM-TO", value_parser = times)]
    table_down: Option<(Duration, Duration)>,
    /// Percentage of receives after which SQS delivers the same message again, up to 20 s later.
    #[arg(long, help_heading = "Function", value_name = "PERCENT", default_value_t = 0,
          value_parser = clap::value_parser!(u32).range(0..=50))]
    duplicates: u32,
    /// The most by which the clocks of execution environments are wrong.
    #[arg(long, help_heading = "Function", value_name = "DURATION", default_value = "0s", value_parser = within(0..=3_600))]
    skew: Duration,
    #[command(flatten)]
    simulation: SimulationArguments,
    /// Write a chart of the calls to this file.
    #[arg(long, value_name = "FILE", help_heading = "Output")]
    svg: Option<PathBuf>,
}

impl Arguments {
    fn rate_limit(&self) -> RateLimit {
        let mut limit = RateLimit::new(self.limit, self.period);
        limit.burst = self.burst;
        limit.adaptive = self.adaptive;
        limit
    }

    fn tenants_of_backlog(&self) -> usize {
        self.weights.len().max(1)
    }

    fn has_shares(&self) -> bool {
        self.load.is_some() || self.tenants_of_backlog() > 1
    }

    /// Lets the tenants share the limit if the policy says so.
    fn with_policy(mut self, policy: &RetryPolicy) -> Self {
        if policy.fair_shares.is_some() && self.tenants > 0 {
            self.load.get_or_insert(LOAD);
        }
        self
    }

    fn runs(&self) -> impl Iterator<Item = Run<Sharing>> + use<> {
        RUNS.into_iter().chain(self.has_shares().then_some(FAIR))
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

pub(crate) fn run(arguments: Arguments) -> Result<ExitCode, Error> {
    let policy = arguments.simulation.policy.read()?;
    let arguments = &arguments.with_policy(&policy);
    let options = &arguments.simulation;
    // Opened first: the simulation takes its time.
    let chart = arguments.svg.as_deref().map(ChartFile::open).transpose()?;
    let simulate = async |sharing, progress: RunProgress<'_>| {
        simulate(arguments, policy.clone(), sharing, progress).await
    };
    let compared = Comparison::shown(options, &head(arguments), arguments.runs(), &simulate)?;
    if let Some(chart) = chart {
        chart.write(&chart::svg(arguments, &compared)?)?;
    }
    compared.print(options)
}

pub(crate) fn rows(
    arguments: &Arguments,
    policy: &RetryPolicy,
    progress: &CommandProgress,
    stop: &Stop,
) -> Result<Value, Error> {
    let simulate = async |sharing, progress: RunProgress<'_>| {
        simulate(arguments, policy.clone(), sharing, progress).await
    };
    Ok(Comparison::of(arguments.runs(), progress, stop, &simulate)?.page())
}

fn head(arguments: &Arguments) -> String {
    let Arguments { messages, limit, period, burst, environments, tenants, .. } = arguments;
    let others = arguments.load.map_or_else(String::new, |load| {
        format!("{} other tenants, which send {load} % of the limit; ", thousands(*tenants))
    });
    format!(
        "{} messages at once; {others}a service that takes {} calls in {} and a burst of {}; {} execution \
         environments, which get batches of 10 within a window of 1 s",
        thousands(*messages),
        thousands(*limit),
        span(*period),
        thousands(*burst),
        thousands(*environments),
    )
}
