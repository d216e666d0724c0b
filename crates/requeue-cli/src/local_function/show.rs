//! The lines about a function. They begin with the time in UTC.

use std::fmt;
use std::process::ExitStatus;

use requeue::{Clock, printable};

use super::environment::INIT_TIMEOUT;
use super::program::ProgramKind;
use crate::output;
use crate::table::{clock_time, cut};

#[derive(Clone, Copy, Debug)]
pub(crate) enum LineOutput {
    /// That of a command which only shows.
    Stdout,
    /// That of a command whose standard output is for programs.
    Stderr,
}

impl LineOutput {
    /// Bold on a terminal, to stand out from the function's lines.
    pub(crate) fn line(self, line: impl fmt::Display) {
        let text = format!("{}Z {line}", clock_time(Clock::system().now()));
        self.write(&format!("\x1b[1m{}\x1b[0m\n", printable::text(&text)));
    }

    /// Writes a text unchanged. A closed output does not stop the function.
    pub(super) fn write(self, text: &str) {
        match self {
            Self::Stdout => drop(output::write(text)),
            Self::Stderr => output::tell(text),
        }
    }
}

pub(super) fn exited(status: ExitStatus) -> String {
    format!("function exited ({})", brief(status))
}

pub(super) fn exited_at_start(status: ExitStatus, kind: ProgramKind) -> String {
    if status.success() {
        return format!(
            "function exited (status 0) before it asked for an invocation: it must {}",
            kind.what_it_must_be()
        );
    }
    let remedy = match kind {
        ProgramKind::Handler => "",
        ProgramKind::Target => "; its output above says why",
    };
    format!("function exited at its start ({}){remedy}", brief(status))
}

/// The remedy for an error that the function reported at its start. Sources of the types:
/// `awslambdaric` and `aws-lambda-ric`.
pub(super) fn remedy(error_type: &str) -> Option<&'static str> {
    Some(match error_type {
        "Runtime.ImportModuleError" => {
            "start in the directory of the handler's file, and install the packages that it imports"
        }
        "Runtime.HandlerNotFound" | "Runtime.MalformedHandlerName" => {
            "name the handler as FILE.FUNCTION, without the ending of the file"
        }
        "Runtime.UserCodeSyntaxError" => "correct the syntax of the handler's file",
        _ => return None,
    })
}

/// Its command may still build the function, as `cargo run` does.
pub(super) fn no_invocation_asked_for(lines: LineOutput, kind: ProgramKind, is_command: bool) {
    let secs = INIT_TIMEOUT.as_secs();
    let rule = if is_command { "if it is already built, it must" } else { "it must" };
    lines.line(format_args!(
        "the function has asked for no invocation within {secs} s:\n         {rule} {}",
        kind.what_it_must_be()
    ));
}

/// A foreign text in one line with at most so many characters.
pub(crate) fn one_line(text: &str, room: usize) -> String {
    cut(&text.split_whitespace().collect::<Vec<_>>().join(" "), room)
}

/// `status 101`, `signal: 9 (SIGKILL)`
pub(super) fn brief(status: ExitStatus) -> String {
    status.code().map_or_else(|| status.to_string(), |code| format!("status {code}"))
}
