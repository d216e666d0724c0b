//! Trouble of a worker with the target, SQS or credentials, each in one line.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::time::Duration;

use requeue::aws::NO_CREDENTIALS;
use requeue::printable;
use tokio::time::Instant;

use super::line::seconds;
use crate::failed_call::{is_denied, is_of_credentials};
use crate::observe::{
    DownstreamTrouble, MAY_EXIST, NOT_SENT, ReceivingTrouble, TOO_LONG, Unsettled, brief,
};
use crate::sdk;
use crate::silence::Silence;
use crate::table::{cut, thousands};

/// `target http://127.0.0.1:3000/: connection refused ×5; next try in 28 s`, or after several causes
/// `14 calls without a response, last: connection refused`.
pub(super) fn of_target(
    target: &str,
    trouble: &DownstreamTrouble,
    next_try: Option<Duration>,
    is_trying: bool,
    columns: usize,
) -> String {
    let DownstreamTrouble { cause, calls, has_other_causes, .. } = trouble;
    let what = if *has_other_causes {
        format!("{calls} calls without a response, last: {cause}")
    } else {
        format!("{cause} ×{}", thousands(*calls))
    };
    let next = match next_try {
        // Its time has come, but no message calls yet.
        Some(Duration::ZERO) if !is_trying => "; next try with the next message".to_owned(),
        _ => next(next_try, None),
    };
    fitting(&[(0, "target"), (1, &format!(" {target}")), (0, &format!(": {what}{next}"))], columns)
}

/// `SQS http://127.0.0.1:9324: NoConnection ×3; next try in 8 s`. A missing permission is named: `SQS
/// refuses sqs:ReceiveMessage on orders: AccessDenied ×3; next try in 8 s`. So is what refused
/// credentials need.
pub(super) fn of_receiving(
    queue: &str,
    trouble: &ReceivingTrouble,
    silent: Option<Duration>,
    columns: usize,
) -> String {
    let ReceivingTrouble { endpoint, code, failures, next_try, .. } = trouble;
    let next_try = next_try.map(|at| at.saturating_duration_since(Instant::now()));
    let (next, count) = (next(next_try, silent), format!(" ×{}", thousands(*failures)));
    let (code, endpoint) = (format!(": {code}"), format!(" {endpoint}"));
    if is_denied(&trouble.code) {
        let queue = format!(" on {queue}");
        let denied = (0, "SQS refuses sqs:ReceiveMessage");
        return fitting(&[denied, (1, &queue), (0, &code), (0, &count), (2, &next)], columns);
    }
    let Some(remedy) = remedy_of_credentials(&trouble.code) else {
        let parts = [(0, "SQS"), (1, &*endpoint), (0, &code), (0, &count), (0, &next)];
        return fitting(&parts, columns);
    };
    let service = [(0, "AWS credentials"), (3, " for SQS"), (1, &*endpoint)];
    let rest = [(0, &*code), (4, &count), (0, "; "), (0, remedy), (2, &next)];
    fitting(&[&service[..], &rest].concat(), columns)
}

/// What credentials need that AWS refuses with this code. The worker reads them anew.
pub(super) fn remedy_of_credentials(code: &str) -> Option<&'static str> {
    (code == NO_CREDENTIALS || is_of_credentials(code))
        .then(|| sdk::provider().map_or("log in again", |provider| provider.remedy))
}

/// `SQS http://127.0.0.1:9324: no response for 8 s`, and `no response to sqs:DeleteMessage for 8 s`
/// if other actions have one.
pub(super) fn of_silence(silence: Silence, endpoint: Option<&str>, columns: usize) -> String {
    let to = silence.action.map(|action| format!(" to {action}")).unwrap_or_default();
    let rest = format!(": no response{to} for {}", seconds(silence.since));
    let endpoint = endpoint.map(|endpoint| format!(" {endpoint}")).unwrap_or_default();
    fitting(&[(0, "SQS"), (1, &endpoint), (0, &rest)], columns)
}

