//! The principal that sent a message, as SQS names it.

use std::fmt;
use std::str::FromStr;

/// The unique id of an IAM principal, by which SQS names a message's sender: `AROA…` for a role,
/// `AIDA…` for a user, the account id for the root user. SQS adds the session's name after a colon.
/// `Principal` leaves that name out, since anyone who assumes the role chooses it.
///
/// ```
/// use requeue::Principal;
/// let sender: Principal = "AROAEXAMPLEREQUEUE001:my-function".parse().unwrap();
/// assert_eq!(sender.to_string(), "AROAEXAMPLEREQUEUE001");
/// assert!("".parse::<Principal>().is_err());
/// ```
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Principal {
    bytes: [u8; Self::MAX_LEN],
    len: u8,
}

impl Principal {
    /// The longest id that Requeue reads. IAM's own ids have 21 characters.
    const MAX_LEN: usize = 32;
}

/// The text is not the id of a principal, which has 12 to 32 capital letters and digits.
#[derive(Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "must be the id of a principal: 12 to 32 capital letters and digits, such as a role's AROA…"
)]
#[non_exhaustive]
pub struct InvalidPrincipal;

crate::debug_as_display!(InvalidPrincipal);

impl FromStr for Principal {
    type Err = InvalidPrincipal;

    fn from_str(text: &str) -> Result<Self, InvalidPrincipal> {
        let id = text.split(':').next().unwrap_or_default().as_bytes();
        let is_one = id.len() >= 12
            && id.iter().all(|byte| byte.is_ascii_uppercase() || byte.is_ascii_digit());
        let mut bytes = [0; Self::MAX_LEN];
        let place = bytes.get_mut(..id.len()).filter(|_| is_one).ok_or(InvalidPrincipal)?;
        place.copy_from_slice(id);
        let len = u8::try_from(id.len()).map_err(|_| InvalidPrincipal)?;
        Ok(Self { bytes, len })
    }
}

impl fmt::Display for Principal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&String::from_utf8_lossy(&self.bytes[..usize::from(self.len)]))
    }
}

impl fmt::Debug for Principal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_principal_is_known_by_its_id_and_not_by_its_session() {
        for (text, id) in [
            ("AROAEXAMPLEREQUEUE001:my-function", Some("AROAEXAMPLEREQUEUE001")),
            ("AROAEXAMPLEREQUEUE001:AROAEXAMPLEOTHER00001", Some("AROAEXAMPLEREQUEUE001")),
            ("AIDAEXAMPLEPRODUCER01", Some("AIDAEXAMPLEPRODUCER01")),
            ("123456789012", Some("123456789012")),
            ("12345678901", None),
            ("A234567890123456789012345678901", Some("A234567890123456789012345678901")),
            ("A2345678901234567890123456789012", Some("A2345678901234567890123456789012")),
            ("A23456789012345678901234567890123", None),
            ("aroaexamplerequeue001", None),
            ("AROAEXAMPLE REQUEUE01", None),
            (":AROAEXAMPLEREQUEUE001", None),
            ("", None),
        ] {
            let read = text.parse::<Principal>().ok().map(|principal| principal.to_string());
            assert_eq!(read.as_deref(), id, "{text}");
        }
    }
}
