//! `requeue doctor`: checks a deployment and names the remedy for each problem. It fetches facts,
//! derives findings from facts, and shows findings. Only the first step asks AWS, and no step
//! changes anything. `first_hour` sends test messages, if the user requests it.

use std::cmp::Reverse;
use std::io::{IsTerminal as _, stdout};
use std::process::ExitCode;

use serde_json::Value;
use tokio::runtime::Builder;

mod arn;
mod settings;
mod access_policy;
mod calls;
mod checks;
mod facts;
mod fetch;
mod first_hour;
mod diagnosis;
mod remedy;
mod show;

pub(crate) use arn::Arn;
pub(crate) use calls::text;
pub(crate) use checks::{LEAST_RECEIVES, RECEIVES_OF_A_TARGET, TIMEOUTS};
pub(crate) use diagnosis::unknown;
pub(crate) use facts::Known;
pub(crate) use fetch::{Clients, Invoked};
pub(crate) use settings::settings;

use diagnosis::{Finding, Level};
use facts::Deployment;

use crate::endpoints::Endpoints;
use crate::progress::{CommandProgress, NOTICEABLE};
use crate::queue_argument::{QueueName, RegionArgument};
use crate::stop::Stop;
use crate::{Error, document, output};

#[derive(clap::Args)]
#[command(after_help = "Permissions: lambda:GetFunctionConfiguration, \
                        lambda:ListEventSourceMappings, lambda:GetFunctionRecursionConfig, \
                        lambda:GetFunctionConcurrency, lambda:GetAccountSettings, \
                        sqs:GetQueueAttributes, sqs:GetQueueUrl, sqs:ListDeadLetterSourceQueues, \
                        iam:SimulatePrincipalPolicy, logs:DescribeLogGroups, \
                        logs:FilterLogEvents, cloudwatch:DescribeAlarms and \
                        cloudwatch:GetMetricStatistics. For --first-hour: sqs:SendMessage, and \
                        sqs:ReceiveMessage on the dead-letter queue. docs/operate/doctor.md lists \
                        those for a table, a target function, secrets and KMS keys of your own. \
                        If a permission is missing, its check is `unknown` and names the \
                        permission. Without --send-test-messages the command only reads. AWS's \
                        environment counts: AWS_REGION, credentials, and for an emulator \
                        AWS_ENDPOINT_URL.\n\n\
                        Exit status: 0; 1 if a queue or function cannot be read, or if no test \
                        message may be sent to it; 2 if the options are wrong; 3 if a finding is \
                        `danger`, with --strict also if one is `warning` or `unknown`.")]
#[allow(clippy::struct_excessive_bools, reason = "options of a command line")]
pub(crate) struct Arguments {
    #[command(flatten)]
    subject: Subject,
    #[command(flatten)]
    region: RegionArgument,
    /// The policy document, if `REQUEUE_POLICY` names a file in the function's package, or if the
    /// program sets its policy in code; `-` is the standard input.
    #[arg(long, value_name = "POLICY")]
    policy: Option<document::PolicyName>,
    /// Print JSON instead of text.
    #[arg(long)]
    json: bool,
    /// Show no finding that is `ok`, as on a terminal. The last line still counts them.
    #[arg(long, conflicts_with = "all")]
    problems_only: bool,
    /// Show also on a terminal the findings that are `ok`.
    #[arg(long)]
    all: bool,
    /// Leave out these checks, by their ids; neither the last line nor the exit status counts them.
    #[arg(long, value_name = "ID,…", value_delimiter = ',', value_parser = check_id)]
    ignore: Vec<&'static str>,
    /// End with status 3 also on `warning` and `unknown`.
    #[arg(long)]
    strict: bool,
    #[command(flatten)]
    first_hour: first_hour::Options,
}

#[derive(clap::Args)]
#[group(required = true, multiple = false)]
struct Subject {
    /// The function's name or ARN, with the alias or version that the mapping names.
    #[arg(long, value_name = "NAME")]
    function: Option<String>,
    /// The queue: its name, URL or ARN. The command checks the functions that it invokes; if there
    /// are none, a worker with the settings of `requeue work` in this environment.
    #[arg(value_name = "QUEUE")]
    source: Option<QueueName>,
    /// The same as an option.
    #[arg(long, alias = "queue-url", value_name = "QUEUE")]
    queue: Option<QueueName>,
}

/// The exit status for a bad finding. Status 2 already means wrong options, and a script must not
/// confuse a misspelt option with a deployment in danger.
const FAILED: u8 = 3;

