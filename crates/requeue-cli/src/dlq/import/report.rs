//! The report of an import: a line for each message as it is sent or fails. The last one counts.

use std::collections::{HashMap, HashSet};
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, BufRead, BufReader, Read, Write};
use std::mem;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use requeue::printable;
use requeue::queue::QueueArn;
use serde::{Deserialize, Serialize};

use crate::dlq::sender::MAY_EXIST;
use crate::{Error, output};

#[derive(Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
struct ReportLine {
    line: u64,
    message_id: String,
    queue: String,
    status: Status,
    #[serde(skip_serializing_if = "Option::is_none")]
    code: Option<String>,
}

#[derive(Clone, Copy, Deserialize, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
enum Status {
    Sent,
    Failed,
}

/// The messages that earlier runs have sent, and the lines of this one.
#[derive(Default)]
pub(super) struct Report {
    /// The ids of the sent messages, by the numbers of their lines.
    ids: HashMap<u64, String>,
    /// The numbers of the lines that SQS may have stored.
    pub(super) in_doubt: HashSet<u64>,
    /// Locked to the end of this value, since two imports at once would each send what the other
    /// one has sent. `None` if there is no report yet.
    file: Option<File>,
    lines: Vec<u8>,
    /// Whether lines could not be written.
    pub(super) is_short: bool,
    queue: String,
    path: PathBuf,
}

/// The beginning of each line, as serde writes it.
const BEGINNING: &[u8] = br#"{"line":"#;
/// The longest line: an id of 100 characters, an ARN and a code.
const MAX_LINE: u64 = 4_096;

