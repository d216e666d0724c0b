//! `requeue simulate rate`: a backlog, a service with a rate limit, and the execution environments
//! of a function. It runs without a limit, with the limit in each execution environment, and with
//! one limit that all share by a table, in virtual time, over the embedded queue.

use std::io::stdout;
use std::process::ExitCode;

use requeue::policy::RetryPolicy;
use serde_json::Value;

mod arguments;
mod calls;
mod chart;
mod figures;
mod late;
mod simulation;

pub(crate) use arguments::Arguments;
pub(crate) use calls::{Call, Calls};
use figures::RateFigures;
use simulation::{Sharing, simulate};

use crate::Error;
use crate::output::outln;
use crate::progress::CommandProgress;
use crate::schedule::chart_file::ChartFile;
use crate::simulated::{Comparison, Run};
use crate::stop::Stop;
use crate::table::{columns, span, thousands, wrapped};

const RUNS: [Run<Sharing>; 3] = [
    Run { name: "without a rate limit", key: "withoutLimit", settings: Sharing::None },
    Run { name: "limit without a table", key: "withoutTable", settings: Sharing::Nothing },
    Run { name: "limit with a table", key: "withTable", settings: Sharing::Table },
];

pub(crate) fn run(arguments: &Arguments) -> Result<ExitCode, Error> {
    let policy = arguments.policy.read()?;
    // Opened first: the simulation takes its time.
    let chart = arguments.svg.as_deref().map(ChartFile::open).transpose()?;
    if !arguments.json {
        head(arguments)?;
    }
    let compared = Comparison::shown(RUNS, &async |sharing, progress| {
        simulate(arguments, policy.clone(), sharing, progress).await
    })?;
    if let Some(chart) = chart {
        let runs: Vec<&RateFigures> = compared.figures().collect();
        chart.write(&chart::svg(arguments, &runs)?)?;
    }
    if arguments.json { compared.print_json() } else { compared.print() }
}

/// The rows of the three runs, for the local page.
pub(crate) fn rows(
    arguments: &Arguments,
    policy: &RetryPolicy,
    progress: &CommandProgress,
    stop: &Stop,
) -> Result<Value, Error> {
    let compared = Comparison::of(RUNS, progress, stop, &async |sharing, progress| {
        simulate(arguments, policy.clone(), sharing, progress).await
    })?;
    Ok(compared.page())
}

/// Says what is simulated, before it takes its time.
fn head(arguments: &Arguments) -> Result<(), Error> {
    let Arguments { messages, limit, period, burst, environments, .. } = arguments;
    let text = format!(
        "{} messages at once; a service that takes {} calls in {} and a burst of {}; {} execution \
         environments, which get batches of 10 within a window of 1 s",
        thousands(*messages),
        thousands(*limit),
        span(*period),
        thousands(*burst),
        thousands(*environments),
    );
    outln!("{}\n", wrapped(&text, columns(stdout())))?;
    Ok(())
}
