//! `requeue check --settings`: the effective settings, and the source of each. It prints no secret.

use std::collections::BTreeMap;
use std::process::ExitCode;

use requeue::InvalidConfig;
use requeue::aws::SdkConfig;
use requeue_lambda::{Config, TargetRules, TargetUrl};
use serde_json::{Map, Value, json};

use crate::doctor::Clients;
use crate::document::{Document, InvalidDocument, PolicyName};
use crate::queue_argument::RegionArgument;
use crate::stop::Stop;
use crate::table::Head::Text;
use crate::table::Rows;
use crate::{Error, bail, environment, output};

/// The program whose settings are shown, and its policy.
#[derive(clap::Args)]
pub(crate) struct SettingsArguments {
    /// Check the settings of a worker in this environment instead, and show each effective value and
    /// where it comes from.
    #[arg(long, help_heading = "Settings")]
    pub(crate) settings: bool,
    /// The settings of a deployed function, by its name or ARN, instead of a worker's.
    #[arg(long, help_heading = "Settings", value_name = "NAME", requires = "settings")]
    function: Option<String>,
    #[command(flatten)]
    region: RegionArgument,
}

struct Effective {
    /// As in `REQUEUE_TABLE` or `errorConfigs.quota.maxDelay`.
    name: String,
    value: Value,
    origin: String,
}

pub(crate) const PREFIX: &str = "REQUEUE_";

pub(crate) fn run(
    arguments: &SettingsArguments,
    policy: Option<PolicyName>,
    as_json: bool,
) -> Result<ExitCode, Error> {
    match print(arguments, policy, as_json) {
        Ok(()) => Ok(ExitCode::SUCCESS),
        // As for a document.
        Err(error) if error.is::<InvalidDocument>() || error.is::<InvalidConfig>() => {
            output::note(format_args!("error: {error}"));
            Ok(ExitCode::from(output::FINDING))
        }
        Err(error) => Err(error),
    }
}

fn print(
    arguments: &SettingsArguments,
    given: Option<PolicyName>,
    as_json: bool,
) -> Result<(), Error> {
    let (variables, function) = match &arguments.function {
        None => (environment::variables(PREFIX).collect(), None),
        Some(name) => {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
            Stop::end_at_once()?;
            let (variables, name, _) = runtime.block_on(of_function(&arguments.region, name))?;
            (variables, Some(name))
        }
    };
    let mut checked = variables.clone();
    let is_replaced = given.is_some();
    let policy = EffectivePolicy::of(&variables, given, function.is_some())?;
    if policy.values.is_none() || is_replaced {
        checked.remove("REQUEUE_POLICY");
    }
    Config::from_vars_without_secrets(checked)?;
    let settings = effective(&variables, function.as_deref());
    if as_json {
        output::json(&json(function.as_deref(), &settings, &policy))
    } else {
        show(&settings, &policy)
    }
}

/// The settings of a deployed function, its name, and the configuration for its region.
pub(crate) async fn of_function(
    region: &RegionArgument,
    name: &str,
) -> Result<(BTreeMap<String, String>, String, SdkConfig), Error> {
    let sdk = crate::sdk::config().await;
    let clients = Clients::new(&sdk, region.of_function(name, &sdk));
    let configuration = clients.configuration(name).await?;
    let name = configuration.function_name.unwrap_or_else(|| name.to_owned());
    let variables = match configuration.environment {
        Some(environment) if environment.error.is_some() => {
            bail!(
                "the variables of {name} are encrypted; this identity needs kms:Decrypt on {}",
                configuration.kms_key_arn.as_deref().unwrap_or("their key")
            );
        }
        Some(environment) => environment.variables.unwrap_or_default(),
        None => std::collections::HashMap::new(),
    };
    let is_setting =
        |(name, value): &(String, String)| name.starts_with(PREFIX) && !value.is_empty();
    Ok((variables.into_iter().filter(is_setting).collect(), name, clients.sdk))
}

