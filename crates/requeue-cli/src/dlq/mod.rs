//! `requeue dlq`: works on dead letters. It knows no policy, and prints bodies only on request.

use std::process::ExitCode;

use crate::Error;

pub(crate) mod discard;
pub(crate) mod export;
mod import;
pub(crate) mod letter;
pub(crate) mod list;
pub(crate) mod outcome;

mod peek;
pub(crate) mod queue;
pub(crate) mod redrive;
pub(crate) mod scan;
mod sender;
pub(crate) mod sqs;

pub(crate) use self::queue::{DeadLetters, Purpose, QueueArguments};

macro_rules! help {
    (list) => {
        help!(
            " With --json they are in notReached, and complete is false.\n\n\
             Requeue writes class and reason into the message with REQUEUE_DEAD_LETTER=annotate or \
             direct, on a FIFO queue only with direct. With redrive, at most the class of the last \
             retry is known, and no time. If a message was redriven and failed again, its first \
             send is its last redrive.",
            "0; 1 on an error; 130 after Ctrl-C."
        )
    };
    (peek) => {
        help!("", "0; 1 on an error, if the options choose no message, or if an --id is not found; 130 after \
             Ctrl-C.")
    };
    (export) => {
        help!(
            " The export is then incomplete.",
            "0; 1 on an error, if the export is incomplete, if the options choose no message, or if an \
             --id is not found; 130 after Ctrl-C."
        )
    };
    (import) => {
        "The command checks all lines before it sends the first message. It sends each body as the \
         file has it: as it was in the dead-letter queue, or as first delivered if the export was \
         made with --unwrap. A message with Requeue's fields starts afresh like a redriven one.\n\n\
         The report has a line of JSON for each message: its line in the file, its id, sent or \
         failed, and the code of the failure. Another run with the same report sends only the \
         messages that were not sent. If the command is killed during a request, it may send the \
         ten messages of that request again.\n\n\
         Permissions: sqs:GetQueueAttributes and sqs:SendMessage; with a queue's name also \
         sqs:GetQueueUrl.\n\n\
         Exit status: 0; 1 on an error, if you decline the question, or if a message was not \
         sent; 130 after Ctrl-C."
    };
    (discard) => {
        help!(
            "\n\nThe command looks at all messages and writes the chosen ones to the file, complete \
             enough for `requeue dlq import`. Then it asks, and deletes the messages of the file. \
             This needs the permission sqs:DeleteMessage besides. If it did not reach all \
             messages, it writes no file and deletes none; of a FIFO group choose at most ten \
             with --limit.",
            "0; 1 on an error, if you decline the question, if a message was not deleted, if the \
             options choose no message, or if an --id is not found; 130 after Ctrl-C."
        )
    };
    ($about:literal, $status:literal) => {
        concat!(
            "Looking at a message receives it, and SQS hides it from other readers. At the end, \
             also after Ctrl-C, the command makes all messages visible again. If the process is \
             killed, they are visible again after two minutes, and a second for each 100 messages of \
             the queue (at most --max-messages).\n\n\
             Of a FIFO group at most the first ten messages can be looked at. A note has the \
             number of messages that the command did not reach, the reason and the remedy.",
            $about,
            "\n\nPermissions: sqs:ReceiveMessage, sqs:ChangeMessageVisibility and \
             sqs:GetQueueAttributes. With --queue also sqs:ListDeadLetterSourceQueues, which shows \
             that it is a dead-letter queue; with a queue's name also \
             sqs:GetQueueUrl.\n\nExit status: ",
            $status
        )
    };
}

#[derive(clap::Subcommand)]
pub(crate) enum Command {
    /// Group the messages by class, reason and failure: their number, the oldest, and an example of
    /// each group.
    #[command(after_help = help!(list), mut_arg(QUEUE, needed))]
    List(list::Arguments),
    /// Show messages one by one: ten unless --limit says otherwise, and their bodies only with
    /// --bodies.
    #[command(alias = "show", after_help = help!(peek), mut_arg(QUEUE, needed))]
    Peek(peek::Arguments),
    /// Write messages to a file as JSON Lines, complete enough to send them again. Deletes nothing.
    #[command(after_help = help!(export), mut_arg(QUEUE, second))]
    Export(export::Arguments),
    /// Send the messages of an export to a queue, each with its body, attributes and group.
    #[command(after_help = help!(import))]
    Import(import::Arguments),
    /// Export messages to a file and then delete them: all of them, or those that the options
    /// choose.
    #[command(aliases = ["delete", "purge"], after_help = help!(discard), mut_arg(QUEUE, second))]
    Discard(discard::Arguments),
    /// Redrive messages: all of them, or those that the options choose.
    #[command(alias = "replay", after_help = redrive::HELP, mut_arg(QUEUE, needed))]
    Redrive(redrive::Arguments),
}

const QUEUE: &str = "dead_letter_queue";

/// Without a queue these commands have nothing to do.
fn needed(queue: clap::Arg) -> clap::Arg {
    queue.required_unless_present_any(["queue", "source_queue"])
}

fn second(queue: clap::Arg) -> clap::Arg {
    needed(queue).index(2)
}

pub(crate) fn run(command: &Command) -> Result<ExitCode, Error> {
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    runtime.block_on(async {
        match command {
            Command::List(arguments) => list::run(arguments).await,
            Command::Peek(arguments) => peek::run(arguments).await,
            Command::Export(arguments) => export::run(arguments).await,
            Command::Import(arguments) => import::run(arguments).await,
            Command::Discard(arguments) => discard::run(arguments).await,
            Command::Redrive(arguments) => redrive::run(arguments).await,
        }
    })
}
