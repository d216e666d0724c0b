//! The file of an import: its lines, read twice, first to check all of them and then to send them.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::io::{BufRead, BufReader, Read};
use std::path::{self, Path, PathBuf};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use requeue::printable;
use requeue::queue::{
    Attribute, AttributeValue, MAX_BATCH_BYTES, MAX_BATCH_ENTRIES, Outgoing, QueueArn,
};
use serde::Deserialize;

use super::report::Sent;
use crate::Error;
use crate::dlq::letter::UNKNOWN;
use crate::table::thousands;

/// The longest line: JSON escapes a byte by six at most, and attributes take the rest.
const MAX_LINE: u64 = 8 * MAX_BATCH_BYTES as u64;

pub(super) struct ImportFile {
    path: PathBuf,
    /// The path of its report.
    pub(super) report: PathBuf,
}

/// A message of the file.
pub(super) struct Line {
    /// From 1 on.
    pub(super) number: u64,
    pub(super) message_id: String,
    class: Option<String>,
    moved_from: Option<String>,
    pub(super) group_id: Option<String>,
    attributes: BTreeMap<String, Attribute>,
    body: String,
    /// Its deduplication id in a FIFO queue.
    deduplication_id: String,
}

/// A line as an export writes it.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ExportedLine {
    message_id: String,
    class: Option<String>,
    moved_from: Option<String>,
    group_id: Option<String>,
    #[serde(default)]
    message_attributes: BTreeMap<String, ExportedAttribute>,
    body: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct ExportedAttribute {
    data_type: String,
    string_value: Option<String>,
    binary_value: Option<String>,
}

/// The counts of a checked file.
#[derive(Default)]
pub(super) struct Summary {
    pub(super) lines: u64,
    /// The lines that no earlier run has sent.
    pub(super) left: u64,
    /// Those lines by class.
    pub(super) classes: BTreeMap<String, u64>,
    /// Of those lines: SQS may have stored them in an earlier run.
    pub(super) in_doubt: u64,
    /// The source queues from which SQS moved those lines, by their ARNs.
    pub(super) moved_from: BTreeSet<String>,
}

impl Summary {
    /// A note, if SQS moved messages from other queues than `to`: a sent message does not keep that.
    pub(super) fn lost_source(&self, to: &QueueArn) -> Option<String> {
        let to_name = to.name();
        let to = to.to_string();
        let from = self.moved_from.iter().filter(|from| **from != to);
        let from: Vec<&str> =
            from.map(|from| from.rsplit(':').next().unwrap_or_default()).collect();
        let from = printable::line(&from.join(" and ")).into_owned();
        let apart = if self.moved_from.len() > 1 {
            ". To keep them apart, split the file by movedFrom, and import each part into its own queue"
        } else {
            ""
        };
        (!from.is_empty()).then(|| {
            format!(
                "SQS moved messages of this file from {from}. A sent message does not keep that: in \
                 {to_name} nothing tells any longer to which queue it belongs{apart}"
            )
        })
    }

    /// `3 quota, 1 temporary`
    pub(super) fn by_class(&self) -> String {
        let counts: Vec<String> = self
            .classes
            .iter()
            .map(|(class, count)| format!("{} {class}", thousands(*count)))
            .collect();
        counts.join(", ")
    }
}

impl ImportFile {
    /// A pipe cannot be read twice, so only a regular file is accepted. The report is beside it, if no
    /// other one is named.
    pub(super) fn at(path: &Path, report: Option<&Path>) -> Result<Self, Error> {
        let shown = path.display();
        if path == Path::new("-") {
            return Err(
                "the import reads its file twice, so it reads no standard input; name a file \
                        that `requeue dlq export` wrote"
                    .into(),
            );
        }
        let metadata = std::fs::metadata(path).map_err(|error| {
            format!(
                "the export {shown} cannot be read: {error}; name a file that `requeue dlq export` \
                 wrote"
            )
        })?;
        if !metadata.is_file() {
            return Err(format!(
                "the export {shown} is not a regular file; name a file that \
                 `requeue dlq export` wrote"
            )
            .into());
        }
        let report = report.map_or_else(|| beside(path, "report"), Path::to_owned);
        Ok(Self { path: path.to_owned(), report })
    }

    /// Checks all lines, so that a mistake is found before the first message is sent.
    pub(super) fn check(&self, sent: &Sent) -> Result<Summary, Error> {
        let mut summary = Summary::default();
        for line in self.lines()? {
            let line = line?;
            summary.lines += 1;
            if sent.has(&line)? {
                continue;
            }
            summary.left += 1;
            summary.in_doubt += u64::from(sent.may_have(&line));
            summary.moved_from.extend(line.moved_from);
            *summary
                .classes
                .entry(line.class.unwrap_or_else(|| UNKNOWN.to_owned()))
                .or_default() += 1;
        }
        Ok(summary)
    }

