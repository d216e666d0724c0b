//! Checks of the function itself: its settings and properties.

use requeue::{Mode, RecursiveLoop, Strategy};

use super::super::facts::{Function, FunctionSettings, Mapping, Readiness};
use super::permissions::is_gone;
use super::secrets::stored_text;
use super::{
    ASK, Checked, Context, LOWER, Level, Remedy, Skip, all, at, danger, not_checked, ok, remedy,
    warning,
};
use crate::document::retries;
use crate::table::{clock_time, messages, span, thousands};

/// Below the about 16 rounds of Lambda's loop detection, with room for messages of one invocation.
const RETRIES_BELOW_DETECTION: u32 = 10;
/// Of a function with an SQS mapping. Source: Lambda developer guide, "Configuring SQS queue".
const LEAST_RESERVED: u32 = 5;
/// No function can reserve it. Source: Lambda developer guide, "Configuring reserved concurrency".
const LEAST_UNRESERVED: u32 = 100;

pub(super) fn settings(context: &Context<'_>) -> Checked {
    let read = context.deployment.settings.as_ref();
    if read.is_ok_and(|valid| !valid.problems.is_empty()) {
        return valid_settings(context);
    }
    all([started(context), valid_settings(context)])
}

/// Only the log shows a missing target: a handler in the function's own code needs none.
fn started(context: &Context<'_>) -> Checked {
    let failure = context.function()?.start_failure.as_ref()?.as_ref();
    let (at, error) = failure.ok_or(Skip::NotApplicable)?;
    let found = format!("the function could not start at {} UTC: {error}", clock_time(*at));
    danger(found, [correct_settings(context)])
}

fn valid_settings(context: &Context<'_>) -> Checked {
    let valid = context.deployment.settings.as_ref()?;
    if !valid.problems.is_empty() {
        let found = format!(
            "{}; the other checks assume that these variables are not set",
            valid.problems.join("; ")
        );
        return danger(found, [correct_settings(context)]);
    }
    if let Some(place) = &valid.policy_elsewhere {
        let doctor = format!("requeue doctor --region {} {}", context.region(), subject(context));
        if place.starts_with("arn:") {
            let found = "and this command fetches no stored text";
            let found = format!("REQUEUE_POLICY names {place}, {found}");
            let fetch = format!("{} | {doctor} --policy -", stored_text(place));
            return at(Level::Unknown, found, [fetch]);
        }
        let found = "in the function's package, and this command cannot read that";
        let found = format!("REQUEUE_POLICY names the file {place} {found}");
        let copy = Remedy::of([&*format!("{doctor} --policy FILE"), "FILE is a copy of that file"]);
        return at(Level::Unknown, found, [copy]);
    }
    if valid.config.mode == Mode::Report {
        let found = "REQUEUE_MODE is report, so the function retries nothing and writes no reason";
        return warning(found, [remedy::variable(context, "MODE", "requeue")]);
    }
    let meaning = meaning(valid, context)?;
    let paths = &context.deployment.paths;
    let is_mapped = |name: &str| paths.iter().any(|path| path.source.arn.name() == name);
    let entries = valid.config.queues.keys().map(String::as_str);
    let unmapped: Vec<&str> = entries.filter(|name| !is_mapped(name)).collect();
    if !unmapped.is_empty() && !paths.is_empty() && context.function().is_ok() {
        let found = format!(
            "the policy has an entry for {}, and no mapping of this function has such a queue, so \
             the entry has no effect",
            unmapped.join(", ")
        );
        let remedy = "correct the names in `queues` of the policy, or remove the entries";
        return warning(found, [remedy]);
    }
    ok(match valid.variables {
        _ if context.function().is_err() => format!("in this environment: {meaning}"),
        0 => format!(
            "no REQUEUE_ variables, so the defaults are assumed: {meaning}; settings in the \
             program's code are not visible"
        ),
        1 => format!("1 variable: {meaning}"),
        count => format!("{count} variables: {meaning}"),
    })
}

