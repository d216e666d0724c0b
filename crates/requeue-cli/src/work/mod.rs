//! `requeue work`: the handler of `requeue-lambda` as a long-polling worker.

use std::io::{IsTerminal, stdout};
use std::process::ExitCode;
use std::time::Duration;

use futures_util::future::{OptionFuture, maybe_done};
use requeue::queue::{MAX_BATCH_ENTRIES, QueueArn, SqsQueue};
use requeue::{
    BoxHandler, DeadLetterMode, DynBulk, Handler as _, Mode, Observers, Progress, Until, Variables,
    WithoutDeadLetterQueue, Worker, WorkerSettings, bulk,
};
use requeue_lambda::{Config, FunctionName, HttpTarget, TargetUrl};
use tokio::net::TcpStream;
use tokio::runtime::Builder;
use tokio::sync::watch;
use tokio::time::{Instant, sleep, timeout};

use crate::dlq::{Purpose, QueueArguments};
use crate::document::PolicyArgument;
use crate::duration_argument::within;
use crate::observe::{Observed, ObservedQueue};
use crate::queue_argument::{QueueName, RegionArgument};
use crate::stop::Stop;
use crate::table::messages;
use crate::terminal;
use crate::ui::{BesideArguments, DeadLetterScreen, Site};
use crate::{Error, bail, invoke, output};

mod settings;
mod line;
mod trouble;
mod view;

use settings::SettingArguments;
use view::View;

#[derive(clap::Args)]
#[command(after_help = "The other settings come from the environment, as in the Lambda: \
                        REQUEUE_POLICY, REQUEUE_HEADERS and the others in \
                        docs/reference/settings.md. AWS_LAMBDA_LOG_FORMAT and \
                        AWS_LAMBDA_LOG_LEVEL set the log's format and level. AWS's environment \
                        leads to SQS: AWS_REGION, credentials, and for an emulator \
                        AWS_ENDPOINT_URL_SQS.\n\n\
                        SIGTERM, SIGINT, SIGQUIT and SIGHUP (not under nohup) end the worker with \
                        status 0, also while it waits for the target or for SQS. It receives \
                        nothing more, lets running handlers finish, and makes the other messages \
                        visible again. A second signal ends it at once; SQS delivers unfinished \
                        messages again. A second SIGTERM within a second counts as the first, \
                        since GNU timeout sends two, and so does any signal within 0.1 s. If \
                        nobody reads the log, the worker stops handling messages, and a signal \
                        ends it 5 s after --shutdown-timeout.\n\n\
                        Permissions: sqs:ReceiveMessage, sqs:DeleteMessage, \
                        sqs:ChangeMessageVisibility, sqs:GetQueueAttributes and sqs:SendMessage on \
                        the queue; sqs:GetQueueUrl if --queue is a name; the others of \
                        infra/policies for a table, a KMS key, secrets, dead letters in the mode direct or --ui; \
                        lambda:InvokeFunction on a target function, and perhaps \
                        lambda:GetFunctionConfiguration for its timeout.\n\n\
                        Exit status: 0 after the first signal or at the end of --drain, 1 if the \
                        worker cannot start, 2 for wrong options, 128 and the number of the signal \
                        after a second one (130 for Ctrl-C), or if its log has no reader.")]
pub(crate) struct Arguments {
    #[command(flatten)]
    queue: QueueArgument,
    /// The URL to post the messages to, instead of `REQUEUE_TARGET_URL`. http only to this machine,
    /// unless `REQUEUE_ALLOW_HTTP=true`.
    #[arg(long)]
    target_url: Option<String>,
    /// The Lambda function to invoke with the messages, instead of `REQUEUE_TARGET_FUNCTION`: its
    /// name, name:alias or ARN.
    #[arg(long, value_name = "NAME", conflicts_with_all = ["target_url", "wait_for_target"])]
    target_function: Option<FunctionName>,
    #[command(flatten)]
    region: RegionArgument,
    #[command(flatten)]
    policy: PolicyArgument,
    #[command(flatten)]
    replaced: SettingArguments,
    /// The time from the first signal to the end of the process. A supervisor must wait longer
    /// before it kills the process.
    #[arg(long, value_name = "DURATION", default_value = "30s", value_parser = within(1..=43_200))]
    shutdown_timeout: Duration,
    /// How long to wait for the target to accept connections before the first receive.
    #[arg(long, value_name = "DURATION", value_parser = within(0..=43_200))]
    wait_for_target: Option<Duration>,
    /// End when the queue is empty, waiting copies included, by the approximate counts of SQS.
    #[arg(long)]
    drain: bool,
    /// Show a line for each message: id, attempt, result and time, and never its body.
    #[arg(long, short)]
    verbose: bool,
    /// Accept a queue that has no redrive policy, or whose dead-letter queue does not exist. SQS
    /// then redelivers a message that is dead-lettered, until its retention ends.
    #[arg(long, help_heading = "Queue")]
    without_dead_letter_queue: bool,
    #[command(flatten)]
    page: BesideArguments,
}

