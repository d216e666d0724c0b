//! Writes without the panics of `println!`: a closed pipe and a full disk are no defects here.

use std::error::Error;
use std::fmt;
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::OnceLock;

use clap::error::{ContextKind, ContextValue, ErrorKind};
use jiff::Timestamp;
use requeue::{Clock, printable};
use serde::Serialize;

use crate::table::{clock_time, columns, wrapped};
use crate::{examples, terminal};

/// Writes a line without control characters; the value is a `Result<(), Unwritten>`.
macro_rules! outln {
    ($($arguments:tt)*) => {
        $crate::output::write(&requeue::printable::text(&format!("{}\n", format_args!($($arguments)*))))
    };
}

pub(crate) use outln;

/// The status of a command that worked and found something bad. Status 2 means wrong options, and a
/// script must not confuse a misspelt option with a finding.
pub(crate) const FINDING: u8 = 3;

/// The status that a shell gives a program that SIGPIPE ended: 128 + 13.
const CLOSED_PIPE: u8 = 141;

#[derive(Debug, thiserror::Error)]
#[error("the standard output cannot be written: {0}; redirect it to a file or pipe that takes it")]
pub(crate) struct Unwritten(io::Error);

/// Writes the text unchanged: the caller is responsible for each character.
pub(crate) fn write(text: &str) -> Result<(), Unwritten> {
    // The program at the other end of the pipe may write to the terminal that shows the progress.
    if is_pipe() {
        terminal::give_way();
    }
    terminal::above(|| {
        let mut stream = anstream::stdout().lock();
        stream.write_all(text.as_bytes()).and_then(|()| stream.flush()).map_err(Unwritten)
    })
}

fn is_pipe() -> bool {
    static IS_PIPE: OnceLock<bool> = OnceLock::new();
    *IS_PIPE.get_or_init(|| {
        let copy = io::stdout().as_fd().try_clone_to_owned();
        let metadata = copy.and_then(|stdout| File::from(stdout).metadata());
        metadata.is_ok_and(|metadata| metadata.file_type().is_fifo())
    })
}

pub(crate) fn tell(text: &str) {
    let _ = terminal::above(|| anstream::stderr().lock().write_all(text.as_bytes()));
}

/// Writes a text without control characters, so no value in it controls the terminal.
pub(crate) fn text(text: &str) -> Result<(), crate::Error> {
    Ok(write(&printable::text(text))?)
}

/// The same. On a terminal the words of a long line go on below.
pub(crate) fn words(text: &str) -> Result<(), crate::Error> {
    Ok(write(&wrapped(&printable::text(text), columns(io::stdout())))?)
}

pub(crate) fn line(line: impl fmt::Display) -> Result<(), crate::Error> {
    text(&format!("{line}\n"))
}

pub(crate) fn json(value: &impl Serialize) -> Result<(), crate::Error> {
    Ok(write(&(printable::json(serde_json::to_string_pretty(value)?) + "\n"))?)
}

pub(crate) fn json_line(value: &impl Serialize) -> Result<(), crate::Error> {
    Ok(write(&(printable::json(serde_json::to_string(value)?) + "\n"))?)
}

/// The result of a change that has happened, as lines or as JSON. If the standard output cannot be
/// written, the standard error has the lines. On a terminal their words go on below.
pub(crate) fn result(lines: &str, value: Option<&impl Serialize>) -> Result<(), crate::Error> {
    let told = match value {
        Some(value) => json(value),
        None => words(lines),
    };
    told.inspect_err(|_| note(lines.trim_end()))
}

/// A line of such a text on the standard error. On a terminal its words go on below.
pub(crate) fn note(line: impl fmt::Display) {
    tell(&format!("{}\n", for_terminal(&line.to_string())));
}

pub(crate) fn remark(text: &str) {
    note(format_args!("note: {text}"));
}

/// A question on the standard error, with the cursor after it.
pub(crate) fn question(question: &str) {
    tell(&for_terminal(question));
}

fn for_terminal(text: &str) -> String {
    wrapped(&printable::text(text), columns(io::stderr()))
}

pub(crate) fn timed(text: &str) {
    let line = format!("{}Z {}", clock_time(Clock::system().now()), text.trim_end());
    // A lost terminal does not end the command.
    let _ = write(&format!("{}\n", wrapped(&line, Some(terminal::columns()))));
}

/// Writes log lines: with `true` above the lines of a terminal, else to the standard output.
pub(crate) struct LogLines(pub(crate) bool);

