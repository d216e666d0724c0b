//! Prints the output of a function line by line, each with the number of its environment before it.

use std::io;

use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncReadExt, BufReader};

use crate::output;

/// The longest line; the rest follows as another line.
const MAX_LINE: u64 = 64 * 1024;

/// Runs until the stream ends.
pub(super) async fn pass_through(stream: impl AsyncRead + Unpin, environment: u64) {
    let mut reader = BufReader::new(stream);
    let mut line = Vec::new();
    while next_line(&mut reader, &mut line).await.is_ok_and(|bytes| bytes > 0) {
        let text = String::from_utf8_lossy(&line);
        // A closed standard output does not stop the function.
        let text = text.trim_end_matches(['\n', '\r']);
        let _ = output::write(&format!("\x1b[2m{environment}|\x1b[0m {text}\n"));
        line.clear();
    }
}

async fn next_line(
    reader: &mut (impl AsyncBufReadExt + Unpin),
    line: &mut Vec<u8>,
) -> io::Result<usize> {
    reader.take(MAX_LINE).read_until(b'\n', line).await
}
