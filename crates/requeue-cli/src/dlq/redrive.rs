//! `requeue dlq redrive`: which way messages go back, and what has become of them.

use std::collections::{BTreeMap, BTreeSet};
use std::process::ExitCode;
use std::time::Duration;

use serde::Serialize;
use tokio::time::Instant;

use super::copy::{Copier, Left, Tally};
use super::letter::{Filter, moment};
use super::moving::{self, MoveEnd};
use super::unseen::Unseen;
use super::way::Way;
use super::{DeadLetters, Place, confirm, dry_run, messages, note};
use crate::stop::Stop;
use crate::{Error, output};

pub(crate) const HELP: &str = "What a redrive policy moved here, SQS moves back itself (StartMessageMoveTask), each message to the queue it came \
    from; Ctrl-C cancels that. What was sent here (REQUEUE_DEAD_LETTER=direct) SQS cannot move: it is copied, as is whatever is chosen by \
    --class, --reason, --id, --source or --limit. With --source-queue-url, but without --to, every message is copied too: a move task \
    would also bring back those of other queues. A message stays if SQS moved it here from another queue than that of --source-queue-url, or if \
    it claims to come from another queue than the one where it would go. A claim is the message's own word, which anybody can write who may \
    send to the queue: it never chooses a destination. --to sends everything that is chosen to one queue, whatever it claims. Copying sends at \
    most ten messages in a request, waits until SQS confirms each by its name, and only then deletes it here. What is not confirmed stays, \
    and becomes visible again. Nothing is lost, wherever this is interrupted. If the command is killed between a confirmation and the \
    deletion, a message is in both queues, its body with the same originalMessageId, which is the handler's idempotency key.\n\n\
    A message that was brought back starts afresh in Requeue, with all its retries and all its time, up to its tenth redrive. Within \
    two minutes of its last try it does so only in the mode direct, and in the mode annotate if it is then received less than 9 s after it was \
    brought back. With --fresh-budget it does so in any case: the copy is the message as first delivered, with its originalMessageId. What arrives here while copies are made is left.\n\n\
    At the end SQS's counts are compared with what was seen. Messages that were not reached are named with the reason and what to do; with \
    --json they are in notReached, and complete is false. After an error complete is false too, and brokenOff in notReached counts the messages \
    that were not looked at. One reason is another reader that holds them. Another is a FIFO group: SQS hands \
    out its first ten messages at most, so that behind ten that stay, because they are not chosen or not copied, nothing can be reached.\n\n\
    Permissions: sqs:GetQueueAttributes, sqs:ListDeadLetterSourceQueues, sqs:ReceiveMessage, sqs:DeleteMessage and \
    sqs:ChangeMessageVisibility here, sqs:SendMessage there, and with --to sqs:GetQueueAttributes; unless copies alone are made, also \
    sqs:StartMessageMoveTask, sqs:ListMessageMoveTasks and sqs:CancelMessageMoveTask here.\n\n\
    Ends with status 0; with 1 on an error, if the question is answered with no, or if a chosen message is still here, or may be among those that were not reached; and with 130 after Ctrl-C. \
    --dry-run ends with 0 also if its plan is not complete.";

#[derive(clap::Args)]
#[allow(clippy::struct_excessive_bools, reason = "options of a command line")]
pub(crate) struct Arguments {
    #[command(flatten)]
    pub(super) place: Place,
    #[command(flatten)]
    pub(super) filter: Filter,
    /// Where to.
    /// [default: where SQS moved each from; what was sent here: the one queue whose redrive policy names this one]
    #[arg(long, value_name = "URL")]
    pub(super) to: Option<String>,
    /// So many messages in a second at most.
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u16).range(1..=500))]
    rate: Option<u16>,
    /// Copies also what SQS could move.
    #[arg(long)]
    copy: bool,
    /// Gives every message all its retries and all its time again, also after the tenth redrive.
    /// Copies.
    #[arg(long)]
    pub(super) fresh_budget: bool,
    /// Shows what would be done, and changes nothing.
    #[arg(long, conflicts_with = "follow")]
    dry_run: bool,
    /// Follows the move task that is running already, and cancels it on Ctrl-C.
    #[arg(long)]
    follow: bool,
    /// Does not ask.
    #[arg(long)]
    yes: bool,
    /// The result as JSON.
    #[arg(long)]
    pub(super) json: bool,
}

/// SQS tells its time in whole seconds.
const CLOCK_GRAIN: Duration = Duration::from_secs(1);

