//! Whether a queue is a dead-letter queue. A look counts as a receive and hides the message, so no
//! command does it to the messages of a source queue by mistake.

use super::sqs::{Described, Sqs};
use crate::Error;

/// The use of the messages.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// They stay in the queue.
    Look,
    /// They may leave it for good.
    Delete,
    /// They go to another queue. `--to` may name it, also if the source queue is gone.
    Redrive,
}

/// Refuses a queue that cannot be shown to be a dead-letter queue, and names the right one. Returns
/// the doubt if the command may go on.
pub(super) async fn check(
    sqs: &Sqs,
    queue: &Described,
    purpose: Purpose,
    takes_any: bool,
) -> Result<Option<String>, Error> {
    let sources = sqs.sources(&queue.arn).await;
    if sources.as_ref().is_ok_and(|sources| !sources.is_empty()) {
        return Ok(None);
    }
    let name = queue.arn.name();
    let own = queue.redrive.as_ref().map(|(own, _)| own.name());
    let doubt = match (&sources, own) {
        (Err(error), _) => format!("it is unknown whether {name} is a dead-letter queue: {error}"),
        (Ok(_), Some(own)) => format!("{name} is not a dead-letter queue, and has one: {own}"),
        (Ok(_), None) => {
            format!("no queue names {name} in its redrive policy, so it may be a queue in use")
        }
    };
    let is_allowed = match purpose {
        Purpose::Look => own.is_none() && sources.is_err(),
        Purpose::Delete => false,
        Purpose::Redrive => own.is_none(),
    };
    if is_allowed || takes_any {
        return Ok(Some(format!("{doubt}; each look at a message counts as a receive")));
    }
    let right =
        own.map_or("name a dead-letter queue".to_owned(), |own| format!("use --queue {own}"));
    Err(format!("{doubt}; {right}; --any-queue takes {name} all the same").into())
}