fn json(function: Option<&str>, settings: &[Effective], policy: &EffectivePolicy) -> Value {
    let each = |values: &[Effective], name: &str| -> Vec<Value> {
        let one = |of: &Effective| json!({ name: of.name, "value": of.value, "origin": of.origin });
        values.iter().map(one).collect()
    };
    let values = each(policy.values.as_deref().unwrap_or_default(), "key");
    let note = policy.values.is_none().then_some(NO_VALUES);
    json!({
        "function": function,
        "settings": each(settings, "name"),
        "policy": { "document": policy.name, "note": note, "values": values },
    })
}

fn show(settings: &[Effective], policy: &EffectivePolicy) -> Result<(), Error> {
    output::line(table("setting", settings))?;
    output::line(format_args!("\npolicy: {}\n", policy.name))?;
    match &policy.values {
        None => output::line(NO_VALUES),
        Some(values) => output::line(table("policy key", values)),
    }
}

fn table(name: &'static str, values: &[Effective]) -> String {
    let mut rows = Rows::under([Text(name), Text("value"), Text("from")]);
    for of in values {
        let value = of.value.as_str().map_or_else(|| of.value.to_string(), str::to_owned);
        rows.add([of.name.clone(), value, of.origin.clone()]);
    }
    rows.text()
}

#[derive(Clone, Copy)]
enum Shown {
    Whole,
    Hidden,
    /// The names of a JSON object.
    Names,
    /// A URL without its path.
    Address,
    /// The policy has a table of its own.
    Elsewhere,
}

use Shown::{Address, Elsewhere, Hidden, Names, Whole};

/// Without the prefix, with the default in the words of `docs/reference/settings.md`.
const SETTINGS: [(&str, &str, Shown); 35] = [
    ("TARGET_URL", "none", Address),
    ("METHOD", "POST", Whole),
    ("CONTENT_TYPE", "by the first character of the body", Whole),
    ("HEADERS", "none", Names),
    ("ATTRIBUTE_HEADERS", "none", Whole),
    ("SIGNING_SECRET", "none", Hidden),
    ("SCOPE", "all messages", Whole),
    ("HTTP_VERSION", "auto", Whole),
    ("CONNECT_TIMEOUT_SECONDS", "5", Whole),
    ("READ_TIMEOUT_SECONDS", "the rest of REQUEUE_TIMEOUT_SECONDS", Whole),
    ("IDLE_TIMEOUT_SECONDS", "4", Whole),
    ("CLIENT_CERTIFICATE", "none", Hidden),
    ("CLIENT_KEY", "none", Hidden),
    ("ALLOW_HTTP", "false", Whole),
    ("ALLOW_LINK_LOCAL", "false", Whole),
    ("TARGET_FUNCTION", "none", Whole),
    ("MESSAGES_PER_CALL", "10", Whole),
    ("POLICY", "the preset standard", Elsewhere),
    ("CONCURRENCY", "10", Whole),
    ("TIMEOUT_SECONDS", "30", Whole),
    ("RESERVE_SECONDS", "5", Whole),
    ("STRATEGY", "copy", Whole),
    ("WRAP", "when-needed", Whole),
    ("MODE", "requeue", Whole),
    ("TABLE", "none", Whole),
    ("NAMESPACE", "the function's name; empty elsewhere", Whole),
    ("MAX_ENVIRONMENTS", "1,000", Whole),
    ("RECURSIVE_LOOP", "Terminate", Whole),
    ("DEAD_LETTER", "redrive in a Lambda function, annotate in a worker", Whole),
    ("DEAD_LETTER_QUEUE_URL", "none", Whole),
    ("TRUSTED_SENDERS", "none", Whole),
    ("DETAIL_TEXT", "off", Whole),
    ("PRODUCER_LIMITS", "on", Whole),
    ("METRICS", "emf in a Lambda function, off elsewhere", Whole),
    ("SERVICE", "the function's name; requeue elsewhere", Whole),
];

fn effective(variables: &BTreeMap<String, String>, function: Option<&str>) -> Vec<Effective> {
    let setting = |(name, default, shown): (&str, &str, Shown)| {
        let name = format!("{PREFIX}{name}");
        let (value, origin) = match variables.get(&name) {
            Some(value) => (shown.part_of(value), "environment variable"),
            None => (default_of(function, &name, default), "default"),
        };
        Effective { name, value: value.into(), origin: origin.to_owned() }
    };
    SETTINGS.into_iter().map(setting).collect()
}

