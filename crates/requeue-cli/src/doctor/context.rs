//! The input of a check, and questions that several checks share. A question without an answer ends
//! the check.

use std::time::Duration;

use requeue::policy::RetryPolicy;
use requeue::{Mode, Settings, Strategy};

use super::diagnosis::Skip;
use super::facts::{Deployment, Function, Mapping, QueueAttributes, QueuePath, Reached, Valid};
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

    /// The mappings of all queues.
    pub(crate) fn mappings(&self) -> impl Iterator<Item = &'d Mapping> {
        self.deployment.paths.iter().filter_map(|path| path.mapping.as_ref())
    }

    pub(crate) fn source(&self) -> Result<&'d Reached, Skip> {
        Ok(&self.path()?.source)
    }

    /// The source's attributes. If there are none, the check `queue` reports it.
    pub(crate) fn queue(&self) -> Result<&'d QueueAttributes, Skip> {
        self.source()?.known().ok_or(Skip::NotApplicable)
    }

    /// The settings as they count for the queue of the path.
    pub(crate) fn config(&self) -> Result<&'d Settings, Skip> {
        let own = self.path.and_then(|path| path.own.as_ref());
        let general = || self.deployment.settings.valid().map(|valid| &valid.config);
        own.or_else(general).ok_or_else(|| unknown("settings are"))
    }

    pub(crate) fn policy(&self) -> Result<&'d RetryPolicy, Skip> {
        let config = self.config()?;
        let is_known = |valid: &Valid| !valid.lacks_policy && valid.policy_elsewhere.is_none();
        let is_known = self.deployment.settings.valid().is_some_and(is_known);
        if is_known { Ok(&config.policy) } else { Err(unknown("policy is")) }
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
        let classes = RETRIED_CLASSES.into_iter().filter_map(|class| policy.class(class));
        Ok(classes.map(|class| class.total_timeout).max().unwrap_or_default())
    }

    /// The most retries that a class allows.
    pub(crate) fn max_retries(&self) -> Result<u32, Skip> {
        let policy = self.policy()?;
        let most = RETRIED_CLASSES.into_iter().map(|class| max_retries(policy, class)).max();
        Ok(most.unwrap_or_default())
    }
}

fn unknown(what: &str) -> Skip {
    Skip::not_checked(format!("the function's {what} not known, see settings"), [""; 0])
}

impl Reached {
    /// Its attributes, if the queue exists and they could be read.
    pub(crate) fn known(&self) -> Option<&QueueAttributes> {
        self.queue.as_ref().ok()?.as_ref()
    }
}
