//! What `requeue dlq redrive` is asked to do.

use crate::dlq::QueueArguments;
use crate::dlq::letter::Filter;

pub(crate) const HELP: &str = "What a redrive policy moved here, SQS moves back itself \
                               (StartMessageMoveTask), each message to the queue it came from; \
                               Ctrl-C cancels that. What was sent here \
                               (REQUEUE_DEAD_LETTER=direct) SQS cannot move: it is copied, as is \
                               whatever is chosen by --class, --reason, --id, --source or --limit. \
                               With --source-queue-url, but without --to, every message is copied \
                               too: a move task would also bring back those of other queues. A \
                               message stays if SQS moved it here from another queue than that of \
                               --source-queue-url, or if it claims to come from another queue than \
                               the one where it would go. A claim is the message's own word, which \
                               anybody can write who may send to the queue: it never chooses a \
                               destination. --to sends everything that is chosen to one queue, \
                               whatever it claims. Copying sends at most ten messages in a \
                               request, waits until SQS confirms each by its name, and only then \
                               deletes it here. What is not confirmed stays, and becomes visible \
                               again. Nothing is lost, wherever this is interrupted. If the \
                               command is killed between a confirmation and the deletion, a \
                               message is in both queues, its body with the same \
                               originalMessageId, which is the handler's idempotency key.\n\n\
                               A message that was brought back starts afresh in Requeue, with all \
                               its retries and all its time, up to its tenth redrive. Within two \
                               minutes of its last try it does so only in the mode direct, and in \
                               the mode annotate if it is then received less than 9 s after it was \
                               brought back. With --fresh-budget it does so in any case: the copy \
                               is the message as first delivered, with its originalMessageId. What \
                               arrives here while copies are made is left.\n\n\
                               At the end SQS's counts are compared with what was seen. Messages \
                               that were not reached are named with the reason and what to do; \
                               with --json they are in notReached, and complete is false. After an \
                               error complete is false too, and brokenOff in notReached counts the \
                               messages that were not looked at. One reason is another reader that \
                               holds them. Another is a FIFO group: SQS hands out its first ten \
                               messages at most, so that behind ten that stay, because they are \
                               not chosen or not copied, nothing can be reached.\n\n\
                               Permissions: sqs:GetQueueAttributes, \
                               sqs:ListDeadLetterSourceQueues, sqs:ReceiveMessage, \
                               sqs:DeleteMessage and sqs:ChangeMessageVisibility here, \
                               sqs:SendMessage there, and with --to sqs:GetQueueAttributes; unless \
                               copies alone are made, also sqs:StartMessageMoveTask, \
                               sqs:ListMessageMoveTasks and sqs:CancelMessageMoveTask here.\n\n\
                               Ends with status 0; with 1 on an error, if the question is answered \
                               with no, or if a chosen message is still here, or may be among \
                               those that were not reached; and with 130 after Ctrl-C. --dry-run \
                               ends with 0 also if its plan is not complete.";

#[derive(clap::Args)]
#[allow(clippy::struct_excessive_bools, reason = "options of a command line")]
pub(crate) struct Arguments {
    #[command(flatten)]
    pub(super) place: QueueArguments,
    #[command(flatten)]
    pub(super) filter: Filter,
    /// Where to.
    /// [default: where SQS moved each from; what was sent here: the one queue whose redrive policy
    /// names this one]
    #[arg(long, value_name = "URL")]
    pub(super) to: Option<String>,
    /// So many messages in a second at most.
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u16).range(1..=500))]
    pub(super) rate: Option<u16>,
    /// Copies also what SQS could move.
    #[arg(long)]
    pub(super) copy: bool,
    /// Gives every message all its retries and all its time again, also after the tenth redrive.
    /// Copies.
    #[arg(long)]
    pub(super) fresh_budget: bool,
    /// Shows what would be done, and changes nothing.
    #[arg(long, conflicts_with = "follow")]
    pub(super) dry_run: bool,
    /// Follows the move task that is running already, and cancels it on Ctrl-C.
    #[arg(long)]
    pub(super) follow: bool,
    /// Does not ask.
    #[arg(long)]
    pub(super) yes: bool,
    /// The result as JSON.
    #[arg(long)]
    pub(super) json: bool,
}

impl Arguments {
    /// Whether something is asked for that SQS's own moving cannot do.
    pub(crate) fn has_to_copy(&self) -> bool {
        self.copy || self.fresh_budget || self.filter.is_set()
    }
}