/// `at most 50 retries and 48 h, strategy copy, dead letters by annotate, 10 handlers at once, …`
fn meaning(valid: &FunctionSettings, context: &Context<'_>) -> Result<String, Skip> {
    let config = &valid.config;
    let paths = &context.deployment.paths;
    // A FIFO queue has no copies.
    let is_fifo = !paths.is_empty() && paths.iter().all(|path| path.source.arn.is_fifo());
    let strategy = if is_fifo { Strategy::Visibility } else { config.strategy }.as_str();
    let dead_letter = config.dead_letter.clone().unwrap_or_default();
    let concurrency = thousands(config.limits.concurrency);
    let calls = match &context.deployment.target {
        None if valid.target_url.is_none() && context.function().is_ok() => {
            format!("{concurrency} handlers of its own at once (it has no target)")
        }
        None => format!("{concurrency} handlers at once"),
        Some(target) => {
            let most = messages(target.messages_per_call);
            format!("{concurrency} invocations of up to {most} at once")
        }
    };
    Ok(format!(
        "at most {} and {}, strategy {strategy}, dead letters by {}, {calls}, {} for each",
        retries(context.max_retries()?),
        span(context.age_budget()?),
        dead_letter.as_str(),
        span(config.limits.timeout)
    ))
}

fn correct_settings(context: &Context<'_>) -> Remedy {
    let Ok(function) = context.function() else {
        return "correct them in the environment of `requeue work`".into();
    };
    let options = "--query '{Variables: Environment.Variables}' --output json > environment.json";
    let read =
        remedy::function(context, &function.qualified(), "get-function-configuration", options);
    let replace = remedy::configuration(context, function, "--environment file://environment.json");
    let first = [
        "correct them in the template, below Environment: Variables, and deploy; or by hand:",
        "install -m 600 /dev/null environment.json",
        &read,
        "correct the file; if it has null, stop, since kms:Decrypt is missing",
    ];
    // The file shows the variables in plain text.
    let replace = replace.then("rm environment.json");
    let replace = replace.commented("then replace all variables by those of the file:");
    Remedy::of(first.into_iter().chain(replace.lines()))
}

/// The options that name the function, or else its only queue.
fn subject(context: &Context<'_>) -> String {
    match (context.function(), context.deployment.paths.first()) {
        (Err(_), Some(path)) => format!("--queue {}", path.source.arn.name()),
        (function, _) => {
            format!("--function {}", function.map(Function::qualified).unwrap_or_default())
        }
    }
}

pub(super) fn mapping(context: &Context<'_>) -> Checked {
    let Ok(function) = context.function() else {
        for path in &context.deployment.paths {
            path.source.consumers.as_ref()?;
        }
        return ok(
            "no function has a mapping for this queue, so it is checked as a worker's (`requeue \
             work`)",
        );
    };
    let names: Vec<&str> =
        context.deployment.paths.iter().map(|path| path.source.arn.name()).collect();
    let region = context.region();
    let run = |function: &String| format!("requeue doctor --region {region} --function {function}");
    if names.is_empty() && function.mapped.is_empty() {
        let options = "--event-source-arn ARN --function-response-types ReportBatchItemFailures \
                       --scaling-config MaximumConcurrency=10";
        let (name, command) = (function.qualified(), "create-event-source-mapping");
        let create = remedy::function(context, &name, command, options);
        let alias = run(&format!("{}:ALIAS", function.name));
        return danger(
            "no event source mapping from an SQS queue has this function name",
            [
                Remedy::from(create).then("ARN is that of the queue"),
                Remedy::from("if a mapping names an alias or version:").then(alias),
            ],
        );
    }
    let (invoked, others) = (names.join(", "), function.mapped.join(" and "));
    let found = match (names.is_empty(), function.mapped.is_empty()) {
        (_, true) => return ok(format!("invoked by {invoked}")),
        (true, false) => format!("its mappings invoke {others}"),
        (false, false) => format!("invoked by {invoked}; other mappings invoke {others}"),
    };
    Err(not_checked(found, [Remedy::of(function.mapped.iter().map(run))]))
}

pub(super) fn state(context: &Context<'_>) -> Checked {
    let function = context.function()?;
    if function.log_access.as_ref().is_err_and(is_gone) {
        let found = format!("the role {} does not exist", function.role);
        let other = remedy::configuration(context, function, "--role ROLE");
        return danger(found, [other.then("ROLE is the ARN of a role that Lambda may assume")]);
    }
    let (level, command) = readiness(&function.state);
    let found = format!("the state is {}", function.state.told());
    at(level, found, [remedy::function(context, &function.qualified(), command, "")])
}

