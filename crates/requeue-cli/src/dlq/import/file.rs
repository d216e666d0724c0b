//! The file of an import: its lines, read twice, first to check all of them and then to send them.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::fmt::Write as _;
use std::fs::File;
use std::hash::{BuildHasher as _, DefaultHasher, Hash as _, Hasher as _, RandomState};
use std::io::{BufRead, BufReader, Read};
use std::path::{self, Path, PathBuf};

use requeue::FailureClass;
use requeue::printable;
use requeue::queue::{Arn, Attribute, AttributeValue, MAX_BATCH_BYTES, Outgoing, QueueArn};
use serde::Deserialize;

use super::report::Report;
use crate::Error;
use crate::dlq::letter::{AttributeJson, UNKNOWN};
use crate::dlq::sender::Sendable;

/// The longest id of a message. Source: SQS API reference, `MessageId` has at most 100 characters.
const MAX_ID: usize = 100;
/// The longest ARN of a queue: that of a name of 80 characters in the longest partition and region.
const MAX_ARN: usize = 160;
/// Source: SQS developer guide, "Amazon SQS message metadata".
const MAX_ATTRIBUTES: usize = 10;
const MAX_SHOWN: usize = 10;
/// The longest line: JSON escapes a byte by six at most, and attributes take the rest.
const MAX_LINE: u64 = 8 * MAX_BATCH_BYTES as u64;

pub(super) struct ImportFile {
    path: PathBuf,
    pub(super) report: PathBuf,
    fingerprints: RandomState,
}

pub(super) struct Line {
    /// From 1 on.
    pub(super) number: u64,
    pub(super) message_id: String,
    class: &'static str,
    moved_from: Option<String>,
    fingerprint: u64,
    group_id: Option<String>,
    attributes: BTreeMap<String, Attribute>,
    body: String,
    /// Its deduplication id in a FIFO queue.
    deduplication_id: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ExportedLine {
    message_id: String,
    class: Option<String>,
    moved_from: Option<String>,
    group_id: Option<String>,
    #[serde(default)]
    message_attributes: BTreeMap<String, AttributeJson>,
    body: String,
}

/// The counts of a checked file.
#[derive(Default)]
pub(super) struct Summary {
    pub(super) lines: u64,
    pub(super) sent_before: u64,
    /// The lines with the message of an earlier one, as in two exports that were joined.
    pub(super) repeated: u64,
    /// The other lines.
    pub(super) left: u64,
    pub(super) classes: BTreeMap<&'static str, u64>,
    /// The numbers of the lines that are not left.
    left_out: HashSet<u64>,
    /// Of the lines that are left: SQS may have stored them in an earlier run.
    pub(super) in_doubt: u64,
    pub(super) moved_from: BTreeSet<String>,
    fingerprints: Vec<u64>,
}

impl Summary {
    /// A note, if SQS moved messages from other queues than `to`: a sent message does not keep
    /// that.
    pub(super) fn lost_source(&self, to: &QueueArn) -> Option<String> {
        let to_name = to.name();
        let to = to.to_string();
        let from = self.moved_from.iter().filter(|from| **from != to);
        let from: Vec<&str> = from.map(|from| Arn::of(from).name()).collect();
        let more = from.len().saturating_sub(MAX_SHOWN);
        let mut from = printable::line(&from[..from.len() - more].join(" and ")).into_owned();
        if more > 0 {
            let _ = write!(from, " and {more} others");
        }
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
}

impl ImportFile {
    /// A pipe cannot be read twice, so only a regular file is accepted.
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
        let report = report.map_or_else(|| path.with_added_extension("report"), Path::to_owned);
        Ok(Self { path: path.to_owned(), report, fingerprints: RandomState::new() })
    }

