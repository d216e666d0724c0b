//! The headers of a request, and those that may be set. The `http` crate checks all of them.

use std::collections::BTreeMap;
use std::fmt;
use std::time::SystemTime;

use ::http::header::{
    ACCEPT_ENCODING, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue, USER_AGENT,
};
use requeue::queue::{Attribute, AttributeValue};
use requeue::{DeadLetterInfo, Evidence, Failure, FailureClass, Message};

use super::header::{HeaderError, RESERVED, content_type};
use super::{Delivery, HttpSettings, signature};

pub(super) const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");
const WEBHOOK_ID: HeaderName = HeaderName::from_static("webhook-id");
const WEBHOOK_TIMESTAMP: HeaderName = HeaderName::from_static("webhook-timestamp");
const WEBHOOK_SIGNATURE: HeaderName = HeaderName::from_static("webhook-signature");
const RETRY_COUNT: HeaderName = HeaderName::from_static("x-requeue-retry-count");
const RECEIVE_COUNT: HeaderName = HeaderName::from_static("x-requeue-receive-count");
const FIRST_RECEIVE_TIME: HeaderName = HeaderName::from_static("x-requeue-first-receive-time");
const FIRST_SENT_TIME: HeaderName = HeaderName::from_static("x-requeue-first-sent-time");
const TRACEPARENT: HeaderName = HeaderName::from_static("traceparent");
const TRACESTATE: HeaderName = HeaderName::from_static("tracestate");

const PRODUCT: HeaderValue =
    HeaderValue::from_static(concat!("requeue/", env!("CARGO_PKG_VERSION")));
/// The body of a response may have the class.
const UNCOMPRESSED: HeaderValue = HeaderValue::from_static("identity");
const JSON: HeaderValue = HeaderValue::from_static("application/json");
const TEXT: HeaderValue = HeaderValue::from_static("text/plain; charset=utf-8");

/// The longest idempotency key. Ids of SQS have 36 bytes; those of other systems rarely exceed 64.
const MAX_ID_BYTES: usize = 100;
/// Source: W3C Trace Context, section 3.3.1.5, "Limits", which asks for at least 512.
const MAX_TRACESTATE_BYTES: usize = 512;
/// The longest value from the content of a message. Servers accept 4 to 8 KiB for one header. For
/// more they may close the connection, which other messages share over HTTP/2.
const MAX_VALUE_BYTES: usize = 4 * 1024;
/// The largest sum of such values. Servers accept 8 to 32 KiB for all headers of a request.
const MAX_CONTENT_BYTES: usize = 8 * 1024;

/// Its trace, the reason why it was dead-lettered, and the attributes that the settings choose.
pub(super) fn of_message(settings: &HttpSettings, message: &Message) -> Result<HeaderMap, Failure> {
    // A message replaces a header of the settings only through `attribute_header`.
    let fixes_trace =
        [TRACEPARENT, TRACESTATE].iter().any(|name| settings.headers.contains_key(name));
    let parent = message.traceparent().filter(|_| !fixes_trace);
    let mut headers =
        parent.map_or_else(HeaderMap::new, |parent| of_trace(&parent, message.tracestate()));
    if let Some(info) = message.dead_letter() {
        headers.extend(of_dead_letter(&info));
    }
    headers.extend(of_attributes(&settings.attribute_headers, message.attributes())?);
    Ok(headers)
}

/// If its state is too long, the trace is sent without it. Tracing data is no reason to fail.
fn of_trace(parent: &str, state: Option<&str>) -> HeaderMap {
    let state = state.filter(|state| state.len() <= MAX_TRACESTATE_BYTES);
    let values = [(TRACEPARENT, Some(parent)), (TRACESTATE, state)];
    let header =
        |(name, value): (_, Option<&str>)| Some((name, HeaderValue::from_str(value?).ok()?));
    values.into_iter().filter_map(header).collect()
}

