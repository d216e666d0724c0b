//! `requeue serve`: an embedded SQS on loopback, with a function or the demo's endpoint.

use std::ffi::OsString;
use std::future::ready;
use std::io;
use std::process::ExitCode;
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::Full;
use requeue::embedded::Server;
use requeue::embedded::loopback::{self, Bounds};
use requeue::queue::{MAX_BATCH_BYTES, MAX_RUN, MAX_VISIBILITY};
use tokio::net::TcpListener;
use tokio::sync::watch;

use crate::duration_argument::{shown, within};
use crate::endpoint::{Endpoint, header};
use crate::local_function::{
    BEYOND_TARGET, FunctionProcesses, ProcessGroups, Program, SHUTDOWN_GRACE, function_name,
};
use crate::local_sqs::{SQS_PORT, listen};
use crate::observe::Events;
use crate::output::{self, LineOutput, outln};
use crate::stop::Stop;
use crate::ui::BesideArguments;
use crate::{Error, bail, environment};

mod poller;
mod served;
mod target;

use poller::{MappedFunction, Poller};
use served::{ServedSqs, Watched};
use target::TargetProcessor;

/// The largest body that the endpoint accepts: that of a message.
const BOUNDS: Bounds =
    Bounds { body: MAX_BATCH_BYTES, bodies: 64 * MAX_BATCH_BYTES, connections: 256 };

/// The endpoint's port. Other programs often use it too.
const ENDPOINT_PORT: u16 = 8080;
/// Source: Lambda developer guide, "Using Lambda with Amazon SQS".
const FIFO_BATCH_SIZE: u16 = 10;

/// The time from the first signal to the end, also if writes of the output block.
const END_LIMIT: Duration = Duration::from_secs(5);

#[derive(clap::Args)]
#[command(
    override_usage = "requeue serve [OPTIONS]\n       \
                      requeue serve [OPTIONS] --function <PATH> [ARGS]...\n       \
                      requeue serve [OPTIONS] -- <COMMAND> [ARGS]...\n       \
                      requeue serve [OPTIONS] --target -- <COMMAND> [ARGS]...",
    after_help = "A function is any program that speaks Lambda's Runtime API: a handler of \
                  requeue::run, lambda_runtime, or a bootstrap of another language. It gets \
                  Lambda's environment variables, example credentials, AWS_ENDPOINT_URL_SQS, and \
                  your variables. Of your variables that begin with AWS_ it gets only \
                  AWS_LAMBDA_LOG_LEVEL, AWS_LAMBDA_LOG_FORMAT and, if its host is loopback, \
                  AWS_ENDPOINT_URL_DYNAMODB. It does not read AWS's files in your home directory. Unless you set them, REQUEUE_DEAD_LETTER is annotate and \
                  REQUEUE_RECURSIVE_LOOP is Allow, as in template.yaml, and REQUEUE_METRICS is \
                  off.\n\n\
                  With --target, the function is any program with a runtime interface client, \
                  and Requeue reads its settings from your environment.\n\n\
                  Each line of its output begins with the number of its execution environment. \
                  When the file of --function changes, `requeue serve` restarts the function with \
                  the new build. `requeue send` sends a message.\n\n\
                  Ctrl-C ends `requeue serve` and all processes of the function. Queues are kept \
                  in memory only.\n\n\
                  The endpoint responds as the field `answer` in a body says: ok, rate-limit, \
                  quota, unavailable, error, hang, reset, invalid. With the field `times`, only the \
                  first requests get this response, and later ones get 200."
)]
pub(crate) struct Arguments {
    /// The function: a program to invoke with batches from the queue. Arguments after the path are
    /// its own, so put the other options before.
    #[arg(long, help_heading = "Function", num_args = 1.., value_names = ["PATH", "ARGS"], allow_hyphen_values = true)]
    function: Vec<OsString>,
    /// A command that runs the function, as in `requeue serve -- cargo run`.
    #[arg(last = true, value_name = "COMMAND")]
    command: Vec<OsString>,
    /// The command runs an existing Lambda function of any language. Requeue runs in this process and
    /// invokes it.
    #[arg(long, help_heading = "Function", requires = "command", conflicts_with = "function")]
    target: bool,
    /// The queue's name; repeat the option for several queues, each with a mapping to the function. A
    /// name that ends in .fifo makes a FIFO queue. The dead-letter queue is NAME-dlq. The page shows
    /// the dead letters of each queue.
    #[arg(long = "queue", help_heading = "Queue", value_name = "NAME", default_value = "orders")]
    queues: Vec<String>,
    /// Most messages of a batch. On a FIFO queue at most 10. A batch ends early at 6 MB.
    #[arg(long, help_heading = "Function", value_name = "MESSAGES", default_value_t = 10,
          value_parser = clap::value_parser!(u16).range(1..=10_000))]
    batch_size: u16,
    /// Most execution environments at once for each queue. Each is a process, started on demand.
    #[arg(long, help_heading = "Function", value_name = "ENVIRONMENTS", default_value_t = 2,
          value_parser = clap::value_parser!(u16).range(1..=100))]
    maximum_concurrency: u16,
    /// The function's timeout. A process that needs longer is killed.
    #[arg(long, help_heading = "Function", value_name = "DURATION", default_value = "15s", value_parser = within(1..=MAX_RUN.as_secs()))]
    timeout: Duration,
    /// The queue's visibility timeout: a message that was not deleted becomes visible again after
    /// it. [default: twice --timeout; with --target twice the sum of --timeout and 20 s]
    #[arg(long, help_heading = "Queue", value_name = "DURATION", value_parser = within(0..=MAX_VISIBILITY.as_secs()))]
    visibility_timeout: Option<Duration>,
    /// Receives after which SQS moves a message to the dead-letter queue.
    #[arg(long, help_heading = "Queue", value_name = "RECEIVES", default_value_t = 5,
          value_parser = clap::value_parser!(u16).range(1..=1_000))]
    max_receive_count: u16,
    /// The endpoint's port on 127.0.0.1; 0 lets the system choose. With a function, the endpoint is
    /// served only if this option is given. [default: 8080]
    #[arg(long, help_heading = "Ports")]
    port: Option<u16>,
    /// The port of SQS on 127.0.0.1; 0 lets the system choose.
    #[arg(long, help_heading = "Ports", default_value_t = SQS_PORT)]
    sqs_port: u16,
    #[command(flatten)]
    page: BesideArguments,
}

