//! The digests of SQS, which other SDKs verify.

use std::fmt::Write as _;

use md5::{Digest, Md5};

/// `MD5OfMessageBody`.
pub fn of_body(body: &str) -> String {
    hex(&Md5::digest(body.as_bytes()))
}

/// Bytes as hexadecimal digits.
pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}
