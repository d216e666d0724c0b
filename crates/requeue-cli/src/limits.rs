//! `requeue limits`: an operator's changes to rate limits, in the table that environments share.

use std::collections::BTreeMap;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use requeue::policy::{LimitPer, MessageKey, RateLimit, RetryPolicy};
use requeue::table::{DynamoTable, TableError};
use requeue::{Clock, LimitControl, LimitStatus, Scope, SharedTable};
use serde_json::{Value, json};

use crate::config::{PREFIX, of_function};
use crate::document::PolicyName;
use crate::queue_argument::RegionArgument;
use crate::stop::Stop;
use crate::table::Head::{Number, Text};
use crate::table::{Rows, clock_time, counted, duration, moment, span, thousands};
use crate::{Error, bail, duration_argument, environment, output, sdk};

/// A longer change belongs into the policy.
const LONGEST: u64 = 30 * 86_400;

#[derive(clap::Args)]
#[command(
    after_help = "A change counts for the next call of every execution environment. Calls that \
                        have their reservations are still made, for up to maxReservationSeconds. It \
                        lasts until its time or the next change, whatever is deployed meanwhile.\n\n\
                        During a pause no call begins and no retry is used. The messages wait in \
                        the queue, so their retention goes on. A message of a FIFO queue asks again \
                        every 15 min, and each time uses a receive. Of the keys that are paused, \
                        the command lists eight at most.\n\n\
                        A key that is paused, or a tenant without a weight, is shown by a hash: digits \
                        5 to 8 of the output of printf 'text acme' | sha256sum, or for the number 7, of \
                        printf 'number 7' | sha256sum.\n\n\
                        Permissions: dynamodb:GetItem and dynamodb:UpdateItem on the table; with \
                        --function, lambda:GetFunctionConfiguration.\n\n\
                        Exit status: 0; 1 if the function, the policy or the table cannot be \
                        read."
)]
pub(crate) struct Arguments {
    /// The action: show the limit, set another number of calls in the period of the policy, pause
    /// all calls, resume them, or reset all to the limit of the policy without a pause.
    #[arg(value_enum, default_value_t = Action::Show)]
    action: Action,
    /// The calls of `set`, or units, in each period of the policy.
    #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(u32).range(1..))]
    limit: Option<u32>,
    /// How long `set` or `pause` lasts: up to 30d. [default: until the next change]
    #[arg(long = "for", value_name = "DURATION",
        value_parser = duration_argument::within(1..=LONGEST))]
    lasts: Option<Duration>,
    /// The value of a key, for its own limit: as in acme, or as in /tenant=acme if the policy has
    /// several keys.
    #[arg(long, value_name = "VALUE")]
    key: Option<String>,
    /// The value of `REQUEUE_SCOPE`, if the function has scopes.
    #[arg(long, value_name = "VALUE")]
    scope: Option<String>,
    /// A deployed function, by its name or ARN, instead of a worker in this environment.
    #[arg(long, value_name = "NAME")]
    function: Option<String>,
    #[command(flatten)]
    region: RegionArgument,
    /// The policy, if the function reads it from elsewhere. [default: `REQUEUE_POLICY`]
    #[arg(long, value_name = "POLICY")]
    policy: Option<PolicyName>,
    /// Print JSON.
    #[arg(long, help_heading = "Output")]
    json: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Action {
    Show,
    Set,
    Pause,
    Resume,
    Reset,
}

pub(crate) fn run(arguments: &Arguments) -> Result<ExitCode, Error> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    Stop::end_at_once()?;
    runtime.block_on(async {
        check(arguments)?;
        let (control, policy, namespace, table) = limit(arguments).await?;
        let status = async || control.status().await.map_err(|error| of_table(&table, &error));
        let mut seen = status().await?;
        let is_new = seen.is_new;
        if arguments.action != Action::Show {
            act(arguments, &control, &table).await?;
            seen = status().await?;
        }
        let now = Clock::system().now();
        if arguments.json {
            output::json(&json(&seen))?;
        } else {
            show(arguments, &policy, &seen, now)?;
        }
        if let Some(value) = arguments.key.as_ref().filter(|_| is_new) {
            let namespace = Some(namespace).filter(|name| !name.is_empty());
            let place = namespace.map_or("without a namespace".to_owned(), |name| {
                format!("in the namespace `{name}`")
            });
            output::note(format_args!(
                "note: no message of `{value}` has asked for this limit lately {place}; check how it is \
                 written, and REQUEUE_NAMESPACE, for a function by default its name"
            ));
        }
        Ok::<_, Error>(())
    })?;
    Ok(ExitCode::SUCCESS)
}

