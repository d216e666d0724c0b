//! The input of a check, and questions that several checks share. A question without an answer ends
//! the check.

use std::time::Duration;

use requeue::policy::RetryPolicy;
use requeue::{Mode, Settings, Strategy};

use super::diagnosis::Skip;
use super::facts::{
    Deployment, Function, FunctionSettings, Mapping, QueueAttributes, QueuePath, Reached, Valid,
};
use crate::document::{RETRIED_CLASSES, max_retries};

/// A deployment, and one of its queues for the checks that look at one.
#[derive(Clone, Copy)]
pub(crate) struct Context<'d> {
    pub(crate) deployment: &'d Deployment,
    pub(crate) path: Option<&'d QueuePath>,
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

    pub(crate) fn source(&self) -> Result<&'d Reached, Skip> {
        Ok(&self.path()?.source)
    }

    /// The source's attributes. If there are none, the check `queue` reports it.
    pub(crate) fn queue(&self) -> Result<&'d QueueAttributes, Skip> {
        self.source()?.known().ok_or(Skip::NotApplicable)
    }

    pub(crate) fn settings(&self) -> Result<&'d Valid, Skip> {
        match &self.deployment.settings {
            FunctionSettings::Valid(valid) => Ok(valid),
            FunctionSettings::Invalid(_) | FunctionSettings::Unread(_) => Err(Skip::not_checked(
                "the function's settings are not known, see settings",
                [""; 0],
            )),
        }
    }

    pub(crate) fn config(&self) -> Result<&'d Settings, Skip> {
        Ok(&self.settings()?.config)
    }

    pub(crate) fn policy(&self) -> Result<&'d RetryPolicy, Skip> {
        let settings = self.settings()?;
        if settings.lacks_policy || settings.policy_elsewhere.is_some() {
            return Err(Skip::not_checked(
                "the function's policy is not known, see settings",
                [""; 0],
            ));
        }
        Ok(&settings.config.policy)
    }

    /// Whether a message waits by its visibility timeout, so that each receive counts as a retry.
    pub(crate) fn waits_in_place(&self) -> Result<bool, Skip> {
        Ok(self.source()?.arn.is_fifo() || self.config()?.strategy == Strategy::Visibility)
    }

    /// Whether the function sends copies to any of its own queues.
    pub(crate) fn sends_copies(&self) -> Result<bool, Skip> {
        let config = self.config()?;
        let has_standard = self.deployment.paths.iter().any(|path| !path.source.arn.is_fifo());
        Ok(has_standard && config.strategy == Strategy::Copy && config.mode == Mode::Requeue)
    }

    /// The longest time that a class allows from the first receive to the last retry.
    pub(crate) fn age_budget(&self) -> Result<Duration, Skip> {
        let policy = self.policy()?;
        let budgets = RETRIED_CLASSES
            .into_iter()
            .filter_map(|class| policy.class(class))
            .map(|class| class.total_timeout);
        Ok(budgets.max().unwrap_or_default())
    }

    /// The most retries that a class allows.
    pub(crate) fn max_retries(&self) -> Result<u32, Skip> {
        let policy = self.policy()?;
        Ok(RETRIED_CLASSES
            .into_iter()
            .map(|class| max_retries(policy, class))
            .max()
            .unwrap_or_default())
    }
}

impl Reached {
    /// Its attributes, if the queue exists and they could be read.
    pub(crate) fn known(&self) -> Option<&QueueAttributes> {
        self.queue.as_ref().ok()?.as_ref()
    }
}
