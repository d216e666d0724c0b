//! A check and its result. It knows neither the checks nor the output.

use std::fmt::Display;

use requeue::queue::CallErrorKind;
use serde::Serialize;

use super::context::Context;
use super::facts::Unread;
use super::remedy::Remedy;
use crate::failed_call::Cause;

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

    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Unknown => "unknown",
            Self::Warning => "warning",
            Self::Danger => "danger",
        }
    }
}

/// A finding, and its remedies.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Diagnosis {
    pub(crate) level: Level,
    pub(crate) found: String,
    /// Commands and lines of a template. One of them is enough, unless the finding says otherwise.
    pub(crate) remedies: Vec<Remedy>,
}

impl Diagnosis {
    pub(crate) fn ok(found: impl Into<String>) -> Self {
        Self { level: Level::Ok, found: found.into(), remedies: Vec::new() }
    }

    /// A finding that is ok needs no remedy.
    pub(crate) fn of<R: Into<Remedy>>(
        level: Level,
        found: impl Into<String>,
        remedies: impl IntoIterator<Item = R>,
    ) -> Self {
        let remedies = if level == Level::Ok {
            Vec::new()
        } else {
            remedies.into_iter().map(Into::into).collect()
        };
        Self { level, found: found.into(), remedies }
    }

    pub(crate) fn warning<R: Into<Remedy>>(
        found: impl Into<String>,
        remedies: impl IntoIterator<Item = R>,
    ) -> Self {
        Self::of(Level::Warning, found, remedies)
    }

    pub(crate) fn danger<R: Into<Remedy>>(
        found: impl Into<String>,
        remedies: impl IntoIterator<Item = R>,
    ) -> Self {
        Self::of(Level::Danger, found, remedies)
    }

    pub(crate) fn unknown<R: Into<Remedy>>(
        found: impl Into<String>,
        remedies: impl IntoIterator<Item = R>,
    ) -> Self {
        Self::of(Level::Unknown, found, remedies)
    }
}

/// The reason for a check without a diagnosis.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Skip {
    /// There is nothing to check, or another check has reported the reason.
    NotApplicable,
    /// The fact is not known, for this reason.
    Unknown(Diagnosis),
}

impl Skip {
    pub(crate) fn not_checked<R: Into<Remedy>>(
        reason: impl Display,
        remedies: impl IntoIterator<Item = R>,
    ) -> Self {
        Self::Unknown(Diagnosis::unknown(format!("not checked: {reason}"), remedies))
    }
}

impl From<&Unread> for Skip {
    fn from(unread: &Unread) -> Self {
        let (found, remedy) = unknown(unread);
        Self::not_checked(found, [remedy])
    }
}

/// Why AWS did not give a fact, and the remedy.
pub(crate) fn unknown(Unread { permission, resource, error }: &Unread) -> (String, String) {
    let (code, cause) = (&error.code, Cause::of(&error.code));
    let asked = format!("{permission} on {resource}");
    let found = match cause {
        Cause::TooManyPages => format!("{asked} has too many pages"),
        Cause::NotImplemented => format!("the server does not implement {asked} ({code})"),
        _ if error.kind == CallErrorKind::Ambiguous => format!("{asked} had no response ({code})"),
        _ => format!("{asked} was refused ({code})"),
    };
    (found, cause.remedy(permission, resource))
}

pub(crate) type Checked = Result<Diagnosis, Skip>;

/// A diagnosis with its subject.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Finding {
    pub(crate) id: &'static str,
    pub(crate) why: &'static str,
    /// The name of the queue, for checks of one of the function's queues.
    pub(crate) queue: Option<String>,
    #[serde(flatten)]
    pub(crate) diagnosis: Diagnosis,
}

/// One question about a deployment: a row of the tables in `checks/`.
pub(crate) struct Check {
    pub(crate) id: &'static str,
    /// The reason for the check, as the output shows it.
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

#[cfg(test)]
mod tests {
    use requeue::queue::CallError;

    use super::*;

    #[test]
    fn an_action_that_a_server_does_not_have_needs_no_permission() {
        let unread = |code: &str| Unread {
            permission: "sqs:ListQueueTags",
            resource: "orders".to_owned(),
            error: CallError::answered(400, code),
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
        ] {
            let Skip::Unknown(diagnosis) = Skip::from(&unread(code)) else { panic!("{code}") };
            assert_eq!(diagnosis, Diagnosis::unknown(found, [remedy]), "{code}");
        }
    }
}
