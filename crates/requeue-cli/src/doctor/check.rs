//! One question about a deployment: a row of the tables in `checks/`.

use super::context::Context;
use super::diagnosis::{Checked, Finding, Skip};

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
