//! `requeue doctor --first-hour`: tries a deployment with messages that name the response of a test
//! target. It reads the results from SQS's counts and from the function's lines of metrics. It
//! never receives from the source queue, deletes nothing and changes no setting.

use std::fmt::Write;
use std::io::stdout;
use std::time::Duration;

use requeue::printable;
use serde_json::{Value, json};

mod plan;
mod step;
#[cfg(test)]
mod tests;
mod trial;

use plan::{MESSAGES, Plan};
use step::Step;
use trial::Trial;

use super::diagnosis::Level;

use super::facts::Deployment;
use super::fetch::Clients;
use super::show::{below, counted, counts, finding};
use crate::Error;
use crate::duration_argument::within;
use crate::endpoints::Endpoints;
use crate::table::{columns, hanging, wrapped};

#[derive(clap::Args)]
pub(crate) struct Options {
    /// Also show the test messages with which the first hour of a deployment begins, and what each
    /// should lead to. Nothing is sent without --send-test-messages.
    #[arg(long, requires = "function")]
    first_hour: bool,
    /// Send these messages, and compare the results with the expected ones. The target must be the
    /// function of `examples/test-endpoint` or its URL, and the queue must be empty.
    #[arg(long, requires = "first_hour")]
    send_test_messages: bool,
    /// Longest wait for the results of --send-test-messages.
    #[arg(long, value_name = "DURATION", default_value = "5m", requires = "send_test_messages",
          value_parser = within(10..=3_600))]
    wait: Duration,
}

pub(crate) struct FirstHour {
    pub(crate) text: String,
    pub(crate) json: Value,
    pub(crate) worst: Level,
}

/// `None` if the options do not ask for it. `worst` is the level of the deployment.
pub(crate) async fn run(
    clients: &Clients,
    deployment: &Deployment,
    worst: Level,
    options: &Options,
) -> Result<Option<FirstHour>, Error> {
    if !options.first_hour {
        return Ok(None);
    }
    if worst == Level::Danger {
        let text = "\nfirst hour: nothing was sent; repair each danger first\n".to_owned();
        return Ok(Some(FirstHour { text, json: json!({ "sent": false }), worst: Level::Ok }));
    }
    let plan = Plan::of(deployment);
    let plan = plan.map_err(|reason| format!("--first-hour sends nothing: {reason}"))?;
    let trial = Trial::prepare(clients, plan).await?;
    if !options.send_test_messages {
        let (text, json) = (plan_text(&trial.plan), plan_json(&trial.plan));
        return Ok(Some(FirstHour { text, json, worst: Level::Ok }));
    }
    let mut steps = trial.run(options.wait).await?;
    let endpoints = Endpoints::of(&clients.sdk);
    for remedy in steps.iter_mut().flat_map(|step| &mut step.remedies) {
        *remedy = remedy.at(&endpoints);
    }
    Ok(Some(FirstHour {
        text: steps_text(&steps),
        json: json!({ "sent": true, "steps": steps }),
        worst: steps.iter().map(|step| step.level).max().unwrap_or(Level::Unknown),
    }))
}

fn plan_text(plan: &Plan) -> String {
    let target = plan.target.to_string();
    let [source, target] = [plan.source.name(), &target].map(printable::line);
    let mut text = format!("\nfirst hour: five messages to {source}; the target is {target}\n");
    let width = MESSAGES.iter().map(|message| message.id().len()).max().unwrap_or_default();
    let terminal = columns(stdout());
    for message in &MESSAGES {
        let expected = format!("expected: {}", message.expected);
        let responses = message.responses(&plan.target);
        for (id, line) in [(message.id(), responses), ("", &expected)] {
            text += &(hanging(&format!("  {id:<width$}  "), line, terminal.unwrap_or(usize::MAX))
                + "\n");
        }
    }
    let arrival = printable::line(&plan.arrival()).into_owned();
    let _ = writeln!(text, "The dead letter should be {arrival}. It stays there.");
    let _ = writeln!(text, "Nothing was sent. To send the messages, add --send-test-messages.");
    wrapped(&text, terminal) + "\n"
}

fn plan_json(plan: &Plan) -> Value {
    json!({
        "sent": false,
        "queue": plan.source.name(),
        "target": plan.target.to_string(),
        "messages": MESSAGES.each_ref().map(|message| json!({
            "id": message.id(),
            "responses": message.responses(&plan.target),
            "expected": message.expected,
        })),
        "deadLetter": plan.arrival(),
    })
}

/// A line for each step; the expectation below it, and the meaning of a difference.
fn steps_text(steps: &[Step]) -> String {
    let mut text = String::from("\nfirst hour\n");
    let width = steps.iter().map(|step| step.id.len()).max().unwrap_or_default();
    for Step { id, level, expected, seen, meaning, remedies } in steps {
        text += &finding(*level, &format!("{id:<width$}"), seen);
        let expected = format!("expected: {expected}");
        let reasons = [&*expected, meaning].into_iter().filter(|reason| !reason.is_empty());
        text += &below(reasons, remedies);
    }
    text + "\n" + &counted(counts(&steps.iter().map(|step| step.level)))
}
