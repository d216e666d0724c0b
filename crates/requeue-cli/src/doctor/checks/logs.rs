//! Checks of the function's log, which also carries its metrics.

use super::super::access_policy::account;
use super::super::check::Check;
use super::super::context::Context;
use super::super::diagnosis::{Checked, Diagnosis, Skip};
use super::super::facts::AccessDecision;
use super::super::remedy;
use super::permissions::Refused;

pub(super) const CHECKS: &[Check] = &[
    Check {
        id: "logs",
        why: "For each message that did not succeed at once, the log has a line at the level INFO, \
              with fields for Logs Insights.",
        look: logs,
    },
    Check {
        id: "log-permissions",
        why: "The log has the lines that explain each retry, and CloudWatch reads the metrics from \
              it.",
        look: log_permissions,
    },
    Check {
        id: "metric-lines",
        why: "CloudWatch makes no metrics from a line that it refuses, and the log shows no error.",
        look: metric_lines,
    },
];

/// The actions of a function on its log group. The last one matters only if there is none.
pub(crate) const LOGGING: [&str; 3] =
    ["logs:CreateLogStream", "logs:PutLogEvents", "logs:CreateLogGroup"];

/// The only class of log groups whose lines may hold metrics. Source: CloudWatch Logs user guide, "Log
/// classes".
const STANDARD: &str = "STANDARD";

fn logs(context: &Context<'_>) -> Checked {
    let function = context.function()?;
    let logs = &function.logs;
    let logging_to = |group: Option<&str>| {
        let group = group.map(|group| format!(",LogGroup={group}")).unwrap_or_default();
        let options = format!(
            "--logging-config LogFormat=JSON,ApplicationLogLevel=INFO,SystemLogLevel=WARN{group}"
        );
        remedy::configuration(context, function, &options)
    };
    let remedy = logging_to(logs.group.as_deref());
    let level = logs.level.as_deref().unwrap_or("INFO");
    if !logs.is_json {
        return Ok(Diagnosis::warning("the log format is Text", [remedy]));
    }
    if ["WARN", "ERROR", "FATAL"].contains(&level) {
        return Ok(Diagnosis::warning(
            format!("the application log level is {level}, so Lambda drops lines at INFO"),
            [remedy],
        ));
    }
    let name = logs.group_of(&function.name);
    if let Some(class) = function.log_group.as_ref()?.as_ref().filter(|class| *class != STANDARD) {
        let region = context.region();
        let create = format!(
            "aws logs create-log-group --region {region} --log-group-name {name}-standard, and {}, \
             if the role may write to that group",
            logging_to(Some(&format!("{name}-standard")))
        );
        let property = "template: a log group with another name, without `LogGroupClass`, since a \
                        log group keeps its class";
        return Ok(Diagnosis::warning(
            format!(
                "the log group {name} has the class {class}: CloudWatch reads no metrics from its \
                 lines, and alarms on Requeue's metrics stay silent"
            ),
            [create, property.to_owned()],
        ));
    }
    Ok(Diagnosis::ok(format!("JSON at the level {level}")))
}

fn log_permissions(context: &Context<'_>) -> Checked {
    let function = context.function()?;
    let group = function.logs.group_of(&function.name);
    let (access, exists) = (function.log_access.as_ref()?, function.log_group.as_ref()?.is_some());
    let [create_group, writing] = if exists { ["", ""] } else { [LOGGING[2], " and create it"] };
    let needed: Vec<&str> =
        LOGGING[..2].iter().copied().chain((!exists).then_some(create_group)).collect();
    let missing = |decisions: &[AccessDecision]| -> Vec<&str> {
        let of = |action: &&str| {
            let decision = access.get(*action).copied().unwrap_or(AccessDecision::Depends);
            decisions.contains(&decision)
        };
        needed.iter().copied().filter(of).collect()
    };
    let partition = function.role.split(':').nth(1).unwrap_or("aws");
    let account = account(&function.role);
    let resource =
        format!("arn:{partition}:logs:{}:{account}:log-group:{group}:*", context.region());
    let mut remedies = vec![remedy::grant(function, &needed, resource, "requeue-logs")];
    if !exists {
        let region = context.region();
        let create =
            format!("aws logs create-log-group --region {region} --log-group-name {group}");
        remedies.push(format!("{create}, if the role may then write to it"));
    }
    if let Some((found, remedy)) =
        Refused::of(access, &needed).limited(function, &format!(" on {group}"))
    {
        return Ok(Diagnosis::warning(found, [remedy]));
    }
    let refused = missing(&[AccessDecision::Denied, AccessDecision::NotAllowed]);
    if !refused.is_empty() {
        let state = if exists { "" } else { ", which does not exist" };
        let found = format!("the role may not {} on {group}{state}", refused.join(", "));
        return Ok(Diagnosis::warning(found, remedies));
    }
    let depends = missing(&[AccessDecision::Depends]).join(", ");
    if !depends.is_empty() {
        let found = format!("conditions in the role's policies decide about {depends} on {group}");
        return Err(Skip::not_checked(found, remedies));
    }
    Ok(Diagnosis::ok(format!("the role may write to {group}{writing}")))
}

fn metric_lines(context: &Context<'_>) -> Checked {
    let function = context.function()?;
    let group = function.logs.group_of(&function.name);
    // Without a group, another check tells about it.
    if function.log_group.as_ref()?.is_none() {
        return Err(Skip::NotApplicable);
    }
    let refused = function.refused_metrics.as_ref()?;
    if *refused == 0 {
        return Ok(Diagnosis::ok(format!("CloudWatch refused none of {group} in the last day")));
    }
    let region = context.region();
    let filter = "'{ $._aws = * }'";
    Ok(Diagnosis::warning(
        format!("CloudWatch refused {refused} lines with metrics of {group} in the last day"),
        [format!(
            "aws logs filter-log-events --region {region} --log-group-name {group} \
                 --filter-pattern {filter}, and correct the lines that your own code writes"
        )],
    ))
}
