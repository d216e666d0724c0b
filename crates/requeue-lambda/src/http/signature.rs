//! Signatures of Standard Webhooks: a target that knows the secret can verify a request. Knows no
//! headers and no clock.
//!
//! Source: the Standard Webhooks specification, "Signature scheme".

use std::str::FromStr;

use ::http::HeaderValue;
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use ring::hmac;

const PREFIX: &str = "whsec_";
/// Shorter ones can be guessed, longer ones add nothing. Source: the specification.
const SECRET_BYTES: std::ops::RangeInclusive<usize> = 24..=64;

/// A secret that is shared with the target, as `whsec_` and 24 to 64 bytes in base64. It is never
/// printed.
///
/// ```
/// use requeue_lambda::{InvalidSigningSecret, SigningSecret};
///
/// let secret: SigningSecret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw".parse()?;
/// assert_eq!(format!("{secret:?}"), "SigningSecret { .. }");
/// assert_eq!("MfKQ9r8G".parse::<SigningSecret>().unwrap_err(), InvalidSigningSecret::Prefix);
/// # Ok::<(), InvalidSigningSecret>(())
/// ```
#[derive(Clone)]
pub struct SigningSecret(hmac::Key);

impl FromStr for SigningSecret {
    type Err = InvalidSigningSecret;

    fn from_str(text: &str) -> Result<Self, InvalidSigningSecret> {
        let encoded = text.strip_prefix(PREFIX).ok_or(InvalidSigningSecret::Prefix)?;
        let bytes = BASE64_STANDARD.decode(encoded).map_err(|_| InvalidSigningSecret::Base64)?;
        if !SECRET_BYTES.contains(&bytes.len()) {
            return Err(InvalidSigningSecret::Length);
        }
        Ok(Self(hmac::Key::new(hmac::HMAC_SHA256, &bytes)))
    }
}

requeue::debug_by_name!(SigningSecret);

/// The reason for which a text is not a [`SigningSecret`]. It repeats no part of the text.
///
/// ```
/// use requeue_lambda::{InvalidSigningSecret, SigningSecret};
/// assert_eq!("whsec_c2hvcnQ=".parse::<SigningSecret>().unwrap_err(), InvalidSigningSecret::Length);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum InvalidSigningSecret {
    /// It does not begin with `whsec_`.
    #[error("a signing secret must begin with whsec_")]
    Prefix,
    /// The rest is not base64 with its padding.
    #[error("a signing secret must be base64 after whsec_, with its padding")]
    Base64,
    /// Fewer than 24 bytes, or more than 64.
    #[error("a signing secret must have 24 to 64 bytes")]
    Length,
}

pub(super) fn sign(
    secrets: &[SigningSecret],
    id: &str,
    timestamp: u64,
    body: &[u8],
) -> HeaderValue {
    let signatures = secrets.iter().map(|SigningSecret(key)| {
        let mut context = hmac::Context::with_key(key);
        context.update(format!("{id}.{timestamp}.").as_bytes());
        context.update(body);
        format!("v1,{}", BASE64_STANDARD.encode(context.sign()))
    });
    HeaderValue::try_from(signatures.collect::<Vec<_>>().join(" "))
        .expect("base64 fits into a header")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The result of the specification's own libraries.
    const VECTOR: &str = "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=";

    #[test]
    fn a_secret_has_a_prefix_and_24_to_64_bytes_and_is_not_repeated() {
        let of = |bytes: usize| format!("whsec_{}", BASE64_STANDARD.encode(vec![b's'; bytes]));
        for (text, expected) in [
            (of(23), Some(InvalidSigningSecret::Length)),
            (of(24), None),
            (of(25), None),
            (of(64), None),
            (of(65), Some(InvalidSigningSecret::Length)),
            (of(25).replace('=', ""), Some(InvalidSigningSecret::Base64)),
            (of(24).replace("whsec_", ""), Some(InvalidSigningSecret::Prefix)),
            (of(24).replace("whsec_", "whsk_"), Some(InvalidSigningSecret::Prefix)),
            ("whsec_".to_owned(), Some(InvalidSigningSecret::Length)),
            ("whsec_s3cret s3cret".to_owned(), Some(InvalidSigningSecret::Base64)),
            (String::new(), Some(InvalidSigningSecret::Prefix)),
        ] {
            assert_eq!(text.parse::<SigningSecret>().err(), expected, "{text}");
        }
    }

    #[test]
    fn each_secret_signs_id_time_and_body() {
        let secrets = [
            "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw",
            "whsec_b2xkIG9sZCBvbGQgb2xkIG9sZCBvbGQgb2xk",
        ];
        let secrets = secrets.map(|text| text.parse().expect("it is a secret"));
        let body = br#"{"test": 2432232314}"#;
        let signature =
            |secrets: &[_]| sign(secrets, "msg_p5jXN8AQM9LWM0D4loKWxJek", 1_614_265_330, body);
        assert_eq!(signature(&secrets[..1]), VECTOR);
        let both = signature(&secrets);
        let both: Vec<&str> = both.to_str().expect("it is text").split(' ').collect();
        let second = signature(&secrets[1..]);
        assert_eq!(both, [VECTOR, second.to_str().expect("it is text")]);
        assert_ne!(second, VECTOR);
    }

    #[test]
    fn the_bytes_are_signed_as_they_are_sent() {
        let secrets = ["whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw".parse().expect("it is a secret")];
        let bodies: [&[u8]; 7] = [b"", b" ", b"{}", b"{ }", b"{}\n", b"\xef\xbb\xbf{}", b"{}\xff"];
        let signatures: Vec<HeaderValue> =
            bodies.iter().map(|body| sign(&secrets, "id", 1, body)).collect();
        for (at, signature) in signatures.iter().enumerate() {
            assert!(!signatures[..at].contains(signature), "{:?}", bodies[at]);
        }
    }
}