pub(crate) fn run(arguments: &Arguments) -> Result<ExitCode, Error> {
    arguments.check()?;
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    let ended = runtime.block_on(serve(arguments));
    // A process that has left its group may keep the output open forever.
    runtime.shutdown_background();
    ended
}

async fn serve(arguments: &Arguments) -> Result<ExitCode, Error> {
    let sqs = ServedSqs::open(arguments).await?;
    let watched = arguments.page.is_on().then(Watched::default);
    let has_function = arguments.has_function();
    let groups = ProcessGroups::default();
    let function = if has_function {
        let events = watched.as_ref().map(|watched| watched.events.clone());
        Some(arguments.function(&sqs, groups.clone(), events).await?)
    } else {
        None
    };
    let endpoint = match arguments.port.or((!has_function).then_some(ENDPOINT_PORT)) {
        Some(port) => Some(listen(port, "--port").await?),
        None => None,
    };
    let at_second_signal = groups.clone();
    let stop = Stop::listen_and(END_LIMIT, move || at_second_signal.kill_all())?;
    let page = arguments.page.open(sqs.site(watched.as_ref()).await?).await?;
    if let Some(watched) = watched {
        if !has_function {
            // A poller would report them.
            sqs.follow_arrivals(Some(watched.events.clone()), |_, _, _| {});
        }
        let source = if has_function { "function" } else { "queue" };
        let target = function.as_ref().and_then(|(_, poller)| poller.target());
        let pauses = move || target.as_ref().map(TargetProcessor::pauses);
        tokio::spawn(watched.keep_counting(source, &sqs, pauses));
    }
    sqs.show(endpoint.as_ref(), arguments.namespace().as_deref())?;
    if has_function {
        arguments.show_function()?;
    }
    if let Some(page) = page {
        outln!("{}", page.line())?;
        let stop = stop.clone();
        tokio::spawn(async move { page.run(stop.told(), ready(())).await });
    }
    if let Some(listener) = endpoint {
        tokio::spawn(serve_endpoint(listener));
    }
    let ended = match function {
        None => {
            stop.told().await;
            Ok(())
        }
        Some((mut processes, poller)) => tokio::select! {
            biased;
            ended = poller.run(&stop) => ended,
            error = processes.run() => Err(error),
        },
    };
    groups.end_all(SHUTDOWN_GRACE).await;
    ended.map(|()| stop.exit_code(ExitCode::SUCCESS))
}

impl Arguments {
    fn has_function(&self) -> bool {
        !self.function.is_empty() || !self.command.is_empty()
    }

    fn has_fifo(&self) -> bool {
        self.queues.iter().any(|queue| queue.strip_suffix(".fifo").is_some())
    }

    fn environments(&self) -> u16 {
        let queues = u16::try_from(self.queues.len()).unwrap_or(u16::MAX);
        self.maximum_concurrency.saturating_mul(queues)
    }

    fn visibility_timeout(&self) -> Duration {
        self.visibility_timeout.unwrap_or(2 * self.invocation_timeout())
    }

    /// The timeout of the function that the mapping invokes: with `--target` that of Requeue.
    fn invocation_timeout(&self) -> Duration {
        self.timeout + if self.target { BEYOND_TARGET } else { Duration::ZERO }
    }

    /// The namespace of a handler in its table, which commands of this shell do not have.
    fn namespace(&self) -> Option<String> {
        let is_set = |name| environment::value(name).is_some();
        let is_own = self.has_function() && !self.target && is_set("REQUEUE_TABLE");
        (is_own && !is_set("REQUEUE_NAMESPACE")).then(|| function_name(&self.function))
    }