    /// The lines that no earlier run has sent, in batches that SQS accepts. In a FIFO queue a batch
    /// has one message of each group, because later messages must not overtake one that fails.
    pub(super) fn batches(
        &self,
        sent: &Sent,
        is_fifo: bool,
    ) -> Result<impl Iterator<Item = Result<Vec<Line>, Error>>, Error> {
        let mut lines = self
            .lines()?
            .filter(|line| match line {
                Ok(line) => !sent.has(line).unwrap_or(true),
                Err(_) => true,
            })
            .peekable();
        Ok(std::iter::from_fn(move || {
            let mut batch: Vec<Line> = Vec::new();
            let mut bytes = 0;
            while let Some(line) = lines.next_if(|line| match line {
                Ok(line) => {
                    batch.len() < MAX_BATCH_ENTRIES
                        && bytes + line.size() <= MAX_BATCH_BYTES
                        && !(is_fifo && batch.iter().any(|other| other.group() == line.group()))
                }
                Err(_) => batch.is_empty(),
            }) {
                match line {
                    Ok(line) => {
                        bytes += line.size();
                        batch.push(line);
                    }
                    Err(error) => return Some(Err(error)),
                }
            }
            (!batch.is_empty()).then_some(Ok(batch))
        }))
    }

    fn lines(&self) -> Result<impl Iterator<Item = Result<Line, Error>>, Error> {
        let shown = self.path.display().to_string();
        let file = File::open(&self.path)
            .map_err(|error| format!("the export {shown} cannot be read: {error}"))?;
        let mut reader = BufReader::new(file);
        let (mut number, report) = (0, path::absolute(&self.report)?);
        Ok(std::iter::from_fn(move || {
            let mut text = String::new();
            number += 1;
            match reader.by_ref().take(MAX_LINE).read_line(&mut text) {
                Ok(0) => None,
                Ok(_) => Some(Line::read(number, &text, &report).map_err(|problem| {
                    format!("line {number} of {shown} {problem}; correct this line, or export the messages again").into()
                })),
                Err(error) => {
                    let error = format!(
                        "line {number} of {shown} cannot be read: {error}; if the file is compressed, \
                         decompress it first"
                    );
                    Some(Err(error.into()))
                }
            }
        }))
    }
}

impl Line {
    /// The errors have no text of the line, since it may be confidential.
    fn read(number: u64, text: &str, report: &Path) -> Result<Self, String> {
        if text.len() as u64 >= MAX_LINE {
            return Err(format!("is longer than {MAX_LINE} bytes"));
        }
        let line: ExportedLine = serde_json::from_str(text).map_err(|error| {
            format!(
                "is not a message as `requeue dlq export` writes it (column {})",
                error.column()
            )
        })?;
        let attributes: Option<BTreeMap<_, _>> = line
            .message_attributes
            .into_iter()
            .map(|(name, attribute)| Some((name, attribute.read()?)))
            .collect();
        let deduplication_id = deduplication_id(&line.message_id, text, report);
        let line = Self {
            number,
            deduplication_id,
            message_id: line.message_id,
            class: line.class,
            moved_from: line.moved_from,
            group_id: line.group_id,
            attributes: attributes.ok_or("has a message attribute without a value")?,
            body: line.body,
        };
        if line.body.is_empty() {
            return Err("has an empty body, which SQS refuses".to_owned());
        }
        if line.size() > MAX_BATCH_BYTES {
            return Err(format!("is larger than the {MAX_BATCH_BYTES} bytes that SQS accepts"));
        }
        Ok(line)
    }

    /// The group in a FIFO queue. A message without one is alone in its group.
    fn group(&self) -> &str {
        self.group_id.as_deref().unwrap_or(&self.message_id)
    }

    fn size(&self) -> usize {
        Outgoing::new(&self.body, &self.attributes).size()
    }

    pub(super) fn is_behind(&self, blocked: &BTreeSet<String>, to: &QueueArn) -> bool {
        to.is_fifo() && blocked.contains(self.group())
    }

    pub(super) fn outgoing(&self, to: &QueueArn) -> Outgoing<'_> {
        let mut outgoing = Outgoing::new(&self.body, &self.attributes);
        if to.is_fifo() {
            outgoing.group_id = Some(self.group());
            outgoing.deduplication_id = Some(&self.deduplication_id);
        } else {
            outgoing.group_id = self.group_id.as_deref();
        }
        outgoing
    }
}

/// SQS stores one message with such an id within five minutes. So another run with the same report
/// doubles no line, while a corrected line, or the same one with another report, is a new message.
fn deduplication_id(message_id: &str, text: &str, report: &Path) -> String {
    let mut hash = DefaultHasher::new();
    (text, report).hash(&mut hash);
    format!("{message_id}-{:016x}", hash.finish())
}

/// This path with another extension behind its own.
fn beside(path: &Path, extension: &str) -> PathBuf {
    let mut path = path.to_owned().into_os_string();
    path.push(".");
    path.push(extension);
    path.into()
}

impl ExportedAttribute {
    fn read(self) -> Option<Attribute> {
        let value = match (self.string_value, self.binary_value) {
            (Some(text), None) => AttributeValue::Text(text),
            (None, Some(bytes)) => AttributeValue::Binary(BASE64.decode(bytes).ok()?),
            _ => return None,
        };
        Some(Attribute { data_type: self.data_type, value })
    }
}
