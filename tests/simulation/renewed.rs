//! Given-up messages that get all their receives anew. In the mode `redrive`, an execution
//! environment that does not know that a message was dead-lettered may have to defer it. The copy that it
//! sends is a new message for SQS and for all environments.

use crate::book::Book;

impl Book {
    /// Another copy of a message was confirmed. Notes the calls of those that were deferred on this
    /// receive: no retry counts them.
    pub fn renew(&mut self, id: usize, n: usize) {
        let of_this = self.invocations[&id].members.iter();
        let deferred = of_this.filter(|(_, member)| member.n == n && !member.is_called);
        let track = &mut self.tracks[n];
        for (message, _) in deferred {
            track.calls_renewed += track.calls_of.remove(message).unwrap_or(0);
        }
    }
}
