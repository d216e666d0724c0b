//! `requeue check --settings`: the effective settings, and where each comes from. It prints no secret.

use std::collections::BTreeMap;
use std::process::ExitCode;

use requeue::InvalidConfig;
use requeue::aws::SdkConfig;
use requeue_lambda::Config;
use serde_json::{Value, json};

mod effective_policy;
mod settings;

use effective_policy::EffectivePolicy;

use crate::document::{InvalidDocument, PolicyName};
use crate::function::DeployedFunction;
use crate::queue_argument::{RegionArgument, region_name};
use crate::stop::Stop;
use crate::table::Head::Text;
use crate::table::Rows;
use crate::{Error, environment, output};

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
    /// The region of the function, if its ARN has none. [default: `AWS_REGION`, that of the AWS
    /// profile, or us-east-1]
    #[arg(long, help_heading = "Settings", value_parser = region_name, requires = "settings")]
    region: Option<String>,
}

/// A setting, or a value of the policy, as it counts.
struct Effective {
    /// As in `REQUEUE_TABLE` or `errorConfigs.quota.maxDelay`.
    name: String,
    value: Value,
    origin: String,
}

pub(crate) const PREFIX: &str = "REQUEUE_";

/// Shows the settings; `policy` replaces theirs.
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
            let region = RegionArgument::of(arguments.region.as_deref());
            let (variables, name, _) = runtime.block_on(of_function(&region, name))?;
            (variables, Some(name))
        }
    };
    let mut checked = variables.clone();
    let is_replaced = given.is_some();
    let policy = EffectivePolicy::of(&variables, given, function.is_some())?;
    if policy.note.is_some() || is_replaced {
        checked.remove("REQUEUE_POLICY");
    }
    Config::from_vars_without_secrets(checked)?;
    let settings = settings::effective(&variables, function.as_deref());
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
    let DeployedFunction { name, configuration, sdk } =
        DeployedFunction::find(name, region).await?;
    let variables = match configuration.environment {
        Some(environment) if environment.error.is_some() => {
            return Err(format!(
                "the variables of {name} are encrypted; this identity needs kms:Decrypt on {}",
                configuration.kms_key_arn.as_deref().unwrap_or("their key")
            )
            .into());
        }
        Some(environment) => environment.variables.unwrap_or_default(),
        None => std::collections::HashMap::new(),
    };
    let is_setting =
        |(name, value): &(String, String)| name.starts_with(PREFIX) && !value.is_empty();
    Ok((variables.into_iter().filter(is_setting).collect(), name, sdk))
}

fn json(function: Option<&str>, settings: &[Effective], policy: &EffectivePolicy) -> Value {
    let each = |values: &[Effective], name: &str| -> Vec<Value> {
        let one = |of: &Effective| json!({ name: of.name, "value": of.value, "origin": of.origin });
        values.iter().map(one).collect()
    };
    let values = each(&policy.values, "key");
    json!({
        "function": function,
        "settings": each(settings, "name"),
        "policy": { "document": policy.name, "note": policy.note, "values": values },
    })
}

fn show(settings: &[Effective], policy: &EffectivePolicy) -> Result<(), Error> {
    output::line(table("setting", settings))?;
    output::line(format_args!("\npolicy: {}\n", policy.name))?;
    match &policy.note {
        Some(note) => output::line(note),
        None => output::line(table("policy key", &policy.values)),
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
