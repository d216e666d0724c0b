//! `requeue simulate rate`: a backlog, a service with a rate limit, and the execution environments
//! of a function. It runs without a limit, with the limit in each execution environment, and with
//! one limit that all share by a table, in virtual time, over the embedded queue.

use std::io::stdout;
use std::process::ExitCode;

use requeue::policy::RetryPolicy;
use serde_json::{Value, json};

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
use crate::stop::Stop;
use crate::table::Head::{Number, Text};
use crate::table::{Rows, columns, span, thousands, wrapped};

pub(crate) fn run(arguments: &Arguments) -> Result<ExitCode, Error> {
    let policy = arguments.policy.read()?;
    // Opened first: the simulation takes its time.
    let chart = arguments.svg.as_deref().map(ChartFile::open).transpose()?;
    if !arguments.json {
        head(arguments)?;
    }
    Stop::end_at_once()?;
    let (_never, stop) = Stop::by_hand();
    let progress = CommandProgress::shown("simulating");
    let mut runs = Vec::new();
    for sharing in Sharing::ALL {
        runs.push(simulate(arguments, policy.clone(), sharing, &progress, &stop)?);
    }
    drop(progress);
    if let Some(chart) = chart {
        chart.write(&chart::svg(arguments, &runs)?)?;
    }
    if arguments.json {
        let [none, nothing, table] = &runs[..] else { return Err("a run is missing".into()) };
        let runs = json!({
            "withoutLimit": none.json(),
            "withoutTable": nothing.json(),
            "withTable": table.json(),
        });
        outln!("{runs:#}")?;
        return Ok(ExitCode::SUCCESS);
    }
    let heads = Sharing::ALL.map(|sharing| Number(sharing.name()));
    let mut rows = Rows::under([Text("")].into_iter().chain(heads));
    let columns: Vec<_> = runs.iter().map(RateFigures::rows).collect();
    for (at, (name, _)) in columns[0].iter().enumerate() {
        let values = columns.iter().map(|rows| rows[at].1.clone());
        rows.add([name.clone()].into_iter().chain(values));
    }
    outln!("{}", rows.text())?;
    Ok(ExitCode::SUCCESS)
}

/// The rows of the three runs, for the local page: names, and a value of each run.
pub(crate) fn rows(
    arguments: &Arguments,
    policy: &RetryPolicy,
    progress: &CommandProgress,
    stop: &Stop,
) -> Result<Value, Error> {
    let mut columns = Vec::new();
    for sharing in Sharing::ALL {
        columns.push(simulate(arguments, policy.clone(), sharing, progress, stop)?.rows());
    }
    let rows = columns[0].iter().enumerate().map(|(at, (name, _))| {
        let values = columns.iter().map(|rows| rows[at].1.clone());
        json!({ "name": name, "values": values.collect::<Vec<_>>() })
    });
    Ok(json!({ "names": Sharing::ALL.map(Sharing::name), "rows": rows.collect::<Vec<_>>() }))
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
