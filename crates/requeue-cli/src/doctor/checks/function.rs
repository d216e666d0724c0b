//! Checks of the function itself: its settings and properties.

use requeue::{Mode, RecursiveLoop};

use super::super::check::Check;
use super::super::context::Context;
use super::super::diagnosis::{Checked, Diagnosis, Skip};
use super::super::facts::{FunctionSettings, PolicyPlace, State, Valid};
use super::super::remedy;
use super::secrets::stored_text;
use super::{network, version};
use crate::document::retries;
use crate::table::span;

pub(super) const CHECKS: &[Check] = &[
    Check {
        id: "settings",
        why: "A function with invalid settings does not start, and SQS redelivers its messages \
              until they are dead-lettered.",
        look: settings,
    },
    Check {
        id: "mapping",
        why: "Only an event source mapping delivers messages of a queue to the function.",
        look: mapping,
    },
    Check {
        id: "function-state",
        why: "Lambda invokes a function only in the state Active, and runs the old code and \
              configuration if an update has failed.",
        look: state,
    },
    Check { id: "function-version", why: version::WHY, look: version::version },
    Check { id: "network", why: network::WHY, look: network::network },
    Check {
        id: "recursive-loop",
        why: "Requeue sends copies to the function's own queue. Without RecursiveLoop: Allow, \
              Lambda takes that for a recursive loop and dead-letters the message after about 16 \
              copies.",
        look: recursive_loop,
    },
    Check {
        id: "mode",
        why: "The mode report is for emergencies: only SQS itself retries then.",
        look: mode,
    },
    Check {
        id: "reserved-concurrency",
        why: "Without free concurrency, Lambda throttles an invocation, and each of its messages \
              has used up a receive.",
        look: reserved_concurrency,
    },
    Check {
        id: "account-concurrency",
        why: "Functions without a reserved concurrency share the account's. If it is used up, \
              Lambda throttles an invocation, and each of its messages has used up a receive.",
        look: account_concurrency,
    },
];

/// The most retries that stay below the about 16 rounds of Lambda's loop detection. Messages that
/// share an invocation need the rest.
const RETRIES_BELOW_DETECTION: u32 = 10;
/// The least reserved concurrency for a function with an SQS mapping. Source: Lambda developer
/// guide, "Configuring SQS queue".
const LEAST_RESERVED: u32 = 5;
/// The concurrency that no function of an account can reserve. Source: Lambda developer guide,
/// "Configuring reserved concurrency".
const LEAST_UNRESERVED: u32 = 100;

fn settings(context: &Context<'_>) -> Checked {
    let valid = match &context.deployment.settings {
        FunctionSettings::Unread(unread) => return Err(unread.into()),
        FunctionSettings::Invalid(problems) => {
            return Ok(Diagnosis::danger(problems.join("; "), correct_settings(context)));
        }
        FunctionSettings::Valid(valid) => valid,
    };
    if !valid.problems.is_empty() {
        let found = format!(
            "{}; the other checks assume that these variables are not set",
            valid.problems.join("; ")
        );
        return Ok(Diagnosis::danger(found, correct_settings(context)));
    }
    if let Some(place) = &valid.policy_elsewhere {
        let (found, remedy) = match place {
            PolicyPlace::File(file) => (
                format!(
                    "REQUEUE_POLICY names the file {file} in the function's package, and this \
                     command cannot read that"
                ),
                "requeue doctor … --policy FILE, with a copy of that file".to_owned(),
            ),
            PolicyPlace::Stored(arn) => (
                format!("REQUEUE_POLICY names {arn}, and this command fetches no stored text"),
                format!("{} | requeue doctor … --policy -", stored_text(arn)),
            ),
        };
        return Ok(Diagnosis::unknown(found, [remedy]));
    }
    let meaning = meaning(valid, context)?;
    Ok(Diagnosis::ok(match valid.variables {
        _ if context.function().is_err() => format!("in this environment: {meaning}"),
        0 => format!(
            "no REQUEUE_ variables, so the defaults are assumed: {meaning}; settings in the \
             program's code are not visible"
        ),
        1 => format!("1 variable: {meaning}"),
        count => format!("{count} variables: {meaning}"),
    }))
}

/// `at most 50 retries and 48 h, strategy copy, dead letters by annotate, 10 handlers at once, 30 s
/// for each`
fn meaning(valid: &Valid, context: &Context<'_>) -> Result<String, Skip> {
    let config = &valid.config;
    let (strategy, dead_letter) = (config.strategy, config.dead_letter.clone().unwrap_or_default());
    let (strategy, dead_letter) = (strategy.as_str(), dead_letter.as_str());
    Ok(format!(
        "at most {} and {}, strategy {strategy}, dead letters by {dead_letter}, {} handlers at \
         once, {} for each",
        retries(context.max_retries()?),
        span(context.age_budget()?),
        config.limits.concurrency,
        span(config.limits.timeout)
    ))
}

