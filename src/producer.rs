//! The limits that a producer sets for the retries of its own message, in message attributes. They
//! can only be tighter than the policy.

use std::collections::BTreeMap;
use std::time::{Duration, SystemTime};

use crate::clock::rfc3339;
use crate::failure::{Evidence, Failure, FailureClass};
use crate::queue::{Attribute, AttributeValue, MAX_RETENTION, MAX_VISIBILITY_WAIT};

const MAX_RETRIES: &str = "requeue.maxRetries";
/// The greatest age of the message when it is due.
const TTL_SECONDS: &str = "requeue.ttlSeconds";
/// The earliest time at which the message is due.
const NOT_BEFORE: &str = "requeue.notBefore";

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct MessageLimits {
    pub(crate) max_retries: Option<u32>,
    pub(crate) ttl: Option<Duration>,
    pub(crate) not_before: Option<SystemTime>,
}

impl MessageLimits {
    /// Reads the attributes of a message that was first sent at that time. A value that cannot be
    /// read is refused, since its meaning is unknown: a payment at the wrong time is worse than one
    /// that waits for an operator.
    pub(crate) fn read(
        attributes: &BTreeMap<String, Attribute>,
        first_sent: SystemTime,
    ) -> Result<Self, Failure> {
        if attributes.is_empty() {
            return Ok(Self::default());
        }
        let refused = |name: &str, rule: &str| {
            let what = format_args!("the message attribute {name} is no {rule}");
            Failure::new(FailureClass::NonRetryable, Evidence::Body, what)
        };
        let number = |name| {
            read(attributes, name, whole).ok_or_else(|| refused(name, "whole number below 2³²"))
        };
        // SQS keeps no message longer than this, so no message waits longer for its time.
        let latest = first_sent.checked_add(MAX_RETENTION);
        let not_before =
            read(attributes, NOT_BEFORE, rfc3339).filter(|due| *due <= latest || due.is_none());
        Ok(Self {
            max_retries: number(MAX_RETRIES)?,
            ttl: number(TTL_SECONDS)?.map(|secs| Duration::from_secs(secs.into())),
            not_before: not_before.ok_or_else(|| {
                refused(NOT_BEFORE, "RFC 3339 time at most 14 days after the message was sent")
            })?,
        })
    }

    /// The receives that it uses while it waits for its time with its visibility timeout.
    pub(crate) fn receives(&self, first_received: SystemTime) -> u32 {
        let wait = self
            .not_before
            .and_then(|due| due.duration_since(first_received).ok())
            .filter(|wait| !wait.is_zero());
        let waits =
            wait.map_or(0, |wait| wait.as_millis().div_ceil(MAX_VISIBILITY_WAIT.as_millis()));
        u32::try_from(waits).unwrap_or(u32::MAX)
    }
}

/// An absent attribute is fine, one that cannot be read is not.
#[allow(clippy::option_option, reason = "the outer `None` means unreadable, the inner one absent")]
fn read<T>(
    attributes: &BTreeMap<String, Attribute>,
    name: &str,
    read: impl Fn(&str) -> Option<T>,
) -> Option<Option<T>> {
    match attributes.get(name).map(|attribute| &attribute.value) {
        None => Some(None),
        Some(AttributeValue::Text(text)) => read(text).map(Some),
        Some(AttributeValue::Binary(_)) => None,
    }
}

fn whole(text: &str) -> Option<u32> {
    text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse().ok()).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    const SENT: &str = "2026-11-22T08:00:00Z";

    fn sent() -> SystemTime {
        rfc3339(SENT).expect("a time")
    }

    fn limits(name: &str, value: &str) -> Result<MessageLimits, Failure> {
        let attributes = BTreeMap::from([(name.to_owned(), Attribute::text(value))]);
        MessageLimits::read(&attributes, sent())
    }

    #[test]
    fn whole_numbers_and_rfc_3339_times_are_read_and_nothing_else_is() {
        for (text, number) in [
            ("0", Some(0)),
            ("7", Some(7)),
            ("007", Some(7)),
            ("4294967295", Some(u32::MAX)),
            ("4294967296", None),
            ("+5", None),
            ("-1", None),
            ("1.0", None),
            ("1e2", None),
            (" 1", None),
            ("", None),
            ("five", None),
        ] {
            let retries = limits(MAX_RETRIES, text).ok().map(|limits| limits.max_retries);
            assert_eq!(retries, number.map(Some), "{text:?}");
            let ttl = limits(TTL_SECONDS, text).ok().map(|limits| limits.ttl);
            assert_eq!(ttl, number.map(|secs| Some(Duration::from_secs(secs.into()))), "{text:?}");
        }
        for (text, secs) in [
            ("2026-11-22T08:00:01Z", Some(1)),
            ("2026-11-22T10:00:01.000+02:00", Some(1)),
            ("2026-12-06T08:00:00Z", Some(14 * 86_400)),
            ("2026-12-06T08:00:00.0000000000Z", Some(14 * 86_400)),
            ("2026-11-23T09:00:01+25:00", None),
            ("2026-12-06T08:00:00.001Z", None),
            ("9999-12-30T00:00:00Z", None),
            ("2026-11-22", None),
            ("2026-11-22T08:00:01", None),
            ("1795334401", None),
            ("tomorrow", None),
            ("", None),
        ] {
            let due = limits(NOT_BEFORE, text).ok().map(|limits| limits.not_before);
            assert_eq!(due, secs.map(|secs| Some(sent() + Duration::from_secs(secs))), "{text:?}");
        }
        let past = limits(NOT_BEFORE, "1969-12-31T23:59:59Z").expect("a time");
        assert_eq!(past.not_before, Some(SystemTime::UNIX_EPOCH - Duration::from_secs(1)));
    }

    #[test]
    fn what_is_refused_is_named_and_not_quoted() {
        for (name, value) in
            [(MAX_RETRIES, "SECRET"), (TTL_SECONDS, "SECRET"), (NOT_BEFORE, "SECRET")]
        {
            let failure = limits(name, value).expect_err("no value of it");
            assert!(
                failure.detail().contains(name) && !failure.detail().contains(value),
                "{}",
                failure.detail()
            );
            assert_eq!(failure.class(), FailureClass::NonRetryable);
        }
        let binary =
            Attribute { data_type: "Binary".to_owned(), value: AttributeValue::Binary(vec![b'1']) };
        assert!(
            MessageLimits::read(&BTreeMap::from([(MAX_RETRIES.to_owned(), binary)]), sent())
                .is_err()
        );
        assert_eq!(limits("requeue.other", "SECRET").ok(), Some(MessageLimits::default()));
    }

    #[test]
    fn a_wait_in_its_place_uses_up_a_receive_for_each_longest_wait() {
        for (secs, receives) in [(0, 0), (1, 1), (41_940, 1), (41_941, 2), (83_880, 2), (83_881, 3)]
        {
            let limits = MessageLimits {
                not_before: Some(sent() + Duration::from_secs(secs)),
                ..Default::default()
            };
            assert_eq!(limits.receives(sent()), receives, "{secs} s");
        }
        let past = MessageLimits {
            not_before: Some(sent() - Duration::from_secs(5)),
            ..Default::default()
        };
        assert_eq!((past.receives(sent()), MessageLimits::default().receives(sent())), (0, 0));
    }
}
