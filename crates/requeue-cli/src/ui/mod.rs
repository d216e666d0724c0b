//! The local page of `requeue ui`, which `requeue work` and `requeue serve` serve with `--ui`.

use std::future::ready;
use std::process::ExitCode;

use axum::Router;
use axum::response::Response;
use axum::routing::get;
use futures_util::future::{OptionFuture, join_all};
use serde_json::json;

mod dead_letters;
mod guard;
mod job;
mod live;
mod policy;
mod server;
mod snapshot;

pub(crate) use dead_letters::DeadLetterScreen;
use job::JobPlace;
use live::FunctionLog;
pub(crate) use live::{LiveCounts, LivePause, LiveState, MAX_PAUSES, live_routes};
use server::Server;

use crate::dlq::redrive::COPIES_IN_HAND;
use crate::dlq::{Purpose, QueueArguments};
use crate::output::outln;
use crate::progress::{CommandProgress, NOTICEABLE};
use crate::stop::Stop;
use crate::{Error, output};

/// The port beside that of `requeue serve`.
const PORT: u16 = 9326;

#[derive(clap::Args)]
#[command(
    after_help = "The command prints a URL with a token that is new at each start. Only a browser \
                  that opened this URL gets the page, and only on this machine: the server listens \
                  on 127.0.0.1. It refuses requests with another Host or Origin.\n\n\
                  Ctrl-C ends the server.\n\n\
                  Without a queue, the page has only the screen for policies.\n\n\
                  Permissions: those of `requeue dlq list`; with --allow-redrive also those of \
                  `requeue dlq redrive --copy` and `requeue dlq discard`; with --function also \
                  lambda:GetFunctionConfiguration and logs:FilterLogEvents.\n\n\
                  Exit status: 130 after Ctrl-C; 1 on an error."
)]
pub(crate) struct Arguments {
    #[command(flatten)]
    place: QueueArguments,
    /// The message attribute that names a tenant, or a JSON pointer into the body, as in
    /// `REQUEUE_SCOPE`. [default: the message group]
    #[arg(long, help_heading = "Queue", value_name = "ATTRIBUTE")]
    scope: Option<String>,
    /// A deployed function, by its name or ARN: the screen "Live" follows its log.
    #[arg(long, value_name = "NAME")]
    function: Option<String>,
    /// The port on 127.0.0.1; 0 lets the system choose.
    #[arg(long, default_value_t = PORT)]
    port: u16,
    /// Let the page redrive and discard dead letters. Without this option it changes nothing.
    #[arg(long)]
    allow_redrive: bool,
}

/// The page beside another command.
#[derive(clap::Args)]
pub(crate) struct BesideArguments {
    /// Serve the page of `requeue ui` too, on 127.0.0.1; `--ui=PORT` names a port, and 0 lets the
    /// system choose. [default port: 9326]
    #[arg(long, value_name = "PORT", num_args = 0..=1, require_equals = true,
          default_missing_value = "9326")]
    ui: Option<u16>,
    /// Let that page redrive and discard dead letters. Without this option it changes nothing.
    #[arg(long, requires = "ui")]
    allow_redrive: bool,
}

#[derive(Default)]
pub(crate) struct Site {
    /// The routes below `/api/live`, if a worker or a function runs in this process.
    pub(crate) live: Option<Router>,
    pub(crate) dead_letters: Vec<DeadLetterScreen>,
    pub(crate) may_redrive: bool,
}

pub(crate) struct Page {
    server: Server,
    router: Router,
    /// Of each dead-letter queue, and then of the screen for policies.
    jobs: Vec<JobPlace>,
}

