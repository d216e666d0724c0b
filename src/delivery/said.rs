//! Facts that the handler of a message gives to rate limits.

use std::sync::OnceLock;

use super::Delivery;
use crate::classify::Allowance;

/// Facts that the handler of a message gave to rate limits.
#[derive(Default)]
pub(super) struct Said {
    /// The units that its call used.
    used: OnceLock<u32>,
    /// The rest of the service's allowances, by the response to its call.
    allowances: OnceLock<Box<[Allowance]>>,
}

impl Delivery {
    /// Notes the units that its call used. The first number counts.
    pub(crate) fn note_used(&self, units: u32) {
        let _ = self.said.get_or_init(Box::default).used.set(units);
    }

    pub(crate) fn used(&self) -> Option<u32> {
        self.said.get()?.used.get().copied()
    }

    /// Notes the allowances that a response to its call names. The first response counts.
    pub(crate) fn note_allowances(&self, allowances: Box<[Allowance]>) {
        let _ = self.said.get_or_init(Box::default).allowances.set(allowances);
    }

    pub(crate) fn allowances(&self) -> &[Allowance] {
        self.said.get().and_then(|said| said.allowances.get()).map_or(&[], |it| it)
    }
}
