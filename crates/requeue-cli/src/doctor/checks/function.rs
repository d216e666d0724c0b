//! The function itself: its settings, and its properties that no queue decides.

use requeue::{DeadLetterMode, Mode, RecursiveLoop, Strategy};

use super::super::case::Case;
use super::super::facts::{Settings, Valid};
use super::super::finding::{Check, Looked, Skip, Verdict};
use super::super::remedy;
use crate::policy_text::retries;
use crate::table::span;

pub(super) const CHECKS: &[Check] = &[
    Check {
        id: "settings",
        why: "A function whose settings are invalid does not start, and its messages come back until SQS gives them up.",
        look: settings,
    },
    Check {
        id: "mapping",
        why: "Only a mapping takes messages from a queue to the function.",
        look: mapping,
    },
    Check {
        id: "recursive-loop",
        why: "A copy is a message that the function sends to its own queue: unless that is allowed, Lambda takes it for a runaway loop and \
              sends the message to the dead-letter queue after about 16.",
        look: recursive_loop,
    },
    Check {
        id: "mode",
        why: "In the mode report, which is for emergencies, nothing is retried but by SQS itself.",
        look: mode,
    },
    Check {
        id: "reserved-concurrency",
        why: "An invocation for which no concurrency is left is throttled, and each of its messages has been received once more.",
        look: reserved_concurrency,
    },
    Check {
        id: "logs",
        why: "The log says what became of each message that did not simply succeed, at the level INFO, in fields for Logs Insights.",
        look: logs,
    },
];

/// The most retries that stay below the about 16 rounds of Lambda's loop detection, with room for
/// what shares an invocation.
const RETRIES_BELOW_DETECTION: u32 = 10;
/// The least reserved concurrency for a function with an SQS mapping. Source: Lambda developer
/// guide, "Configuring SQS queue".
const LEAST_RESERVED: u32 = 5;

fn settings(case: &Case<'_>) -> Looked {
    let valid = match &case.deployment.settings {
        Settings::Unread(unread) => return Err(unread.into()),
        Settings::Invalid(problems) => {
            return Ok(Verdict::danger(problems.join("; "), correct_settings(case)));
        }
        Settings::Valid(valid) => valid,
    };
    if let Some(file) = &valid.policy_file {
        let found = format!(
            "REQUEUE_POLICY names the file {file} in the function's package, which cannot be read from here"
        );
        return Ok(Verdict::unknown(found, ["requeue doctor … --policy FILE, with that file"]));
    }
    let meaning = meaning(valid, case)?;
    Ok(Verdict::ok(match valid.variables {
        _ if case.function().is_err() => format!("of this environment: {meaning}"),
        0 => format!(
            "no REQUEUE_ variables, so these defaults are assumed: {meaning}; what the program sets in its code is not seen"
        ),
        1 => format!("1 variable: {meaning}"),
        count => format!("{count} variables: {meaning}"),
    }))
}

/// `at most 50 retries and 48 h, strategy copy, dead letters by annotate, 10 handlers at once, 30 s for each`
fn meaning(valid: &Valid, case: &Case<'_>) -> Result<String, Skip> {
    let config = &valid.config;
    let strategy = match config.strategy {
        Strategy::Copy => "copy",
        Strategy::Visibility => "visibility",
    };
    let dead_letter = match config.dead_letter {
        DeadLetterMode::Redrive => "redrive",
        DeadLetterMode::Annotate => "annotate",
        DeadLetterMode::Direct(_) => "direct",
    };
    Ok(format!(
        "at most {} and {}, strategy {strategy}, dead letters by {dead_letter}, {} handlers at once, {} for each",
        retries(case.max_retries()?),
        span(case.age_budget()?),
        config.limits.concurrency,
        span(config.limits.timeout)
    ))
}

fn correct_settings(case: &Case<'_>) -> Vec<String> {
    let Ok(function) = case.function() else {
        return vec!["correct them in the environment of `requeue work`".to_owned()];
    };
    vec![
        "correct them in the template, below Environment: Variables, and deploy".to_owned(),
        format!(
            "{} > environment.json, correct them in it, and {}, which replaces all variables",
            remedy::function(
                case,
                function,
                "get-function-configuration",
                "--query '{Variables: Environment.Variables}'"
            ),
            remedy::function(
                case,
                function,
                "update-function-configuration",
                "--environment file://environment.json"
            )
        ),
    ]
}

fn mapping(case: &Case<'_>) -> Looked {
    if let Some(unread) = &case.deployment.unlisted {
        return Err(unread.into());
    }
    let Ok(function) = case.function() else {
        return Ok(Verdict::ok(
            "no function's mapping takes from this queue: it is looked at as for `requeue work`",
        ));
    };
    let names: Vec<&str> =
        case.deployment.places.iter().map(|place| place.source.arn.name()).collect();
    if names.is_empty() {
        let options = "--event-source-arn ARN --function-response-types ReportBatchItemFailures \
                       --scaling-config MaximumConcurrency=10";
        let create = remedy::function(case, function, "create-event-source-mapping", options);
        let qualified = format!(
            "if a mapping names an alias or version: requeue doctor --function {}:ALIAS",
            function.name
        );
        return Ok(Verdict::danger(
            "no SQS queue invokes the function under this name",
            [format!("{create}, with the queue's ARN"), qualified],
        ));
    }
    Ok(Verdict::ok(format!("invoked by {}", names.join(", "))))
}