/// Each value is short, and plain ASCII, because servers read other characters in different ways.
fn of_dead_letter(info: &DeadLetterInfo) -> HeaderMap {
    let plain = |text: &str| {
        let plain =
            text.chars().map(|c| if matches!(c, ' '..='~') { c } else { '?' }).collect::<String>();
        HeaderValue::try_from(plain).ok()
    };
    let class = info.class().map(|class| HeaderValue::from_static(class.as_str()));
    let values = [
        ("x-requeue-dead-letter-class", class),
        ("x-requeue-dead-letter-reason", info.reason().and_then(plain)),
        ("x-requeue-dead-letter-detail", info.detail().and_then(plain)),
        ("x-requeue-dead-letter-retry-count", info.retry_count().map(HeaderValue::from)),
        ("x-requeue-dead-letter-source", info.source().and_then(plain)),
    ];
    let header = |(name, value): (_, Option<_>)| Some((HeaderName::from_static(name), value?));
    values.into_iter().filter_map(header).collect()
}

/// The headers with attributes of the message. A missing attribute adds no header.
fn of_attributes(
    wanted: &[(String, HeaderName)],
    attributes: &BTreeMap<String, Attribute>,
) -> Result<HeaderMap, Failure> {
    let mut headers = HeaderMap::new();
    for (attribute, name) in wanted {
        let value = match attributes.get(attribute).map(|attribute| &attribute.value) {
            None => continue,
            Some(AttributeValue::Text(text)) => HeaderValue::from_str(text).ok(),
            Some(AttributeValue::Binary(_)) => None,
        };
        let mut value = value.ok_or_else(|| {
            unfit(format_args!("message attribute {attribute} cannot be sent as a header"))
        })?;
        value.set_sensitive(true);
        headers.insert(name, value);
    }
    Ok(headers)
}

/// The message itself is invalid, and would be on every attempt.
fn unfit(why: impl fmt::Display) -> Failure {
    Failure::new(FailureClass::NonRetryable, Evidence::Body, why)
}

/// Headers that are too long would harm other messages on the connection.
fn check_lengths(delivery: &Delivery<'_>) -> Result<(), Failure> {
    let id = delivery.original_message_id.len();
    if id > MAX_ID_BYTES {
        return Err(unfit(format_args!("the message's original id exceeds {MAX_ID_BYTES} bytes")));
    }
    let content_type = delivery.content_type.map(|value| (&CONTENT_TYPE, value.len()));
    let headers = delivery.headers.iter().map(|(name, value)| (name, value.len()));
    // The id is sent in two headers.
    let mut total = 2 * id;
    for (name, length) in content_type.into_iter().chain(headers) {
        if length > MAX_VALUE_BYTES {
            return Err(unfit(format_args!(
                "the message's value for header {name} exceeds {MAX_VALUE_BYTES} bytes"
            )));
        }
        total += length;
    }
    if total > MAX_CONTENT_BYTES {
        return Err(unfit(format_args!(
            "the message's values for headers exceed {MAX_CONTENT_BYTES} bytes in all"
        )));
    }
    Ok(())
}

