//! A check, its input and its result. It knows neither the rows of the table nor the output.

use std::fmt::Display;
use std::ops::Deref;
use std::time::Duration;

use requeue::policy::RetryPolicy;
use requeue::queue::CallErrorKind;
use requeue::{Settings, Strategy, printable};
use serde::Serialize;

use super::facts::{
    Deployment, Function, FunctionSettings, Mapping, QueueAttributes, QueuePath, Reached, Unread,
};
use crate::document::{RETRIED_CLASSES, age_budget, max_retries};
use crate::endpoints::Endpoints;
use crate::failed_call::Cause;
use crate::table::is_command;

/// From good to bad. Unknown is never good.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Level {
    Ok,
    Unknown,
    Warning,
    Danger,
}

impl Level {
    pub(crate) const ALL: [Self; 4] = [Self::Danger, Self::Warning, Self::Unknown, Self::Ok];

    /// Its word and its colour. `anstream` removes the colour where none is wanted.
    pub(crate) fn shown(self) -> (&'static str, &'static str) {
        match self {
            Self::Ok => ("ok", "\x1b[32m"),
            Self::Unknown => ("unknown", "\x1b[36m"),
            Self::Warning => ("warning", "\x1b[33m"),
            Self::Danger => ("danger", "\x1b[1;31m"),
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Diagnosis {
    pub(crate) level: Level,
    pub(crate) found: String,
    /// Commands and lines of a template. Alternatives are comments, so all may be pasted at once.
    pub(crate) remedies: Vec<Remedy>,
}

/// The steps to a remedy, one a line: a command that can be pasted, in which a word in capitals
/// stands for a value that the doctor does not know; or words.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub(crate) struct Remedy(String);

impl Remedy {
    /// With this step after the others.
    pub(crate) fn then(self, step: impl AsRef<str>) -> Self {
        Self(format!("{}\n{}", self.0, printable::line(step.as_ref())))
    }

    pub(crate) fn of(steps: impl IntoIterator<Item = impl AsRef<str>>) -> Self {
        let steps = steps.into_iter().map(|step| printable::line(step.as_ref()).into_owned());
        Self(steps.collect::<Vec<_>>().join("\n"))
    }

    /// As a comment of a shell, so that a pasted output does not run it.
    pub(crate) fn commented(&self, when: &str) -> Self {
        let then = if self.has_command() { "\n# " } else { " " };
        Self(format!("# {when}{then}{}", self.0.replace('\n', "\n# ")))
    }

    pub(super) fn has_command(&self) -> bool {
        self.0.lines().any(is_command)
    }

    /// With each command for the endpoint that the environment names.
    pub(super) fn at(&self, endpoints: &Endpoints) -> Self {
        Self(endpoints.named_in(&self.0))
    }
}

impl<T: AsRef<str> + Into<String>> From<T> for Remedy {
    fn from(step: T) -> Self {
        Self::of([step])
    }
}

impl Deref for Remedy {
    type Target = str;

    fn deref(&self) -> &str {
        &self.0
    }
}

/// The reason for a check without a diagnosis.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Skip {
    /// There is nothing to check, or another check has reported the reason.
    NotApplicable,
    Unknown(Diagnosis),
}

pub(crate) type Checked = Result<Diagnosis, Skip>;

/// A finding that is ok needs no remedy.
#[allow(clippy::unnecessary_wraps, reason = "the end of a check")]
pub(crate) fn at<R: Into<Remedy>>(
    level: Level,
    found: impl Into<String>,
    remedies: impl IntoIterator<Item = R>,
) -> Checked {
    let remedies = alternatives(remedies.into_iter().filter(|_| level != Level::Ok));
    Ok(Diagnosis { level, found: found.into(), remedies })
}

fn alternatives<R: Into<Remedy>>(remedies: impl IntoIterator<Item = R>) -> Vec<Remedy> {
    let or = |at, remedy: Remedy| if at == 0 { remedy } else { remedy.commented("or:") };
    (0..).zip(remedies).map(|(at, remedy)| or(at, remedy.into())).collect()
}

pub(crate) fn ok(found: impl Into<String>) -> Checked {
    at(Level::Ok, found, [""; 0])
}

pub(crate) fn warning<R: Into<Remedy>>(
    found: impl Into<String>,
    remedies: impl IntoIterator<Item = R>,
) -> Checked {
    at(Level::Warning, found, remedies)
}

pub(crate) fn danger<R: Into<Remedy>>(
    found: impl Into<String>,
    remedies: impl IntoIterator<Item = R>,
) -> Checked {
    at(Level::Danger, found, remedies)
}

pub(crate) fn not_checked<R: Into<Remedy>>(
    reason: impl Display,
    remedies: impl IntoIterator<Item = R>,
) -> Skip {
    let (found, remedies) = (format!("not checked: {reason}"), alternatives(remedies));
    Skip::Unknown(Diagnosis { level: Level::Unknown, found, remedies })
}

impl From<&Unread> for Skip {
    fn from(unread: &Unread) -> Self {
        let (found, remedy) = unknown(unread);
        not_checked(found, [remedy])
    }
}

/// Why AWS did not give a fact, and the remedy.
pub(crate) fn unknown(Unread { permission, resource, error }: &Unread) -> (String, String) {
    let (code, cause) = (&error.code, Cause::of(&error.code));
    let asked = format!("{permission} on {resource}");
    let found = match cause {
        Cause::TooManyPages => format!("{asked} has too many pages"),
        Cause::NoQueue | Cause::NotFound => {
            format!("{permission} found no {resource} ({code})")
        }
        Cause::NotImplemented => format!("the server does not implement {asked} ({code})"),
        _ if error.kind == CallErrorKind::Ambiguous => format!("{asked} had no response ({code})"),
        _ => format!("{asked} was refused ({code})"),
    };
    (found, cause.remedy(permission, resource))
}

#[derive(Clone, Debug, Serialize)]
pub(crate) struct Finding {
    pub(crate) id: &'static str,
    pub(crate) why: &'static str,
    /// The name of the queue, for checks of one of the function's queues.
    pub(crate) queue: Option<String>,
    #[serde(flatten)]
    pub(crate) diagnosis: Diagnosis,
}

pub(crate) struct Check {
    pub(crate) id: &'static str,
    pub(crate) why: &'static str,
    pub(crate) look: fn(&Context<'_>) -> Checked,
}

impl Check {
    pub(crate) fn finding(&self, context: &Context<'_>) -> Option<Finding> {
        let diagnosis = match (self.look)(context) {
            Ok(diagnosis) | Err(Skip::Unknown(diagnosis)) => diagnosis,
            Err(Skip::NotApplicable) => return None,
        };
        let queue = context.path.map(|path| path.source.arn.name().to_owned());
        Some(Finding { id: self.id, why: self.why, queue, diagnosis })
    }
}

/// A deployment, and one of its queues for the checks that look at one.
#[derive(Clone, Copy)]
pub(crate) struct Context<'d> {
    pub(crate) deployment: &'d Deployment,
    pub(crate) path: Option<&'d QueuePath>,
    /// The settings, as they count for this queue.
    pub(crate) config: Option<&'d Settings>,
}

impl<'d> Context<'d> {
    pub(crate) fn region(&self) -> &'d str {
        &self.deployment.region
    }

    pub(crate) fn function(&self) -> Result<&'d Function, Skip> {
        self.deployment.function.as_ref().ok_or(Skip::NotApplicable)
    }