fn recursive_loop(case: &Case<'_>) -> Looked {
    let function = case.function()?;
    let config = case.config()?;
    if !case.sends_copies()? {
        return Ok(Verdict::ok("the function sends no copies to its queues"));
    }
    let property = *function.recursive_loop.as_ref()?;
    let allow =
        remedy::function(case, function, "put-function-recursion-config", "--recursive-loop Allow");
    let property_line = "template, property of the function: `RecursiveLoop: Allow`".to_owned();
    let variable = remedy::variable("RECURSIVE_LOOP", "Allow");
    Ok(match (property, config.recursive_loop) {
        (RecursiveLoop::Allow, RecursiveLoop::Allow) => {
            Verdict::ok("allowed by the function's property and its settings")
        }
        (RecursiveLoop::Terminate, RecursiveLoop::Allow) => Verdict::danger(
            "the function's property RecursiveLoop is Terminate, but REQUEUE_RECURSIVE_LOOP says Allow: Lambda cuts messages off",
            [allow, property_line],
        ),
        (RecursiveLoop::Allow, RecursiveLoop::Terminate) => Verdict::warning(
            "the function's property RecursiveLoop is Allow, but REQUEUE_RECURSIVE_LOOP is not: after 10 copies a message waits by its \
             visibility, and gets maxReceiveCount receives in place of its other retries",
            [variable],
        ),
        (RecursiveLoop::Terminate, RecursiveLoop::Terminate) => match case.max_retries()? {
            few @ ..=RETRIES_BELOW_DETECTION => {
                Verdict::ok(format!("not allowed, and not needed: at most {}", retries(few)))
            }
            many => Verdict::danger(
                format!(
                    "the function's property RecursiveLoop is Terminate, and the policy allows {}: after 10 copies a message waits by its \
                     visibility, and gets maxReceiveCount receives in place of its other retries",
                    retries(many)
                ),
                [format!("{allow}, and {variable}"), "policy: `\"maxRetries\": 10`".to_owned()],
            ),
        },
    })
}

fn mode(case: &Case<'_>) -> Looked {
    Ok(match case.config()?.mode {
        Mode::Requeue => Verdict::ok("what fails is tried again"),
        Mode::Report => Verdict::warning(
            "REQUEUE_MODE is report: every failure is left to SQS and its redrive policy",
            [remedy::variable("MODE", "requeue")],
        ),
    })
}

fn reserved_concurrency(case: &Case<'_>) -> Looked {
    let function = case.function()?;
    let Some(reserved) = *function.reserved_concurrency.as_ref()? else {
        return Ok(Verdict::ok("none is reserved, so none bounds the function"));
    };
    let mappings = || case.deployment.places.iter().filter_map(|place| place.mapping.as_ref());
    let wanted: u32 = mappings().filter_map(|mapping| mapping.maximum_concurrency).sum();
    let has_unbounded = mappings().any(|mapping| mapping.maximum_concurrency.is_none());
    let needed = wanted.max(if has_unbounded { LEAST_RESERVED } else { 0 });
    let reserve = |count: u32| {
        remedy::function(
            case,
            function,
            "put-function-concurrency",
            &format!("--reserved-concurrent-executions {count}"),
        )
    };
    Ok(if reserved == 0 {
        Verdict::danger(
            "0 are reserved: the function is never invoked",
            [reserve(needed.max(LEAST_RESERVED))],
        )
    } else if reserved < wanted {
        let found = format!(
            "{reserved} are reserved, and the maximum concurrency of its mappings is {wanted}"
        );
        Verdict::warning(found, [reserve(needed)])
    } else if reserved < needed {
        let found = format!(
            "{reserved} are reserved, and AWS asks for at least {LEAST_RESERVED} where the mapping has no maximum concurrency"
        );
        Verdict::warning(found, [reserve(needed)])
    } else {
        Verdict::ok(format!("{reserved} are reserved, and its mappings need {needed}"))
    })
}

fn logs(case: &Case<'_>) -> Looked {
    let function = case.function()?;
    let logs = &function.logs;
    let group = logs.group.as_ref().map(|group| format!(",LogGroup={group}")).unwrap_or_default();
    let options = format!(
        "--logging-config LogFormat=JSON,ApplicationLogLevel=INFO,SystemLogLevel=WARN{group}"
    );
    let remedy = remedy::function(case, function, "update-function-configuration", &options);
    let level = logs.level.as_deref().unwrap_or("INFO");
    Ok(if !logs.is_json {
        Verdict::warning("the log format is Text", [remedy])
    } else if ["WARN", "ERROR", "FATAL"].contains(&level) {
        Verdict::warning(
            format!("the application log level is {level}, so lines at INFO are not kept"),
            [remedy],
        )
    } else {
        Verdict::ok(format!("JSON at the level {level}"))
    })
}
