//! Whether the function's file was built anew.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::sleep;

/// How often to look. A file counts as complete when two looks find the same.
const LOOK: Duration = Duration::from_millis(250);

/// Tells one build from another.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Stamp {
    inode: u64,
    bytes: u64,
    modified: (i64, i64),
}

impl Stamp {
    /// `None` while the linker has removed the file.
    fn of(path: &Path) -> Option<Self> {
        let file = fs::metadata(path).ok()?;
        Some(Self {
            inode: file.ino(),
            bytes: file.size(),
            modified: (file.mtime(), file.mtime_nsec()),
        })
    }
}

/// Changes with each new build of this file from now on; never without a file.
pub(super) fn watch(file: Option<PathBuf>) -> watch::Receiver<()> {
    let (sender, builds) = watch::channel(());
    tokio::spawn(async move {
        let Some(path) = file else {
            // The receiver must not take this for an end.
            return sender.closed().await;
        };
        let mut running = Stamp::of(&path);
        let mut last = running;
        while !sender.is_closed() {
            sleep(LOOK).await;
            let found = Stamp::of(&path);
            if found.is_some() && found != running && found == last {
                running = found;
                sender.send_replace(());
            }
            last = found;
        }
    });
    builds
}