fn default_of(function: Option<&str>, name: &str, default: &str) -> String {
    let value = match (function, name) {
        (Some(function), "REQUEUE_NAMESPACE" | "REQUEUE_SERVICE") => function,
        (Some(_), "REQUEUE_METRICS") => "emf",
        (Some(_), "REQUEUE_DEAD_LETTER") => "redrive",
        (None, "REQUEUE_DEAD_LETTER") => "annotate",
        (None, "REQUEUE_NAMESPACE") => "empty",
        (None, "REQUEUE_SERVICE") => "requeue",
        (None, "REQUEUE_METRICS") => "off",
        _ => default,
    };
    value.replace(',', "")
}

impl Shown {
    fn part_of(self, value: &str) -> String {
        match self {
            Whole => value.trim().to_owned(),
            Hidden => "set, not shown".to_owned(),
            Names => {
                let headers: Map<String, Value> = serde_json::from_str(value).unwrap_or_default();
                let names: Vec<&str> = headers.keys().map(String::as_str).collect();
                format!("{}, values not shown", names.join(", "))
            }
            Address => {
                let rules = TargetRules::default().allow_http().allow_link_local();
                let url = TargetUrl::parse_with(value.trim(), rules);
                url.map_or_else(|_| "set, not shown".to_owned(), |url| url.to_string())
            }
            Elsewhere => "see below".to_owned(),
        }
    }
}

struct EffectivePolicy {
    name: String,
    /// `None` if only the function reads the document.
    values: Option<Vec<Effective>>,
}

const NO_VALUES: &str =
    "Only the function reads this document; name a copy of it with --policy to see its values.";

impl EffectivePolicy {
    fn of(
        variables: &BTreeMap<String, String>,
        given: Option<PolicyName>,
        is_function: bool,
    ) -> Result<Self, Error> {
        let variable = variables.get("REQUEUE_POLICY");
        let (name, place) = match (given, variable) {
            (Some(name), _) => (name, "--policy"),
            (None, Some(text)) => {
                let name: PolicyName = text.parse()?;
                if let PolicyName::File(path) = &name {
                    let path = path.display().to_string();
                    if path.starts_with("arn:") || is_function {
                        return Ok(Self { name: path, values: None });
                    }
                }
                (name, "REQUEUE_POLICY")
            }
            (None, None) => (PolicyName::STANDARD, "default"),
        };
        let text = name.text()?;
        let Document { policy, rules, queues, .. } = name.parse(&text)?;
        let document: Value = serde_json::from_str(&text).unwrap_or_default();
        let mut values: Vec<Effective> = Vec::new();
        add(&mut values, &document, "", policy.to_document(), rules.len().into())?;
        for (queue, own) in queues {
            let (entry, prefix) = (&document["queues"][&queue], format!("queues.{queue}."));
            let document = own.to_document();
            let rules =
                own.rules.map_or_else(|| "those of all queues".into(), |it| it.len().into());
            add(&mut values, entry, &prefix, document, rules)?;
        }
        let name = match &name {
            PolicyName::Inline(_) => place.to_owned(),
            other => format!("{other} ({place})"),
        };
        Ok(Self { name, values: Some(values) })
    }
}

/// Adds the values of a policy. Those that its preset has too come from there.
fn add(
    values: &mut Vec<Effective>,
    document: &Value,
    prefix: &str,
    own: Map<String, Value>,
    rules: Value,
) -> Result<(), Error> {
    let preset = document["preset"].as_str().unwrap_or("standard");
    let of_preset = flat(preset.parse::<PolicyName>()?.read()?.policy.to_document());
    let is_of_preset = |value: &(String, Value)| {
        of_preset.contains(value) || *value == ("rules".to_owned(), 0.into())
    };
    for value in flat(own).into_iter().chain([("rules".to_owned(), rules)]) {
        let origin = if is_of_preset(&value) {
            format!("preset {preset}")
        } else {
            "policy document".to_owned()
        };
        let (key, value) = value;
        values.push(Effective { name: format!("{prefix}{key}"), value, origin });
    }
    Ok(())
}

