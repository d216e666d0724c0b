//! `requeue dlq export`: writes messages as JSON Lines. The file appears only when it is complete.

use std::collections::HashSet;
use std::fs::{self, File, OpenOptions};
use std::io::{self, BufWriter, Write};
use std::ops::ControlFlow;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use requeue::printable;
use tempfile::NamedTempFile;

use super::letter::{DeadLetterJson, Filter, Letter};
use super::list::DeadLetterGroups;
use super::queue::{Purpose, QueueArguments, progress};
use super::scan::{Scan, ScanResult};
use crate::stop::Stop;
use crate::table::messages;
use crate::{Error, output};

#[derive(clap::Args)]
pub(crate) struct Arguments {
    #[command(flatten)]
    place: QueueArguments,
    /// The file; `-` is the standard output. A regular file appears only at the end, with all
    /// messages that were received; the command writes directly into pipes and character devices.
    #[arg(index = 1)]
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

pub(crate) async fn run(arguments: &Arguments) -> Result<ExitCode, Error> {
    let (stop, progress) = (Stop::end_at_once()?, progress());
    let dead_letters = arguments.place.find(Purpose::Look).await?;
    dead_letters.warn();
    let mut target = Target::open(&arguments.file, arguments.force)?;
    stop.defer_end();
    target.tell(&stop);
    let scan = dead_letters.scan(&stop, &progress);
    let exported = export(scan, &arguments.filter, Some(&mut target), arguments.unwrap).await;
    let is_file = matches!(target, Target::Beside { .. });
    if stop.is_told() {
        let _ = exported.inspect_err(|error| output::remark(&error.to_string()));
        if is_file {
            output::remark("no file was written, and nothing was deleted");
        }
        return Ok(stop.status(false));
    }
    let (Exported { ids, unreadable, .. }, looked) = exported?;
    let written = ids.len();
    let is_complete = looked.is_complete() || arguments.filter.has_found_ids();
    if written == 0 && !is_complete && is_file {
        return Err("no message was reached, so no file was written".into());
    }
    target.finish()?;
    output::remark(&format!("{} written; nothing was deleted", messages(written)));
    if !is_complete && is_file {
        output::remark(&format!(
            "{} is incomplete; to replace it by a complete export, add --force",
            arguments.file.display()
        ));
    }
    let finds_all =
        !is_complete || arguments.filter.finds_all_if_set(dead_letters.name(), written > 0);
    if written == 0 {
        dead_letters.tell_waiting().await;
    }
    if unreadable > 0 {
        let unreadable = messages(unreadable);
        output::remark(&format!("{unreadable} without attributes, because these cannot be read"));
    }
    Ok(stop.status(is_complete && finds_all && looked.is_released() && unreadable == 0))
}

#[derive(Default)]
pub(super) struct Exported {
    pub(super) ids: HashSet<String>,
    pub(super) groups: DeadLetterGroups,
    pub(super) unreadable: usize,
}

/// Writes the messages that the filter chooses. A dry run has no target.
pub(super) async fn export(
    scan: Scan<'_>,
    filter: &Filter,
    mut target: Option<&mut Target>,
    unwrap: bool,
) -> Result<(Exported, ScanResult), Error> {
    let mut exported = Exported::default();
    let limit = filter.limit.and_then(|limit| usize::try_from(limit).ok());
    let looked = scan.each(filter, |letter, dead| {
        if let Some(target) = &mut target {
            target.write(&line(letter, unwrap)?)?;
        }
        exported.unreadable += usize::from(letter.record.attributes.is_none());
        exported.groups.add(letter, dead);
        exported.ids.insert(letter.id.clone());
        let has_all = Some(exported.ids.len()) == limit;
        Ok(if has_all { ControlFlow::Break(()) } else { ControlFlow::Continue(()) })
    });
    let looked = looked.await?;
    Ok((exported, looked))
}

pub(crate) fn line(letter: &Letter, unwrap: bool) -> Result<String, Error> {
    let dead = letter.read();
    let mut line = DeadLetterJson::of(letter, &dead);
    line.message_attributes = Some(letter.attributes_json());
    line.body = Some(if unwrap { dead.payload() } else { &letter.body });
    Ok(printable::json(serde_json::to_string(&line)?) + "\n")
}

pub(crate) fn write_file<'a>(
    to: &Path,
    letters: impl Iterator<Item = &'a Letter>,
) -> Result<(), Error> {
    let mut file = Target::open_file(to, false)?;
    for letter in letters {
        file.write(&line(letter, false)?)?;
    }
    file.finish()
}