fn correct_settings(context: &Context<'_>) -> Vec<String> {
    let Ok(function) = context.function() else {
        return vec!["correct them in the environment of `requeue work`".to_owned()];
    };
    vec![
        "correct them in the template, below Environment: Variables, and deploy".to_owned(),
        format!(
            "{} > environment.json; if the file has null, stop, since kms:Decrypt is missing; correct \
             the file; {}, which replaces all variables; delete the file, which shows them in plain \
             text",
            remedy::qualified(
                context,
                function,
                "get-function-configuration",
                "--query '{Variables: Environment.Variables}' --output json"
            ),
            remedy::configuration(context, function, "--environment file://environment.json")
        ),
    ]
}

fn mapping(context: &Context<'_>) -> Checked {
    if let Some(unread) = &context.deployment.unlisted {
        return Err(unread.into());
    }
    let Ok(function) = context.function() else {
        return Ok(Diagnosis::ok(
            "no function has a mapping for this queue, so it is checked as a worker's (`requeue \
             work`)",
        ));
    };
    let names: Vec<&str> =
        context.deployment.paths.iter().map(|path| path.source.arn.name()).collect();
    let run = |function: &String| format!("requeue doctor --function {function}");
    if names.is_empty() && !function.mapped.is_empty() {
        let found = format!("its mappings invoke {}", function.mapped.join(" and "));
        return Err(Skip::not_checked(found, function.mapped.iter().map(run)));
    }
    if names.is_empty() {
        let options = "--event-source-arn ARN --function-response-types ReportBatchItemFailures \
                       --scaling-config MaximumConcurrency=10";
        let create = remedy::qualified(context, function, "create-event-source-mapping", options);
        let alias = run(&format!("{}:ALIAS", function.name));
        let qualified = format!("if a mapping names an alias or version: {alias}");
        return Ok(Diagnosis::danger(
            "no event source mapping from an SQS queue has this function name",
            [format!("{create}, with the queue's ARN"), qualified],
        ));
    }
    let found = format!("invoked by {}", names.join(", "));
    if function.mapped.is_empty() {
        return Ok(Diagnosis::ok(found));
    }
    let others = function.mapped.join(" and ");
    let found = format!("{found}; other mappings invoke {others}");
    Err(Skip::not_checked(found, function.mapped.iter().map(run)))
}

fn state(context: &Context<'_>) -> Checked {
    let function = context.function()?;
    let State { current: state, reason, last_update, last_update_reason } = &function.state;
    let told = |reason: &Option<String>| {
        reason.as_ref().map(|reason| format!(" ({reason})")).unwrap_or_default()
    };
    let show = [remedy::qualified(context, function, "get-function-configuration", "")];
    let wait = |waiter| [remedy::qualified(context, function, &format!("wait {waiter}"), "")];
    let found = match state.as_deref() {
        Some(state) => format!("the state is {state}{}", told(reason)),
        None => return Err(Skip::not_checked("Lambda's response has no State", show)),
    };
    let updated = match last_update.as_deref() {
        Some(status) => format!("the last update is {status}{}", told(last_update_reason)),
        None => return Err(Skip::not_checked("Lambda's response has no LastUpdateStatus", show)),
    };
    Ok(match (state.as_deref().unwrap_or_default(), last_update.as_deref().unwrap_or_default()) {
        ("Failed", _) => Diagnosis::danger(found, show),
        ("Pending", _) => Diagnosis::warning(found, wait("function-active-v2")),
        ("Inactive", _) => Diagnosis::warning(found, show),
        ("Active", "Successful") => Diagnosis::ok("Active, and the last update is Successful"),
        ("Active", "Failed") => Diagnosis::warning(updated, show),
        ("Active", "InProgress") => {
            return Err(Skip::not_checked(updated, wait("function-updated-v2")));
        }
        ("Active", _) => return Err(Skip::not_checked(updated, show)),
        _ => return Err(Skip::not_checked(found, show)),
    })
}

