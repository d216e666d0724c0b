//! Reads the settings of a program that runs elsewhere, and no secret.

use std::collections::{BTreeSet, HashMap};

use requeue::queue::CallError;
use requeue::{DeadLetterMode, Variables};
use requeue_lambda::Config;

use super::facts::{FunctionSettings, Known, Unread};
use crate::document::Document;
use crate::function::FunctionConfiguration;

const PREFIX: &str = "REQUEUE_";
/// The description of the ready Lambda in all its deployments. Only this function needs a target.
const READY_LAMBDA: &str =
    "Hands each message of the queue to its target and retries it by class of failure.";

pub(crate) fn settings(
    configuration: &FunctionConfiguration,
    policy: Option<&Document>,
) -> Known<FunctionSettings> {
    let environment = configuration.environment.as_ref();
    if let Some(error) = environment.and_then(|environment| environment.error.as_ref()) {
        let key = configuration.kms_key_arn.as_deref();
        let code = error.error_code.as_deref().unwrap_or("UnreadableEnvironment");
        let key = key.unwrap_or("the key of the function's environment");
        let error = CallError::responded(400, code);
        return Err(Unread::of("kms:Decrypt", key, error));
    }
    let variables = environment.and_then(|environment| environment.variables.as_ref());
    let variables =
        variables.into_iter().flatten().map(|(name, value)| (name.as_str(), value.as_str()));
    let function = configuration.function_name.as_deref().unwrap_or_default();
    let mut read = read_settings(variables, function, policy);
    let has_target = read.target_url.is_some() || read.target_function.is_some();
    let is_ready = configuration.description.as_deref() == Some(READY_LAMBDA);
    if is_ready && !has_target && read.problems.is_empty() {
        let missing = Config::default().required_target().err();
        read.problems.extend(missing.iter().flat_map(|it| it.problems().to_vec()));
    }
    Ok(read)
}

/// Of a program that runs elsewhere. A policy from `--policy` counts instead of theirs.
fn read_settings<'v>(
    variables: impl IntoIterator<Item = (&'v str, &'v str)>,
    function: &str,
    policy: Option<&Document>,
) -> FunctionSettings {
    let own = variables.into_iter().filter(|(name, _)| name.starts_with(PREFIX));
    let mut variables: HashMap<String, String> =
        own.map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
    let own = |name| variables.get(name).filter(|value| !value.is_empty()).cloned();
    let (table, target_url) = (own("REQUEUE_TABLE"), own("REQUEUE_TARGET_URL"));
    let count = variables.len();
    // In a function, these have other defaults than here.
    for (name, default) in [("REQUEUE_METRICS", "emf"), ("REQUEUE_SERVICE", function)] {
        let value = variables.entry(name.to_owned()).or_default();
        if value.is_empty() {
            default.clone_into(value);
        }
    }
    let policy_place = variables.get("REQUEUE_POLICY").map(|value| value.trim().to_owned());
    let policy_place = policy_place.filter(|place| !place.is_empty() && !place.starts_with('{'));
    // A path in them means another machine's file.
    if policy_place.as_ref().is_some_and(|place| !place.starts_with("arn:")) {
        variables.remove("REQUEUE_POLICY");
    }
    let ((config, secrets), problems, unread) = read_valid(variables);
    let policy_elsewhere = policy_place.filter(|_| policy.is_none());
    let read = FunctionSettings {
        problems,
        unread,
        secrets,
        variables: count,
        policy_elsewhere,
        table,
        target_url,
        ..FunctionSettings::default()
    };
    with_policy(policy, config, read)
}

/// The settings that `requeue work` would read here.
pub(crate) async fn of_worker(policy: Option<&Document>) -> FunctionSettings {
    let (mut config, problems, unread) = match Config::load().await {
        Ok(config) => (config, Vec::new(), BTreeSet::new()),
        Err(invalid) => {
            let variables = Variables::from_env().into_values().into_iter().collect();
            let ((config, _), _, unread) = read_valid(variables);
            (config, invalid.problems().to_vec(), unread)
        }
    };
    config.settings.dead_letter.get_or_insert(DeadLetterMode::OF_WORKERS);
    let table = Variables::from_env().get("TABLE");
    with_policy(policy, config, FunctionSettings { problems, unread, table, ..Default::default() })
}

