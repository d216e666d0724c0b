//! `requeue dlq export`: messages as JSON Lines. The file appears at the end, whole.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::{self, BufWriter, Write, stdout};
use std::ops::ControlFlow;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use serde::Serialize;

use super::letter::{AttributeShape, Filter, Known, Letter};
use super::stop::Stop;
use super::{Place, messages, note};
use crate::Error;

#[derive(clap::Args)]
pub(crate) struct Arguments {
    #[command(flatten)]
    place: Place,
    /// The file; `-` is the standard output.
    file: PathBuf,
    #[command(flatten)]
    filter: Filter,
    /// Bodies as first delivered, without what Requeue wrote into them; otherwise as they lie in the queue.
    #[arg(long)]
    unwrap: bool,
    /// Replaces the file if it is there.
    #[arg(long)]
    force: bool,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Line<'a> {
    #[serde(flatten)]
    known: Known<'a>,
    message_attributes: BTreeMap<&'a str, AttributeShape<'a>>,
    body: &'a str,
}

pub(crate) async fn run(arguments: &Arguments) -> Result<ExitCode, Error> {
    let dead_letters = arguments.place.find().await?;
    dead_letters.warn();
    let mut target = Target::open(&arguments.file, arguments.force)?;
    let stop = Stop::listen()?;
    let mut scan = dead_letters.scan(&arguments.place, &stop);
    let limit = arguments.filter.limit.unwrap_or(u64::MAX);
    let (mut written, mut unreadable) = (0, 0);
    let walked = scan
        .walk(async |letters, _| {
            for letter in letters.iter().filter(|letter| arguments.filter.chooses(letter, &letter.read())) {
                if written == limit {
                    return Ok(ControlFlow::Break(()));
                }
                target.write(&line(letter, arguments.unwrap)?)?;
                written += 1;
                unreadable += u64::from(letter.record.attributes.is_none());
            }
            Ok(ControlFlow::Continue(()))
        })
        .await;
    let is_released = scan.release().await;
    let is_complete = scan.tell(walked?);
    if stop.is_told() {
        return Ok(stop.exit_code(ExitCode::FAILURE));
    }
    target.finish(arguments.force)?;
    note(&format!("{} written; nothing is deleted", messages(written)));
    if unreadable > 0 {
        note(&format!("{} without their attributes, which cannot be read", messages(unreadable)));
    }
    Ok(if is_complete && is_released && unreadable == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn line(letter: &Letter, unwrap: bool) -> Result<String, Error> {
    let dead = letter.read();
    let attributes = letter.record.attributes.iter().flatten();
    let line = Line {
        known: Known::of(letter, &dead),
        message_attributes: attributes.map(|(name, value)| (name.as_str(), value.into())).collect(),
        body: if unwrap { dead.payload() } else { &letter.body },
    };
    Ok(serde_json::to_string(&line)? + "\n")
}

/// Where the lines go.
enum Target<'a> {
    StandardOutput,
    /// A file beside the one that is to be, until all is written.
    Beside {
        partial: Partial,
        to: &'a Path,
    },
}

/// Goes away with this value, unless it was moved to where it belongs.
struct Partial {
    path: PathBuf,
    file: BufWriter<File>,
}

impl Drop for Partial {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.path);
    }
}

impl<'a> Target<'a> {
    fn open(to: &'a Path, force: bool) -> Result<Self, Error> {
        if to.as_os_str() == "-" {
            return Ok(Self::StandardOutput);
        }
        refuse_to_overwrite(to, force)?;
        let failed = |error: io::Error| format!("{} cannot be written: {error}", to.display());
        let name = to.file_name().ok_or_else(|| format!("{} is no name for a file", to.display()))?;
        let path = to.with_file_name(format!(".{}.{}.partial", name.display(), std::process::id()));
        // Bodies are nobody else's business.
        let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path).map_err(failed)?;
        Ok(Self::Beside { partial: Partial { path, file: BufWriter::new(file) }, to })
    }

    fn write(&mut self, line: &str) -> io::Result<()> {
        match self {
            Self::StandardOutput => stdout().lock().write_all(line.as_bytes()),
            Self::Beside { partial, .. } => partial.file.write_all(line.as_bytes()),
        }
    }

    fn finish(self, force: bool) -> Result<(), Error> {
        match self {
            Self::StandardOutput => Ok(stdout().lock().flush()?),
            Self::Beside { mut partial, to } => {
                partial.file.flush()?;
                partial.file.get_ref().sync_all()?;
                // Somebody may have written it meanwhile.
                refuse_to_overwrite(to, force)?;
                Ok(fs::rename(&partial.path, to)?)
            }
        }
    }
}

fn refuse_to_overwrite(file: &Path, force: bool) -> Result<(), Error> {
    if file.exists() && !force {
        return Err(
            format!("{} is there already: name another file, or replace it with --force", file.display()).into()
        );
    }
    Ok(())
}