/// The level of a function's state, and the command that shows it without variables, or awaits it.
pub(super) fn readiness(of: &Readiness) -> (Level, &'static str) {
    let show = "get-function-configuration --query '[StateReason,LastUpdateStatusReason]'";
    let [state, update] =
        [&of.state, &of.last_update_status].map(|word| word.as_deref().unwrap_or_default());
    match (state, update) {
        ("Failed", _) => (Level::Danger, show),
        ("Pending", _) => (Level::Warning, "wait function-active-v2"),
        ("Inactive", _) | ("Active", "Failed") => (Level::Warning, show),
        ("Active", "Successful") => (Level::Ok, ""),
        ("Active", "InProgress") => (Level::Unknown, "wait function-updated-v2"),
        _ => (Level::Unknown, show),
    }
}

/// Routes, security groups and endpoints are not read: a confirmed copy proves the connection.
pub(super) fn network(context: &Context<'_>) -> Checked {
    let function = context.function()?;
    let Some(vpc) = &function.vpc else {
        return ok("the function is in no VPC, so it reaches SQS");
    };
    let region = context.region();
    let endpoint = format!(
        "aws ec2 create-vpc-endpoint --region {region} --vpc-id {vpc} --vpc-endpoint-type Interface \
         --service-name com.amazonaws.{region}.sqs --private-dns-enabled --subnet-ids SUBNETS \
         --security-group-ids GROUP"
    );
    let endpoint = Remedy::of([&*endpoint, "or give its subnets a route to a public NAT gateway"]);
    match context.deployment.sends.as_ref()? {
        Some(false) => {
            let group = function.logs.group_of(&function.name);
            let look = format!(
                "aws logs filter-log-events --region {region} --log-group-name {group} \
                 --filter-pattern NoConnection"
            );
            let look = Remedy::from(look).then("this shows the copies that had no way to SQS");
            let found = format!(
                "SQS did not confirm each copy of the last hour, and the function is in {vpc}"
            );
            danger(found, [look, endpoint])
        }
        Some(true) => ok(format!("SQS confirmed the copies of the last hour from {vpc}")),
        None => {
            let found = format!(
                "the function is in {vpc}, and no copy of the last hour shows that it reaches SQS"
            );
            warning(found, [endpoint])
        }
    }
}

pub(super) fn recursive_loop(context: &Context<'_>) -> Checked {
    let (function, config) = (context.function()?, context.config()?);
    let command = "put-function-recursion-config";
    let allow = remedy::function(context, &function.name, command, "--recursive-loop Allow");
    let line = "template, property of the function: `RecursiveLoop: Allow`".to_owned();
    let variable = remedy::variable(context, "RECURSIVE_LOOP", "Allow");
    let is_terminated = config.recursive_loop == RecursiveLoop::Terminate;
    let is_fair = config.strategy == Strategy::Copy && config.policy.fair_shares.is_some();
    if is_fair && is_terminated {
        return danger(
            "the policy has fairBy, but REQUEUE_RECURSIVE_LOOP is not Allow: the function does not \
             start",
            [Remedy::of([allow, variable]), line.into()],
        );
    }
    let has_standard = context.deployment.paths.iter().any(|path| !path.source.arn.is_fifo());
    let copies = config.strategy == Strategy::Copy && config.mode == Mode::Requeue;
    if !(has_standard && copies) {
        return ok("the function sends no copies to its queues");
    }
    let property = *function.recursive_loop.as_ref()?;
    let bounded = "after 10 copies a message waits in flight, and maxReceiveCount bounds \
                   its other retries";
    match (property, config.recursive_loop) {
        (RecursiveLoop::Allow, RecursiveLoop::Allow) => {
            ok("allowed by the function's property and its settings")
        }
        (RecursiveLoop::Terminate, RecursiveLoop::Allow) => danger(
            "the function's property RecursiveLoop is Terminate, but REQUEUE_RECURSIVE_LOOP is \
             Allow: Lambda dead-letters messages after about 16 copies",
            [allow, line],
        ),
        (RecursiveLoop::Allow, RecursiveLoop::Terminate) => {
            let found = "the function's property RecursiveLoop is Allow, but \
                         REQUEUE_RECURSIVE_LOOP is not";
            warning(format!("{found}: {bounded}"), [variable])
        }
        (RecursiveLoop::Terminate, RecursiveLoop::Terminate) => {
            let most = context.max_retries()?;
            let needs = most > RETRIES_BELOW_DETECTION;
            let level = if needs { Level::Danger } else { Level::Ok };
            let found = format!(
                "the function's property RecursiveLoop is Terminate, and the policy allows {}{}",
                retries(most),
                if needs { format!(": {bounded}") } else { String::new() }
            );
            let fewer = format!("policy: `\"maxRetries\": {RETRIES_BELOW_DETECTION}`");
            at(level, found, [Remedy::of([allow, variable]), fewer.into()])
        }
    }
}

