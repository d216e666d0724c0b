//! A call without credentials: its cause and its remedy, by the provider of the environment.

use std::iter::successors;

use requeue::aws::NO_CREDENTIALS;
use requeue::printable;

use crate::environment;
use crate::sdk::{self, Provider};

/// Codes of this command line for a profile whose credentials are not in AWS's files: no user is
/// signed in, or the profile's program failed. The SDK shows that only in the text of an error.
pub(super) const SIGNED_OUT: &str = "SignedOut";
pub(super) const PROCESS_FAILED: &str = "CredentialProcess";
/// The same for a profile of `aws login`. The SDK needs 25 more crates to read it.
pub(super) const OF_LOGIN: &str = "LoginSession";
/// The same for keys that no service can have given.
pub(super) const WRONG_KEY: &str = "WrongAccessKeyId";

pub(super) fn log_in() -> String {
    sdk::provider().map_or_else(|| LOG_IN.to_owned(), by_provider)
}

fn by_provider(provider: &Provider) -> String {
    format!("{} ({}), and try again in a minute", provider.remedy, provider.variable)
}

const LOG_IN: &str = "log in again with `aws sso login --profile PROFILE` and name the profile with \
                      --profile, or set AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY and \
                      AWS_SESSION_TOKEN";

/// The last source of the SDK, and the remedy on AWS.
const OF_THE_MACHINE: (&str, &str) = (
    ", and the metadata service did not respond with any",
    "; on AWS, attach a role: an instance role to EC2, with a metadata hop limit of 2 for \
     containers, a task role to ECS, or IRSA or Pod Identity to EKS",
);

/// The cause and the remedy of a call without credentials, by its code.
pub(super) fn without_credentials(code: &str) -> String {
    let profile = sdk::current();
    let name = printable::line(profile.as_deref().unwrap_or("default"));
    match code {
        SIGNED_OUT => format!(
            "the sign-in of the AWS profile `{name}` is missing or has expired; run `aws sso login \
             --profile {name}`, and then this command again"
        ),
        PROCESS_FAILED => format!(
            "the `credential_process` of the AWS profile `{name}` gave no credentials; run it \
             yourself to see the reason: `aws configure get credential_process --profile {name}` \
             shows it"
        ),
        OF_LOGIN => format!(
            "the AWS profile `{name}` has `login_session`, the key of `aws login`, which this command \
             cannot read; run `eval \"$(aws configure export-credentials --profile {name} --format \
             env)\"`, and then this command without --profile"
        ),
        WRONG_KEY => {
            let variable = sdk::KEYS[0];
            let place = match environment::value(variable) {
                Some(_) => format!("in {variable}"),
                None => format!("of the AWS profile `{name}`"),
            };
            format!(
                "the access key id {place} has a space, a line end or another character that no key \
                 has; write it again without"
            )
        }
        _ if let Some(provider) = sdk::provider() => format!(
            "{} gives no AWS credentials, or not in time; {}",
            provider.name,
            by_provider(provider)
        ),
        _ if let Some(error) = sdk::unreadable_files() => format!(
            "AWS's files cannot be read: {error}; correct that line, or set AWS_ACCESS_KEY_ID, \
             AWS_SECRET_ACCESS_KEY and AWS_SESSION_TOKEN"
        ),
        _ if profile.is_none() => {
            let is_off = environment::value("AWS_EC2_METADATA_DISABLED").as_deref() == Some("true");
            let (service, role) = if is_off { ("", "") } else { OF_THE_MACHINE };
            format!(
                "there are no AWS credentials in the environment or in AWS's files{service}; {LOG_IN}{role}"
            )
        }
        _ => format!(
            "the AWS profile `{name}` gives no credentials; `aws sts get-caller-identity --profile \
             {name}` shows why; if that works, give this command the same ones by `eval \"$(aws \
             configure export-credentials --profile {name} --format env)\"`"
        ),
    }
}

pub(crate) fn credentials_refused(error: &(dyn std::error::Error + 'static)) -> String {
    without_credentials(credentials_code(error))
}

/// The SDK's sources of credentials differ only in the words of their errors.
pub(super) fn credentials_code(error: &(dyn std::error::Error + 'static)) -> &'static str {
    let says = |word: &str| {
        successors(Some(error), |error| error.source())
            .any(|error| error.to_string().contains(word))
    };
    // The last one is SSO's own code for a token that it does not know.
    if ["SSO token", "sso/cache", "UnauthorizedException"].into_iter().any(says) {
        SIGNED_OUT
    } else if says("external process") {
        PROCESS_FAILED
    } else if says("credentials-login") {
        OF_LOGIN
    } else if says("the access key id has") {
        WRONG_KEY
    } else {
        NO_CREDENTIALS
    }
}
