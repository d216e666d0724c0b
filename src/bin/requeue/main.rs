//! The command line: try Requeue on a laptop.

use std::process::ExitCode;

use clap::{Parser, Subcommand};

mod demo;
mod endpoint;
mod invoke;
mod table;

/// The retry layer that SQS and Lambda lack.
#[derive(Parser)]
#[command(version, arg_required_else_help = true, max_term_width = 100)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Sends a few hundred messages through an embedded queue to a flaky endpoint, in virtual time, until each is done or
    /// in the dead-letter queue.
    Demo(demo::Arguments),
    /// Runs one Lambda invocation with the SQS event in a file, and shows what becomes of each message.
    Invoke(invoke::Arguments),
}

fn main() -> ExitCode {
    let ended = match Arguments::parse().command {
        Command::Demo(arguments) => demo::run(&arguments),
        Command::Invoke(arguments) => invoke::run(&arguments),
    };
    match ended {
        Ok(code) => code,
        Err(error) => {
            anstream::eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Whatever keeps a command from its work, with the remedy in its text.
type Error = Box<dyn std::error::Error>;
