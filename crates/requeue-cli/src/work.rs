//! `requeue work`: the handler of `requeue-lambda` as a long-polling worker, for containers and
//! laptops.

use std::io::{self, IsTerminal, Write, stderr, stdout};
use std::process::ExitCode;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use requeue::aws;
use requeue::queue::SqsQueue;
use requeue::{
    Progress, StartError, Until, WithoutDeadLetterQueue, Worker, WorkerSettings, init_logging,
    init_logging_to,
};
use requeue_lambda::{Config, HttpTarget, TargetUrl};
use tokio::net::TcpStream;
use tokio::runtime::Builder;
use tokio::time::{Instant, interval, sleep, timeout};

use crate::address::{self, Asked};
use crate::stop::Stop;
use crate::{CREDENTIALS, Error};

#[derive(clap::Args)]
#[command(after_help = "The other settings come from the environment, as in the Lambda: \
                  REQUEUE_TARGET_URL, REQUEUE_POLICY, REQUEUE_CONCURRENCY, REQUEUE_TIMEOUT_SECONDS \
                  and the others in the README's table; log lines by AWS_LAMBDA_LOG_FORMAT and \
                  AWS_LAMBDA_LOG_LEVEL. SQS is found by AWS's environment: AWS_REGION, \
                  credentials, AWS_ENDPOINT_URL_SQS for an emulator.\n\n\
                  SIGTERM, SIGINT, SIGQUIT and SIGHUP (not under nohup) end it in peace, with \
                  status 0, also while it waits for the target or for SQS: nothing more is \
                  received, handlers come to their end, the other messages are given back. A \
                  second signal ends it at once; SQS delivers what was in hand again.")]
pub(crate) struct Arguments {
    /// The queue to work on.
    #[arg(long)]
    queue_url: String,
    /// Where to post the messages, instead of `REQUEUE_TARGET_URL`. http only to this machine,
    /// unless `REQUEUE_ALLOW_HTTP=true`.
    #[arg(long)]
    target_url: Option<String>,
    /// The region of the queue, where its URL does not say it.
    #[arg(long, env = "AWS_REGION", default_value = "us-east-1")]
    region: String,
    /// Receivers, each with a batch of its own; they share `REQUEUE_CONCURRENCY`.
    /// [default: one for each 10 handlers]
    #[arg(long, value_parser = clap::value_parser!(u16).range(1..=1000))]
    receivers: Option<u16>,
    /// From the first signal to the end, in seconds; whoever kills the process afterwards has to
    /// wait longer.
    #[arg(long, default_value_t = 30, value_parser = clap::value_parser!(u64).range(1..=43_200))]
    shutdown_timeout: u64,
    /// Waits so many seconds at most for the target to accept connections before the first message
    /// is received.
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(0..=43_200))]
    wait_for_target: Option<u64>,
    /// Ends when the queue is empty, waiting copies included, by the approximate counts of SQS.
    #[arg(long)]
    drain: bool,
    /// Works also on a queue that has no redrive policy, or whose dead-letter queue does not exist:
    /// there a message that is given up comes back until its retention ends.
    #[arg(long)]
    without_dead_letter_queue: bool,
}

pub(crate) fn run(arguments: &Arguments) -> Result<ExitCode, Error> {
    let is_watched = stderr().is_terminal() && stdout().is_terminal();
    // Before anything that may take its time: the first process of a container is not ended by a
    // signal that it does not listen to.
    let stop = Stop::listen_and(Duration::MAX, move || {
        if is_watched {
            leave_line();
        }
    })?;
    if is_watched {
        // The progress line says the rest.
        init_logging_to(tracing::Level::WARN, || ProgressAwareLog);
    } else {
        init_logging(tracing::Level::INFO);
    }
    let runtime = Builder::new_multi_thread().enable_all().build()?;
    let ended = runtime.block_on(async {
        tokio::select! {
            biased;
            () = stop.told() => {
                tracing::info!("told to end before it began: nothing was received");
                Ok(ExitCode::SUCCESS)
            }
            worker = begin(arguments) => work(worker?, &stop, is_watched).await,
        }
    });
    // A name that is being looked up cannot be cancelled, and would hold up the end.
    runtime.shutdown_background();
    ended
}

