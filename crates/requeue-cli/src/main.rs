//! The command line: tries Requeue on a laptop, works on queues, inspects deployments.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::{fs, io};

use clap::{ArgMatches, CommandFactory, FromArgMatches, Parser, Subcommand};
use clap_complete::{Shell, generate};

mod check;
mod config;
mod demo;
mod dlq;
mod doctor;
mod document;
mod duration_argument;
mod endpoint;
mod endpoints;
mod environment;
mod event;
mod examples;
mod failed_call;
mod function;
mod invoke;
mod limits;
mod local_function;
mod local_sqs;
mod new;
mod observe;
mod outage;
mod output;
mod places;
mod progress;
mod queue_argument;
mod rate;
mod schedule;
mod sdk;
mod send;
mod serve;
mod silence;
mod simulated;
mod status;
mod stop;
mod table;
mod terminal;
mod ui;
mod work;

/// The command line of Requeue, the retry layer for SQS and Lambda.
#[derive(Parser)]
#[command(name = "requeue", version, arg_required_else_help = true, max_term_width = 100)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
#[allow(clippy::large_enum_variant, reason = "there is one of them")]
enum Command {
    /// Create a starter project: a handler, its tests in virtual time, and the template that
    /// deploys it.
    New(new::Arguments),
    /// Send a few hundred messages to a flaky endpoint in virtual time, until each is done or in
    /// the dead-letter queue.
    Demo(demo::Arguments),
    /// Run one Lambda invocation with the SQS event in a file, and show the result of each message.
    Invoke(invoke::Arguments),
    /// Run a worker: receive from a queue and post each message to a URL, as the Lambda does.
    Work(work::Arguments),
    /// List, show, export, import, discard and redrive the messages of a dead-letter queue.
    #[command(subcommand)]
    Dlq(dlq::Command),
    /// Check a policy document, as the Lambda does at its start, and summarise it; or check and show
    /// the effective settings of a worker or function.
    Check(check::Arguments),
    /// Show a queue and its function now: depth, oldest message, dead letters, circuit, last failures.
    Status(status::Arguments),
    /// Show the rate limits of a running function or worker, and set, pause, resume and reset them.
    Limits(limits::Arguments),
    /// Check a deployed function and its queues, and name the remedy for each problem.
    Doctor(doctor::Arguments),
    /// Show when a policy retries a message and dead-letters it, and the cost: as tables, JSON or a
    /// chart.
    Schedule(schedule::Arguments),
    /// Simulate hours of a real system in virtual time.
    #[command(subcommand)]
    Simulate(Simulation),
    /// Serve an embedded SQS on loopback, with an event source mapping to your function, or with
    /// the demo's flaky endpoint.
    Serve(serve::Arguments),
    /// Send a message to the queue of `requeue serve`, or to any other queue.
    Send(send::Arguments),
    /// Serve a local page: dead letters, live events, and policies with their schedules.
    Ui(ui::Arguments),
    /// Print a fresh SQS event, for a pipe into `requeue invoke -`, for `cargo lambda invoke
    /// --data-file` or for `sam local invoke`.
    Event(event::Arguments),
    /// Print a completion script for a shell, or write a manual page for each command.
    Generate(GenerateArguments),
}

#[derive(Subcommand)]
enum Simulation {
    /// Simulate a backlog and a service that is down and later rate-limited, with and without pause
    /// and circuit breaker.
    Outage(outage::Arguments),
    /// Simulate a backlog and a service with a rate limit: without a limit in the policy, with it in
    /// each execution environment, with a table that they share, and with fair shares of tenants.
    Rate(rate::Arguments),
}

const NAME: &str = "requeue";

#[derive(clap::Args)]
struct GenerateArguments {
    /// The completions of a shell, or the manual pages.
    #[arg(value_parser = ["bash", "zsh", "fish", "man"])]
    what: String,
    /// The directory for the manual pages, such as ~/.local/share/man/man1. The command creates it.
    #[arg(required_if_eq("what", "man"))]
    directory: Option<PathBuf>,
}

fn main() -> ExitCode {
    let (arguments, matches) = match parse() {
        Ok(parsed) => parsed,
        Err(usage) => return output::usage(usage, examples::first(&examples::words_given())),
    };
    if let Err(error) = sdk::enter(&matches) {
        return output::failed(error.as_ref());
    }
    let ended = match arguments.command {
        Command::New(arguments) => new::run(&arguments),
        Command::Demo(arguments) => demo::run(&arguments),
        Command::Invoke(arguments) => invoke::run(&arguments),
        Command::Work(arguments) => work::run(&arguments),
        Command::Dlq(command) => dlq::run(&command),
        Command::Check(arguments) => check::run(&arguments),
        Command::Limits(arguments) => limits::run(&arguments),
        Command::Doctor(arguments) => doctor::run(&arguments),
        Command::Schedule(arguments) => schedule::run(&arguments),
        Command::Simulate(Simulation::Outage(arguments)) => outage::run(&arguments),
        Command::Simulate(Simulation::Rate(arguments)) => rate::run(arguments),
        Command::Serve(arguments) => serve::run(&arguments),
        Command::Send(arguments) => send::run(&arguments),
        Command::Ui(arguments) => ui::run(&arguments),
        Command::Event(arguments) => event::run(&arguments),
        Command::Status(arguments) => status::run(&arguments),
        Command::Generate(GenerateArguments { what, directory }) => match directory {
            Some(directory) if what == "man" => man(&directory),
            _ => completions(&what),
        },
    };
    ended.unwrap_or_else(|error| output::failed(error.as_ref()))
}

fn command_line() -> clap::Command {
    examples::shown_in(Arguments::command(), "")
}

fn parse() -> Result<(Arguments, ArgMatches), clap::Error> {
    let mut command = command_line();
    let matches = command.try_get_matches_from_mut(environment::arguments())?;
    let arguments = Arguments::from_arg_matches(&matches);
    Ok((arguments.map_err(|error| error.format(&mut command))?, matches))
}

fn completions(shell: &str) -> Result<ExitCode, Error> {
    let mut script = Vec::new();
    generate(shell.parse::<Shell>()?, &mut command_line(), NAME, &mut script);
    output::write(&String::from_utf8(script)?)?;
    Ok(ExitCode::SUCCESS)
}

fn man(directory: &Path) -> Result<ExitCode, Error> {
    let unwritable = |error: io::Error| {
        format!(
            "the pages cannot be written to {}: {error}; name another directory",
            directory.display()
        )
    };
    fs::create_dir_all(directory).map_err(unwritable)?;
    clap_mangen::generate_to(command_line(), directory).map_err(unwritable)?;
    output::note(format_args!(
        "note: the pages are in {}; read one with `man {}/requeue.1`",
        directory.display(),
        directory.display()
    ));
    Ok(ExitCode::SUCCESS)
}

/// Any error that ends a command; its text names the remedy.
type Error = Box<dyn std::error::Error>;

/// Ends a function with an error of this text.
macro_rules! bail {
    ($($text:tt)*) => { return Err(format!($($text)*).into()) };
}
use bail;
