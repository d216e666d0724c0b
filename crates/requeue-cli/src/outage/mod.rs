//! `requeue simulate outage`: a backlog, a service that is down and later rate-limited, and the
//! execution environments of a function. It runs without and with pause and circuit breaker, in
//! virtual time, over the embedded queue.

use std::process::ExitCode;
use std::time::Duration;

use requeue::policy::RetryPolicy;
use serde_json::json;

mod arguments;
mod figures;
mod service;
mod simulation;

pub(crate) use arguments::Arguments;
use figures::ROWS;
use simulation::{CONCURRENT_CALLS, ENVIRONMENTS, simulate};

use crate::output::outln;
use crate::table::{duration, table};
use crate::{Error, document};

pub(crate) fn run(arguments: &Arguments) -> Result<ExitCode, Error> {
    let protected = match &arguments.policy {
        Some(file) => document::read(file)?.0,
        None => RetryPolicy::default(),
    };
    let mut unprotected = protected.clone();
    (unprotected.max_pause, unprotected.circuit_breaker) = (None, None);
    let without = simulate(arguments, unprotected, WITHOUT)?;
    let with = simulate(arguments, protected, WITH)?;
    if arguments.json {
        outln!("{:#}", json!({ "without": without.json(), "with": with.json() }))?;
        return Ok(ExitCode::SUCCESS);
    }
    let Arguments { messages, outage, rate, scopes, availability, .. } = arguments;
    let of_scopes = if *scopes > 1 { format!(" of {scopes} scopes") } else { String::new() };
    let down = match availability {
        0 => "is down".to_owned(),
        some => format!("accepts {some} % of the calls"),
    };
    outln!(
        "{messages} messages{of_scopes}; a service that {down} for {} and then accepts {rate} calls a second; \
         all messages need at least {}; {ENVIRONMENTS} execution environments with \
         {CONCURRENT_CALLS} concurrent calls in all\n",
        duration(Duration::from_secs(*outage)),
        duration(arguments.least()),
    )?;
    let mut rows = table(&["", WITHOUT, WITH]);
    for (name, value) in ROWS {
        rows.add_row(vec![name.to_owned(), value(&without), value(&with)]);
    }
    outln!("{}", rows.trim_fmt())?;
    Ok(ExitCode::SUCCESS)
}

const WITHOUT: &str = "without pause and circuit breaker";
const WITH: &str = "with both";
