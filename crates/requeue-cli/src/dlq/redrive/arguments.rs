//! The options of `requeue dlq redrive`.

use serde::Deserialize;

use crate::dlq::letter::Filter;
use crate::dlq::queue::QueueArguments;
use crate::queue_argument::QueueName;

pub(crate) const HELP: &str = "\
    SQS itself moves back each message that a redrive policy moved here (StartMessageMoveTask), \
    to the queue it came from. Ctrl-C cancels that. SQS cannot move messages that were sent here \
    (REQUEUE_DEAD_LETTER=direct), so the command copies them. It also copies all messages that \
    the options choose. With --source-queue it copies each message of that queue, since a move \
    task would also move those of other queues.\n\n\
    A message stays here if SQS moved it here from another queue than that of --source-queue, or \
    if it claims to come from another queue than that one or, without --source-queue, than its \
    destination. Anybody who may send to the queue can write such a claim, so a claim never chooses \
    a destination. --to without --source-queue sends all chosen messages to one queue.\n\n\
    The command deletes a message only after SQS confirmed its copy. An unconfirmed message stays \
    and becomes visible again. No interruption loses a message. If the command is killed, its \
    messages are visible again after two minutes or more; the plan, or with --yes a note, says when. \
    If it is killed between a confirmation and the deletion, the message is in both queues, with \
    the same originalMessageId, the handler's idempotency key.\n\n\
    A redriven message starts afresh, with all its retries and all its time, up to its tenth \
    redrive; with --fresh-budget always. If SQS moves it within three minutes of its last attempt, \
    it may not; a copy does. Messages that arrive here during the copying stay here.\n\n\
    At the end the command names the number of messages not reached, the reason and the remedy. With \
    --json they are in notReached, and complete is false. In a FIFO group SQS hands out at most the \
    first ten messages; behind ten that stay, the command reaches none.\n\n\
    Permissions here: sqs:GetQueueAttributes, sqs:ListDeadLetterSourceQueues, sqs:ReceiveMessage, \
    sqs:DeleteMessage and sqs:ChangeMessageVisibility. Permissions at the destination: \
    sqs:SendMessage, and with --to sqs:GetQueueAttributes. A queue's name needs sqs:GetQueueUrl \
    too. Unless the command only copies, it also needs sqs:StartMessageMoveTask, \
    sqs:ListMessageMoveTasks and sqs:CancelMessageMoveTask here.\n\n\
    Exit status: 0; 1 on an error, if you decline the question, if a chosen message is, or may \
    be, still here, if the options choose no message, or if an --id is not found; 130 after Ctrl-C. --dry-run ends with 0 even if \
    its plan is incomplete.";

#[derive(Default, clap::Args)]
#[allow(clippy::struct_excessive_bools, reason = "options of a command line")]
pub(crate) struct Arguments {
    #[command(flatten)]
    pub(super) place: QueueArguments,
    #[command(flatten)]
    pub(super) filter: Filter,
    /// The destination. [default: the queue that SQS moved each message from; for messages that
    /// were sent here, the one queue whose redrive policy names this one]
    #[arg(long, help_heading = "Redrive", value_name = "QUEUE")]
    pub(super) to: Option<QueueName>,
    /// Redrive at most this many messages in a second.
    #[arg(long, help_heading = "Redrive", value_name = "COUNT", value_parser = clap::value_parser!(u16).range(1..=500))]
    pub(super) rate: Option<u16>,
    /// Copy all messages, also those that SQS could move.
    #[arg(long, help_heading = "Redrive")]
    pub(super) copy: bool,
    /// Give every message all its retries and all its time again, also after the tenth redrive.
    /// Implies --copy.
    #[arg(long, help_heading = "Redrive")]
    pub(super) fresh_budget: bool,
    /// Show the plan, and change nothing.
    #[arg(long, conflicts_with = "follow")]
    pub(super) dry_run: bool,
    /// Follow the move task that is already running, and cancel it on Ctrl-C.
    #[arg(
        long,
        help_heading = "Redrive",
        conflicts_with_all = ["Filter", "to", "rate", "copy", "fresh_budget"]
    )]
    pub(super) follow: bool,
    /// Do not ask for confirmation.
    #[arg(long)]
    pub(super) yes: bool,
    /// Print the result as JSON.
    #[arg(long, help_heading = "Output")]
    pub(super) json: bool,
}

/// The options of copies that a person chooses on the local page.
#[derive(Clone, Copy, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct CopyOptions {
    pub(crate) rate: Option<u16>,
    pub(crate) fresh_budget: bool,
}

impl Arguments {
    /// Copies the messages that the filter chooses to their source queues.
    pub(crate) fn copying(filter: Filter, CopyOptions { rate, fresh_budget }: CopyOptions) -> Self {
        Self { filter, rate, fresh_budget, copy: true, ..Self::default() }
    }

    /// The rate, if it prolongs the time for which messages are hidden: unchosen ones are, to the end.
    pub(super) fn hiding_rate(&self) -> Option<u16> {
        self.rate.filter(|_| self.filter.is_set())
    }

    /// Whether an option needs copies, because a move task of SQS cannot do it.
    pub(crate) fn has_to_copy(&self) -> bool {
        self.copy || self.fresh_budget || self.filter.is_set()
    }
}