impl Write for LogLines {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        let text = String::from_utf8_lossy(line);
        // JSON has a time already.
        match (text.starts_with('{'), self.0) {
            (true, true) => drop(write(&text)),
            (false, true) => timed(&text),
            (true, false) => io::stdout().write_all(line)?,
            (false, false) => {
                let now = Timestamp::try_from(Clock::system().now()).unwrap_or_default();
                io::stdout().write_all(format!("{now:.0} {text}").as_bytes())?;
            }
        }
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        io::stdout().flush()
    }
}

pub(crate) struct Notes;

impl Write for Notes {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        note(String::from_utf8_lossy(line).trim_end());
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

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
    pub(crate) fn write(self, text: &str) {
        match self {
            Self::Stdout => drop(write(text)),
            Self::Stderr => tell(text),
        }
    }
}

/// Reports the error of a command. A closed pipe is no error: its reader has read enough.
pub(crate) fn failed(error: &(dyn Error + 'static)) -> ExitCode {
    match error.downcast_ref::<Unwritten>() {
        Some(Unwritten(cause)) if cause.kind() == io::ErrorKind::BrokenPipe => {
            ExitCode::from(CLOSED_PIPE)
        }
        _ => {
            note(format_args!("error: {error}"));
            ExitCode::FAILURE
        }
    }
}

/// Prints help, version, or the error in the arguments, with an example if one is missing.
pub(crate) fn usage(mut usage: clap::Error, example: Option<&str>) -> ExitCode {
    for kind in [ContextKind::InvalidArg, ContextKind::InvalidValue] {
        if let Some(ContextValue::String(url)) = usage.get(kind)
            && url.contains("://")
        {
            let shown = printable::url(url);
            usage.insert(kind, ContextValue::String(shown));
        }
    }
    let printed = usage.print().and_then(|()| io::stdout().flush());
    let argument = |kind| match usage.get(kind) {
        Some(ContextValue::String(argument)) => argument.as_str(),
        _ => "",
    };
    let is_of_list = || examples::words_given() == "dlq list";
    let arguments = [ContextKind::InvalidArg, ContextKind::PriorArg].map(argument);
    if usage.kind() == ErrorKind::UnknownArgument && is_of_list() {
        note("\n`dlq list` shows all messages; `dlq peek` shows those that options choose.");
    } else if usage.kind() == ErrorKind::ArgumentConflict
        && arguments.iter().any(|argument| argument.starts_with("--source-queue"))
    {
        note(
            "\nThe redrive policy of --source-queue names the dead-letter queue: remove the other.",
        );
    }
    if let Some(example) = example.filter(|_| usage.kind() == ErrorKind::MissingRequiredArgument) {
        note(format_args!("\nExample: {example}"));
    }
    if let Some(ContextValue::String(word)) = usage.get(ContextKind::InvalidSubcommand)
        && let Some(command) = examples::below(word)
    {
        note(format_args!("\nDid you mean `{command}`?"));
    }
    match printed {
        Err(error) if !usage.use_stderr() => failed(&Unwritten(error)),
        _ => u8::try_from(usage.exit_code()).map_or(ExitCode::FAILURE, ExitCode::from),
    }
}

/// The file of an SVG chart. It is opened before the work for the chart begins.
pub(crate) struct ChartFile {
    path: PathBuf,
    file: File,
}

impl ChartFile {
    /// An earlier chart stays until the new one is written.
    pub(crate) fn open(path: &Path) -> Result<Self, crate::Error> {
        let mut options = OpenOptions::new();
        options.write(true);
        let file = match options.open(path) {
            // A new file never comes to be at the end of a link.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                options.create_new(true).open(path)
            }
            opened => opened,
        };
        let file = file.map_err(|error| unwritable(path, &error))?;
        Ok(Self { path: path.to_owned(), file })
    }

    pub(crate) fn write(mut self, chart: &str) -> Result<(), crate::Error> {
        // Devices and pipes have no length.
        let is_regular = self.file.metadata().is_ok_and(|metadata| metadata.is_file());
        let emptied = if is_regular { self.file.set_len(0) } else { Ok(()) };
        let written = emptied.and_then(|()| self.file.write_all(chart.as_bytes()));
        Ok(written.map_err(|error| unwritable(&self.path, &error))?)
    }
}

fn unwritable(path: &Path, error: &io::Error) -> String {
    format!(
        "the chart {} cannot be written: {error}; name a file that you may write, in a directory \
         that exists",
        path.display()
    )
}