pub(crate) fn run(arguments: &Arguments) -> Result<ExitCode, Error> {
    let runtime = Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    Stop::end_at_once()?;
    let (clients, deployments) = runtime.block_on(read(arguments))?;
    let endpoints = Endpoints::of(&clients.sdk);
    let mut examined: Vec<(Deployment, Vec<Finding>)> = deployments
        .into_iter()
        .map(|deployment| {
            let mut findings = worst_first(checks::examine(&deployment), &endpoints);
            findings.retain(|finding| !arguments.ignore.contains(&finding.id));
            checks::in_order(&deployment, &mut findings);
            (deployment, findings)
        })
        .collect();
    let findings = || examined.iter().flat_map(|(_, findings)| findings);
    let counts = show::counts(&findings().map(|finding| finding.diagnosis.level));
    let is_unseen = findings()
        .any(|finding| finding.id == "queue" && finding.diagnosis.level == Level::Unknown);
    let mut worst = findings().map(|finding| finding.diagnosis.level).max().unwrap_or(Level::Ok);
    let first_hour = match examined.first() {
        Some((deployment, _)) => {
            let options = &arguments.first_hour;
            runtime.block_on(first_hour::run(&clients, deployment, worst, options))?
        }
        None => None,
    };
    drop(clients);
    let shows_all = arguments.shows_all(stdout().is_terminal());
    if !shows_all {
        for (_, findings) in &mut examined {
            findings.retain(|finding| finding.diagnosis.level != Level::Ok);
        }
    }
    let (mut json, mut text) = (Value::Null, String::new());
    if arguments.json {
        json = show::json(&examined, counts);
    } else {
        text = show::text(&examined, counts);
        if !arguments.problems_only && !shows_all {
            text += "--all shows also what is ok\n";
        }
    }
    if let Some(first_hour) = first_hour {
        json["firstHour"] = first_hour.json;
        text += &first_hour.text;
        worst = worst.max(first_hour.worst);
    }
    if arguments.json {
        output::json(&json)?;
    } else {
        output::write(&text)?;
    }
    Ok(if worst == Level::Danger || (arguments.strict && worst > Level::Ok) {
        ExitCode::from(FAILED)
    } else if is_unseen {
        ExitCode::FAILURE
    } else {
        ExitCode::SUCCESS
    })
}

impl Arguments {
    /// A person looks for problems, and a program that reads the output for all findings.
    fn shows_all(&self, is_terminal: bool) -> bool {
        !self.problems_only && (self.all || self.json || !is_terminal)
    }
}

/// The id of a check, as a finding has it.
fn check_id(text: &str) -> Result<&'static str, String> {
    checks::all_ids().find(|id| *id == text).ok_or_else(|| {
        let ids: Vec<_> = checks::all_ids().collect();
        format!("no check has this id; the ids are {}", ids.join(", "))
    })
}

/// The findings, the worst first, with commands for the endpoints of this environment.
fn worst_first(mut findings: Vec<Finding>, endpoints: &Endpoints) -> Vec<Finding> {
    findings.sort_by_key(|finding| Reverse(finding.diagnosis.level));
    for remedy in findings.iter_mut().flat_map(|finding| &mut finding.diagnosis.remedies) {
        *remedy = remedy.at(endpoints);
    }
    findings
}

async fn read(arguments: &Arguments) -> Result<(Clients, Vec<Deployment>), Error> {
    let Arguments { subject: Subject { function, source, queue }, region, policy, .. } = arguments;
    let queue = queue.as_ref().or(source.as_ref());
    let sdk = crate::sdk::config().await;
    let document = policy.as_ref().map(document::PolicyName::read).transpose()?;
    Ok(match (function, queue) {
        (Some(function), _) => {
            let clients = Clients::new(&sdk, region.of_function(function, &sdk));
            let deployment = Box::pin(clients.function(function, document.as_ref())).await?;
            (clients, vec![deployment])
        }
        (None, Some(queue)) => {
            let found = {
                let step = format!("waiting for SQS to find {queue}");
                let _asking = CommandProgress::shown_after(NOTICEABLE, step);
                queue.find("--queue", region, &sdk).await?
            };
            if let Some(text) = &found.note {
                output::note(format_args!("note: {text}"));
            }
            let clients = Clients::new(&sdk, found.arn.region());
            let deployments = Box::pin(clients.queue(found.arn, document.as_ref())).await?;
            (clients, deployments)
        }
        (None, None) => return Err("--function or --queue is missing".into()),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(clap::Parser)]
    struct CommandLine {
        #[command(flatten)]
        arguments: Arguments,
    }

    #[test]
    fn a_terminal_shows_problems_and_a_program_gets_all() {
        for (options, on_a_terminal, elsewhere) in [
            (&[][..], false, true),
            (&["--all"], true, true),
            (&["--json"], true, true),
            (&["--problems-only"], false, false),
            (&["--problems-only", "--json"], false, false),
        ] {
            let line = [&["doctor", "--function", "orders"], options].concat();
            let CommandLine { arguments } = clap::Parser::try_parse_from(line).expect("options");
            let shown = [true, false].map(|is_terminal| arguments.shows_all(is_terminal));
            assert_eq!(shown, [on_a_terminal, elsewhere], "{options:?}");
        }
    }
}
