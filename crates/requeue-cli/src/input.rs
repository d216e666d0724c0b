//! Reads files and the standard input up to a bound, since some of them have no end.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

/// The text of a file, or of the standard input if its name is `-`. `allowed` says in an error of
/// what the bound is.
pub(crate) fn read(path: &Path, max_bytes: usize, allowed: &str) -> io::Result<String> {
    if path.as_os_str() == "-" {
        return text(io::stdin(), max_bytes, allowed);
    }
    text(File::open(path)?, max_bytes, allowed)
}

fn text(source: impl Read, max_bytes: usize, allowed: &str) -> io::Result<String> {
    let mut bytes = Vec::new();
    source.take(max_bytes as u64 + 1).read_to_end(&mut bytes)?;
    if bytes.len() > max_bytes {
        return Err(io::Error::other(format!("it is larger than {allowed}")));
    }
    String::from_utf8(bytes).map_err(|_| io::Error::other("it is not UTF-8"))
}
