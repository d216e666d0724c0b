//! `requeue simulate outage`: a backlog, a service that is down and later rate-limited, and the
//! execution environments of a function. It runs without and with pause and circuit breaker, or
//! without and with a table that the execution environments share, in virtual time, over the
//! embedded queue.

use std::io::stdout;
use std::process::ExitCode;
use std::time::Duration;

use requeue::policy::{RateLimit, RetryPolicy};
use serde_json::{Map, Value, json};

mod arguments;
mod figures;
mod service;
mod simulation;

pub(crate) use arguments::Arguments;
use figures::{ROWS, TABLE_ROW};
use simulation::{CONCURRENT_CALLS, ENVIRONMENTS, Environments, simulate};

use crate::Error;
use crate::output::outln;
use crate::progress::CommandProgress;
use crate::stop::Stop;
use crate::table::Head::{Number, Text};
use crate::table::{Rows, columns, span, thousands, wrapped};

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