    /// Checks all lines, so that a mistake is found before the first message is sent.
    pub(super) fn check(&self, report: &Report) -> Result<Summary, Error> {
        let mut summary = Summary::default();
        // The first line with each message id, and the hash of its body.
        let mut seen = HashMap::new();
        for line in self.lines()? {
            let line = line?;
            summary.lines += 1;
            summary.fingerprints.push(line.fingerprint);
            let is_sent = report.has(line.number, &line.message_id)?;
            let body = self.fingerprints.hash_one(&line.body);
            let (first, first_body) = *seen.entry(line.message_id).or_insert((line.number, body));
            let is_repeated = !is_sent && first != line.number;
            if is_repeated && first_body != body {
                return Err(format!(
                    "the lines {first} and {} of {} have one message id and two bodies; make one of \
                     them empty, so that the others keep their numbers",
                    line.number,
                    self.path.display()
                )
                .into());
            }
            if is_sent || is_repeated {
                summary.sent_before += u64::from(is_sent);
                summary.repeated += u64::from(is_repeated);
                summary.left_out.insert(line.number);
                continue;
            }
            summary.left += 1;
            summary.in_doubt += u64::from(report.in_doubt.contains(&line.number));
            summary.moved_from.extend(line.moved_from);
            *summary.classes.entry(line.class).or_default() += 1;
        }
        Ok(summary)
    }

    /// Whether the file is still the one that was checked, and that the user may have agreed to.
    pub(super) fn check_unchanged(&self, checked: &Summary) -> Result<(), Error> {
        self.lines_of(checked)?.try_for_each(|line| line.map(drop))
    }

    /// The lines, as long as they are those that were checked.
    fn lines_of(
        &self,
        checked: &Summary,
    ) -> Result<impl Iterator<Item = Result<Line, Error>>, Error> {
        let changed = format!(
            "the file {} has changed since the plan; run the command again",
            self.path.display()
        );
        let mut lines = Some(self.lines()?);
        let mut expected = checked.fingerprints.iter();
        Ok(std::iter::from_fn(move || match (lines.as_mut()?.next(), expected.next()) {
            (None, None) => None,
            (Some(Ok(line)), Some(expected)) if line.fingerprint == *expected => Some(Ok(line)),
            _ => {
                lines = None;
                Some(Err(changed.clone().into()))
            }
        }))
    }

    /// The lines that are left.
    pub(super) fn unsent(
        &self,
        checked: &Summary,
    ) -> Result<impl Iterator<Item = Result<Line, Error>>, Error> {
        Ok(self.lines_of(checked)?.filter(|line| {
            !line.as_ref().is_ok_and(|line| checked.left_out.contains(&line.number))
        }))
    }

    fn lines(&self) -> Result<impl Iterator<Item = Result<Line, Error>>, Error> {
        let shown = self.path.display().to_string();
        let file = File::open(&self.path)
            .map_err(|error| format!("the export {shown} cannot be read: {error}"))?;
        let mut reader = BufReader::new(file);
        let (mut number, report) = (0, path::absolute(&self.report)?);
        let fingerprints = self.fingerprints.clone();
        Ok(std::iter::from_fn(move || {
            loop {
                let mut text = String::new();
                number += 1;
                let read = reader.by_ref().take(MAX_LINE).read_line(&mut text);
                // Some editors and shells begin a file with this character.
                let text = text.strip_prefix('\u{feff}').filter(|_| number == 1).unwrap_or(&text);
                return match read {
                Ok(0) => None,
                Ok(_) if text.trim_ascii().is_empty() => continue,
                Ok(_) => Some(Line::read(number, text, &report, &fingerprints).map_err(|problem| {
                    format!("line {number} of {shown} {problem}; correct this line, or export the messages again").into()
                })),
                Err(error) => {
                    let error = format!(
                        "line {number} of {shown} cannot be read: {error}; decompress a compressed file \
                         first, and save one of UTF-16 as UTF-8"
                    );
                    Some(Err(error.into()))
                }
            };
            }
        }))
    }
}

impl Line {
    /// The errors have no text of the line, since it may be confidential.
    fn read(
        number: u64,
        text: &str,
        report: &Path,
        fingerprints: &RandomState,
    ) -> Result<Self, String> {
        if text.len() as u64 >= MAX_LINE {
            return Err(format!("is longer than {MAX_LINE} bytes"));
        }
        let line: ExportedLine = serde_json::from_str(text).map_err(|error| {
            format!(
                "is not a message as `requeue dlq export` writes it (column {})",
                error.column()
            )
        })?;
        let is_part = |byte: u8| byte.is_ascii_alphanumeric() || b"-_".contains(&byte);
        let id = &line.message_id;
        if !(1..=MAX_ID).contains(&id.len()) || !id.bytes().all(is_part) {
            return Err(format!(
                "has a messageId that SQS cannot have: it has 1 to {MAX_ID} letters, digits, \
                 hyphens and underscores"
            ));
        }
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
            class: line
                .class
                .as_deref()
                .and_then(FailureClass::from_name)
                .map_or(UNKNOWN, FailureClass::as_str),
            moved_from: line
                .moved_from
                .filter(|arn| arn.len() <= MAX_ARN && arn.parse::<QueueArn>().is_ok()),
            fingerprint: fingerprints.hash_one(text),
            group_id: line.group_id,
            attributes: attributes.ok_or("has a message attribute without a value")?,
            body: line.body,
        };
        line.accepted()?;
        if line.size() > MAX_BATCH_BYTES {
            return Err(format!("is larger than the {MAX_BATCH_BYTES} bytes that SQS accepts"));
        }
        Ok(line)
    }

