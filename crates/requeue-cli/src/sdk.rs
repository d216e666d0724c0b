//! The SDK's configuration, and the option `--profile`. A process cannot safely change its own
//! environment, so the command starts again with that of the profile.

use std::iter::successors;
use std::time::Duration;

use aws_config::BehaviorVersion;
use aws_config::profile::load;
use aws_runtime::env_config::file::EnvConfigFiles;
use aws_runtime::env_config::section::EnvConfigSections;
use aws_smithy_types::retry::RetryConfig;
use aws_smithy_types::timeout::TimeoutConfig;
use aws_types::os_shim_internal::{Env, Fs};
use aws_types::region::Region;
use clap::ArgMatches;
use futures_util::FutureExt;
use requeue::aws::{self, SdkConfig};
use requeue::printable;

use crate::{Error, bail, environment};

/// Of a try, and of all tries of a request. A server may accept it and never respond.
const ATTEMPT_TIMEOUT: Duration = Duration::from_secs(15);
const OPERATION_TIMEOUT: Duration = Duration::from_secs(30);

/// That of AWS's environment, with bounds of time.
pub(crate) async fn config() -> SdkConfig {
    let timeouts = TimeoutConfig::builder()
        .operation_attempt_timeout(ATTEMPT_TIMEOUT)
        .operation_timeout(OPERATION_TIMEOUT)
        .build();
    aws::config().await.into_builder().timeout_config(timeouts).build()
}

/// Without the region, for which the SDK would ask: outside AWS, that takes a second.
pub(crate) async fn endpoints_alone() -> SdkConfig {
    let loader = aws_config::defaults(BehaviorVersion::latest()).no_credentials();
    let loader = loader.retry_config(RetryConfig::standard());
    loader.region(Region::from_static("us-east-1")).load().await
}

const OPTION: &str = "profile";
const PROFILE: &str = "AWS_PROFILE";
/// Keys in the environment, which come before those of `AWS_PROFILE`.
pub(crate) const KEYS: [&str; 3] =
    ["AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN"];

/// Runs this process again in the environment of the chosen profile, if it is not in it already.
pub(crate) fn enter(matches: &ArgMatches) -> Result<(), Error> {
    let Some(name) = chosen(matches) else { return Ok(()) };
    if !is_known(&name)? {
        bail!(
            "there is no AWS profile `{name}` in AWS's files; `aws configure list-profiles` lists \
             the profiles"
        );
    }
    if entered().as_ref() == Some(&name) {
        return Ok(());
    }
    let error = environment::begin_anew((PROFILE, &name), &KEYS);
    Err(format!("this command cannot begin anew with the AWS profile `{name}`: {error}").into())
}

/// The profile whose credentials this process uses.
pub(crate) fn entered() -> Option<String> {
    current().filter(|_| KEYS.iter().all(|key| environment::value(key).is_none()))
}

pub(crate) fn current() -> Option<String> {
    environment::value(PROFILE)
}

/// The profile of a command that calls AWS. Keys in the environment come before `AWS_PROFILE`.
fn chosen(matches: &ArgMatches) -> Option<String> {
    if let Some((_, of_subcommand)) = matches.subcommand() {
        return chosen(of_subcommand);
    }
    let by_option: Option<&String> = matches.try_get_one(OPTION).ok()?;
    by_option.cloned().or_else(|| current().filter(|_| environment::value(KEYS[0]).is_none()))
}

/// A source of credentials without keys and without a log-in, and the remedy if it gives none.
pub(crate) struct Provider {
    /// The variable that leads to it.
    pub(crate) variable: &'static str,
    pub(crate) name: &'static str,
    pub(crate) remedy: &'static str,
}

/// In AWS's order.
const PROVIDERS: [Provider; 3] = [
    Provider {
        variable: "AWS_WEB_IDENTITY_TOKEN_FILE",
        name: "STS",
        remedy: "look at the role and the token file",
    },
    of_container("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI"),
    of_container("AWS_CONTAINER_CREDENTIALS_FULL_URI"),
];

const fn of_container(variable: &'static str) -> Provider {
    let name = "the container's credentials endpoint";
    Provider { variable, name, remedy: "look at the container's credentials endpoint" }
}

/// The provider of the environment, if neither keys nor a profile come before it.
pub(crate) fn provider() -> Option<&'static Provider> {
    let is_set = |variable| environment::value(variable).is_some();
    let has_others = is_set(KEYS[0]) || is_set(PROFILE);
    PROVIDERS.iter().find(|provider| !has_others && is_set(provider.variable))
}

/// Without this question, the SDK would look for other credentials, as those of the machine.
fn is_known(name: &str) -> Result<bool, Error> {
    Ok(profiles()?.get_profile(name).is_some())
}

/// The file, its line, and what is wrong there, if AWS's files cannot be read.
pub(crate) fn unreadable_files() -> Option<Error> {
    profiles().err()
}

fn profiles() -> Result<EnvConfigSections, Error> {
    let (fs, env, files) = (Fs::real(), Env::real(), EnvConfigFiles::default());
    // It waits for nothing: the files are read at once.
    let read = load(&fs, &env, &files, None).now_or_never().expect("a file is read at once");
    read.map_err(|error| {
        let texts = successors(Some(&error as &dyn std::error::Error), |error| error.source());
        let texts: Vec<String> =
            texts.map(|error| printable::line(&error.to_string()).into()).collect();
        texts.join(": ").into()
    })
}