fn recursive_loop(context: &Context<'_>) -> Checked {
    let function = context.function()?;
    let config = context.config()?;
    if !context.sends_copies()? {
        return Ok(Diagnosis::ok("the function sends no copies to its queues"));
    }
    let property = *function.recursive_loop.as_ref()?;
    let allow = remedy::function(
        context,
        function,
        "put-function-recursion-config",
        "--recursive-loop Allow",
    );
    let property_line = "template, property of the function: `RecursiveLoop: Allow`".to_owned();
    let variable = remedy::variable("RECURSIVE_LOOP", "Allow");
    Ok(match (property, config.recursive_loop) {
        (RecursiveLoop::Allow, RecursiveLoop::Allow) => {
            Diagnosis::ok("allowed by the function's property and its settings")
        }
        (RecursiveLoop::Terminate, RecursiveLoop::Allow) => Diagnosis::danger(
            "the function's property RecursiveLoop is Terminate, but REQUEUE_RECURSIVE_LOOP is \
             Allow: Lambda dead-letters messages after about 16 copies",
            [allow, property_line],
        ),
        (RecursiveLoop::Allow, RecursiveLoop::Terminate) => Diagnosis::warning(
            "the function's property RecursiveLoop is Allow, but REQUEUE_RECURSIVE_LOOP is not: \
             after 10 copies a message waits by its visibility, and maxReceiveCount bounds its \
             other retries",
            [variable],
        ),
        (RecursiveLoop::Terminate, RecursiveLoop::Terminate) => match context.max_retries()? {
            few @ ..=RETRIES_BELOW_DETECTION => {
                Diagnosis::ok(format!("not allowed, and not needed: at most {}", retries(few)))
            }
            many => Diagnosis::danger(
                format!(
                    "the function's property RecursiveLoop is Terminate, and the policy allows {}: \
                     after 10 copies a message waits by its visibility, and maxReceiveCount bounds \
                     its other retries",
                    retries(many)
                ),
                [format!("{allow}, and {variable}"), "policy: `\"maxRetries\": 10`".to_owned()],
            ),
        },
    })
}

fn mode(context: &Context<'_>) -> Checked {
    Ok(match context.config()?.mode {
        Mode::Requeue => Diagnosis::ok("REQUEUE_MODE is requeue"),
        Mode::Report => Diagnosis::warning(
            "REQUEUE_MODE is report, which leaves every failure to SQS and its redrive policy",
            [remedy::variable("MODE", "requeue")],
        ),
        other => Diagnosis::warning(
            format!("REQUEUE_MODE is {}", other.as_str()),
            [remedy::variable("MODE", "requeue")],
        ),
    })
}

fn account_concurrency(context: &Context<'_>) -> Checked {
    let function = context.function()?;
    if let Some(reserved) = *function.reserved_concurrency.as_ref()? {
        return Ok(Diagnosis::ok(format!("the function has a reserved concurrency of {reserved}")));
    }
    let mappings = || context.deployment.paths.iter().filter_map(|path| path.mapping.as_ref());
    let wanted: u32 = mappings().filter_map(|mapping| mapping.maximum_concurrency).sum();
    let needed = wanted.max(LEAST_RESERVED);
    let free = *function.unreserved_concurrency.as_ref()?;
    let compared = format!(
        "the account has {free} for all functions without a reserved concurrency, and this \
         function's mappings need {needed}"
    );
    Ok(if free < needed {
        let raise = format!(
            "aws service-quotas request-service-quota-increase --region {} --service-code lambda \
             --quota-code L-B99A9384 --desired-value 1000",
            context.region()
        );
        let lower = "lower the MaximumConcurrency of the mappings".to_owned();
        Diagnosis::warning(compared, [raise, lower])
    } else {
        Diagnosis::ok(compared)
    })
}

fn reserved_concurrency(context: &Context<'_>) -> Checked {
    let function = context.function()?;
    let Some(reserved) = *function.reserved_concurrency.as_ref()? else {
        return Ok(Diagnosis::ok("no reserved concurrency, so it does not limit the function"));
    };
    let mappings = || context.deployment.paths.iter().filter_map(|path| path.mapping.as_ref());
    let wanted: u32 = mappings().filter_map(|mapping| mapping.maximum_concurrency).sum();
    let has_unbounded = mappings().any(|mapping| mapping.maximum_concurrency.is_none());
    let needed = wanted.max(if has_unbounded { LEAST_RESERVED } else { 0 });
    let reserve = |count: u32| {
        remedy::function(
            context,
            function,
            "put-function-concurrency",
            &format!("--reserved-concurrent-executions {count}"),
        )
    };
    Ok(if reserved == 0 {
        Diagnosis::danger(
            "the reserved concurrency is 0, so Lambda never invokes the function",
            [reserve(needed.max(LEAST_RESERVED))],
        )
    } else if reserved < wanted {
        let found = format!(
            "the reserved concurrency is {reserved}, but the maximum concurrency of its mappings \
             is {wanted}"
        );
        let template =
            "template, parameters: `ReserveConcurrency=true`, which reserves as many as \
                        MaximumConcurrency"
                .to_owned();
        let lower = "lower the MaximumConcurrency of the mappings".to_owned();
        // If too little were left, Lambda would refuse the reservation.
        let is_refused = function
            .unreserved_concurrency
            .as_ref()
            .is_ok_and(|free| free + reserved < needed + LEAST_UNRESERVED);
        let more = (!is_refused).then(|| [reserve(needed), template]).into_iter().flatten();
        Diagnosis::warning(found, more.chain([lower]))
    } else if reserved < needed {
        let found = format!(
            "the reserved concurrency is {reserved}, but AWS recommends at least {LEAST_RESERVED} \
             if a mapping has no maximum concurrency"
        );
        Diagnosis::warning(found, [reserve(needed)])
    } else {
        Diagnosis::ok(format!(
            "the reserved concurrency is {reserved}, and its mappings need {needed}"
        ))
    })
}