/// `SQS: sqs:DeleteMessage on orders: NoConnection ×4; may be delivered again`, and `SQS refuses
/// sqs:DeleteMessage on orders` if the permission is missing. A message that is too long for a copy is
/// named: `no room for the retry fields ×4, last in 3f9a1c2e; left to SQS`. So are copies that wait:
/// `copies not sent ×4; delivered again in 5 min or more`.
pub(super) fn of_unsettled(unsettled: &Unsettled, columns: usize) -> String {
    let Unsettled { action, queue, code, messages, last_id, .. } = unsettled;
    let (count, queue) = (format!(" ×{}", thousands(*messages)), format!(" on {queue}"));
    if code == TOO_LONG {
        let last = last_id.as_ref().map(|id| format!(", last in {id}")).unwrap_or_default();
        let left = [(2, "; left to SQS"), (1, " and its redrive policy")];
        let what = [(0, "no room for the retry fields"), (0, &*count), (3, &last)];
        return fitting(&[what, [left[0], left[1], (0, "")]].concat(), columns);
    }
    if code == NOT_SENT {
        let why = (1, ": sends wait up to 30 s after one without a response");
        let again = (2, "; delivered again in 5 min or more");
        return fitting(&[(0, "copies not sent"), (0, &count), why, again], columns);
    }
    // Without a response, SQS may have carried the request out.
    let again = match *action {
        Some("sqs:ChangeMessageVisibility") => "; delivered again while their handlers run",
        Some("sqs:SendMessage") => "; delivered again in 5 min or more",
        Some("sqs:DeleteMessage") if is_denied(code) => {
            "; done, but dead letters after maxReceiveCount receives"
        }
        _ if is_denied(code) => "; delivered again",
        _ => "; may be delivered again",
    };
    let caused = format!(": {code}");
    let (name, place) = match action {
        Some(action) => (action.trim_start_matches("sqs:"), &*queue),
        None => ("settling", ""),
    };
    let service = if action.is_some() { "sqs:" } else { "" };
    if let Some(remedy) = remedy_of_credentials(code) {
        let of = [(4, "AWS credentials for "), (3, service), (0, name), (2, place), (0, &caused)];
        return fitting(
            &[&of[..], &[(0, &count), (0, "; "), (0, remedy), (1, again)]].concat(),
            columns,
        );
    }
    if is_denied(code) {
        let of = [(0, "SQS refuses "), (0, service), (0, name), (2, place), (0, &caused)];
        return fitting(&[&of[..], &[(0, &count), (1, again)]].concat(), columns);
    }
    let of = [(0, "SQS"), (2, ": "), (2, service), (2, name), (1, place), (0, &caused)];
    fitting(&[&of[..], &[(0, &count), (3, again)]].concat(), columns)
}

/// `copies without a confirmation ×6: SQS may have stored them, so messages may be handled twice`
pub(super) fn of_doubts(copies: u64, columns: usize) -> String {
    let count = thousands(copies);
    let doubt = [(0, "copies without a confirmation ×"), (0, &*count), (2, ": ")];
    let twice = [(1, "SQS may have stored them, so "), (2, "messages may be handled twice")];
    fitting(&[&doubt[..], &twice].concat(), columns)
}

/// `receives without a response ×29: messages may become dead letters without a call`
pub(super) fn of_lost_receives(receives: u64, columns: usize) -> String {
    let count = thousands(receives);
    let lost = [(0, "receives without a response ×"), (0, &*count)];
    fitting(&[lost[0], lost[1], (1, ": messages may become dead letters without a call")], columns)
}

/// `dead-lettered: 401 ×25, 422: outdated-fare ×2`, the most frequent reasons first; those without room
/// are counted: `and 4 more`. `None` without any.
pub(super) fn of_causes(
    what: &str,
    reasons: &BTreeMap<String, u64>,
    columns: usize,
) -> Option<String> {
    let mut reasons: Vec<_> = reasons.iter().collect();
    // First those that may be handled twice.
    reasons.sort_by_key(|(why, count)| (!why.starts_with(MAY_EXIST), Reverse(**count)));
    let all: u64 = reasons.iter().map(|(_, count)| **count).sum();
    let named = |most: usize| {
        let (shown, rest) = reasons.split_at(most.min(reasons.len()));
        let shown = shown.iter().map(|(why, count)| {
            // The reason of most, which leaves no room for the others.
            let why = why.replacen("non-retryable: ", "", 1);
            format!("{} ×{}", brief(&why), thousands(**count))
        });
        let shown = shown.collect::<Vec<_>>().join(", ");
        let left: u64 = rest.iter().map(|(_, count)| **count).sum();
        let left = if left == 0 { String::new() } else { format!(" and {} more", thousands(left)) };
        format!("{what}: {shown}{left}")
    };
    let fits = |line: &String| line.chars().count() <= columns;
    let line = || [3, 2].map(named).into_iter().find(fits).unwrap_or_else(|| named(1));
    (all > 0).then(|| fitting(&[(0, &line())], columns))
}

