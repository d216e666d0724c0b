//! The messages that a worker could not delete. Their handlers are not called again: on the next
//! receive they are only deleted.

use std::collections::BTreeMap;

use requeue::Message;
use requeue::queue::{CallError, Confirmation};

use crate::book::{Book, Invocation};

/// The tries to delete a message that is done, and to delete one with a copy.
const TRIES: u32 = 2;
const TRIES_OF_A_COPY: u32 = 4;

/// By message id.
#[derive(Default)]
pub struct Undeleted(BTreeMap<String, Tries>);

#[derive(Default)]
struct Tries {
    /// The receive with the last one.
    receives: u64,
    /// Those that were answered.
    failed: u32,
    is_done: bool,
}

impl Book {
    /// A message of this receive is done, or SQS confirmed its copy, so only its delete remains.
    pub fn remains_to_delete(&mut self, id: usize, n: usize, is_done: bool) {
        let invocation = &self.invocations[&id];
        let Some(life) = self.lives.get_mut(&invocation.environment) else { return };
        for (message, member) in invocation.members.iter().filter(|(_, member)| member.n == n) {
            let tries = life.undeleted.0.entry(message.clone()).or_default();
            // A copy beside it may be of another receive of the same message.
            let may_be_another = tries.receives > 0 && !member.is_called;
            if tries.receives < member.receives && !may_be_another {
                *tries = Tries { receives: member.receives, is_done, failed: 0 };
            }
        }
    }

    /// Whether only the delete of a message remained on an earlier receive by this worker.
    pub fn is_deleted_again(&self, id: usize, message: &str) -> bool {
        let invocation = &self.invocations[&id];
        let Some(life) = self.lives.get(&invocation.environment) else { return false };
        let receives = invocation.members[message].receives;
        life.undeleted.0.get(message).is_some_and(|tries| tries.receives < receives)
    }

    /// The deliveries of a message that were completed without a call, since this environment had
    /// sent a copy on an earlier receive.
    pub fn remembered(&self, invocation: &Invocation, n: usize) -> usize {
        let of_this = invocation.members.iter().filter(|(_, member)| member.n == n);
        // Also by a batch that has not ended yet. Which copy a worker sent for which of two receives is
        // not known.
        let in_hand = self.of_environment(invocation.environment);
        let is_twice = in_hand.map(|(_, other)| other.of(n).count()).sum::<usize>() > 1;
        let copies = |other: &Invocation, id: &String| {
            (is_twice || !std::ptr::eq(other, invocation))
                && other.environment == invocation.environment
                && other.members.contains_key(id)
                && other.confirmed.contains_key(&n)
        };
        let is_copied = |id: &String| {
            self.copied.contains(&(invocation.environment, id.clone()))
                || self.invocations.values().any(|other| copies(other, id))
        };
        of_this.filter(|(id, member)| !member.is_called && is_copied(id)).count()
    }

    /// SQS confirmed a copy. If a worker has several receives of the message in hand, which one the
    /// copy is for is not known.
    pub fn may_be_copied(&mut self, id: usize, n: usize) {
        let environment = self.invocations[&id].environment;
        let members = self.of_environment(environment).flat_map(|(_, other)| &other.members);
        let of_it = members.filter(|(_, member)| member.n == n);
        let in_hand: Vec<_> = of_it.map(|(message, _)| (environment, message.clone())).collect();
        if in_hand.len() > 1 {
            self.copied.extend(in_hand);
        }
    }

    /// An invocation is over. Its environment remembers what it copied.
    pub fn close(&mut self, id: usize) {
        let Some(invocation) = self.invocations.remove(&id) else { return };
        let Invocation { environment, members, confirmed, .. } = invocation;
        let copied = members.into_iter().filter(|(_, member)| confirmed.contains_key(&member.n));
        self.copied.extend(copied.map(|(id, _)| (environment, id)));
    }

    /// SQS has answered a worker that deletes.
    pub fn deleted(
        &mut self,
        id: usize,
        handles: &[&str],
        answer: &Result<Vec<Confirmation>, CallError>,
    ) {
        let invocation = &self.invocations[&id];
        let Some(life) = self.lives.get_mut(&invocation.environment) else { return };
        for (at, handle) in handles.iter().enumerate() {
            let Some(message) = invocation.handles.get(*handle) else { continue };
            let is_confirmed =
                answer.as_ref().is_ok_and(|all| all.get(at).is_some_and(Result::is_ok));
            // A confirmation of a handle of an earlier receive deletes nothing.
            if let Some(tries) = life.undeleted.0.get_mut(message) {
                tries.failed = if is_confirmed { 0 } else { tries.failed + 1 };
            }
        }
    }

    /// A worker calls no handler for a message that it could not delete before.
    pub fn check_undeleted(&self, message: &Message, id: usize) -> Result<(), &'static str> {
        let invocation = &self.invocations[&id];
        let Some(life) = self.lives.get(&invocation.environment) else { return Ok(()) };
        let name = message.id().unwrap_or_default();
        let Some(tries) = life.undeleted.0.get(name) else { return Ok(()) };
        let least = if tries.is_done { TRIES } else { TRIES_OF_A_COPY };
        let is_known = tries.failed >= least && tries.receives < invocation.members[name].receives;
        if is_known { Err("called again, though it was only to be deleted") } else { Ok(()) }
    }
}