impl Arguments {
    /// `None` if the target is a function.
    fn url(&self, config: &Config) -> Result<Option<TargetUrl>, Error> {
        if let Some(url) = &self.target_url {
            return invoke::target(url, config.target_rules.clone()).map(Some);
        }
        if config.function.is_none() {
            let url = config.required_target();
            let url = url.map_err(|error| format!("{error}, or name it with --target-url"))?;
            return Ok(Some(url.clone()));
        }
        if self.wait_for_target.is_some() {
            bail!(
                "--wait-for-target waits for a URL, and REQUEUE_TARGET_FUNCTION names a function; \
                 remove the option"
            );
        }
        Ok(None)
    }

    fn variables(&self) -> Variables {
        let mut variables = self.replaced.variables();
        if let Some(function) = &self.target_function {
            variables.set("TARGET_FUNCTION", function.to_string());
            variables.set("TARGET_URL", String::new());
        }
        if self.target_url.is_some() {
            variables.set("TARGET_FUNCTION", String::new());
        }
        variables
    }

    /// Without a dead-letter queue, or the permission to ask for it, the page has no screen for it.
    async fn site(&self, view: &View) -> Site {
        let name = self.queue.name().ok().cloned();
        let place = name.map(|name| QueueArguments::of_source(name, self.region.clone()));
        let found = match place {
            Some(place) => place.find(Purpose::Look).await.ok(),
            None => None,
        };
        let dead_letters = found.into_iter().map(DeadLetterScreen::of).collect();
        Site { dead_letters, live: view.live(), ..Site::default() }
    }

    fn settings(&self) -> WorkerSettings {
        let mut settings = WorkerSettings::default();
        settings.shutdown_timeout = self.shutdown_timeout;
        settings.without_dead_letter_queue = if self.without_dead_letter_queue {
            WithoutDeadLetterQueue::Warn
        } else {
            WithoutDeadLetterQueue::Refuse
        };
        settings.until = if self.drain { Until::Empty } else { Until::Shutdown };
        settings
    }
}

/// The queue, as an argument or as an option.
#[derive(clap::Args)]
#[group(required = true, multiple = false)]
struct QueueArgument {
    /// The queue to receive from: its name, URL or ARN.
    #[arg(value_name = "QUEUE")]
    source: Option<QueueName>,
    /// The same as an option.
    #[arg(long, help_heading = "Queue", alias = "queue-url", value_name = "QUEUE")]
    queue: Option<QueueName>,
}

impl QueueArgument {
    fn name(&self) -> Result<&QueueName, Error> {
        let name = self.source.as_ref().or(self.queue.as_ref());
        Ok(name.ok_or("the queue is missing")?)
    }
}

const DELIVERED_AGAIN: &str = "SQS delivers the messages in hand again after their visibility \
                               timeout, also those that are done and not yet deleted";

/// For the last lines and requests after the shutdown time. A log without a reader blocks for ever.
const MOMENT: Duration = Duration::from_secs(5);

