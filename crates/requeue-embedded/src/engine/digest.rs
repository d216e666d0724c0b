//! The digests that SQS returns and that other SDKs verify.

use std::collections::BTreeMap;

use md5::{Digest, Md5};
use sha2::Sha256;

use requeue_sqs::digest::hex;
pub(crate) use requeue_sqs::digest::of_body;
use requeue_sqs::{Attribute, AttributeValue};

/// `MD5OfMessageAttributes`; `None` if there are no attributes.
///
/// Source: SQS developer guide, "Calculating the MD5 message digest for message attributes". The
/// attributes are sorted by name, and each part follows its length.
pub(crate) fn of_attributes<'a>(
    attributes: impl IntoIterator<Item = (&'a String, &'a Attribute)>,
) -> Option<String> {
    let sorted: BTreeMap<_, _> = attributes.into_iter().collect();
    if sorted.is_empty() {
        return None;
    }
    let mut digest = Md5::new();
    for (name, attribute) in sorted {
        part(&mut digest, name.as_bytes());
        part(&mut digest, attribute.data_type.as_bytes());
        match &attribute.value {
            AttributeValue::Text(text) => {
                digest.update([1]);
                part(&mut digest, text.as_bytes());
            }
            AttributeValue::Binary(bytes) => {
                digest.update([2]);
                part(&mut digest, bytes);
            }
        }
    }
    Some(hex(&digest.finalize()))
}

/// The deduplication id of a FIFO message that names none. It depends on the body only.
pub(crate) fn sha256(body: &str) -> String {
    hex(&Sha256::digest(body.as_bytes()))
}

fn part(digest: &mut Md5, bytes: &[u8]) {
    let length = u32::try_from(bytes.len()).expect("a message is smaller than 4 GiB");
    digest.update(length.to_be_bytes());
    digest.update(bytes);
}
