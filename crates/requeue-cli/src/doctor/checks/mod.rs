//! The tables of checks, each a pure function of the facts. Numbers that AWS recommends or demands
//! are here with their source; nothing here asks AWS.

use std::time::Duration;

use super::context::Context;
use super::diagnosis::{Check, Checked, Diagnosis, Finding, Level, Skip};
use super::facts::{Deployment, Mapping, Reached};
use super::remedy::{self, Remedy};
use crate::table::span;

mod alarms;
mod dead_letters;
mod function;
mod logs;
mod mapping;
mod permissions;
mod queue;
mod secrets;
mod table;
mod target;
#[cfg(test)]
pub(super) mod tests;

/// Longest delay of a message, and so of a copy. Source: SQS API reference, `SendMessage`.
const LONGEST_DELAY: Duration = Duration::from_secs(900);
/// Longest retention of a queue. Source: SQS API reference, `SetQueueAttributes`.
const LONGEST_RETENTION: Duration = Duration::from_secs(1_209_600);

/// The recommended visibility timeout, as a multiple of the function's timeout. Source: Lambda
/// developer guide, "Configuring SQS queue".
const TIMEOUTS: u32 = 6;
/// The least `maxReceiveCount`. Source: as above.
const LEAST_RECEIVES: u32 = 5;
/// Receives after which an annotated copy is visible again at once.
const ANNOTATED_RECEIVES: u32 = 10;
/// The greatest `maxReceiveCount`. Source: SQS API reference, `SetQueueAttributes`.
const MOST_RECEIVES: u32 = 1_000;

/// The remedy for too many batches at a time.
const LOWER: &str = "lower the MaximumConcurrency or the MaximumPollers of the mappings";

/// The step behind a longer timeout of the function.
const ADAPT: &str = "then adapt the queue's visibility timeout";

pub(crate) use alarms::REQUEUE;
pub(crate) use logs::LOGGING;
pub(crate) use permissions::{KEY, NO_KEY, SENDING, TAKING};
pub(crate) use queue::{QUEUE, RECEIVES_OF_A_TARGET};
pub(crate) use secrets::{PARAMETER, is_whole, reading};
pub(crate) use table::USING;
pub(crate) use target::INVOKING;

/// Days as in the settings of a queue (`4 days`), and shorter times as elsewhere.
fn days(time: Duration) -> String {
    let secs = time.as_secs();
    if secs >= 2 * 86_400 && secs.is_multiple_of(86_400) {
        format!("{} days", secs / 86_400)
    } else {
        span(time)
    }
}

/// All looks of a check. Of several that are equally bad, each needs its remedy. A look that does not
/// apply counts as none.
fn all(looked: impl IntoIterator<Item = Checked>) -> Checked {
    let looked = looked.into_iter().filter_map(|looked| match looked {
        Ok(diagnosis) | Err(Skip::Unknown(diagnosis)) => Some(diagnosis),
        Err(Skip::NotApplicable) => None,
    });
    let mut looked: Vec<Diagnosis> = looked.collect();
    let level = looked.iter().map(|looked| looked.level).max().ok_or(Skip::NotApplicable)?;
    looked.retain(|looked| looked.level == level);
    let mut found: Vec<String> = looked.iter().map(|looked| looked.found.clone()).collect();
    let is_alike = looked.windows(2).all(|pair| pair[0].remedies == pair[1].remedies);
    if level != Level::Ok && !is_alike {
        found.push("each needs its remedy".to_owned());
    }
    let mut remedies = Vec::new();
    for remedy in looked.into_iter().flat_map(|looked| looked.remedies) {
        if !remedies.contains(&remedy) {
            remedies.push(remedy);
        }
    }
    Ok(Diagnosis { level, found: found.join("; "), remedies })
}

/// Functions, and the commands that disable their mappings.
type Consumers<'d> = (Vec<&'d str>, Vec<String>);

/// The functions that receive messages of a queue through another mapping than this.
fn consumers<'d>(
    context: &Context<'_>,
    reached: &'d Reached,
    own: Option<&str>,
) -> Result<Option<Consumers<'d>>, Skip> {
    let is_polling = |state: &str| !matches!(state, "Disabled" | "Disabling" | "Deleting");
    let consumers = reached.consumers.as_ref()?.iter();
    let others = consumers.filter(|it| own != Some(&it.uuid) && is_polling(&it.state));
    let (functions, disable): (Vec<&str>, Vec<String>) = others
        .map(|mapping @ Mapping { function, .. }| {
            (&**function, remedy::mapping(context, mapping, "--no-enabled"))
        })
        .unzip();
    Ok((!functions.is_empty()).then_some((functions, disable)))
}

/// The checks of the function, in the order of the output.
const OF_FUNCTION: [&[Check]; 5] =
    [function::CHECKS, logs::CHECKS, secrets::CHECKS, table::CHECKS, target::CHECKS];

/// The checks of each queue, in the order of the output, behind those of the function.
const OF_QUEUE: [&[Check]; 6] = [
    mapping::CHECKS,
    target::CHECKS_OF_QUEUE,
    queue::CHECKS,
    dead_letters::CHECKS,
    permissions::CHECKS,
    alarms::CHECKS,
];

/// The id of every check, in the order of the output.
pub(crate) fn all_ids() -> impl Iterator<Item = &'static str> {
    OF_FUNCTION.into_iter().chain(OF_QUEUE).flatten().map(|check| check.id)
}

pub(crate) fn examine(deployment: &Deployment) -> Vec<Finding> {
    let whole = Context { deployment, path: None };
    let mut findings: Vec<Finding> =
        OF_FUNCTION.into_iter().flatten().filter_map(|check| check.finding(&whole)).collect();
    for path in &deployment.paths {
        let context = Context { deployment, path: Some(path) };
        let checks = OF_QUEUE.into_iter().flatten();
        findings.extend(checks.filter_map(|check| check.finding(&context)));
    }
    findings
}
