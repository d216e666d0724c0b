//! Reads the status line of an HTTP/1.1 response in parallel to hyper. It is known even if the rest
//! of the head is too large, broken or missing. Parses nothing else.

use ::http::StatusCode;

use super::MAX_INTERIM_BYTES;
use super::watched::{Flooded, Watch};

/// `HTTP/1.1 200`, and the byte that ends it.
const LENGTH: usize = 13;

#[derive(Debug, Default)]
pub(super) struct StatusLine {
    /// Whether a byte of the request has been written. Earlier bytes are no response to it: a
    /// target may announce the end of an idle connection, or respond to an earlier request twice.
    is_asked: bool,
    pub(super) has_begun: bool,
    line: [u8; LENGTH],
    length: usize,
    /// The line ends in a row in an interim response; two end it.
    ends: usize,
    /// The bytes before the status, those of interim responses.
    before: usize,
}

impl Watch for StatusLine {
    fn read(&mut self, bytes: &[u8]) -> Result<(), Flooded> {
        if !self.is_asked || self.status().is_some() {
            return Ok(());
        }
        self.has_begun |= !bytes.is_empty();
        for &byte in bytes {
            self.before += 1;
            if self.before > MAX_INTERIM_BYTES {
                return Err(Flooded);
            }
            // Empty lines may precede a response; hyper accepts them too.
            if self.length == 0 && matches!(byte, b'\r' | b'\n') {
                continue;
            }
            if self.length < LENGTH {
                self.line[self.length] = byte;
                self.length += 1;
            }
            if self.length < LENGTH {
                continue;
            }
            if !self.parse().is_some_and(|status| status.is_informational()) {
                return Ok(());
            }
            self.ends = match byte {
                b'\n' => self.ends + 1,
                b'\r' => self.ends,
                _ => 0,
            };
            if self.ends == 2 {
                (self.length, self.ends) = (0, 0);
            }
        }
        Ok(())
    }

    fn written(&mut self, bytes: &[u8]) {
        self.is_asked |= !bytes.is_empty();
    }
}

impl StatusLine {
    fn parse(&self) -> Option<StatusCode> {
        let line = (self.length == LENGTH).then_some(&self.line)?;
        let is_http =
            line.starts_with(b"HTTP/1.") && matches!(line[7], b'0' | b'1') && line[8] == b' ';
        let ends = matches!(line[12], b' ' | b'\r' | b'\n');
        (is_http && ends).then(|| StatusCode::from_bytes(&line[9..12]).ok()).flatten()
    }

    /// The status, as soon as it is known. That of an interim response does not count.
    pub(super) fn status(&self) -> Option<StatusCode> {
        self.parse().filter(|status| !status.is_informational())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_status_is_known_once_its_line_says_it_however_the_bytes_come() {
        for (bytes, expected) in [
            ("", None),
            ("HTTP/1.1 200", None),
            ("HTTP/1.1 200 OK\r\n", Some(200)),
            ("HTTP/1.1 204\r\n\r\n", Some(204)),
            ("HTTP/1.0 503 Busy\r\nX: y", Some(503)),
            ("HTTP/1.1 429\n", Some(429)),
            ("HTTP/1.1 2000 OK\r\n", None),
            ("HTTP/2.0 200 OK\r\n", None),
            ("HTTP/1.7 200 OK\r\n", None),
            ("\r\n\nHTTP/1.1 200 OK\r\n", Some(200)),
            ("HTTP/1.1 099 OK\r\n", None),
            ("SSH-2.0-OpenSSH_9.6\r\n", None),
            ("HTTP/1.1 100 Continue\r\n", None),
            ("HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 201 Created\r\n", Some(201)),
            ("HTTP/1.1 100\n\nHTTP/1.1 202 Accepted\r\n", Some(202)),
            (
                "HTTP/1.1 103 Early\r\nLink: <a>\r\nLink: <b>\r\n\r\nHTTP/1.1 100 C\r\n\r\nHTTP/1.1 400 No",
                Some(400),
            ),
            ("HTTP/1.1 103 Early\r\nLink: HTTP/1.1 200 OK\r\n", None),
        ] {
            for size in [1, 3, 64] {
                let mut line = StatusLine { is_asked: true, ..StatusLine::default() };
                bytes.as_bytes().chunks(size).for_each(|chunk| line.read(chunk).expect("short"));
                assert_eq!(
                    line.status().map(|status| status.as_u16()),
                    expected,
                    "{bytes:?} by {size}"
                );
                assert_eq!(line.has_begun, !bytes.is_empty(), "{bytes:?}");
            }
        }
    }
    #[test]
    fn interim_responses_end_after_so_many_bytes_however_they_come() {
        let interim = b"HTTP/1.1 103 Early Hints\r\nLink: <a>\r\n\r\n";
        let most = MAX_INTERIM_BYTES / interim.len();
        for flood in [interim.repeat(most + 1), b"\r\n".repeat(MAX_INTERIM_BYTES)] {
            for size in [1, 64, 100_000] {
                let mut line = StatusLine { is_asked: true, ..StatusLine::default() };
                assert!(flood.chunks(size).any(|chunk| line.read(chunk).is_err()));
                let mut line = StatusLine { is_asked: true, ..StatusLine::default() };
                let whole = [&interim.repeat(most - 1), &b"HTTP/1.1 200 OK\r\n"[..]].concat();
                let body = vec![b'x'; 2 * MAX_INTERIM_BYTES];
                let mut bytes = whole.chunks(size).chain(body.chunks(size));
                assert!(bytes.all(|chunk| line.read(chunk).is_ok()));
                assert_eq!(line.status(), Some(StatusCode::OK));
            }
        }
    }
}
