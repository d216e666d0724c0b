//! `requeue dlq export`: writes messages as JSON Lines. The file appears only when it is complete.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::{self, BufWriter, Write};
use std::ops::ControlFlow;
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use requeue::printable;
use serde::Serialize;

use super::letter::{AttributeJson, DeadLetterJson, Filter, Letter};
use super::{Purpose, QueueArguments, messages, note, progress};
use crate::stop::Stop;
use crate::{Error, output};

#[derive(clap::Args)]
pub(crate) struct Arguments {
    #[command(flatten)]
    place: QueueArguments,
    /// The file; `-` is the standard output. A regular file appears only at the end, with all messages
    /// that were received; the command writes directly into pipes and character devices.
    file: PathBuf,
    #[command(flatten)]
    filter: Filter,
    /// Write bodies as first delivered, without the fields that Requeue added; otherwise as they
    /// are in the queue.
    #[arg(long)]
    unwrap: bool,
    /// Replace an existing regular file. If it is a symbolic link, the command replaces the file
    /// that it leads to, and the link stays.
    #[arg(long)]
    force: bool,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct ExportLine<'a> {
    #[serde(flatten)]
    known: DeadLetterJson<'a>,
    message_attributes: BTreeMap<&'a str, AttributeJson<'a>>,
    body: &'a str,
}

pub(crate) async fn run(arguments: &Arguments) -> Result<ExitCode, Error> {
    let (stop, progress) = (Stop::end_at_once()?, progress());
    let dead_letters = arguments.place.find(Purpose::Look).await?;
    dead_letters.warn();
    let mut target = Target::open(&arguments.file, arguments.force)?;
    stop.defer_end();
    target.tell(&stop);
    let mut scan = dead_letters.scan(&arguments.place, &stop, &progress);
    let limit = arguments.filter.limit.unwrap_or(u64::MAX);
    let (mut written, mut unreadable) = (0, 0);
    let walked = scan
        .walk(async |letters, _| {
            for letter in
                letters.iter().filter(|letter| arguments.filter.chooses(letter, &letter.read()))
            {
                target.write(&line(letter, arguments.unwrap)?)?;
                written += 1;
                unreadable += u64::from(letter.record.attributes.is_none());
                if written == limit {
                    return Ok(ControlFlow::Break(()));
                }
            }
            Ok(ControlFlow::Continue(()))
        })
        .await;
    let is_released = scan.release().await;
    let told = walked.map(|result| scan.tell(&result));
    if stop.is_told() {
        let _ = told.inspect_err(|error| note(&error.to_string()));
        if matches!(target, Target::Beside { .. }) {
            note("no file was written, and nothing was deleted");
        }
        return Ok(stop.exit_code(ExitCode::FAILURE));
    }
    let is_complete = told? || arguments.filter.has_found_ids();
    if written == 0 && !is_complete && matches!(target, Target::Beside { .. }) {
        return Err("no message was reached, so no file was written".into());
    }
    target.finish(arguments.force)?;
    note(&format!("{} written; nothing was deleted", messages(written)));
    let finds_all =
        !is_complete || arguments.filter.finds_all_if_set(dead_letters.name(), written > 0);
    if unreadable > 0 {
        note(&format!("{} without attributes, because these cannot be read", messages(unreadable)));
    }
    Ok(if is_complete && finds_all && is_released && unreadable == 0 {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

/// A message as a line of the file.
pub(crate) fn line(letter: &Letter, unwrap: bool) -> Result<String, Error> {
    let dead = letter.read();
    let attributes = letter.record.attributes.iter().flatten();
    let line = ExportLine {
        known: DeadLetterJson::of(letter, &dead),
        message_attributes: attributes.map(|(name, value)| (name.as_str(), value.into())).collect(),
        body: if unwrap { dead.payload() } else { &letter.body },
    };
    Ok(printable::json(serde_json::to_string(&line)?) + "\n")
}

/// Writes these messages to a new file.
pub(crate) fn write_file<'a>(
    to: &Path,
    letters: impl Iterator<Item = &'a Letter>,
) -> Result<(), Error> {
    let mut file = Target::open_file(to, false)?;
    for letter in letters {
        file.write(&line(letter, false)?)?;
    }
    file.finish(false)
}

/// The destination of the lines.
pub(super) enum Target {
    StandardOutput,
    /// A pipe, a character device, or a file that another program has opened for this one. Its
    /// content stays.
    Into {
        file: BufWriter<File>,
        to: PathBuf,
    },
    /// A temporary file beside the final one, until all lines are written.
    Beside {
        partial: Partial,
        to: PathBuf,
    },
}

/// The temporary file; dropping this value removes it, unless it was renamed to the final name.
pub(super) struct Partial {
    path: PathBuf,
    file: BufWriter<File>,
}

impl Drop for Partial {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.path);
    }
}

