//! Test tools that several suites share: servers, certificates, processes, events and captured
//! logs. They know nothing of Requeue, so the library's own tests can use them.

#![allow(missing_docs, clippy::missing_panics_doc, clippy::must_use_candidate, reason = "tests")]
#![allow(
    clippy::disallowed_methods,
    reason = "tests measure what the machine does, and read their own settings"
)]

pub mod bodies;
pub mod certificate;
pub mod dice;
pub mod dynamodb;
pub mod emf;
pub mod environment;
pub mod events;
pub mod function;
pub mod http;
pub mod in_memory;
pub mod log;
pub mod terminal;
pub mod tools;
pub mod usage;

use std::fs;
use std::path::{Path, PathBuf};

/// The pages at the root of the repository.
pub const ROOT_PAGES: [&str; 6] = [
    "README.md",
    "ARCHITECTURE.md",
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    "SECURITY.md",
    "TESTING.md",
];

/// README and every page of `docs/`, one after the other.
pub fn documents() -> String {
    let mut pages = vec![repository("README.md")];
    let mut directories = vec![repository("docs")];
    while let Some(directory) = directories.pop() {
        for entry in fs::read_dir(directory).expect("docs/ can be read") {
            let path = entry.expect("docs/ can be read").path();
            if path.is_dir() {
                directories.push(path);
            } else if path.extension().is_some_and(|extension| extension == "md") {
                pages.push(path);
            }
        }
    }
    let text = |page| fs::read_to_string(page).expect("a page is text");
    pages.into_iter().map(text).collect::<Vec<_>>().join("\n")
}

/// A file or directory of the repository.
pub fn repository(path: impl AsRef<Path>) -> PathBuf {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../..")).join(path)
}