/// What has become of the messages.
#[derive(Default)]
struct Redrive {
    moved: u64,
    copies: Tally,
    /// Only after SQS's counts were compared with what was seen.
    is_complete: bool,
    unseen: Unseen,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Redriven<'a> {
    queue: String,
    moved: u64,
    copied: &'a BTreeMap<String, u64>,
    copied_not_deleted: &'a [String],
    #[serde(flatten)]
    left: &'a Left,
    failed: &'a BTreeMap<String, u64>,
    not_chosen: u64,
    arrived_meanwhile: u64,
    complete: bool,
    not_reached: &'a Unseen,
}

impl Arguments {
    /// Whether something is asked for that SQS's own moving cannot do.
    pub(crate) fn has_to_copy(&self) -> bool {
        self.copy || self.fresh_budget || self.filter.is_set()
    }
}

pub(crate) async fn run(arguments: &Arguments) -> Result<ExitCode, Error> {
    let dead_letters = arguments.place.find().await?;
    if arguments.follow {
        return follow(arguments, &dead_letters).await;
    }
    let way = Way::find(arguments, &dead_letters).await?;
    if arguments.dry_run {
        return dry_run::run(arguments, &dead_letters, &way).await;
    }
    if way.by_move_task {
        refuse_a_second_task(&dead_letters).await?;
    }
    if !arguments.yes && !confirm::agreed(&way.words(arguments, &dead_letters))? {
        note("nothing was done");
        return Ok(ExitCode::FAILURE);
    }
    carry_out(arguments, &dead_letters, &way).await
}

async fn refuse_a_second_task(dead_letters: &DeadLetters) -> Result<(), Error> {
    let Some(task) = moving::running(&dead_letters.sqs, &dead_letters.queue.arn).await? else {
        return Ok(());
    };
    let since = task.started.and_then(moment).unwrap_or_default();
    Err(format!(
        "SQS is moving messages out of {} since {since}, {} so far: --follow watches that to its end",
        dead_letters.name(),
        task.moved
    )
    .into())
}

async fn carry_out(
    arguments: &Arguments,
    dead_letters: &DeadLetters,
    way: &Way,
) -> Result<ExitCode, Error> {
    let stop = Stop::listen()?;
    let mut redrive = Redrive::default();
    let mut trouble = None;
    let mut has_to_copy = !way.by_move_task;
    if way.by_move_task {
        let DeadLetters { sqs, queue, .. } = dead_letters;
        let handle = sqs.start_move(&queue.arn, way.moves_to(), arguments.rate).await?;
        let moved = moving::follow(sqs, &queue.arn, &handle, &stop).await?;
        redrive.moved = moved.messages;
        match moved.end {
            MoveEnd::Completed => {
                match moving::left(sqs, queue, moved.messages, &stop).await {
                    Ok(unseen) => {
                        redrive.is_complete = unseen.is_empty();
                        redrive.unseen = unseen;
                    }
                    Err(error) => trouble = Some(error),
                }
                redrive.unseen.tell(dead_letters.name());
            }
            MoveEnd::Cancelled => {}
            MoveEnd::SourceUnknown if stop.is_told() => {}
            MoveEnd::SourceUnknown => {
                note(
                    "SQS does not know where the others belong, since they were sent here: they are copied",
                );
                has_to_copy = true;
            }
            MoveEnd::Failed(why) => trouble = Some(format!("SQS's move task failed: {why}").into()),
        }
    }
    if has_to_copy {
        match copy_all(arguments, dead_letters, way, &stop, &mut redrive).await {
            Ok(()) => trouble = redrive.copies.fatal.take(),
            Err(error) => trouble = Some(error),
        }
    }
    redrive.is_complete &= !stop.is_told();
    let told = redrive.tell(arguments, dead_letters, way.by_move_task.then_some(way));
    if let Some(error) = trouble {
        return Err(error);
    }
    told?;
    let copies = &redrive.copies;
    let is_done =
        copies.failed.is_empty() && copies.not_deleted.is_empty() && copies.left.count() == 0;
    let is_done = is_done && redrive.is_complete;
    Ok(stop.exit_code(if is_done { ExitCode::SUCCESS } else { ExitCode::FAILURE }))
}

