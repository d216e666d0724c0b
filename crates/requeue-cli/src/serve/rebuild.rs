//! Detects new builds of the function's file.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::sleep;

/// The interval of checks. A file counts as complete if two checks find the same.
const LOOK: Duration = Duration::from_millis(250);

/// Identifies a build. `None` while the file is missing, as during linking.
fn stamp(path: &Path) -> Option<(u64, u64, i64, i64)> {
    let file = fs::metadata(path).ok()?;
    Some((file.ino(), file.size(), file.mtime(), file.mtime_nsec()))
}

/// A counter of new builds of this file. Without a file it never changes.
pub(super) fn watch(file: Option<PathBuf>) -> watch::Receiver<()> {
    let (sender, builds) = watch::channel(());
    tokio::spawn(async move {
        let Some(path) = file else {
            // Keeps the sender alive, so that the receiver sees no end.
            return sender.closed().await;
        };
        let mut running = stamp(&path);
        let mut last = running;
        while !sender.is_closed() {
            sleep(LOOK).await;
            let found = stamp(&path);
            if found.is_some() && found != running && found == last {
                running = found;
                sender.send_replace(());
            }
            last = found;
        }
    });
    builds
}