pub(super) fn concurrency(context: &Context<'_>) -> Checked {
    let function = context.function()?;
    let reserved = *function.reserved_concurrency.as_ref()?;
    let wanted: u32 = context.mappings().filter_map(Mapping::most_batches).sum();
    let unbounded = || context.mappings().filter(|mapping| mapping.most_batches().is_none());
    let lower = LOWER.to_owned();
    let Some(reserved) = reserved else {
        let limit = |mapping: &Mapping| {
            remedy::mapping(context, mapping, "--scaling-config MaximumConcurrency=10")
        };
        let limits: Vec<String> = unbounded().map(limit).collect();
        if !limits.is_empty() {
            let found =
                "neither a mapping nor the function limits the number of concurrent batches";
            return warning(found, [Remedy::of(limits)]);
        }
        let (free, needed) =
            (*function.unreserved_concurrency.as_ref()?, wanted.max(LEAST_RESERVED));
        let found = format!(
            "the account has {} for all functions without a reserved concurrency, and this \
             function's mappings need {}",
            thousands(free),
            thousands(needed)
        );
        let raise = format!(
            "aws service-quotas request-service-quota-increase --region {} --service-code lambda \
             --quota-code L-B99A9384 --desired-value QUOTA",
            context.region()
        );
        let more = needed.saturating_sub(free);
        let raise = Remedy::from(raise).then(format!("QUOTA is at least the present one + {more}"));
        let level = if free < needed { Level::Warning } else { Level::Ok };
        let lower = (wanted > LEAST_RESERVED).then(|| lower.into());
        return at(level, found, lower.into_iter().chain([raise]));
    };
    let is_bounded = unbounded().next().is_none();
    let needed = wanted.max(if is_bounded { 0 } else { LEAST_RESERVED });
    let (level, reason) = match reserved {
        0 => (Level::Danger, format!(", so Lambda never invokes the function{ASK}")),
        _ if reserved < wanted => (
            Level::Warning,
            format!(", but its mappings run up to {} batches at a time", thousands(wanted)),
        ),
        _ if reserved < needed => (
            Level::Warning,
            format!(
                ", but AWS recommends at least {LEAST_RESERVED} if a mapping has no maximum \
                 concurrency"
            ),
        ),
        _ => (Level::Ok, format!(", and its mappings need {}", thousands(needed))),
    };
    let most = if reserved == 0 { needed.max(LEAST_RESERVED) } else { needed };
    let options = format!("--reserved-concurrent-executions {most}");
    let reserve = remedy::function(context, &function.name, "put-function-concurrency", &options);
    let template = "template, parameters: `ReserveConcurrency=true`, which reserves as many as the \
                    mapping needs";
    // If too little were left, Lambda would refuse the reservation.
    let free = function.unreserved_concurrency.as_ref();
    let is_refused = free.is_ok_and(|free| free + reserved < needed + LEAST_UNRESERVED);
    let remedies = if reserved == 0 && is_refused {
        vec![remedy::function(context, &function.name, "delete-function-concurrency", "")]
    } else if reserved == 0 || reserved >= wanted {
        vec![reserve]
    } else if is_refused {
        vec![lower]
    } else {
        vec![reserve, template.to_owned(), lower]
    };
    let found = format!("the reserved concurrency is {}{reason}", thousands(reserved));
    at(level, found, remedies)
}