/// Later ones replace earlier ones: those of the settings, of the message, of Requeue.
pub(super) fn assemble(
    settings: &HttpSettings,
    delivery: &Delivery<'_>,
) -> Result<HeaderMap, Failure> {
    check_lengths(delivery)?;
    let id = HeaderValue::from_str(delivery.original_message_id)
        .map_err(|_| unfit(HeaderError::Value(IDEMPOTENCY_KEY.as_str().to_owned())))?;
    // With an empty key, the target would take all such messages for the same.
    let id = (!id.is_empty()).then_some(id);
    let content_type = match (delivery.content_type, &settings.content_type) {
        (Some(own), _) => content_type(own).map_err(unfit)?,
        (None, Some(configured)) => configured.clone(),
        (None, None) => guess(&delivery.body),
    };

    let mut headers = settings.headers.clone();
    for name in delivery.headers.keys() {
        headers.remove(name);
    }
    for (name, value) in &delivery.headers {
        headers.append(name.clone(), value.clone());
    }
    for name in RESERVED.split(' ') {
        headers.remove(name);
    }
    headers.entry(USER_AGENT).or_insert(PRODUCT);
    headers.entry(ACCEPT_ENCODING).or_insert(UNCOMPRESSED);
    headers.insert(CONTENT_TYPE, content_type);
    if let Some(id) = id {
        headers.insert(IDEMPOTENCY_KEY, id.clone());
        headers.insert(WEBHOOK_ID, id);
    }
    if !settings.signing_secrets.is_empty() {
        headers.extend(signed(settings, delivery.original_message_id, &delivery.body)?);
    }
    headers.insert(RETRY_COUNT, delivery.retry_count.into());
    headers.insert(RECEIVE_COUNT, delivery.receive_count.into());
    for (name, time) in
        [(FIRST_RECEIVE_TIME, delivery.first_received), (FIRST_SENT_TIME, delivery.first_sent)]
    {
        if let Some(time) = time {
            headers.insert(name, unix_seconds(time).into());
        }
    }
    Ok(headers)
}

/// The signature with the time of this attempt, since a target refuses old ones as replays.
fn signed(
    settings: &HttpSettings,
    id: &str,
    body: &[u8],
) -> Result<[(HeaderName, HeaderValue); 2], Failure> {
    // With a dot, an id and a time could be read as another id and another time.
    if id.is_empty() || id.contains('.') {
        return Err(unfit("a message without an id, or with a dot in it, cannot be signed"));
    }
    let timestamp = unix_seconds(settings.clock.now());
    let signature = signature::sign(&settings.signing_secrets, id, timestamp, body);
    Ok([(WEBHOOK_TIMESTAMP, timestamp.into()), (WEBHOOK_SIGNATURE, signature)])
}

fn guess(body: &[u8]) -> HeaderValue {
    match body.trim_ascii_start().first() {
        Some(b'{' | b'[') => JSON,
        Some(_) | None => TEXT,
    }
}