async fn copy_all(
    arguments: &Arguments,
    dead_letters: &DeadLetters,
    way: &Way,
    stop: &Stop,
    redrive: &mut Redrive,
) -> Result<(), Error> {
    let Arguments { place, filter, rate, .. } = arguments;
    let began = dead_letters.sqs.now(&dead_letters.queue.arn).await?;
    let mut scan =
        dead_letters.scan(place, stop).one_by_one(*rate, filter.is_set()).after(redrive.moved);
    let mut copier = Copier {
        sqs: &dead_letters.sqs,
        from: &dead_letters.queue.arn,
        way,
        filter,
        fresh_budget: arguments.fresh_budget,
        rate: *rate,
        stop,
        until: began + CLOCK_GRAIN,
        time_in_hand: scan.time_in_hand(),
        began: Instant::now(),
        blocked: BTreeSet::new(),
        tally: Tally::default(),
    };
    let walked = scan.walk(async |letters, held| Ok(copier.copy(letters, held).await)).await;
    redrive.copies = copier.tally;
    let is_released = scan.release().await;
    redrive.unseen = scan.broken_off();
    let looked = walked?;
    if redrive.copies.fatal.is_none() {
        redrive.is_complete = scan.tell(&looked) && is_released;
        redrive.unseen = looked.unseen;
    }
    Ok(())
}

impl Redrive {
    /// `moved` is the way of what SQS moved, if it was asked to. What was done is done: if the
    /// standard output cannot be written, the standard error says it.
    fn tell(
        &self,
        arguments: &Arguments,
        dead_letters: &DeadLetters,
        moved: Option<&Way>,
    ) -> Result<(), Error> {
        let Self { copies, .. } = self;
        let text = self.text(moved);
        let told = if arguments.json {
            let redriven = Redriven {
                queue: dead_letters.queue.arn.to_string(),
                moved: self.moved,
                copied: &copies.copied,
                copied_not_deleted: &copies.not_deleted,
                left: &copies.left,
                failed: &copies.failed,
                not_chosen: copies.not_chosen,
                arrived_meanwhile: copies.newcomers,
                complete: self.is_complete,
                not_reached: &self.unseen,
            };
            output::json(&redriven)
        } else {
            output::text(&text)
        };
        told.inspect_err(|_| output::note(text.trim_end()))
    }

    fn text(&self, moved: Option<&Way>) -> String {
        let Self { copies, .. } = self;
        let mut text = String::new();
        let mut line = |line: String| text.extend([line.as_str(), "\n"]);
        match moved {
            Some(way) => line(format!("{} moved to {way}", messages(self.moved))),
            None if copies.copied.is_empty() => line("no message copied".to_owned()),
            None => {}
        }
        for (to, count) in &copies.copied {
            line(format!("{} copied to {to}", messages(*count)));
        }
        if copies.not_chosen > 0 {
            line(format!("{} left here, not chosen", messages(copies.not_chosen)));
        }
        if copies.newcomers > 0 {
            line(format!("{} arrived meanwhile, and left here", messages(copies.newcomers)));
        }
        if !self.unseen.is_empty() {
            line(format!("about {} not reached, and still here", messages(self.unseen.count())));
        }
        for (code, count) in &copies.failed {
            line(format!("{} not copied, and still here: {code}", messages(*count)));
        }
        for id in &copies.not_deleted {
            line(format!(
                "{id} copied, but not deleted here: brought back again, it would be there twice"
            ));
        }
        text + &copies.left.lines("left here")
    }
}

async fn follow(arguments: &Arguments, dead_letters: &DeadLetters) -> Result<ExitCode, Error> {
    let DeadLetters { sqs, queue, .. } = dead_letters;
    let Some(task) = moving::running(sqs, &queue.arn).await? else {
        return Err(format!("SQS is moving nothing out of {} just now", queue.arn.name()).into());
    };
    let stop = Stop::listen()?;
    let moved = moving::follow(sqs, &queue.arn, &task.handle.unwrap_or_default(), &stop).await?;
    let mut unseen = Unseen::default();
    if moved.end == MoveEnd::Completed {
        unseen = moving::left(sqs, queue, moved.messages.saturating_sub(task.moved), &stop).await?;
        unseen.tell(dead_letters.name());
    }
    let is_complete = moved.end == MoveEnd::Completed && unseen.is_empty() && !stop.is_told();
    if arguments.json {
        let redrive = Redrive { moved: moved.messages, is_complete, unseen, ..Redrive::default() };
        redrive.tell(arguments, dead_letters, None)?;
    } else {
        let text = format!("{} moved", messages(moved.messages));
        output::line(&text).inspect_err(|_| output::note(&text))?;
    }
    match moved.end {
        MoveEnd::Completed if is_complete => Ok(ExitCode::SUCCESS),
        MoveEnd::Completed | MoveEnd::Cancelled => Ok(stop.exit_code(ExitCode::FAILURE)),
        MoveEnd::SourceUnknown => {
            Err("SQS does not know where the others belong: redrive copies them".into())
        }
        MoveEnd::Failed(why) => Err(format!("SQS's move task failed: {why}").into()),
    }
}

