//! The command line: try Requeue on a laptop, and let it work on a queue.

use std::process::ExitCode;

use clap::{Parser, Subcommand};

mod address;
mod check;
mod demo;
mod dlq;
mod doctor;
mod document;
mod endpoint;
mod event;
mod invoke;
mod message;
mod new;
mod outage;
mod output;
mod places;
mod policy_text;
mod redrive_policy;
mod schedule;
mod send;
mod serve;
mod stop;
mod table;
mod work;

/// For errors that may be for want of credentials: where they are looked for.
const CREDENTIALS: &str = "AWS credentials in the environment or in AWS's files; `aws configure \
                           export-credentials --format env` prints those of a single sign-on";

/// The retry layer that SQS and Lambda lack.
#[derive(Parser)]
#[command(version, arg_required_else_help = true, max_term_width = 100)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Writes a project to begin with: a handler of your own, its tests in virtual time, and the
    /// template that deploys it.
    New(new::Arguments),
    /// Sends a few hundred messages through an embedded queue to a flaky endpoint, in virtual time,
    /// until each is done or in the dead-letter queue.
    Demo(demo::Arguments),
    /// Runs one Lambda invocation with the SQS event in a file, and shows what becomes of each
    /// message.
    Invoke(invoke::Arguments),
    /// Works on a queue until it is told to end: posts each message to a URL, as the Lambda does,
    /// in a container or on a laptop.
    Work(work::Arguments),
    /// Shows what lies in a dead-letter queue and why, and brings it back.
    #[command(subcommand)]
    Dlq(dlq::Command),
    /// Says what is wrong with a policy document, as the Lambda would at its start, or what it
    /// amounts to.
    Check(check::Arguments),
    /// Looks at a deployed function and its queues, and says what is wrong with them and what to do
    /// about it.
    Doctor(doctor::Arguments),
    /// Shows when a policy tries a message again, when it gives up, and what that costs: as a
    /// table, as JSON, as a chart.
    Schedule(schedule::Arguments),
    /// Plays through what would take a real system hours, in virtual time.
    #[command(subcommand)]
    Simulate(Simulation),
    /// Serves an embedded SQS on loopback, with a function of yours behind an event source mapping,
    /// or with the demo's flaky endpoint.
    Serve(serve::Arguments),
    /// Sends a message to the queue of `requeue serve`, or to any other.
    Send(send::Arguments),
    /// Prints a fresh SQS event, for `cargo lambda invoke --data-file` or `sam local invoke`.
    Event(event::Arguments),
}

#[derive(Subcommand)]
enum Simulation {
    /// A backlog, and a service that is down for a while and then limits its rate: with and without
    /// pause and circuit breaker.
    Outage(outage::Arguments),
}

fn main() -> ExitCode {
    let arguments = match Arguments::try_parse() {
        Ok(arguments) => arguments,
        Err(usage) => return output::usage(&usage),
    };
    let ended = match arguments.command {
        Command::New(arguments) => new::run(&arguments),
        Command::Demo(arguments) => demo::run(&arguments),
        Command::Invoke(arguments) => invoke::run(&arguments),
        Command::Work(arguments) => work::run(&arguments),
        Command::Dlq(command) => dlq::run(&command),
        Command::Check(arguments) => check::run(&arguments),
        Command::Doctor(arguments) => doctor::run(&arguments),
        Command::Schedule(arguments) => schedule::run(&arguments),
        Command::Simulate(Simulation::Outage(arguments)) => outage::run(&arguments),
        Command::Serve(arguments) => serve::run(&arguments),
        Command::Send(arguments) => send::run(&arguments),
        Command::Event(arguments) => event::run(&arguments),
    };
    ended.unwrap_or_else(|error| output::failed(error.as_ref()))
}

/// Whatever keeps a command from its work, with the remedy in its text.
type Error = Box<dyn std::error::Error>;