fn unix_seconds(time: SystemTime) -> u64 {
    time.duration_since(SystemTime::UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

#[cfg(test)]
mod tests {
    use requeue::Record;

    use super::super::tests::message_of;
    use super::*;

    #[test]
    fn a_message_without_an_id_has_no_key() {
        let settings = HttpSettings::default();
        for (id, expected) in [("", None), ("id-1", Some("id-1"))] {
            let headers =
                assemble(&settings, &Delivery::new(id, "{}")).expect("an id fits into a header");
            for name in [IDEMPOTENCY_KEY, WEBHOOK_ID] {
                let value = headers.get(&name).map(|value| value.to_str().expect("it is text"));
                assert_eq!(value, expected, "{name}");
            }
        }
    }

    #[test]
    fn a_body_that_begins_like_json_is_called_json() {
        for (body, expected) in [
            (r#"{"a":1}"#, JSON),
            (" \r\n\t[1]", JSON),
            ("{broken", JSON),
            ("7", TEXT),
            ("\"text\"", TEXT),
            ("<a/>", TEXT),
            ("", TEXT),
        ] {
            assert_eq!(guess(body.as_bytes()), expected, "{body}");
        }
    }

    #[test]
    fn an_attribute_fits_into_a_header_or_its_message_is_non_retryable() {
        let wanted = [("tenant".to_owned(), HeaderName::from_static("x-tenant"))];
        let text = |text: &str| Some(AttributeValue::Text(text.to_owned()));
        let binary = Some(AttributeValue::Binary(b"blue".to_vec()));
        for (value, expected) in [
            (None, Ok(None)),
            (text("blue"), Ok(Some("blue"))),
            (text("4.20"), Ok(Some("4.20"))),
            (text("a\tb ü"), Ok(Some("a\tb ü"))),
            (text("s3cret\r\nX-Admin: yes"), Err(())),
            (text("s3cret\n"), Err(())),
            (text("\rs3cret"), Err(())),
            (text("s3cret\0"), Err(())),
            (text("s3cret\u{7f}"), Err(())),
            (binary, Err(())),
        ] {
            let attribute =
                value.clone().map(|value| Attribute { data_type: "String".to_owned(), value });
            let others = [("x-tenant", "s3cret"), ("Tenant", "s3cret")]
                .map(|(name, value)| (name.to_owned(), Attribute::text(value)));
            let all = others
                .into_iter()
                .chain(attribute.map(|attribute| ("tenant".to_owned(), attribute)));
            match (of_attributes(&wanted, &all.collect()), expected) {
                (Ok(headers), Ok(expected)) => {
                    assert!(!format!("{headers:?}").contains("blue"), "it counts as a secret");
                    let values: Vec<_> = headers.values().map(HeaderValue::as_bytes).collect();
                    assert_eq!(values, expected.map(str::as_bytes).into_iter().collect::<Vec<_>>());
                }
                (Err(failure), Err(())) => {
                    assert_eq!(
                        (failure.class(), failure.evidence()),
                        (FailureClass::NonRetryable, Evidence::Body)
                    );
                    assert_eq!(
                        failure.detail(),
                        "message attribute tenant cannot be sent as a header"
                    );
                }
                (result, _) => panic!("{value:?}: {result:?}"),
            }
        }
    }

    #[test]
    fn what_content_puts_into_headers_is_bounded_one_by_one_and_in_all() {
        const REASONS: [&str; 4] = [
            "the message's original id exceeds 100 bytes",
            "the message's value for header content-type exceeds 4096 bytes",
            "the message's value for header x-tenant exceeds 4096 bytes",
            "the message's values for headers exceed 8192 bytes in all",
        ];
        let [id_too_long, type_too_long, tenant_too_long, too_long_in_all] = REASONS.map(Some);
        for (id, content_type, tenant, trace, expected) in [
            (99, 10, 10, 10, None),
            (100, 10, 10, 10, None),
            (101, 10, 10, 10, id_too_long),
            (36, 4_095, 10, 10, None),
            (36, 4_096, 10, 10, None),
            (36, 4_097, 10, 10, type_too_long),
            (36, 10, 4_095, 10, None),
            (36, 10, 4_096, 10, None),
            (36, 10, 4_097, 10, tenant_too_long),
            (36, 10, 40_000, 10, tenant_too_long),
            (100, 4_000, 3_900, 91, None),
            (100, 4_000, 3_900, 92, None),
            (100, 4_000, 3_900, 93, too_long_in_all),
        ] {
            let [id, content_type, tenant, trace] =
                [id, content_type, tenant, trace].map(|length| "x".repeat(length));
            let delivery =
                Delivery { content_type: Some(&content_type), ..Delivery::new(&id, "{}") };
            let delivery = delivery.header("x-tenant", &tenant).expect("it is valid");
            let delivery = delivery.header("x-trace", &trace).expect("it is valid");
            let settings = HttpSettings::default()
                .header("x-own", &"x".repeat(5_000))
                .expect("the deployer may");
            let failure = assemble(&settings, &delivery).err();
            assert_eq!(
                failure.as_ref().map(Failure::detail),
                expected,
                "{} {}",
                id.len(),
                content_type.len()
            );
            let kind = failure.map(|failure| (failure.class(), failure.evidence()));
            assert_eq!(kind, expected.map(|_| (FailureClass::NonRetryable, Evidence::Body)));
        }
    }

    #[test]
    fn a_trace_goes_on_without_a_state_that_is_too_long() {
        for (length, expected) in [(511, Some(511)), (512, Some(512)), (513, None)] {
            let headers = of_trace("00-parent", Some(&"x".repeat(length)));
            assert_eq!(headers[TRACEPARENT], "00-parent");
            assert_eq!(headers.get(TRACESTATE).map(HeaderValue::len), expected);
        }
    }

    #[tokio::test]
    async fn a_trace_that_the_deployer_fixed_stays_unless_an_attribute_is_mapped_to_it() {
        const PARENT: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
        let attributes = [("traceparent", PARENT), ("tracestate", "a=b"), ("trace", "mapped")]
            .map(|(name, value)| (name.to_owned(), Attribute::text(value)));
        let mut record = Record::default();
        record.attributes = Some(attributes.into());
        let message = message_of(record).await;

        let plain = HttpSettings::default();
        let fixed = plain.clone().header("Traceparent", "fixed").expect("it may be set");
        let fixed_state = plain.clone().header("tracestate", "fixed").expect("it may be set");
        let mapped = fixed.clone().attribute_header("trace", "traceparent").expect("it may be set");
        for (settings, parent, state) in [
            (plain, Some(PARENT), Some("a=b")),
            (fixed, Some("fixed"), None),
            (fixed_state, None, Some("fixed")),
            (mapped, Some("mapped"), None),
        ] {
            let headers = of_message(&settings, &message).expect("they fit");
            let headers = assemble(&settings, &Delivery { headers, ..Delivery::new("id-1", "{}") })
                .expect("they fit");
            let value = |name| headers.get(name).map(|value| value.to_str().expect("it is text"));
            assert_eq!((value(TRACEPARENT), value(TRACESTATE)), (parent, state));
        }
    }

    #[tokio::test]
    async fn why_a_message_was_dead_lettered_is_plain_text_in_headers_that_nobody_else_can_set() {
        for (said, expected) in [
            ("{}", vec![]),
            (
                r#"{"class":"quota","reason":"too-old","detail":"ü\r\nX-Admin: yes\u0000","retryCount":7,"source":"arn:aws:sqs:eu-west-1:123456789012:a"}"#,
                vec![
                    ("class", "quota"),
                    ("reason", "too-old"),
                    ("detail", "?  X-Admin: yes "),
                    ("retry-count", "7"),
                    ("source", "arn:aws:sqs:eu-west-1:123456789012:a"),
                ],
            ),
            (r#"{"class":"x","source":"x","retryCount":-1}"#, vec![]),
        ] {
            let body = format!(
                r#"{{"retryCount":0,"originalMessageId":"id-1","retryTimestamp":"2026-05-12T10:00:00.000Z","retryState":{{"v":1,"firstSent":1,"firstReceived":1,"lastDeadLetter":{said}}}}}"#
            );
            let mut record = Record::default();
            record.body = Some(body);
            let message = message_of(record).await;
            let headers = of_dead_letter(&message.dead_letter().expect("it was dead-lettered"));
            let found = headers
                .iter()
                .map(|(name, value)| (name.as_str(), value.to_str().expect("it is plain")));
            let expected: Vec<_> = expected
                .iter()
                .map(|(name, value)| (format!("x-requeue-dead-letter-{name}"), *value))
                .collect();
            let found: Vec<_> = found.map(|(name, value)| (name.to_owned(), value)).collect();
            assert_eq!(found, expected, "{said}");
        }
    }

    #[test]
    fn what_cannot_be_told_apart_by_its_id_is_not_signed() {
        let secret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw".parse().expect("it is a secret");
        let settings = HttpSettings { signing_secrets: vec![secret], ..HttpSettings::default() };
        for id in ["", "id.1700000000"] {
            let failure = assemble(&settings, &Delivery::new(id, "{}")).expect_err("it is refused");
            assert_eq!(failure.class(), FailureClass::NonRetryable, "{id}");
            assert_eq!(
                failure.detail(),
                "a message without an id, or with a dot in it, cannot be signed"
            );
        }
    }
}