impl Target {
    fn open(to: &Path, force: bool) -> Result<Self, Error> {
        if to.as_os_str() == "-" || to == Path::new("/dev/stdout") {
            return Ok(Self::StandardOutput);
        }
        let failed = |error| cannot_be_written(to, &error);
        if is_written_into(to)? {
            let file = OpenOptions::new().append(true).open(to).map_err(failed)?;
            return Ok(Self::Into { file: BufWriter::new(file), to: to.to_owned() });
        }
        refuse_to_overwrite(to, force)?;
        // A rename over the link would replace the link, and not the file that it leads to.
        let to =
            if to.is_symlink() { fs::canonicalize(to).map_err(failed)? } else { to.to_owned() };
        let name = to
            .file_name()
            .ok_or_else(|| format!("{} is not a file name; name a file", to.display()))?;
        let path = to.with_file_name(format!(".{}.{}.partial", name.display(), std::process::id()));
        // Bodies may be confidential, so only the owner can read the file.
        let file = OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&path)
            .map_err(failed)?;
        Ok(Self::Beside { partial: Partial { path, file: BufWriter::new(file) }, to })
    }

    /// A file that keeps the lines.
    pub(super) fn open_file(to: &Path, force: bool) -> Result<Self, Error> {
        if to.is_symlink() {
            return Err(format!("{} is a symbolic link; name the file itself", to.display()).into());
        }
        match Self::open(to, force)? {
            file @ Self::Beside { .. } => Ok(file),
            Self::StandardOutput | Self::Into { .. } => {
                Err(format!("{} keeps no messages; name a regular file", to.display()).into())
            }
        }
    }

    /// Names the temporary file, if there is one: a second signal leaves it.
    pub(super) fn tell(&self, stop: &Stop) {
        if let Self::Beside { partial, .. } = self {
            stop.leaves(format!(
                "messages in hand stay hidden {{until}}, and the file {} has bodies; delete it",
                partial.path.display()
            ));
        }
    }

    pub(super) fn write(&mut self, line: &str) -> Result<(), Error> {
        match self {
            Self::StandardOutput => Ok(output::write(line)?),
            Self::Into { file, to } | Self::Beside { partial: Partial { file, .. }, to } => {
                Ok(file
                    .write_all(line.as_bytes())
                    .map_err(|error| cannot_be_written(to, &error))?)
            }
        }
    }

    pub(super) fn finish(self, force: bool) -> Result<(), Error> {
        match self {
            Self::StandardOutput => Ok(()),
            Self::Into { mut file, to } => {
                Ok(file.flush().map_err(|error| cannot_be_written(&to, &error))?)
            }
            Self::Beside { mut partial, to } => {
                let kept = partial.file.flush().and_then(|()| partial.file.get_ref().sync_all());
                kept.map_err(|error| cannot_be_written(&to, &error))?;
                // Another process may have created it meanwhile.
                if is_written_into(&to)? || to.is_symlink() {
                    return Err(format!(
                        "{} was replaced meanwhile, so nothing was written; run the command again",
                        to.display()
                    )
                    .into());
                }
                refuse_to_overwrite(&to, force)?;
                let renamed = fs::rename(&partial.path, &to);
                Ok(renamed.map_err(|error| cannot_be_written(&to, &error))?)
            }
        }
    }
}

fn cannot_be_written(file: &Path, error: &io::Error) -> String {
    format!("{} cannot be written: {error}", file.display())
}

/// Whether this exists and is not a regular file, so that no file may replace it. Directories,
/// block devices and sockets are refused.
fn is_written_into(path: &Path) -> Result<bool, Error> {
    if is_descriptor(path) {
        return Ok(true);
    }
    let kind = match fs::metadata(path) {
        Ok(metadata) => metadata.file_type(),
        Err(error) if error.kind() == io::ErrorKind::NotFound && path.is_symlink() => {
            return Err(format!(
                "{} is a symbolic link to a file that does not exist; name that file itself",
                path.display()
            )
            .into());
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
        Err(error) => return Err(cannot_be_written(path, &error).into()),
    };
    let what = match () {
        () if kind.is_file() => return Ok(false),
        () if kind.is_fifo() || kind.is_char_device() => return Ok(true),
        () if kind.is_dir() => "a directory",
        () if kind.is_block_device() => "a block device",
        () => "a socket",
    };
    Err(format!("{} is {what}; name a file or a pipe", path.display()).into())
}

/// Whether this stands for an open file of a process, like `/dev/fd/3` and `/proc/self/fd/3`. A
/// rename cannot replace such a name.
fn is_descriptor(path: &Path) -> bool {
    /// Links that Linux follows at most. Source: `path_resolution(7)`.
    const MAX_LINKS: usize = 40;
    let mut path = path.to_owned();
    for _ in 0..MAX_LINKS {
        let directory = path
            .parent()
            .and_then(|directory| fs::canonicalize(directory).ok())
            .unwrap_or_default();
        if directory.starts_with("/proc") || directory.starts_with("/dev/fd") {
            return true;
        }
        let Ok(target) = fs::read_link(&path) else { return false };
        path = directory.join(target);
    }
    false
}

fn refuse_to_overwrite(file: &Path, force: bool) -> Result<(), Error> {
    if file.exists() && !force {
        return Err(format!(
            "{} exists already; name another file, or replace it with --force",
            file.display()
        )
        .into());
    }
    Ok(())
}