fn check(arguments: &Arguments) -> Result<(), Error> {
    let Arguments { action, limit, lasts, .. } = *arguments;
    let wrong = match (action, limit, lasts) {
        (Action::Set, None, _) => "name the calls with --limit, as in --limit 10",
        (Action::Set, Some(_), _) | (Action::Pause, None, _) | (_, None, None) => return Ok(()),
        (_, Some(_), _) => "--limit has an effect with set alone: requeue limits set --limit 10",
        (_, None, Some(_)) => "--for has an effect with set and pause alone",
    };
    Err(wrong.into())
}

async fn act(arguments: &Arguments, control: &LimitControl, table: &str) -> Result<(), Error> {
    let Arguments { action, limit, lasts, .. } = *arguments;
    let until = lasts.map(|lasts| Clock::system().now() + lasts);
    let changed = match action {
        Action::Show => Ok(()),
        Action::Set => control.set(limit.unwrap_or(1), until).await,
        Action::Pause => control.pause(until).await,
        Action::Resume => control.resume().await,
        Action::Reset => control.reset().await,
    };
    changed.map_err(|error| of_table(table, &error))
}

fn of_table(table: &str, error: &TableError) -> Error {
    let text = match error {
        TableError::Throttled => {
            "the table takes no change for now, since too many calls change the item; repeat the command"
                .to_owned()
        }
        error => format!(
            "DynamoDB gives no response about the table {table}: {error}; check REQUEUE_TABLE, the region, \
             the endpoint and the credentials"
        ),
    };
    text.into()
}

/// The limit that the arguments name, its policy, its namespace and the name of its table.
async fn limit(
    arguments: &Arguments,
) -> Result<(LimitControl, RetryPolicy, String, String), Error> {
    let (variables, name, sdk) = match &arguments.function {
        None => (environment::variables(PREFIX).collect(), String::new(), sdk::config().await),
        Some(name) => of_function(&arguments.region, name).await?,
    };
    let policy = policy(arguments, &variables)?;
    let Some(table) = variables.get("REQUEUE_TABLE") else {
        if arguments.function.is_some() {
            bail!(
                "the function {name} has no REQUEUE_TABLE, so each execution environment keeps the \
                 limit alone: deploy it with SharedTable=dynamodb"
            );
        }
        bail!(
            "there is no table: name a function with --function, or set REQUEUE_TABLE and the other \
             settings of the worker"
        );
    };
    let mut shared = SharedTable::by(Arc::new(DynamoTable::new(table, &sdk)));
    shared.namespace = variables.get("REQUEUE_NAMESPACE").cloned().unwrap_or(name);
    let scope = arguments.scope.as_ref().map_or_else(Scope::default, Scope::of);
    match (variables.contains_key("REQUEUE_SCOPE"), arguments.scope.is_some()) {
        (true, false) => {
            bail!("each value of REQUEUE_SCOPE has a limit of its own: name a value with --scope")
        }
        (false, true) => {
            bail!("there is no REQUEUE_SCOPE, so all messages have one scope: leave --scope out")
        }
        _ => {}
    }
    let control = of(&shared, &policy, scope, arguments.key.as_deref())?;
    Ok((control, policy, shared.namespace, table.clone()))
}

fn of(
    shared: &SharedTable,
    policy: &RetryPolicy,
    scope: Scope,
    value: Option<&str>,
) -> Result<LimitControl, Error> {
    let keys: Vec<&MessageKey> = policy.key_limits.iter().map(|limit| &limit.key).collect();
    let all = keys.iter().map(ToString::to_string).collect::<Vec<_>>().join(" and ");
    let limit = match (value, &keys[..]) {
        (None, _) => LimitControl::new(shared, policy, None, scope),
        (Some(_), []) => bail!("no limit of the policy has a `key`: leave --key out"),
        (Some(text), [first, others @ ..]) => {
            let prefixed = keys.iter().find_map(|key| {
                Some((*key, text.strip_prefix(&key.to_string())?.strip_prefix('=')?))
            });
            let is_foreign = text.starts_with('/') && text.contains('=');
            let only = (others.is_empty() && !is_foreign).then_some((*first, text));
            let (key, value) = prefixed.or(only).ok_or_else(|| {
                format!("the policy has limits for {all}: name one, as in --key {first}=acme")
            })?;
            LimitControl::of_key(shared, policy, None, scope, key, value)
        }
    };
    limit.ok_or_else(|| match &keys[..] {
        [] => {
            "the policy has no rate limit; docs/reference/policy.md has the key `rateLimit`".into()
        }
        _ => format!("the policy has limits for {all} alone: name a value with --key").into(),
    })
}

fn policy(
    arguments: &Arguments,
    variables: &BTreeMap<String, String>,
) -> Result<RetryPolicy, Error> {
    let given = arguments.policy.clone();
    let name = given.or_else(|| variables.get("REQUEUE_POLICY")?.parse().ok());
    let Some(name) = name else {
        bail!(
            "there is no policy: set REQUEUE_POLICY as the worker has it, or name it with --policy"
        );
    };
    if let (PolicyName::File(path), None, Some(function)) =
        (&name, &arguments.policy, &arguments.function)
    {
        bail!(
            "only the function {function} reads its policy {}; name a copy of it with --policy",
            path.display()
        );
    }
    Ok(name.read()?.policy)
}