/// All that comes before the first message is received.
async fn begin(arguments: &Arguments) -> Result<Worker<HttpTarget, SqsQueue>, Error> {
    let config = Config::load().await?;
    let target = match &arguments.target_url {
        Some(url) => address::target(url, config.target_rules.clone())?,
        None => config.required_target()?.clone(),
    };
    let queue = address::queue("--queue-url", &arguments.queue_url, &arguments.region)?;
    let sdk = aws::config().await;
    let asked = Asked::of("--queue-url", &arguments.queue_url, &queue, &sdk).await?;
    if let Some(note) = &asked.note {
        tracing::warn!("{note}");
    }
    if let Some(secs) = arguments.wait_for_target {
        wait_for(&target, Duration::from_secs(secs)).await?;
    }
    let handler = HttpTarget::new(target, config.http)?;
    let settings = arguments.settings();
    match Worker::start(handler, SqsQueue::from_env(), &queue, config.settings, settings).await {
        Err(StartError::Unavailable { code }) if code == aws::NO_CREDENTIALS => {
            Err(format!("there are no {CREDENTIALS}").into())
        }
        Err(error @ StartError::Unavailable { .. }) => {
            Err(format!("{error}; it was asked at {}", asked.endpoint).into())
        }
        started => Ok(started?),
    }
}

async fn work(
    worker: Worker<HttpTarget, SqsQueue>,
    stop: &Stop,
    is_watched: bool,
) -> Result<ExitCode, Error> {
    if is_watched {
        let ended = tokio::select! {
            ended = worker.run(stop.told()) => ended,
            () = show(|| worker.progress(), stop) => worker.progress(),
        };
        say(&format!("{CLEARED}{}\n", line(ended)));
    } else {
        worker.run(stop.told()).await;
    }
    Ok(ExitCode::SUCCESS)
}

impl Arguments {
    fn settings(&self) -> WorkerSettings {
        let mut settings = WorkerSettings::default();
        settings.receivers = self.receivers.map(usize::from);
        settings.shutdown_timeout = Duration::from_secs(self.shutdown_timeout);
        settings.without_dead_letter_queue = if self.without_dead_letter_queue {
            WithoutDeadLetterQueue::Warn
        } else {
            WithoutDeadLetterQueue::Refuse
        };
        settings.until = if self.drain { Until::Empty } else { Until::Shutdown };
        settings
    }
}

/// Waits until somebody accepts connections there.
async fn wait_for(target: &TargetUrl, limit: Duration) -> Result<(), Error> {
    const TRY: Duration = Duration::from_secs(2);
    const PAUSE: Duration = Duration::from_millis(200);
    let host = target.host().trim_matches(['[', ']']);
    let end = Instant::now() + limit;
    loop {
        if let Ok(Ok(_)) = timeout(TRY, TcpStream::connect((host, target.port()))).await {
            return Ok(());
        }
        if Instant::now() + PAUSE > end {
            let secs = limit.as_secs();
            return Err(format!(
                "the target {target} accepts no connection within {secs} s: is it running?"
            )
            .into());
        }
        sleep(PAUSE).await;
    }
}

/// The beginning of the line, with nothing on it. No colour, so that `NO_COLOR` has nothing to say.
const CLEARED: &str = "\r\x1b[2K";

/// One line on the terminal, again and again.
async fn show(progress: impl Fn() -> Progress, stop: &Stop) {
    let mut ticks = interval(Duration::from_millis(500));
    loop {
        ticks.tick().await;
        let mut line = line(progress());
        if stop.is_told() {
            line.insert_str(0, "ending: ");
        }
        // A line that reached the margin would go on in the next one, where it is not cleared.
        let width =
            terminal_size::terminal_size_of(stderr()).map_or(80, |(width, _)| usize::from(width.0));
        line.truncate(width.saturating_sub(1));
        say(&format!("{CLEARED}{line}"));
    }
}

/// In one piece, as others write there too. A terminal that is gone is no reason to end.
fn say(text: &str) {
    let _ = stderr().write_all(text.as_bytes());
}

/// So that what follows has a line of its own. A terminal that takes nothing holds that up for a
/// moment only.
fn leave_line() {
    let (writing, written) = mpsc::channel::<()>();
    thread::spawn(move || {
        say("\n");
        drop(writing);
    });
    let _ = written.recv_timeout(Duration::from_millis(100));
}

fn line(progress: Progress) -> String {
    let Progress { received, completed, requeued, dead_lettered, waiting, .. } = progress;
    format!(
        "{received} received: {completed} done, {requeued} to retry, {dead_lettered} given up, \
         {waiting} not yet"
    )
}

/// Log lines in the place of the progress line, which comes again below them.
struct ProgressAwareLog;

impl Write for ProgressAwareLog {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        stdout().write_all(&[CLEARED.as_bytes(), line].concat())?;
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        stdout().flush()
    }
}
