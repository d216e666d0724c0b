//! Why messages are retried, dead-lettered, and left to SQS, counted by reason.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;

use super::event::{Event, Kind};

/// Reasons that are counted by themselves. A service may invent codes.
const MAX_REASONS: usize = 100;
const OTHERS: &str = "other reasons";

/// The counts since the start; its clones are the same.
#[derive(Clone, Default)]
pub(crate) struct Causes(Arc<Mutex<Counted>>);

#[derive(Clone, Default)]
pub(crate) struct Counted {
    pub(crate) dead_lettered: BTreeMap<String, u64>,
    pub(crate) retried: BTreeMap<String, u64>,
    /// Of messages that SQS keeps, though Requeue meant to send a copy or to hide them.
    pub(crate) left: BTreeMap<String, u64>,
}

impl Causes {
    pub(super) fn note(&self, event: &Event, is_undone: bool) {
        let mut counted = self.0.lock();
        let reasons = match event.kind {
            Kind::DeadLettered => &mut counted.dead_lettered,
            Kind::Requeued => &mut counted.retried,
            Kind::Released if is_undone => &mut counted.left,
            _ => return,
        };
        let reason = event.reason.as_deref().unwrap_or("no reason given");
        let is_known = reasons.contains_key(reason) || reasons.len() < MAX_REASONS;
        *reasons.entry(if is_known { reason } else { OTHERS }.to_owned()).or_default() += 1;
    }

    pub(crate) fn counted(&self) -> Counted {
        self.0.lock().clone()
    }
}