pub(crate) fn run(arguments: &Arguments) -> Result<ExitCode, Error> {
    // Before all slow steps: without a listener no signal ends a container's first process.
    let stop = Stop::listen_and(arguments.shutdown_timeout + MOMENT, || {})?;
    stop.leaves(DELIVERED_AGAIN);
    let has_screen = stdout().is_terminal() && terminal::can_rewrite();
    let view = View::new(has_screen, arguments.verbose, arguments.page.is_on());
    let runtime = Builder::new_multi_thread().enable_all().build()?;
    let ended = runtime.block_on(async {
        tokio::select! {
            biased;
            () = stop.told() => {
                tracing::info!("stopped before it started: no message was received");
                Ok(ExitCode::SUCCESS)
            }
            started = begin(arguments, &view) => Box::pin(started?.work(&view, arguments, &stop)).await,
        }
    });
    // A name look-up cannot be cancelled, and would delay the end.
    runtime.shutdown_background();
    ended
}

async fn begin(arguments: &Arguments, view: &View) -> Result<Started, Error> {
    let mut config = Config::load_from(arguments.variables()).await?;
    config.warn_of_variables_without_effect();
    arguments.policy.apply_to(&mut config.settings)?;
    arguments.replaced.replace(&mut config.settings);
    let url = arguments.url(&config)?;
    let sdk = crate::sdk::config().await;
    let find = arguments.queue.name()?.find("--queue", &arguments.region, &sdk);
    let found = view.waiting(ASKING, find).await?;
    let own = config.settings.of_queue(found.arn.name());
    let lacks = [
        settings::lacks_files(&own),
        settings::lacks_room(&own),
        settings::lacks_table(&own).await,
    ];
    for note in found.note.iter().chain(lacks.iter().flatten()) {
        tracing::warn!("{note}");
    }
    // A log line has no path of a URL.
    let shown = |url: &TargetUrl| if view.has_screen { url.with_path() } else { url.to_string() };
    let name = url.as_ref().map(shown).unwrap_or_default();
    if let Some((limit, target)) = arguments.wait_for_target.zip(url.as_ref()) {
        let wait = wait_for((target, &name), limit);
        view.waiting(&format!("the target {name}"), wait).await?;
    }
    let (is_function, observer) = (url.is_none(), view.observer.clone());
    let (handler, target) = if let Some(url) = url {
        let mut http = config.http.clone();
        http.timeout = own.limits.timeout;
        (BoxHandler::new(Observed::new(HttpTarget::new(url, http)?, observer)), name)
    } else {
        // Its time limit becomes the function's own.
        let target = config.target_function().await?;
        let name = config.function.as_ref().map(ToString::to_string).unwrap_or_default();
        (BoxHandler::new(bulk(Observed::new(target, observer))), name)
    };
    let own = config.settings.of_queue(found.arn.name());
    config.settings.observers = Observers::only(view.observer.clone());
    // Those of a call are of one receive.
    let per_call = handler.as_bulk().map_or(1, DynBulk::messages_per_call).min(MAX_BATCH_ENTRIES);
    let concurrency = own.limits.concurrency.saturating_mul(per_call);
    let concurrency = u64::try_from(concurrency).unwrap_or(u64::MAX);
    let queue = SqsQueue::from_env();
    let watched = |queue| ObservedQueue::new(queue, &found.arn, view.observer.clone());
    let sqs = watched(queue.clone());
    let settings = arguments.settings();
    let start =
        Box::pin(Worker::start(handler, watched(queue), &found.arn, config.settings, settings));
    let retention = settings::lacks_retention(&own, &found.arn, &sdk);
    let (worker, retention) =
        view.waiting(ASKING, async { tokio::join!(start, Box::pin(retention)) }).await;
    let worker = worker.map_err(|error| found.not_started(error))?;
    if let Some(note) = retention {
        tracing::warn!("{note}");
    }
    settings::tell(view, &found.arn, (&target, is_function), &own);
    Ok(Started {
        worker,
        sqs,
        queue: found.arn,
        target,
        shutdown_timeout: arguments.shutdown_timeout,
        dead_letter: own.dead_letter.unwrap_or(DeadLetterMode::OF_WORKERS),
        mode: own.mode,
        concurrency,
        has_dead_letter_queue: !arguments.without_dead_letter_queue,
    })
}

const PAUSE: Duration = Duration::from_millis(200);