impl Report {
    /// Empty if there is no report yet.
    pub(super) fn open(path: &Path, to: &QueueArn) -> Result<Self, Error> {
        let mut report = Self { queue: to.to_string(), path: path.to_owned(), ..Self::default() };
        let Some(file) = existing(path)? else { return Ok(report) };
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Err(report.is_taken()),
            Err(TryLockError::Error(error)) => return Err(unreadable(path, &error).into()),
        }
        let shown = path.display();
        let mut reader = BufReader::new(&file);
        for at in 1_u64.. {
            let mut text = Vec::new();
            let read = reader.by_ref().take(MAX_LINE).read_until(b'\n', &mut text);
            if read.map_err(|error| unreadable(path, &error))? == 0 {
                break;
            }
            // After an incomplete line, a new one begins.
            report.lines = if text.ends_with(b"\n") { Vec::new() } else { b"\n".to_vec() };
            // A whole line may follow the beginning of one that could not be written.
            let last = text.windows(BEGINNING.len()).rposition(|part| part == BEGINNING);
            let Ok(line) = serde_json::from_slice::<ReportLine>(&text[last.unwrap_or(0)..]) else {
                // It may be the last line of a run that was killed.
                let text = text.trim_ascii_end();
                if !text.starts_with(BEGINNING) && !BEGINNING.starts_with(text) {
                    let remedy = if report.ids.is_empty() {
                        "name another file with --report"
                    } else {
                        "remove this line, since another report would send the other lines again"
                    };
                    return Err(format!(
                        "the file {shown} is there already, and its line {at} is not a line of a \
                         report; {remedy}"
                    )
                    .into());
                }
                output::remark(&format!(
                    "line {at} of the report {shown} is incomplete, and does not count"
                ));
                continue;
            };
            if line.queue != report.queue {
                return Err(format!(
                    "the report {shown} is about {}, and not about {to}; name another report with \
                     --report",
                    printable::line(&line.queue)
                )
                .into());
            }
            // A later attempt that SQS refused changes nothing about an earlier one.
            if line.code.is_some_and(|code| code.ends_with(MAY_EXIST)) {
                report.in_doubt.insert(line.line);
            }
            match line.status {
                Status::Sent => report.ids.insert(line.line, line.message_id),
                Status::Failed => report.ids.remove(&line.line),
            };
        }
        Ok(Self { file: Some(file), ..report })
    }

    /// Makes sure that there is a file. A new one never follows a link.
    pub(super) fn begin(&mut self) -> Result<(), Error> {
        if self.file.is_none() {
            let made = options().create_new(true).open(&self.path);
            let made = made.and_then(|file| file.try_lock().map(|()| file).map_err(Into::into));
            self.file = Some(made.map_err(|error| match error.kind() {
                io::ErrorKind::AlreadyExists | io::ErrorKind::WouldBlock => self.is_taken(),
                _ => unwritable(&self.path, &error).into(),
            })?);
        }
        Ok(())
    }

    fn is_taken(&self) -> Error {
        format!(
            "another import writes the report {}; wait until it has ended, and run this command \
             again: it sends what the other one did not send",
            self.path.display()
        )
        .into()
    }

    /// Whether this line, which has this message, was sent.
    pub(super) fn has(&self, line: u64, message_id: &str) -> Result<bool, Error> {
        match self.ids.get(&line) {
            None => Ok(false),
            Some(id) if id == message_id => Ok(true),
            Some(_) => Err(format!(
                "the report {} belongs to another export: line {line} has another message id; name \
                 another report with --report",
                self.path.display()
            )
            .into()),
        }
    }

    /// Adds a line of the export, which has this message: sent, or the code of the failure.
    pub(super) fn add(
        &mut self,
        line: u64,
        message_id: &str,
        sent: &Result<(), String>,
    ) -> Result<(), Error> {
        let (queue, message_id) = (self.queue.clone(), message_id.to_owned());
        let status = if sent.is_ok() { Status::Sent } else { Status::Failed };
        let line = ReportLine { line, message_id, queue, status, code: sent.clone().err() };
        serde_json::to_writer(&mut self.lines, &line)?;
        self.lines.push(b'\n');
        Ok(())
    }

    /// Writes the lines of one request. A message that was sent must not be sent again, so an error
    /// has the lines of those that the report lacks.
    pub(super) fn flush(&mut self) -> Result<(), Error> {
        let all = mem::take(&mut self.lines);
        let mut lines = all.split_inclusive(|byte| *byte == b'\n');
        let Some(mut file) = self.file.as_ref() else { return Ok(()) };
        while let Some(line) = lines.next() {
            let Err(error) = file.write_all(line) else { continue };
            self.is_short = true;
            let read = |line| serde_json::from_slice(line).ok();
            let lines = [line].into_iter().chain(lines).filter_map(read);
            let sent: Vec<ReportLine> =
                lines.filter(|line: &ReportLine| line.status == Status::Sent).collect();
            return Err(self.lacks(&sent, &error)?.into());
        }
        Ok(())
    }

    fn lacks(&self, sent: &[ReportLine], error: &io::Error) -> Result<String, Error> {
        let path = self.path.display();
        let problem = format!("the report {path} cannot be written: {error}; free space first");
        if sent.is_empty() {
            return Ok(format!("{problem}, and run the same command again to send the others"));
        }
        let numbers: Vec<String> = sent.iter().map(|line| line.line.to_string()).collect();
        let lines: serde_json::Result<Vec<String>> =
            sent.iter().map(serde_json::to_string).collect();
        Ok(format!(
            "{problem}. The messages of these lines were sent, and the report lacks them: {}. Add \
             the following text to the end of the report, or the same command sends them again:\n{}",
            numbers.join(", "),
            lines?.join("\n")
        ))
    }
}

/// A link is refused: the author of the export may own the directory of the report, and a link
/// could lead to a file that a shell runs.
fn existing(path: &Path) -> Result<Option<File>, Error> {
    let found = match fs::symlink_metadata(path) {
        Ok(found) => found,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(unreadable(path, &error).into()),
    };
    let what = match () {
        () if found.is_symlink() => "a symbolic link",
        () if !found.is_file() => "not a regular file",
        () => {
            let file = options().open(path).map_err(|error| unreadable(path, &error))?;
            let opened = file.metadata().map_err(|error| unreadable(path, &error))?;
            if (opened.dev(), opened.ino()) == (found.dev(), found.ino()) {
                return Ok(Some(file));
            }
            "replaced at this moment"
        }
    };
    let shown = path.display();
    Err(format!("the report {shown} is {what}; name another file with --report").into())
}

fn options() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.read(true).append(true).mode(0o600);
    options
}

/// An existing report, without which this import would send messages again.
fn unreadable(path: &Path, error: &io::Error) -> String {
    format!(
        "the report {} cannot be read or written: {error}; correct that, since with another report \
         the import sends all messages again",
        path.display()
    )
}

fn unwritable(path: &Path, error: &io::Error) -> String {
    let path = path.display();
    format!("the report {path} cannot be written: {error}; name another one with --report")
}