    pub(crate) fn path(&self) -> Result<&'d QueuePath, Skip> {
        self.path.ok_or(Skip::NotApplicable)
    }

    pub(crate) fn mapping(&self) -> Result<&'d Mapping, Skip> {
        self.path()?.mapping.as_ref().ok_or(Skip::NotApplicable)
    }

    pub(crate) fn mappings(&self) -> impl Iterator<Item = &'d Mapping> {
        self.deployment.handled().filter_map(|path| path.mapping.as_ref())
    }

    pub(crate) fn source(&self) -> Result<&'d Reached, Skip> {
        Ok(&self.path()?.source)
    }

    /// The source's attributes. If there are none, the check `queue` reports it.
    pub(crate) fn queue(&self) -> Result<&'d QueueAttributes, Skip> {
        self.source()?.known().ok_or(Skip::NotApplicable)
    }

    pub(crate) fn config(&self) -> Result<&'d Settings, Skip> {
        self.config.ok_or_else(|| not_known("settings are"))
    }

    pub(crate) fn policy(&self) -> Result<&'d RetryPolicy, Skip> {
        let config = self.config()?;
        let is_known =
            |read: &FunctionSettings| !read.lacks_policy && read.policy_elsewhere.is_none();
        if self.deployment.settings.as_ref().is_ok_and(is_known) {
            Ok(&config.policy)
        } else {
            Err(not_known("policy is"))
        }
    }

    /// Whether a message waits with its visibility timeout, so that each receive counts as a retry.
    pub(crate) fn waits_in_place(&self) -> Result<bool, Skip> {
        Ok(self.source()?.arn.is_fifo() || self.config()?.strategy == Strategy::Visibility)
    }

    pub(crate) fn age_budget(&self) -> Result<Duration, Skip> {
        self.policy().map(age_budget)
    }

    pub(crate) fn max_retries(&self) -> Result<u32, Skip> {
        let policy = self.policy()?;
        let most = RETRIED_CLASSES.into_iter().map(|class| max_retries(policy, class)).max();
        Ok(most.unwrap_or_default())
    }
}

fn not_known(what: &str) -> Skip {
    not_checked(format!("the function's {what} not known, see settings"), [""; 0])
}

impl Reached {
    /// Its attributes, if the queue exists and they could be read.
    pub(crate) fn known(&self) -> Option<&QueueAttributes> {
        self.queue.as_ref().ok()?.as_ref()
    }
}

#[cfg(test)]
mod tests {
    use requeue::queue::CallError;

    use super::*;

    #[test]
    fn only_a_refusal_is_told_as_a_missing_permission() {
        let unread = |code: &str| Unread {
            permission: "sqs:ListQueueTags",
            resource: "orders".to_owned(),
            error: CallError::responded(400, code),
        };
        for (code, found, remedy) in [
            (
                "AccessDenied",
                "not checked: sqs:ListQueueTags on orders was refused (AccessDenied)",
                "run it with the permission sqs:ListQueueTags on orders",
            ),
            (
                "InvalidAction",
                "not checked: the server does not implement sqs:ListQueueTags on orders \
                 (InvalidAction)",
                "an emulator has only a part of AWS: run it against AWS",
            ),
            (
                "ResourceNotFoundException",
                "not checked: sqs:ListQueueTags found no orders (ResourceNotFoundException)",
                "check its name, the region and the account of the credentials",
            ),
        ] {
            let Skip::Unknown(diagnosis) = Skip::from(&unread(code)) else { panic!("{code}") };
            assert_eq!((&*diagnosis.found, &*diagnosis.remedies[0]), (found, remedy), "{code}");
        }
    }
}
