//! `requeue doctor --first-hour`: tries a deployment with messages that name the response of a test
//! endpoint. It reads the results from SQS's counts and from the function's lines of metrics. It
//! never receives from the source queue, deletes nothing and changes no setting.

use std::time::Duration;

use serde_json::{Value, json};

mod calls;
mod evidence;
mod message;
mod plan;
mod show;
mod step;
#[cfg(test)]
mod tests;
mod trial;

use plan::Plan;
use step::Step;
use trial::Trial;

use super::diagnosis::Level;
use super::endpoints::Endpoints;
use super::facts::Deployment;
use super::fetch::Clients;
use crate::Error;
use crate::duration_argument::within;

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
            Self::Planned(plan) => show::plan(plan),
            Self::Tried(steps) => show::steps(steps),
        }
    }

    pub(crate) fn json(&self) -> Value {
        match self {
            Self::Withheld => json!({ "sent": false }),
            Self::Planned(plan) => show::plan_json(plan),
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