    /// The rules of SQS for the values of a message.
    fn accepted(&self) -> Result<(), String> {
        let count = self.attributes.len();
        if count > MAX_ATTRIBUTES {
            return Err(format!(
                "has {count} messageAttributes, and SQS accepts {MAX_ATTRIBUTES}; remove some"
            ));
        }
        accepted_text("body", &self.body)?;
        self.attributes.iter().try_for_each(|(name, attribute)| {
            let name = printable::start_of_line(name, MAX_ID);
            let field = format!("value of the message attribute {name}");
            match &attribute.value {
                AttributeValue::Binary(bytes) if !bytes.is_empty() => Ok(()),
                _ => accepted_text(&field, attribute.as_text().unwrap_or_default()),
            }
        })
    }

    /// The group in a FIFO queue. A message without one is alone in its group.
    fn group(&self) -> &str {
        self.group_id.as_deref().unwrap_or(&self.message_id)
    }

    fn size(&self) -> usize {
        Outgoing::new(&self.body, &self.attributes).size()
    }
}

impl Sendable for Line {
    fn outgoing(&self, to: &QueueArn) -> Outgoing<'_> {
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

/// Source: SQS API reference, `SendMessage`, on the characters of XML.
fn accepted_text(field: &str, text: &str) -> Result<(), String> {
    let is_refused =
        |c: &char| matches!(c, '\u{FFFE}' | '\u{FFFF}') || *c < ' ' && !"\t\n\r".contains(*c);
    match text.chars().find(is_refused) {
        Some(c) => {
            let code = u32::from(c);
            Err(format!("has U+{code:04X} in the {field}, which SQS refuses; encode or remove it"))
        }
        None if text.is_empty() => Err(format!("has an empty {field}, which SQS refuses")),
        None => Ok(()),
    }
}

/// SQS stores one message with such an id within five minutes. So another run with the same report
/// doubles no line, while a corrected line, or the same one with another report, is a new message.
fn deduplication_id(message_id: &str, text: &str, report: &Path) -> String {
    let mut hash = DefaultHasher::new();
    (text, report).hash(&mut hash);
    format!("{message_id}-{:016x}", hash.finish())
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn a_file_that_has_changed_since_the_plan_is_refused() {
        let path = std::env::temp_dir().join(format!("import-{}.jsonl", std::process::id()));
        let line = |id: &str| format!("{{\"messageId\":\"{id}\",\"body\":\"{id}\"}}\n");
        let write = |ids: &[&str]| {
            let lines: String = ids.iter().map(|id| line(id)).collect();
            fs::write(&path, lines).expect("a file");
        };
        write(&["a", "b", "c"]);
        let file = ImportFile::at(&path, None).expect("a file");
        let checked = file.check(&Report::default()).expect("lines");
        let lines = || file.unsent(&checked).expect("a file");
        file.check_unchanged(&checked).expect("it is the same");
        assert_eq!(lines().flatten().count(), 3);
        for ids in [&["a", "b"][..], &["a", "b", "c", "d"], &["a", "x", "c"], &["b", "a", "c"], &[]]
        {
            write(ids);
            let error = file.check_unchanged(&checked).expect_err("it has changed").to_string();
            assert!(error.contains("has changed since the plan"), "{ids:?}: {error}");
            assert!(lines().any(|line| line.is_err()), "{ids:?}");
        }
        fs::remove_file(path).expect("it is there");
    }
}
