//! `--target`: Requeue in this process, in front of a function that knows nothing of it.

use std::time::Duration;

use requeue::embedded::InvocationResult;
use requeue::queue::SqsQueue;
use requeue::{
    BatchProcessor, DeadLetterMode, DynBulk, Event as Heard, Handler, Mode, Observer, Observers,
    RecursiveLoop, Settings, SqsEvent, respond,
};
use requeue_lambda::Config;
use tokio::time::{Instant, interval};

use super::Arguments;
use super::served::{LOOK, ServedSqs};
use crate::Error;
use crate::doctor::RECEIVES_OF_A_TARGET;
use crate::local_function::{LocalFunction, LocalTarget, local_target};
use crate::local_sqs::ServedQueue;
use crate::observe::{self, CircuitLog, Events, LogLine, brief, message_line};
use crate::output::{self, LineOutput};
use crate::table::clock_time;
use crate::ui::{LivePause, MAX_PAUSES};

#[derive(Clone)]
pub(super) struct TargetProcessor {
    processor: BatchProcessor<LocalTarget, SqsQueue>,
    limit: Duration,
    shown: Shown,
}

impl TargetProcessor {
    /// The settings come from the environment, with the defaults of the template.
    pub(super) async fn new(
        function: LocalFunction,
        sqs: &ServedSqs,
        arguments: &Arguments,
        events: Option<Events>,
    ) -> Result<Self, Error> {
        requeue::init_logging_to(tracing::Level::WARN, || output::LogLines(false));
        let mut config = Config::load().await?;
        let settings = &mut config.settings;
        settings.dead_letter.get_or_insert(DeadLetterMode::Annotate);
        // The embedded SQS has no loop detection.
        settings.recursive_loop = RecursiveLoop::Allow;
        let mode = settings.mode;
        let observer = observe::Observer::new(events, false);
        observer.sqs().state().max_receives = Some(arguments.max_receive_count.into());
        let shown = Shown { observer: observer.clone(), mode };
        settings.observers = Observers::only(shown.clone());
        warn_of_missing_queues(&config.settings, sqs);
        let most = arguments.environments();
        let target = local_target(function, arguments.timeout, most, &mut config, observer);
        if mode == Mode::Requeue {
            warn_of_missing_reasons(&config.settings, sqs);
        }
        let most_in_call = target.as_bulk().map_or(1, DynBulk::messages_per_call);
        if most_in_call.min(arguments.batch_size.into()) > 1 {
            warn_of_few_receives(arguments.max_receive_count.into());
        }
        let queue = SqsQueue::new(&sqs.embedded.client());
        let processor = BatchProcessor::new(target, queue, config.settings);
        Ok(Self { processor, limit: arguments.invocation_timeout(), shown })
    }

    pub(super) fn pauses(&self) -> Vec<LivePause> {
        let mut pauses = self.processor.pauses();
        pauses.truncate(MAX_PAUSES);
        LivePause::all(&pauses, &self.shown.observer.downstream())
    }

    pub(super) async fn keep_telling(self) {
        let observer = &self.shown.observer;
        let (mut log, mut ticks) = (CircuitLog::default(), interval(LOOK));
        loop {
            ticks.tick().await;
            let pauses = self.processor.pauses();
            observer.downstream().look(&pauses);
            let open = observer.downstream().open;
            log.note(open, observer.next_try(&pauses));
        }
    }

    /// One invocation. With the reason if it failed.
    pub(super) async fn invoke(&self, event: &str) -> (InvocationResult, Option<String>) {
        let deadline = Instant::now() + self.limit;
        let invoked = async {
            let records = SqsEvent::with_texts(event)?.into_records()?;
            let report = self.processor.process(records, deadline).await;
            report.outcomes.iter().for_each(|outcome| self.shown.observe(&Heard::Settled(outcome)));
            Ok::<_, Error>(serde_json::to_vec(&respond(&report)?)?)
        };
        match invoked.await {
            Ok(response) => (InvocationResult::Response(response), None),
            Err(error) => (InvocationResult::FunctionError, Some(error.to_string())),
        }
    }
}

/// For a FIFO queue, which has no annotated copies.
fn warn_of_missing_reasons(settings: &Settings, sqs: &ServedSqs) {
    let is_annotated = |served: &&ServedQueue| {
        let mode = settings.of_queue(served.queue.name()).dead_letter;
        served.queue.is_fifo() && mode == Some(DeadLetterMode::Annotate)
    };
    for served in sqs.queues.iter().filter(is_annotated) {
        LineOutput::Stdout.line(format_args!(
            "warning: dead letters will not say why, since annotate acts as redrive on a FIFO queue; set \
             REQUEUE_DEAD_LETTER=direct and REQUEUE_DEAD_LETTER_QUEUE_URL={}",
            served.dead_letters.url_at(&sqs.server.url())
        ));
    }
}

/// All queues are known, since nothing else is in the embedded SQS.
fn warn_of_missing_queues(settings: &Settings, sqs: &ServedSqs) {
    let is_served = |name: &String| sqs.queues.iter().any(|served| served.queue.name() == name);
    for name in settings.queues.keys().filter(|name| !is_served(name)) {
        LineOutput::Stdout.line(format_args!(
            "warning: the policy has an entry for the queue {name}, which is not served, so the \
             entry has no effect; correct the name, or add --queue {name}"
        ));
    }
}

/// For a function that gets several messages in a call.
fn warn_of_few_receives(receives: u32) {
    if receives < RECEIVES_OF_A_TARGET {
        LineOutput::Stdout.line(format_args!(
            "warning: --max-receive-count {receives} is too small: a message that makes the function throw is \
             alone in a call from its third receive on, so SQS would move others with it; choose at \
             least {RECEIVES_OF_A_TARGET}"
        ));
    }
}

/// Reports everything to the observer, and writes a line for each message.
#[derive(Clone)]
struct Shown {
    observer: observe::Observer,
    mode: Mode,
}

impl Observer for Shown {
    fn observe(&self, heard: &Heard<'_>) {
        let outcome = match *heard {
            Heard::Settled(outcome) => outcome,
            // The log has lines from WARN on.
            Heard::CircuitClosed { .. } => {
                LineOutput::Stdout.line("circuit closed");
                return self.observer.observe(heard);
            }
            Heard::Paused { cause, until, .. } => {
                let (until, cause) = (clock_time(until), brief(cause));
                LineOutput::Stdout.line(format_args!("paused until {until}Z: {cause}"));
                return self.observer.observe(heard);
            }
            _ => return self.observer.observe(heard),
        };
        let max_receives = self.observer.sqs().state().max_receives;
        let event = LogLine::of(outcome).event(max_receives);
        if let Some(line) = event.and_then(|event| message_line(&event, self.mode)) {
            // A closed standard output does not stop Requeue.
            let _ = output::words(&line);
        }
        self.observer.settled(outcome);
    }
}
