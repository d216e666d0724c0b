//! Test tools that several suites share: servers, certificates, processes, events, what was logged.
//! It knows nothing of Requeue, so that the library's own tests can use it.

#![allow(missing_docs, clippy::missing_panics_doc, clippy::must_use_candidate, reason = "tests")]
#![allow(
    clippy::disallowed_methods,
    reason = "tests measure what the machine does, and read their own settings"
)]

pub mod bodies;
pub mod certificate;
pub mod dice;
pub mod environment;
pub mod events;
pub mod http;
pub mod in_memory;
pub mod log;
pub mod tools;
pub mod usage;

use std::path::{Path, PathBuf};

/// A file or directory of the repository.
pub fn repository(path: impl AsRef<Path>) -> PathBuf {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../..")).join(path)
}