async fn wait_for((target, name): (&TargetUrl, &str), limit: Duration) -> Result<(), Error> {
    const TRY: Duration = Duration::from_secs(2);
    let host = target.host().trim_matches(['[', ']']);
    let end = Instant::now() + limit;
    loop {
        if let Ok(Ok(_)) = timeout(TRY, TcpStream::connect((host, target.port()))).await {
            return Ok(());
        }
        if Instant::now() + PAUSE > end {
            bail!(
                "the target {name} accepted no connection within {} s; start it, or correct \
                 its URL",
                limit.as_secs()
            );
        }
        sleep(PAUSE).await;
    }
}

const ASKING: &str = "a response of SQS about the queue";

struct Started {
    worker: Worker<BoxHandler, ObservedQueue<SqsQueue>>,
    sqs: ObservedQueue<SqsQueue>,
    queue: QueueArn,
    target: String,
    shutdown_timeout: Duration,
    dead_letter: DeadLetterMode,
    mode: Mode,
    /// The messages that handlers may have at once.
    concurrency: u64,
    /// `false` if the worker did not require one.
    has_dead_letter_queue: bool,
}

impl Started {
    async fn work(
        self,
        view: &View,
        arguments: &Arguments,
        stop: &Stop,
    ) -> Result<ExitCode, Error> {
        let page = if arguments.page.is_on() {
            let site = Box::pin(view.waiting(ASKING, arguments.site(view))).await;
            arguments.page.open(site).await?
        } else {
            None
        };
        if let Some(page) = &page {
            output::note(page.line());
        }
        let (end, has_ended) = watch::channel(false);
        let ends = async || {
            let _ = has_ended.clone().wait_for(|has_ended| *has_ended).await;
        };
        let page_stops = async {
            tokio::select! {
                () = stop.told() => {}
                () = ends() => {}
            }
        };
        let mut page =
            Box::pin(maybe_done(OptionFuture::from(page.map(|page| page.run(page_stops, ends())))));
        let shown = async { tokio::join!(view.show(&self, stop), page.as_mut()) };
        let ended = tokio::select! {
            biased;
            ended = self.worker.run(stop.told()) => ended,
            _ = shown => self.worker.progress(),
        };
        terminal::remove();
        let ended = view.last(ended);
        view.show_last_messages(self.mode);
        // A redrive of the page makes its messages visible again.
        let is_drained = arguments.drain && !stop.is_told();
        let on_the_way = self.note_on_the_way(ended).filter(|_| !is_drained);
        let left = if is_drained { None } else { view.left(&self).await };
        let left = left
            .map(|left| format!("note: still in {}: about {}", self.queue.name(), messages(left)));
        let cut_off = view.observer.calls().cut_off;
        let doubts = line::doubts(ended.not_deleted, cut_off, &view.observer.sqs().state());
        let notes = doubts.iter().cloned().chain(on_the_way).chain(left);
        let causes = view.causes(self.mode);
        let causes = causes.chain(view.last_troubles(self.queue.name()));
        let mut notes: Vec<String> = causes.chain(notes).collect();
        view.end_state(ended, self.mode, &notes);
        end.send_replace(true);
        view.waiting("the work of the page", page.as_mut()).await;
        notes.extend(page.as_mut().take_output().flatten().unwrap_or_default());
        view.end(ended, self.mode, &notes, &doubts);
        Ok(ExitCode::SUCCESS)
    }

    /// If SQS moves the messages, a worker that ends leaves some in the queue.
    fn note_on_the_way(&self, progress: Progress) -> Option<String> {
        let queue = self.queue.name();
        if self.mode == Mode::Report {
            return (progress.waiting > 0).then(|| {
                format!(
                    "note: SQS delivers the failed messages of {queue} again, and moves them by the \
                     queue's redrive policy"
                )
            });
        }
        let what = match self.dead_letter {
            DeadLetterMode::Redrive => "messages",
            // On a FIFO queue, `annotate` acts as `redrive`.
            DeadLetterMode::Annotate if self.queue.is_fifo() => "messages",
            DeadLetterMode::Annotate => "copies of messages",
            _ => return None,
        };
        let if_any = if self.has_dead_letter_queue { "" } else { ", if there is one" };
        (progress.dead_lettered > 0).then(|| {
            format!(
                "note: {what} that were dead-lettered may still be in {queue}; while a worker or a \
                 function receives from {queue}, SQS moves them to the dead-letter queue{if_any}"
            )
        })
    }
}