#[cfg(test)]
mod tests {
    use std::ops::ControlFlow;
    use std::time::SystemTime;

    use requeue::Clock;
    use requeue::embedded::{EmbeddedSqs, Fault};

    use super::super::scan::Scan;
    use super::super::sqs::Sqs;
    use super::super::unseen::Cause;
    use super::*;

    #[derive(clap::Parser)]
    struct Line {
        #[command(flatten)]
        arguments: Arguments,
    }

    #[tokio::test(start_paused = true)]
    async fn newcomers_do_not_prolong_the_wait_for_what_another_reader_holds() {
        let sqs = EmbeddedSqs::new(Clock::starting_at(
            SystemTime::UNIX_EPOCH + Duration::from_hours(500_000),
        ));
        let queue =
            sqs.create_queue("orders-dlq", [("VisibilityTimeout", "6000")]).expect("a name");
        let send = async || {
            sqs.client()
                .send_message()
                .queue_url(queue.url())
                .message_body("{}")
                .send()
                .await
                .expect("sent");
        };
        send().await;
        assert_eq!(sqs.receive(&queue, 1, Duration::ZERO).await.expect("received").len(), 1);
        for pause in [Duration::from_millis(700), Duration::from_secs(2)] {
            let asked = Sqs::new(sqs.client());
            let described = asked.describe(&queue).await.expect("it is there");
            let (stop, began) = (Stop::listen().expect("signals"), Instant::now());
            let mut scan = Scan::new(&asked, &described, 10_000, &stop);
            let arrivals = async {
                loop {
                    send().await;
                    tokio::time::sleep(pause).await;
                }
            };
            let looked = tokio::select! {
                looked = scan.walk(async |_, _| Ok(ControlFlow::Continue(()))) => looked.expect("no trouble"),
                () = arrivals => unreachable!("they go on"),
            };
            assert!(began.elapsed() < Duration::from_secs(70), "{:?}", began.elapsed());
            assert!(!looked.is_complete() && looked.unseen.of(Cause::AnotherReader) >= 1);
            assert!(scan.release().await);
        }
    }

    /// Of four receives that are under way at once one is answered at its fifth try only.
    #[tokio::test(start_paused = true)]
    async fn the_time_in_hand_counts_from_the_request_that_brought_a_message() {
        let sqs = EmbeddedSqs::new(Clock::starting_at(
            SystemTime::UNIX_EPOCH + Duration::from_hours(500_000),
        ));
        let dead_letters = sqs.create_queue("orders-dlq", []).expect("a name");
        let policy = format!(r#"{{"deadLetterTargetArn":"{dead_letters}","maxReceiveCount":2}}"#);
        let queue =
            sqs.create_queue("orders", [("RedrivePolicy", policy.as_str())]).expect("a name");
        for at in 0..41 {
            let send = sqs.client().send_message().queue_url(dead_letters.url());
            send.message_body(at.to_string()).send().await.expect("sent");
        }
        sqs.set_faults(|call| match (call.operation.as_str(), call.of_operation) {
            ("ReceiveMessage", 3 | 6..=8) => Fault::Hang,
            ("ReceiveMessage", 9) => Fault::AnswerAfter(Duration::from_secs(10)),
            _ => Fault::None,
        });
        let line =
            ["redrive", "--queue-url", &dead_letters.url(), "--max-messages", "41", "--copy"];
        let Line { arguments } = clap::Parser::try_parse_from(line).expect("arguments");
        let asked = Sqs::new(sqs.client());
        let described = asked.describe(&dead_letters).await.expect("it is there");
        let dead_letters = DeadLetters { sqs: asked, queue: described, source: None };
        let way = Way::find(&arguments, &dead_letters).await.expect("one queue");
        let stop = Stop::listen().expect("signals");
        let mut redrive = Redrive::default();
        copy_all(&arguments, &dead_letters, &way, &stop, &mut redrive).await.expect("no trouble");

        // The first one alone, and those whose own request was answered late.
        assert_eq!(redrive.copies.copied, BTreeMap::from([("orders".to_owned(), 11)]));
        assert_eq!(
            redrive.copies.failed,
            BTreeMap::from([("visibility timeout over".to_owned(), 30)])
        );
        assert_eq!(sqs.message_count(&queue).expect("it is there"), 11);
    }
}