/// The values by their whole keys, as in `errorConfigs.quota.maxDelay`.
fn flat(document: Map<String, Value>) -> Vec<(String, Value)> {
    let each = document.into_iter().flat_map(|(key, value)| match value {
        // A proportional jitter is one value.
        Value::Object(members) if !key.ends_with("jitter") => {
            let named = |(name, value)| (format!("{key}.{name}"), value);
            flat(members.into_iter().map(named).collect())
        }
        value => vec![(key, value)],
    });
    each.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The rows of the page's tables.
    fn page() -> Vec<(String, String)> {
        let page =
            std::fs::read_to_string(requeue_testkit::repository("docs/reference/settings.md"))
                .expect("the page");
        let rows = page.lines().filter(|line| line.starts_with("| `REQUEUE_"));
        rows.map(|row| {
            let cells: Vec<&str> = row.trim_matches(['|', ' ']).split(" | ").collect();
            let plain = |text: &str| text.replace('`', "");
            (plain(cells[0]), plain(cells[cells.len() - 1]))
        })
        .collect()
    }

    #[test]
    fn the_settings_and_defaults_are_those_of_their_page() {
        let page = page();
        assert_eq!(page.len(), SETTINGS.len());
        for ((name, default), (own, value, _)) in page.iter().zip(SETTINGS) {
            assert_eq!(*name, format!("{PREFIX}{own}"));
            assert!(default.starts_with(value), "{name}: {default}");
        }
    }

    #[test]
    fn no_secret_is_shown() {
        let variables = [
            ("REQUEUE_HEADERS", r#"{"Authorization": "Bearer s3cret"}"#),
            ("REQUEUE_SIGNING_SECRET", "whsec_s3cret"),
            ("REQUEUE_CLIENT_KEY", "s3cret"),
            ("REQUEUE_CLIENT_CERTIFICATE", "s3cret"),
            ("REQUEUE_TARGET_URL", "https://user:s3cret@example.com/hooks/s3cret?token=s3cret"),
        ];
        let variables = variables.map(|(name, value)| (name.to_owned(), value.to_owned())).into();
        for setting in effective(&variables, None) {
            assert!(
                !setting.value.to_string().contains("s3cret"),
                "{}: {}",
                setting.name,
                setting.value
            );
        }
    }

    #[test]
    fn a_value_comes_from_the_document_that_sets_it_or_from_the_preset() {
        for (document, key, expected) in [
            (r#"{"maxRetries": 3}"#, "maxRetries", true),
            (r#"{"maxRetries": 3}"#, "maxDeferrals", false),
            (r#"{"circuitBreaker": {"threshold": 9}}"#, "circuitBreaker.threshold", true),
            (
                r#"{"circuitBreaker": {"threshold": 9}}"#,
                "circuitBreaker.resetTimeoutSeconds",
                false,
            ),
            (r#"{"maxDelaySeconds": 9}"#, "errorConfigs.quota.maxDelay", true),
            (
                r#"{"errorConfigs": {"QUOTA_EXCEEDED": {"maxDelay": 9}}}"#,
                "errorConfigs.quota.maxDelay",
                true,
            ),
            (
                r#"{"errorConfigs": {"default": {"maxDelay": 9}}}"#,
                "errorConfigs.quota.maxDelay",
                true,
            ),
            (
                r#"{"errorConfigs": {"DEFAULT": {"maxDelay": 9}, "quota": {"jitter": "full"}}}"#,
                "errorConfigs.quota.maxDelay",
                false,
            ),
            (r#"{"queues": {"refunds": {"maxRetries": 3}}}"#, "queues.refunds.maxRetries", true),
            (r#"{"queues": {"refunds": {"maxRetries": 3}}}"#, "maxRetries", false),
        ] {
            let given = document.parse().expect("a policy");
            let policy = EffectivePolicy::of(&BTreeMap::new(), Some(given), false);
            let values = policy.expect("valid").values.expect("known");
            let value = values.iter().find(|value| value.name == key).expect(key);
            assert_eq!(value.origin == "policy document", expected, "{document} {key}");
        }
    }
}
