//! The client certificate for a target (mutual TLS), from PEM. Shows neither certificate nor key.

use std::sync::Arc;

use rustls::crypto::ring::default_provider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::sign::{CertifiedKey, SingleCertAndKey};
use rustls::{Error, InconsistentKeys};

/// A client certificate and its private key, for targets that ask for one. It is never printed.
///
/// ```
/// use requeue_lambda::{ClientCertificate, InvalidClientCertificate};
/// let refused = ClientCertificate::from_pem("s3cret", "s3cret").unwrap_err();
/// assert_eq!(refused, InvalidClientCertificate::Certificate);
/// ```
#[derive(Clone)]
pub struct ClientCertificate(Arc<SingleCertAndKey>);

impl ClientCertificate {
    /// Reads the certificate, followed by its intermediate certificates, and the private key (PKCS
    /// #8, PKCS #1 or SEC 1, not encrypted): RSA, ECDSA with P-256 or P-384, or Ed25519. Each text
    /// may also hold other things.
    ///
    /// Line breaks may be missing or written as `\n`, since forms for environment variables and
    /// stored secrets lose them.
    pub fn from_pem(certificate: &str, key: &str) -> Result<Self, InvalidClientCertificate> {
        let certificate = with_line_breaks(certificate);
        let chain: Result<Vec<_>, _> =
            CertificateDer::pem_slice_iter(certificate.as_bytes()).collect();
        let chain = chain.map_err(|_| InvalidClientCertificate::Certificate)?;
        if chain.is_empty() {
            return Err(InvalidClientCertificate::Certificate);
        }
        if key.contains("ENCRYPTED") {
            return Err(InvalidClientCertificate::EncryptedKey);
        }
        let key = PrivateKeyDer::from_pem_slice(with_line_breaks(key).as_bytes());
        let key = key.map_err(|_| InvalidClientCertificate::Key)?;
        let certified = CertifiedKey::from_der(chain, key, &default_provider()).map_err(
            |error| match error {
                Error::InconsistentKeys(InconsistentKeys::KeyMismatch) => {
                    InvalidClientCertificate::Mismatch
                }
                Error::InvalidCertificate(_) => InvalidClientCertificate::Certificate,
                _ => InvalidClientCertificate::Key,
            },
        )?;
        Ok(Self(Arc::new(certified.into())))
    }

    pub(super) fn resolver(&self) -> Arc<SingleCertAndKey> {
        Arc::clone(&self.0)
    }
}

/// Each label on a line of its own.
fn with_line_breaks(pem: &str) -> String {
    let pem = pem.replace("\\n", "\n");
    let mut lines = String::with_capacity(pem.len() + 16);
    for (position, part) in pem.split("-----").enumerate() {
        if position % 2 == 1 {
            lines.extend(["\n-----", part, "-----\n"]);
        } else {
            lines.push_str(part);
        }
    }
    lines
}

requeue::debug_by_name!(ClientCertificate);

/// The reason for which two texts are not a [`ClientCertificate`]. It repeats no part of them.
///
/// ```
/// let error = requeue_lambda::InvalidClientCertificate::Mismatch;
/// assert_eq!(error.to_string(), "the private key is not that of the first certificate");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum InvalidClientCertificate {
    /// There is no certificate, or one that cannot be read.
    #[error(
        "a client certificate must be X.509 in PEM, beginning with -----BEGIN CERTIFICATE-----"
    )]
    Certificate,
    /// There is no private key, or one that cannot be read or used.
    #[error(
        "a private key must be PKCS #8, PKCS #1 or SEC 1 in PEM: RSA, ECDSA with P-256 or P-384, \
         or Ed25519"
    )]
    Key,
    /// The private key is encrypted.
    #[error("the private key is encrypted: store it decrypted (openssl pkey), as a secret")]
    EncryptedKey,
    /// The private key belongs to another certificate.
    #[error("the private key is not that of the first certificate")]
    Mismatch,
}

#[cfg(test)]
mod tests {
    use super::*;
    use InvalidClientCertificate::{Certificate, EncryptedKey, Key, Mismatch};

    fn pair() -> (String, String) {
        let made =
            rcgen::generate_simple_self_signed(["client".to_owned()]).expect("a certificate");
        (made.cert.pem(), made.signing_key.serialize_pem())
    }

    #[test]
    fn a_certificate_goes_with_its_own_key_only() {
        let ((certificate, key), (other, other_key)) = (pair(), pair());
        let chain = format!("{certificate}{other}");
        let both = format!("Bag attributes\n{certificate}\n{key}");
        let broken = certificate.replace("MII", "MI!");
        let no_x509 = "-----BEGIN CERTIFICATE-----\nc2VjcmV0\n-----END CERTIFICATE-----\n";
        let no_key = "-----BEGIN PRIVATE KEY-----\nc2VjcmV0\n-----END PRIVATE KEY-----\n";
        let encrypted = key.replace("PRIVATE", "ENCRYPTED PRIVATE");
        let legacy = key.replacen('\n', "\nProc-Type: 4,ENCRYPTED\n", 1);
        for (name, certificate, key, expected) in [
            ("pair", certificate.as_str(), key.as_str(), Ok(())),
            ("chain", &chain, &key, Ok(())),
            ("one text", &both, &both, Ok(())),
            ("other key", &certificate, &other_key, Err(Mismatch)),
            ("key of another in the chain", &chain, &other_key, Err(Mismatch)),
            ("nothing", "", &key, Err(Certificate)),
            ("no PEM", "s3cret", &key, Err(Certificate)),
            ("broken", &broken, &key, Err(Certificate)),
            ("no X.509", no_x509, &key, Err(Certificate)),
            ("swapped", &key, &certificate, Err(Certificate)),
            (
                "no end",
                certificate.split("-----END").next().expect("a beginning"),
                &key,
                Err(Certificate),
            ),
            ("no key", &certificate, "", Err(Key)),
            ("certificate as key", &certificate, &certificate, Err(Key)),
            ("unreadable key", &certificate, no_key, Err(Key)),
            ("encrypted", &certificate, &encrypted, Err(EncryptedKey)),
            ("encrypted as PKCS #1", &certificate, &legacy, Err(EncryptedKey)),
        ] {
            let read = ClientCertificate::from_pem(certificate, key);
            assert_eq!(
                read.map(|read| format!("{read:?}")),
                expected.map(|()| "ClientCertificate { .. }".to_owned()),
                "{name}"
            );
        }
    }

    #[test]
    fn line_breaks_may_have_been_lost() {
        let (certificate, key) = pair();
        let forms: [fn(&str) -> String; 5] = [
            |pem| pem.replace('\n', "\\n"),
            |pem| pem.replace('\n', "\r\n"),
            |pem| pem.replace('\n', " "),
            |pem| format!("  {} ", pem.trim().replace('\n', "  ")),
            |pem| pem.replace('\n', ""),
        ];
        for (number, form) in forms.into_iter().enumerate() {
            let read = ClientCertificate::from_pem(
                &form(&format!("{certificate}{certificate}")),
                &form(&key),
            );
            assert!(read.is_ok(), "form {number}: {read:?}");
        }
    }
}