/// A line of these parts. If it has too many columns, those with the number 1 are left out, then those
/// with 2, and so on; the others stay.
pub(super) fn fitting(parts: &[(u8, &str)], columns: usize) -> String {
    let last = parts.iter().map(|(number, _)| *number).max().unwrap_or_default();
    let without = |left_out: u8| {
        let stay = parts.iter().filter(|(number, _)| *number == 0 || *number > left_out);
        let line: String = stay.map(|(_, text)| *text).collect();
        printable::line(&line).into_owned()
    };
    let fits = |line: &String| line.chars().count() <= columns;
    (0..=last).map(without).find(fits).unwrap_or_else(|| cut(&without(last), columns))
}

/// `silent` is the time without a response to the running try.
fn next(next_try: Option<Duration>, silent: Option<Duration>) -> String {
    match (next_try, silent) {
        (Some(Duration::ZERO), Some(silent)) => {
            format!("; trying now, no response for {}", seconds(silent))
        }
        (Some(Duration::ZERO), None) => "; trying now".to_owned(),
        (Some(time), _) => format!("; next try in {}", seconds(time)),
        (None, _) => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::observe::Sqs;

    #[test]
    fn causes_are_named_by_their_number_as_far_as_there_is_room() {
        let counts = [
            ("non-retryable: status 401", 25),
            ("retries-exhausted: status 503", 1_300),
            ("a", 1),
            ("b", 1),
        ];
        let reasons = counts.map(|(why, count)| (why.to_owned(), count)).into();
        for (columns, line) in [
            (80, "dead-lettered: retries-exhausted: 503 ×1,300, 401 ×25, a ×1 and 1 more"),
            (66, "dead-lettered: retries-exhausted: 503 ×1,300, 401 ×25 and 2 more"),
            (62, "dead-lettered: retries-exhausted: 503 ×1,300 and 27 more"),
            (35, "dead-lettered: retries-exhausted: …"),
        ] {
            assert_eq!(of_causes("dead-lettered", &reasons, columns).as_deref(), Some(line));
        }
        assert_eq!(of_causes("dead-lettered", &BTreeMap::new(), 80), None);
    }

    #[tokio::test(start_paused = true)]
    async fn an_earlier_failure_is_not_the_cause_after_a_success() {
        let sqs = Sqs::default();
        sqs.refused("sqs:DeleteMessage", "orders", "ExpiredToken");
        sqs.not_settled(None, None, 3);
        sqs.carried_out("sqs:DeleteMessage");
        assert!(sqs.unsettled().is_empty(), "the credentials are accepted");
        tokio::time::advance(Duration::from_secs(60)).await;
        sqs.not_settled(None, None, 10);
        let unsettled = sqs.unsettled();
        let codes: Vec<&str> = unsettled.iter().map(|one| one.code.as_str()).collect();
        assert_eq!(codes, ["no confirmation"]);
    }

    #[test]
    fn trouble_is_one_line_with_url_cause_count_and_next_try() {
        let refused = DownstreamTrouble {
            cause: "connection refused".to_owned(),
            calls: 5,
            has_other_causes: false,
            since: Instant::now(),
        };
        let receiving = |code: &str, secs| ReceivingTrouble {
            endpoint: "http://mq:1".to_owned(),
            code: code.to_owned(),
            failures: 3,
            last: Instant::now(),
            next_try: Some(Instant::now() + Duration::from_secs(secs)),
        };
        let mixed = DownstreamTrouble { has_other_causes: true, ..refused.clone() };
        let mixed = of_target("http://a/", &mixed, None, false, 80);
        let target = |next_try, columns| of_target("http://a/", &refused, next_try, false, columns);
        let trying = of_target("http://a/", &refused, Some(Duration::ZERO), true, 80);
        let next = Some(Duration::from_millis(27_001));
        let endpoint = Some("http://mq:1");
        let silence = Silence { since: Duration::from_secs(8), action: None };
        let of_delete = Silence { action: Some("sqs:DeleteMessage"), ..silence };
        for (line, said) in [
            (target(next, 80), "target http://a/: connection refused ×5; next try in 28 s"),
            (target(next, 57), "target http://a/: connection refused ×5; next try in 28 s"),
            (target(next, 56), "target: connection refused ×5; next try in 28 s"),
            (target(next, 46), "target: connection refused ×5; next try in 28…"),
            (
                target(Some(Duration::ZERO), 80),
                "target http://a/: connection refused ×5; next try with the next message",
            ),
            (trying, "target http://a/: connection refused ×5; trying now"),
            (mixed, "target http://a/: 5 calls without a response, last: connection refused"),
            (target(None, 80), "target http://a/: connection refused ×5"),
            (of_silence(silence, endpoint, 80), "SQS http://mq:1: no response for 8 s"),
            (of_silence(silence, endpoint, 30), "SQS: no response for 8 s"),
            (
                of_silence(of_delete, endpoint, 80),
                "SQS http://mq:1: no response to sqs:DeleteMessage for 8 s",
            ),
            (
                of_receiving("orders", &receiving("NoConnection", 0), Some(silence.since), 80),
                "SQS http://mq:1: NoConnection ×3; trying now, no response for 8 s",
            ),
            (
                of_receiving("orders", &receiving("NoConnection", 8), None, 80),
                "SQS http://mq:1: NoConnection ×3; next try in 8 s",
            ),
            (
                of_receiving("orders", &receiving("ExpiredToken", 10), None, 68),
                "AWS credentials for SQS: ExpiredToken ×3; log in again",
            ),
            (
                of_receiving("orders", &receiving("ExpiredToken", 10), None, 45),
                "AWS credentials: ExpiredToken; log in again",
            ),
            (
                of_receiving("orders", &receiving("NoCredentials", 10), None, 90),
                "AWS credentials for SQS http://mq:1: NoCredentials ×3; log in again; next try in 10 s",
            ),
            (
                of_receiving("orders", &receiving("AccessDenied", 10), None, 80),
                "SQS refuses sqs:ReceiveMessage on orders: AccessDenied ×3; next try in 10 s",
            ),
            (
                of_receiving("orders", &receiving("AccessDenied", 10), None, 50),
                "SQS refuses sqs:ReceiveMessage: AccessDenied ×3",
            ),
        ] {
            assert_eq!(line, said);
        }
    }

    #[test]
    fn messages_that_sqs_keeps_are_counted_with_the_action_and_the_cause() {
        let unsettled = |code| {
            let sqs = Sqs::default();
            sqs.refused("sqs:DeleteMessage", "orders", code);
            sqs.not_settled(None, None, 3);
            sqs.not_settled(Some(code), Some("3f9a1c2e-0000"), 1);
            sqs.unsettled().pop().expect("messages")
        };
        for (line, said) in [
            (
                of_unsettled(&unsettled("MessageTooLong"), 79),
                "no room for the retry fields ×4, last in 3f9a1c2e; left to SQS",
            ),
            (
                of_unsettled(&unsettled("ExpiredToken"), 90),
                "AWS credentials for sqs:DeleteMessage on orders: ExpiredToken ×4; log in again",
            ),
            (
                of_unsettled(&unsettled("ExpiredToken"), 67),
                "AWS credentials for DeleteMessage: ExpiredToken ×4; log in again",
            ),
            (
                of_unsettled(&unsettled("ExpiredToken"), 48),
                "DeleteMessage: ExpiredToken ×4; log in again",
            ),
            (
                of_unsettled(&unsettled("TimedOut"), 90),
                "SQS: sqs:DeleteMessage on orders: TimedOut ×4; may be delivered again",
            ),
            (of_unsettled(&unsettled("TimedOut"), 57), "SQS: TimedOut ×4; may be delivered again"),
            (
                of_unsettled(&unsettled("AccessDenied"), 112),
                "SQS refuses sqs:DeleteMessage on orders: AccessDenied ×4; done, but dead letters after \
                 maxReceiveCount receives",
            ),
            (
                of_unsettled(&unsettled("AccessDenied"), 60),
                "SQS refuses sqs:DeleteMessage on orders: AccessDenied ×4",
            ),
            (
                of_unsettled(&unsettled("AccessDenied"), 50),
                "SQS refuses sqs:DeleteMessage: AccessDenied ×4",
            ),
        ] {
            assert_eq!(line, said);
        }
    }
}
