//! One header: the names that a user may set, and the values that it may have.

use ::http::header::{CONTENT_TYPE, HeaderName, HeaderValue};

/// Headers that HTTP sets, since they frame the message or name its route; and those of Requeue.
pub(super) const RESERVED: &str = "\
    connection content-length expect host keep-alive proxy-connection te trailer transfer-encoding upgrade \
    content-type idempotency-key webhook-id webhook-timestamp webhook-signature";
/// Requeue sets all headers that begin like this, too.
const OUR_PREFIX: &str = "x-requeue-";

/// The reason for which a header cannot be sent. Names the header, and never shows its value.
///
/// ```
/// use requeue_lambda::{HeaderError, HttpSettings};
///
/// let error = HttpSettings::default().header("X-Tenant", "a\r\nX-Admin: yes").unwrap_err();
/// assert_eq!(error, HeaderError::Value("x-tenant".to_owned()));
/// ```
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum HeaderError {
    /// The name is not a header name.
    #[error("invalid header name")]
    Name,
    /// The name is one that Requeue or HTTP itself sets.
    #[error("header {0} cannot be set")]
    Reserved(String),
    /// The value of this header has characters that a header must not have.
    #[error("invalid value of header {0}")]
    Value(String),
}

pub(super) fn parse(name: &str, value: &str) -> Result<(HeaderName, HeaderValue), HeaderError> {
    let name = parse_name(name)?;
    let mut value =
        HeaderValue::from_str(value).map_err(|_| HeaderError::Value(name.as_str().to_owned()))?;
    value.set_sensitive(true);
    Ok((name, value))
}

pub(super) fn parse_name(name: &str) -> Result<HeaderName, HeaderError> {
    let name: HeaderName = name.parse().map_err(|_| HeaderError::Name)?;
    let text = name.as_str();
    if RESERVED.split(' ').any(|name| name == text) || text.starts_with(OUR_PREFIX) {
        return Err(HeaderError::Reserved(text.to_owned()));
    }
    Ok(name)
}

pub(super) fn content_type(text: &str) -> Result<HeaderValue, HeaderError> {
    HeaderValue::from_str(text)
        .ok()
        .filter(|value| value.to_str().is_ok_and(|text| !text.trim().is_empty()))
        .ok_or_else(|| HeaderError::Value(CONTENT_TYPE.as_str().to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_that_frame_or_identify_a_message_cannot_be_set() {
        for (name, value, expected) in [
            ("X-Tenant", "a", Ok(())),
            ("Authorization", "Bearer x", Ok(())),
            ("User-Agent", "x", Ok(())),
            ("webhook-signature", "v1,x", Err(HeaderError::Reserved("webhook-signature".into()))),
            ("Host", "x", Err(HeaderError::Reserved("host".into()))),
            ("Content-Length", "0", Err(HeaderError::Reserved("content-length".into()))),
            (
                "Transfer-Encoding",
                "chunked",
                Err(HeaderError::Reserved("transfer-encoding".into())),
            ),
            ("Content-Type", "x/y", Err(HeaderError::Reserved("content-type".into()))),
            ("Idempotency-Key", "x", Err(HeaderError::Reserved("idempotency-key".into()))),
            ("X-Requeue-Anything", "x", Err(HeaderError::Reserved("x-requeue-anything".into()))),
            ("X-Tenant", "a\r\nb", Err(HeaderError::Value("x-tenant".into()))),
            ("X-Tenant", "a\nb", Err(HeaderError::Value("x-tenant".into()))),
            ("X-Tenant", "a\0b", Err(HeaderError::Value("x-tenant".into()))),
            (":authority", "a", Err(HeaderError::Name)),
            ("X-Ten ant", "a", Err(HeaderError::Name)),
            ("X-Tenant\r\n", "a", Err(HeaderError::Name)),
            ("", "a", Err(HeaderError::Name)),
        ] {
            assert_eq!(parse(name, value).map(|_| ()), expected, "{name}");
        }
    }
}