fn counted_as(limit: &RateLimit, has_units: bool) -> &'static str {
    match limit.per {
        _ if has_units => "unit",
        LimitPer::Message => "message",
        _ => "call",
    }
}

fn calls(calls: u32, limit: &RateLimit, what: &str) -> String {
    format!("{} in {}", counted(calls, what), span(limit.period))
}

fn until(time: SystemTime, now: SystemTime) -> Option<String> {
    match time.duration_since(now).unwrap_or_default().as_secs() {
        0..86_400 => Some(format!("until {} UTC", clock_time(time))),
        86_400..=LONGEST => Some(format!("until {}", moment(time).unwrap_or_default())),
        _ => None,
    }
}

fn show(
    arguments: &Arguments,
    policy: &RetryPolicy,
    status: &LimitStatus,
    now: SystemTime,
) -> Result<(), Error> {
    let RateLimit { limit, burst, .. } = status.of_policy;
    let what = counted_as(&status.of_policy, status.counts_units);
    let mut rows = Rows::under([Text("rate limit"), Text("")]);
    let mut row = |name: &str, text: String| rows.add([name.to_owned(), text]);
    if let Some(value) = &arguments.key {
        row("of", value.clone());
    }
    let in_policy = calls(limit, &status.of_policy, what);
    row("policy", format!("{in_policy}, and a burst of {}", thousands(burst)));
    if let Some(end) = status.set_until {
        let end = until(end, now).unwrap_or_else(|| "until it is reset".to_owned());
        row("set", format!("{}, {end}", calls(status.calls_per_period(), &status.of_policy, what)));
    }
    if let Some(end) = status.paused_until {
        row("paused", until(end, now).unwrap_or_else(|| "until it is resumed".to_owned()));
    }
    if let Some(rest) = status.service_paused {
        row("service", format!("paused, or its circuit is open: {} left", duration(rest)));
    }
    for key in &status.paused_keys {
        let end = until(key.until, now).unwrap_or_else(|| "until it is resumed".to_owned());
        row("paused key", format!("{}, {end}", named(key.name.as_ref(), key.hash)));
    }
    if status.of_policy.adaptive || status.of_policy.headers {
        row("pace", format!("{:.0} % of the limit", status.pace * 100.0));
    }
    let time = match (status.waiting, status.paused_until) {
        (0, _) => "nothing".to_owned(),
        (waiting, Some(_)) => counted(waiting, what),
        (waiting, None) => {
            format!("{}, for {}", counted(waiting, what), duration(status.clears_in()))
        }
    };
    row("waiting list", time);
    for of_key in policy.key_limits.iter().filter(|_| arguments.key.is_none()) {
        let what = counted_as(&of_key.limit, of_key.units.is_some());
        let each = calls(of_key.limit.limit, &of_key.limit, what);
        row(&format!("each {}", of_key.key), format!("{each}; see one with --key"));
    }
    output::line(rows.text())?;
    if !status.tenants.is_empty() {
        let mut rows = Rows::under([Text("tenant"), Number("weight"), Number("waiting list")]);
        for tenant in &status.tenants {
            let name = named(tenant.name.as_ref(), tenant.hash);
            rows.add([name, tenant.weight.to_string(), thousands(tenant.waiting)]);
        }
        output::line(rows.text())?;
    }
    Ok(())
}

/// The value itself is not in the table.
fn named(name: Option<&String>, hash: u16) -> String {
    name.cloned().unwrap_or_else(|| format!("SHA-256 with {hash:04x}"))
}

fn json(status: &LimitStatus) -> Value {
    let time = |time: Option<SystemTime>| time.and_then(moment);
    let tenants = status.tenants.iter().map(|tenant| {
        json!({
            "name": tenant.name,
            "hash": format!("{:04x}", tenant.hash),
            "weight": tenant.weight,
            "waiting": tenant.waiting,
        })
    });
    let paused_keys = status.paused_keys.iter().map(|key| {
        let hash = format!("{:04x}", key.hash);
        json!({ "name": key.name, "hash": hash, "pausedUntil": moment(key.until) })
    });
    json!({
        "policy": { "limit": status.of_policy.limit, "periodSeconds": status.of_policy.period.as_secs_f64() },
        "limit": status.calls_per_period(),
        "setUntil": time(status.set_until),
        "pausedUntil": time(status.paused_until),
        "pausedKeys": paused_keys.collect::<Vec<_>>(),
        "servicePausedSeconds": status.service_paused.map(|rest| rest.as_secs_f64()),
        "pace": status.pace,
        "waiting": status.waiting,
        "clearsInSeconds": status.clears_in().as_secs_f64(),
        "tenants": tenants.collect::<Vec<_>>(),
    })
}