    /// The function's processes, and the poller of its queues. The page reads the log of a handler.
    async fn function(
        &self,
        sqs: &ServedSqs,
        groups: ProcessGroups,
        events: Option<Events>,
    ) -> Result<(FunctionProcesses, Poller), Error> {
        let url = sqs.server.url();
        let program = if self.target {
            Program::target(&self.command, url, LineOutput::Stdout)
        } else {
            Program::handler(&self.function, &self.command, url, events.clone())
        };
        let started =
            format!("function started; send it a message: {}", self.send_command(&sqs.server));
        let (most, timeout) = (self.environments(), self.timeout);
        let (processes, function) =
            FunctionProcesses::new(program?, groups, most, timeout, Some(started));
        let starts = function.starts();
        let function = if self.target {
            let of_page = events.clone();
            let target = TargetProcessor::new(function, sqs, self, of_page).await?;
            tokio::spawn(target.clone().keep_telling());
            MappedFunction::Target(target)
        } else {
            MappedFunction::Handler(function)
        };
        Ok((processes, Poller::new(sqs, self, function, starts, events)))
    }

    /// Rules that clap cannot express.
    fn check(&self) -> Result<(), Error> {
        served::check_names(&self.queues)?;
        // clap gives all arguments after --function to the function.
        let has_both = !self.function.is_empty() && !self.command.is_empty();
        if has_both || self.function.iter().any(|word| word == "--") {
            bail!("--function cannot be combined with a command after --; remove one of them");
        }
        let options = <Self as clap::Args>::augment_args(clap::Command::new("serve"));
        let longs: Vec<_> = options.get_arguments().filter_map(clap::Arg::get_long).collect();
        for word in &self.function {
            let word = word.to_string_lossy();
            let long = word.strip_prefix("--").and_then(|word| word.split('=').next());
            if long.is_some_and(|long| longs.contains(&long)) {
                bail!(
                    "{word} after --function would be an argument of the function; put it before \
                     --function"
                );
            }
        }
        if self.has_fifo() && self.batch_size > FIFO_BATCH_SIZE {
            bail!(
                "--batch-size {} is too large for a FIFO queue; choose at most {FIFO_BATCH_SIZE}",
                self.batch_size
            );
        }
        let visibility = self.visibility_timeout();
        if self.has_function() && visibility < self.invocation_timeout() {
            let [visibility, timeout, least] =
                [visibility, self.timeout, self.invocation_timeout()]
                    .map(|time| shown(time.as_secs()));
            let more = if self.target { " and 20 s more for Requeue" } else { "" };
            bail!(
                "--visibility-timeout {visibility} is shorter than --timeout {timeout}{more}, so \
                 SQS would redeliver messages during their invocation, and Lambda refuses such a \
                 mapping; choose at least {least}, better six times the timeout"
            );
        }
        Ok(())
    }

    fn send_command(&self, server: &Server) -> String {
        let port = match server.port() {
            SQS_PORT => String::new(),
            port => format!(" --sqs-port {port}"),
        };
        let group = if self.has_fifo() { " --group ID" } else { "" };
        let queue = if self.queues.len() > 1 { " --queue NAME" } else { "" };
        format!("requeue send BODY{queue}{group}{port}")
    }

    fn show_function(&self) -> Result<(), Error> {
        let words = if self.function.is_empty() { &self.command } else { &self.function };
        let words: Vec<_> = words.iter().map(|word| word.to_string_lossy()).collect();
        outln!("function      {}", words.join(" "))?;
        outln!(
            "mapping       batch size {}, maximum concurrency {}, timeout {} s",
            self.batch_size,
            self.maximum_concurrency,
            self.timeout.as_secs()
        )?;
        outln!(
            "redrive       after {} receives; visibility timeout {} s",
            self.max_receive_count,
            self.visibility_timeout().as_secs()
        )?;
        Ok(())
    }
}

async fn serve_endpoint(listener: TcpListener) {
    let endpoint = Endpoint::default();
    let (_running, stopped) = watch::channel(false);
    loopback::serve(listener, stopped, BOUNDS, move |request| respond(endpoint.clone(), request))
        .await;
}

async fn respond(endpoint: Endpoint, request: Request<Bytes>) -> io::Result<Response<Full<Bytes>>> {
    let of = |name| header(request.headers(), name).unwrap_or("-").to_owned();
    let (id, retries) = (of("idempotency-key"), of("x-requeue-retry-count"));
    let response = endpoint.respond(request.map(Full::<Bytes>::from)).await;
    let status = response
        .as_ref()
        .map_or_else(|_| "reset".to_owned(), |response| response.status().as_u16().to_string());
    // A closed standard output does not stop the endpoint.
    let _ = output::line(format_args!("{status:>5}  message {id}, retry {retries}"));
    response
}
