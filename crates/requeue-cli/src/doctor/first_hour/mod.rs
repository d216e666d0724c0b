//! `requeue doctor --first-hour`: tries a deployment with messages that name the response of a test
//! endpoint. It reads the results from SQS's counts and from the function's lines of metrics. It
//! never receives from the source queue, deletes nothing and changes no setting.

use std::fmt::Write;
use std::io::stdout;
use std::time::Duration;

use requeue::printable;
use serde_json::{Value, json};

mod calls;
mod evidence;
mod message;
mod plan;
mod step;
#[cfg(test)]
mod tests;
mod trial;

use message::TestMessage;
use plan::Plan;
use step::Step;
use trial::Trial;

use super::diagnosis::Level;
use super::endpoints::Endpoints;
use super::facts::Deployment;
use super::fetch::Clients;
use super::show::{below, finding};
use crate::Error;
use crate::duration_argument::within;
use crate::table::{columns, hanging, wrapped};

#[derive(clap::Args)]
pub(crate) struct Options {
    /// Also show the test messages with which the first hour of a deployment begins, and what each
    /// should lead to. Nothing is sent without --send-test-messages.
    #[arg(long, requires = "function")]
    first_hour: bool,
    /// Send these messages, and compare what happens with what should. The function must post to
    /// the endpoint of `examples/test-endpoint`, and its queue must be empty.
    #[arg(long, requires = "first_hour")]
    send_test_messages: bool,
    /// Longest wait for the results of --send-test-messages.
    #[arg(long, value_name = "DURATION", default_value = "5m", requires = "send_test_messages",
          value_parser = within(10..=3_600))]
    wait: Duration,
}

/// The result.
pub(crate) enum FirstHour {
    /// The doctor found a danger, so nothing was sent.
    Withheld,
    /// The messages that would be sent.
    Planned(Box<Plan>),
    Tried(Vec<Step>),
}

/// `None` if the options do not ask for it.
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
        return Ok(Some(FirstHour::Withheld));
    }
    let plan = Plan::of(deployment, &clients.variables(deployment).await?)?;
    let trial = Trial::prepare(clients, plan).await?;
    if !options.send_test_messages {
        return Ok(Some(FirstHour::Planned(Box::new(trial.into_plan()))));
    }
    let steps = trial.run(options.wait).await?;
    Ok(Some(FirstHour::Tried(steps)))
}

impl FirstHour {
    pub(crate) fn text(&self) -> String {
        match self {
            Self::Withheld => {
                "\nfirst hour: nothing was sent; repair each danger first\n".to_owned()
            }
            Self::Planned(plan) => plan_text(plan),
            Self::Tried(steps) => steps_text(steps),
        }
    }

    pub(crate) fn json(&self) -> Value {
        match self {
            Self::Withheld => json!({ "sent": false }),
            Self::Planned(plan) => plan_json(plan),
            Self::Tried(steps) => json!({ "sent": true, "steps": steps }),
        }
    }

    /// With commands for these endpoints.
    pub(crate) fn at(mut self, endpoints: &Endpoints) -> Self {
        if let Self::Tried(steps) = &mut self {
            for remedy in steps.iter_mut().flat_map(|step| &mut step.remedies) {
                *remedy = endpoints.named_in(remedy);
            }
        }
        self
    }

    /// The worst level of its steps.
    pub(crate) fn worst(&self) -> Level {
        match self {
            Self::Withheld | Self::Planned(_) => Level::Ok,
            Self::Tried(steps) => {
                steps.iter().map(|step| step.level).max().unwrap_or(Level::Unknown)
            }
        }
    }
}

fn plan_text(plan: &Plan) -> String {
    let [source, target] = [plan.source.name(), plan.target.as_str()].map(printable::line);
    let mut text = format!("\nfirst hour: five messages to {source}; the target is {target}\n");
    let width = TestMessage::ALL.map(|message| message.id().len()).into_iter().max();
    let width = width.unwrap_or_default();
    let terminal = columns(stdout());
    for message in TestMessage::ALL {
        let expected = format!("expected: {}", message.expected());
        for (id, line) in [(message.id(), message.responses()), ("", &expected)] {
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
    let messages = TestMessage::ALL.map(|message| {
        json!({
            "id": message.id(),
            "responses": message.responses(),
            "expected": message.expected(),
        })
    });
    json!({
        "sent": false,
        "queue": plan.source.name(),
        "target": plan.target,
        "messages": messages,
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
    let counted = Level::ALL.map(|level| {
        let count = steps.iter().filter(|step| step.level == level).count();
        format!("{count} {}", level.as_str())
    });
    let _ = writeln!(text, "\n{}", counted.join(", "));
    text
}