/// These settings, with the policy that the user gives instead of theirs.
fn with_policy(
    policy: Option<&Document>,
    Config { mut settings, function, function_settings, .. }: Config,
    read: FunctionSettings,
) -> FunctionSettings {
    let mut invalid = read.problems.iter().chain(&read.unread);
    let is_invalid = invalid.any(|problem| problem.starts_with("REQUEUE_POLICY"));
    let lacks_policy = policy.is_none() && is_invalid;
    if let Some(policy) = policy {
        policy.clone().apply_to(&mut settings);
    }
    let most = u32::try_from(function_settings.messages_per_call).unwrap_or(u32::MAX);
    let target_function = function.map(|function| (function.to_string(), most));
    FunctionSettings { config: settings, lacks_policy, target_function, ..read }
}

/// The settings, and the ARNs of the secrets in them.
type ReadConfig = (Config, BTreeSet<String>);

/// Reads the valid variables, as if the others were not set. Returns also the problems that the
/// function reports at its start, and the names of all variables that are left out.
fn read_valid(
    mut variables: HashMap<String, String>,
) -> (ReadConfig, Vec<String>, BTreeSet<String>) {
    let (mut problems, mut unread) = (Vec::new(), BTreeSet::new());
    loop {
        let invalid = match Config::from_vars_without_secrets(variables.clone()) {
            Ok(read) => return (read, problems, unread),
            Err(_) if variables.is_empty() => return (ReadConfig::default(), problems, unread),
            Err(invalid) => invalid,
        };
        let named = |problem: &String| {
            // A problem begins with its variable; if that one is missing, another one needs it.
            let mut words = problem.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
            words.find(|word| variables.contains_key(*word)).map(str::to_owned)
        };
        let named: BTreeSet<String> = invalid.problems().iter().filter_map(named).collect();
        let is_unread = |name: &String| named.is_empty() || named.contains(name);
        unread.extend(variables.extract_if(|name, _| is_unread(name)).map(|(name, _)| name));
        // Without these variables, others may have no effect.
        if problems.is_empty() {
            problems = invalid.problems().to_vec();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::document;
    use crate::function::Environment;

    fn valid(variables: &[(&str, &str)]) -> FunctionSettings {
        read_settings(variables.iter().copied(), "orders", None)
    }

    #[test]
    fn a_path_in_the_settings_of_a_function_is_not_followed_on_this_machine() {
        let read =
            valid(&[("REQUEUE_POLICY", "Cargo.toml"), ("REQUEUE_WRAP", "never"), ("PATH", "/bin")]);
        let file = "Cargo.toml".to_owned();
        assert_eq!((read.variables, read.policy_elsewhere), (2, Some(file)));
        assert_eq!(
            valid(&[("REQUEUE_POLICY", r#"{"preset": "critical"}"#)]).config.policy.max_retries,
            5
        );
        let given = document::parse_text(r#"{"maxRetries": 7}"#).expect("a document");
        let read = read_settings([("REQUEUE_POLICY", "Cargo.toml")], "orders", Some(&given));
        assert_eq!((read.policy_elsewhere, read.config.policy.max_retries), (None, 7));
    }

    #[test]
    fn the_ready_lambda_has_a_target_and_another_function_needs_none() {
        for file in ["template.yaml", "infra/terraform/function.tf", "infra/cdk/lib/handler.ts"] {
            let text = std::fs::read_to_string(requeue_testkit::repository(file)).expect(file);
            assert!(text.contains(READY_LAMBDA), "{file}");
        }
        let function = ("REQUEUE_TARGET_FUNCTION", "charge");
        for (description, variables, problems) in [
            (READY_LAMBDA, &[("REQUEUE_WRAP", "never")][..], 1),
            (READY_LAMBDA, &[("REQUEUE_TARGET_URL", "")], 1),
            (READY_LAMBDA, &[("REQUEUE_TARGET_URL", "https://example.com")], 0),
            (READY_LAMBDA, &[function], 0),
            // The function reports this problem alone.
            (READY_LAMBDA, &[("REQUEUE_TARGET_FUNCTION", "a b")], 1),
            ("Handles orders.", &[("REQUEUE_WRAP", "never")], 0),
        ] {
            let variables =
                variables.iter().map(|(name, value)| (name.to_string(), value.to_string()));
            let environment =
                Environment { variables: Some(variables.collect()), ..Environment::default() };
            let configuration = FunctionConfiguration {
                description: Some(description.to_owned()),
                environment: Some(environment),
                ..FunctionConfiguration::default()
            };
            let read = settings(&configuration, None).expect("settings");
            assert_eq!(read.problems.len(), problems, "{:?}", read.problems);
            let is_missing = read.problems.iter().any(|it| it.starts_with("REQUEUE_TARGET_"));
            assert_eq!(is_missing, problems > 0);
        }
    }

    #[test]
    fn a_function_writes_metrics_under_its_name_unless_told_otherwise() {
        for (variables, expected) in [
            (&[][..], Some("orders")),
            (&[("REQUEUE_METRICS", ""), ("REQUEUE_SERVICE", "")], Some("orders")),
            (&[("REQUEUE_SERVICE", "shop")], Some("shop")),
            (&[("REQUEUE_METRICS", "off")], None),
        ] {
            let read = valid(variables);
            let service = read.config.metrics.as_ref().map(|metrics| &*metrics.service);
            assert_eq!((service, read.variables), (expected, variables.len()));
        }
    }

    #[test]
    fn a_policy_that_is_stored_at_an_arn_is_a_secret_that_the_function_reads() {
        let arn = "arn:aws:ssm:eu-west-1:123456789012:parameter/orders/policy";
        let read = valid(&[("REQUEUE_POLICY", &format!(" {arn}:3"))]);
        assert_eq!(read.policy_elsewhere, Some(format!("{arn}:3")));
        assert_eq!(read.secrets, [arn.to_owned()].into());
        let given = document::parse_text("{}").expect("a document");
        let read = read_settings([("REQUEUE_POLICY", arn)], "orders", Some(&given));
        assert_eq!((read.policy_elsewhere, read.secrets), (None, [arn.to_owned()].into()));
    }

    #[test]
    fn secrets_that_only_the_function_can_fetch_are_no_problem_and_are_not_shown() {
        let secret = "arn:aws:secretsmanager:eu-west-1:123456789012:secret:orders-AbCdEf";
        let parameter = "arn:aws:ssm:eu-west-1:123456789012:parameter/orders/signing";
        let headers =
            format!(r#"{{"Authorization": "Bearer {secret}:token::", "X-Key": "s3cret"}}"#);
        let signing = format!("{parameter}:3 {parameter}:live {secret}::AWSPREVIOUS:");
        let read = valid(&[("REQUEUE_HEADERS", &headers), ("REQUEUE_SIGNING_SECRET", &signing)]);
        assert_eq!(read.secrets, [secret, parameter].map(str::to_owned).into());
        assert!(!format!("{read:?}").contains("s3cret"));
        let problems =
            valid(&[("REQUEUE_HEADERS", "s3cret"), ("REQUEUE_SIGNING_SECRET", "whsec_s3cret")])
                .problems;
        assert_eq!(problems.len(), 2);
        assert!(!problems.concat().contains("s3cret"), "{problems:?}");
    }

    #[test]
    fn an_invalid_variable_hides_neither_the_others_nor_their_problems() {
        let read = valid(&[
            ("REQUEUE_STRATEGY", "visible"),
            ("REQUEUE_CONCURRENCI", "9"),
            ("REQUEUE_CONCURRENCY", "7"),
        ]);
        assert_eq!((read.config.limits.concurrency, read.lacks_policy), (7, false));
        let names: Vec<&str> =
            read.problems.iter().filter_map(|problem| problem.split(' ').next()).collect();
        assert_eq!(names, ["REQUEUE_CONCURRENCI", "REQUEUE_STRATEGY"], "{:?}", read.problems);
        // The variable that needs the missing one is left out alone.
        let read = valid(&[("REQUEUE_DEAD_LETTER", "direct"), ("REQUEUE_RECURSIVE_LOOP", "Allow")]);
        assert_eq!(read.config.recursive_loop, requeue::RecursiveLoop::Allow);
        assert_eq!(read.unread, ["REQUEUE_DEAD_LETTER".to_owned()].into());
        assert_eq!(read.problems.len(), 1, "{:?}", read.problems);
        // A variable that has no effect only without another one is no problem of its own.
        let url = "https://sqs.eu-west-1.amazonaws.com/123456789012/dead";
        let read =
            valid(&[("REQUEUE_DEAD_LETTER", "dierct"), ("REQUEUE_DEAD_LETTER_QUEUE_URL", url)]);
        assert_eq!((read.problems.len(), read.unread.len()), (1, 2), "{:?}", read.problems);
        let policy = [("REQUEUE_POLICY", r#"{"maxRetries": -1}"#), ("REQUEUE_MODE", "report")];
        let read = valid(&policy);
        assert_eq!((read.config.mode, read.lacks_policy), (requeue::Mode::Report, true));
        let given = document::parse_text("{}").expect("a document");
        let read = read_settings(policy, "orders", Some(&given));
        assert!(!read.lacks_policy);
    }
}
