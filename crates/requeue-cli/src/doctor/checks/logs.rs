//! Checks of the function's log, which also carries its metrics.

use super::super::arn::own_arn;
use super::permissions::Asked;
use super::{Checked, Context, Level, Remedy, ok, remedy, warning};

/// The actions of a function on its log group. The last one matters only if there is none.
pub(crate) const LOGGING: [&str; 3] =
    ["logs:CreateLogStream", "logs:PutLogEvents", "logs:CreateLogGroup"];

/// Lines of no other class may hold metrics. Source: CloudWatch Logs user guide, "Log classes".
const STANDARD: &str = "STANDARD";

pub(super) fn logs(context: &Context<'_>) -> Checked {
    let function = context.function()?;
    let logs = &function.logs;
    let logging_to = |group: Option<&str>| {
        let group = group.map(|group| format!(",LogGroup={group}")).unwrap_or_default();
        let options = format!(
            "--logging-config LogFormat=JSON,ApplicationLogLevel=INFO,SystemLogLevel=WARN{group}"
        );
        remedy::configuration(context, function, &options)
    };
    let remedy = logging_to(logs.log_group.as_deref());
    if let Some(why) = logs.lacks_lines() {
        return warning(why, [remedy]);
    }
    let name = logs.group_of(&function.name);
    if let Some(class) = function.log_group.as_ref()?.as_ref().filter(|class| *class != STANDARD) {
        let region = context.region();
        let to = format!("{name}-standard");
        let create = format!("aws logs create-log-group --region {region} --log-group-name {to}");
        let may = Remedy::from(format!("if the role may write to {to}:")).then(create);
        let create = logging_to(Some(&to)).lines().fold(may, Remedy::then);
        let property = "template: a log group with another name, without `LogGroupClass`, since a \
                        log group keeps its class";
        return warning(
            format!(
                "the log group {name} has the class {class}: CloudWatch reads no metrics from its \
                 lines, and alarms on Requeue's metrics stay silent"
            ),
            [property.into(), create],
        );
    }
    let level = logs.application_log_level.as_deref().unwrap_or("INFO");
    ok(format!("JSON at the level {level}"))
}

pub(super) fn log_permissions(context: &Context<'_>) -> Checked {
    let function = context.function()?;
    let group = function.logs.group_of(&function.name);
    let exists = function.log_group.as_ref()?.is_some();
    let needed = if exists { &LOGGING[..2] } else { &LOGGING };
    let region = context.region();
    let resource = own_arn(&format!("{group}:*"), "logs", region, &function.role, "log-group:");
    let create = Remedy::from("if the role may then write to the group:")
        .then(format!("aws logs create-log-group --region {region} --log-group-name {group}"));
    let create = (!exists).then_some(create);
    let grant = remedy::grant(function, needed, resource, "requeue-logs");
    let consequence = if exists { "" } else { ", which does not exist" }.to_owned();
    let asked = Asked::of(&function.log_access, needed, format!(" on {group}"));
    let grants = [grant.into()].into_iter().chain(create).collect();
    Asked { level: Level::Warning, consequence, grants, ..asked }.look(function)
}