pub(super) enum Target {
    StandardOutput,
    /// A pipe, a character device, or a file that another program has opened. Its content stays.
    Into {
        file: BufWriter<File>,
        to: PathBuf,
    },
    /// A temporary file next to the final one, until all lines are written; else it is removed.
    Beside {
        file: BufWriter<NamedTempFile>,
        to: PathBuf,
        force: bool,
    },
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
        if to.exists() && !force {
            return Err(exists(to));
        }
        // A rename over the link would replace the link, and not the file that it leads to.
        let to =
            if to.is_symlink() { fs::canonicalize(to).map_err(failed)? } else { to.to_owned() };
        let name = to
            .file_name()
            .ok_or_else(|| format!("{} is not a file name; name a file", to.display()))?;
        let prefix = format!(".{}.", name.display());
        let directory = to.parent().filter(|directory| !directory.as_os_str().is_empty());
        // Bodies may be confidential, so only the owner can read the file: this is the default.
        let file = tempfile::Builder::new()
            .prefix(&prefix)
            .suffix(".partial")
            .tempfile_in(directory.unwrap_or(Path::new(".")))
            .map_err(|error| cannot_be_written(&to, &error))?;
        Ok(Self::Beside { file: BufWriter::new(file), to, force })
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
        if let Self::Beside { file, .. } = self {
            stop.leaves(format!(
                "messages in flight stay hidden {{until}}, and the file {} has bodies; delete it",
                file.get_ref().path().display()
            ));
        }
    }

    pub(super) fn write(&mut self, line: &str) -> Result<(), Error> {
        let (written, to) = match self {
            Self::StandardOutput => return Ok(output::write(line)?),
            Self::Into { file, to } => (file.write_all(line.as_bytes()), to),
            Self::Beside { file, to, .. } => (file.write_all(line.as_bytes()), to),
        };
        Ok(written.map_err(|error| cannot_be_written(to, &error))?)
    }

    pub(super) fn finish(self) -> Result<(), Error> {
        match self {
            Self::StandardOutput => Ok(()),
            Self::Into { mut file, to } => {
                Ok(file.flush().map_err(|error| cannot_be_written(&to, &error))?)
            }
            Self::Beside { file, to, force } => keep(file, &to, force),
        }
    }
}

/// Gives the complete file its name. Another process may have created a file there meanwhile.
fn keep(mut file: BufWriter<NamedTempFile>, to: &Path, force: bool) -> Result<(), Error> {
    let failed = |error: io::Error| Error::from(cannot_be_written(to, &error));
    file.flush().and_then(|()| file.get_ref().as_file().sync_all()).map_err(failed)?;
    let file = file.into_inner().map_err(|error| failed(error.into_error()))?;
    let kept = if force {
        if is_written_into(to)? || to.is_symlink() {
            return Err(format!(
                "{} was replaced meanwhile, so nothing was written; run the command again",
                to.display()
            )
            .into());
        }
        file.persist(to)
    } else {
        file.persist_noclobber(to)
    };
    match kept {
        Ok(_) => Ok(()),
        Err(error) if error.error.kind() == io::ErrorKind::AlreadyExists => Err(exists(to)),
        Err(error) => Err(failed(error.error)),
    }
}

fn exists(file: &Path) -> Error {
    let file = file.display();
    format!("{file} exists already; name another file, or replace it with --force").into()
}

fn cannot_be_written(file: &Path, error: &io::Error) -> String {
    format!("{} cannot be written: {error}", file.display())
}

/// Whether no file may replace this. Directories, block devices and sockets are refused.
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

/// Whether this stands for an open file, like `/dev/fd/3`, which a rename cannot replace.
fn is_descriptor(path: &Path) -> bool {
    let directory = path.parent().and_then(|directory| fs::canonicalize(directory).ok());
    let directory = directory.unwrap_or_default();
    directory.starts_with("/proc") || directory.starts_with("/dev/fd")
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    #[test]
    fn a_file_or_a_link_that_appears_meanwhile_is_not_replaced() {
        let directory = tempfile::tempdir().expect("a directory");
        let (to, elsewhere) = (directory.path().join("export"), directory.path().join("elsewhere"));
        for is_link in [false, true] {
            let mut target = Target::open_file(&to, false).expect("a new file");
            target.write("exported\n").expect("room");
            if is_link {
                symlink(&elsewhere, &to).expect("a link");
            } else {
                fs::write(&to, "theirs").expect("a file");
            }
            let error = target.finish().expect_err("it is there").to_string();
            assert!(error.contains("exists already"), "{error}");
            let is_theirs = if is_link {
                fs::read_link(&to).is_ok_and(|link| link == elsewhere) && !elsewhere.exists()
            } else {
                fs::read_to_string(&to).is_ok_and(|text| text == "theirs")
            };
            assert!(is_theirs, "link: {is_link}");
            fs::remove_file(&to).expect("it is there");
            let left = fs::read_dir(directory.path()).expect("a directory").count();
            assert_eq!(left, 0, "no temporary file stays");
        }
        Target::open_file(&to, false).and_then(Target::finish).expect("nothing is in the way");
        let mode = fs::metadata(&to).expect("it is there").permissions().mode();
        assert_eq!(mode & 0o777, 0o600, "bodies may be confidential");
    }
}