pub(crate) fn run(arguments: &Arguments) -> Result<ExitCode, Error> {
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    let ended = runtime.block_on(async {
        let stop = Stop::end_at_once()?;
        let log = arguments.log().await?;
        let site = Site {
            live: log.as_ref().map(FunctionLog::routes),
            dead_letters: Vec::from_iter(arguments.dead_letters().await?),
            may_redrive: arguments.allow_redrive,
        };
        let page = Page::open(arguments.port, "--port", site).await?;
        stop.defer_end();
        if arguments.allow_redrive {
            stop.leaves(COPIES_IN_HAND);
        }
        outln!("{}", page.line())?;
        page.jobs.iter().for_each(JobPlace::show_line);
        let follow = OptionFuture::from(log.map(|log| log.follow(&stop)));
        let (results, _) = tokio::join!(page.run(stop.told(), ready(())), follow);
        results.iter().for_each(output::note);
        Ok(stop.exit_code(ExitCode::SUCCESS))
    });
    // A name look-up cannot be cancelled, and would delay the end.
    runtime.shutdown_background();
    ended
}

impl Arguments {
    async fn log(&self) -> Result<Option<FunctionLog>, Error> {
        let Some(name) = &self.function else { return Ok(None) };
        FunctionLog::find(name, &self.place.region).await.map(Some)
    }

    async fn dead_letters(&self) -> Result<Option<DeadLetterScreen>, Error> {
        if !self.place.is_given() {
            return Ok(None);
        }
        let _asking = CommandProgress::shown_after(NOTICEABLE, "asking SQS for the queue");
        let purpose = if self.allow_redrive { Purpose::Delete } else { Purpose::Look };
        let (dead_letters, scope) = (self.place.find(purpose).await?, self.scope.clone());
        dead_letters.warn();
        Ok(Some(DeadLetterScreen { dead_letters, scope }))
    }
}

impl BesideArguments {
    pub(crate) fn is_on(&self) -> bool {
        self.ui.is_some()
    }

    pub(crate) async fn open(&self, site: Site) -> Result<Option<Page>, Error> {
        let Some(port) = self.ui else { return Ok(None) };
        let site = Site { may_redrive: self.allow_redrive, ..site };
        Ok(Some(Page::open(port, "--ui=PORT", site).await?))
    }
}

impl Page {
    async fn open(port: u16, option: &str, site: Site) -> Result<Self, Error> {
        let jobs: Vec<_> = (0..=site.dead_letters.len()).map(|_| JobPlace::default()).collect();
        let router = routes(site, &jobs);
        Ok(Self { server: Server::open(port, option).await?, router, jobs })
    }

    pub(crate) fn line(&self) -> String {
        format!("page          {}", self.server.url())
    }

    /// Ends the jobs after the stop, serves until `last` is over, and returns a line for each result.
    pub(crate) async fn run(
        self,
        stop: impl Future<Output = ()>,
        last: impl Future<Output = ()>,
    ) -> Vec<String> {
        let ended = async {
            stop.await;
            let results = join_all(self.jobs.iter().map(JobPlace::end)).await;
            last.await;
            results
        };
        self.server.run(self.router, ended).await.concat()
    }
}

fn routes(site: Site, jobs: &[JobPlace]) -> Router {
    let name = |screen: &DeadLetterScreen| screen.dead_letters.queue.arn.name().to_owned();
    // Each screen knows these facts.
    let facts = json!({
        "version": env!("CARGO_PKG_VERSION"),
        "live": site.live.is_some(),
        "deadLetters": site.dead_letters.iter().map(name).collect::<Vec<_>>(),
        "mayRedrive": site.may_redrive,
    });
    let page = get(async move || -> Response { server::json(&facts) });
    let mut api = Router::new().route("/page", page).nest("/live", site.live.unwrap_or_default());
    api = api.nest("/policy", policy::routes(jobs[site.dead_letters.len()].clone()));
    for (at, (queue, job)) in site.dead_letters.into_iter().zip(jobs).enumerate() {
        let routes = dead_letters::routes(queue, site.may_redrive, job.clone());
        api = api.nest(&format!("/dead-letters/{at}"), routes);
    }
    server::assets().nest("/api", api)
}
