//! Failures of a worker's target, SQS or credentials, each in one line.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::time::Duration;

use requeue::printable;
use tokio::time::Instant;

use super::line::seconds;
use crate::failed_call::{Cause, is_denied, is_of_credentials};
use crate::observe::{
    CircuitLog, DownstreamTrouble, MAY_EXIST, NOT_SENT, RareLines, ReceivingTrouble, Sqs, TOO_LONG,
    Unsettled, brief,
};
use crate::sdk;
use crate::silence::Silence;
use crate::table::thousands;

pub(super) fn of_target(
    target: &str,
    trouble: &DownstreamTrouble,
    next_try: Option<Duration>,
    is_trying: bool,
) -> String {
    let DownstreamTrouble { cause, calls, has_other_causes, .. } = trouble;
    let what = if *has_other_causes {
        format!("{calls} calls without a response, last: {cause}")
    } else {
        format!("{cause} ×{}", thousands(*calls))
    };
    let next = match next_try {
        // The pause is over, but no message calls yet.
        Some(Duration::ZERO) if !is_trying => "; next try with the next message".to_owned(),
        _ => next(next_try, None),
    };
    format!("target {target}: {what}{next}")
}

pub(super) fn of_receiving(
    queue: &str,
    trouble: &ReceivingTrouble,
    silent: Option<Duration>,
) -> String {
    let ReceivingTrouble { endpoint, code, failures, next_try, .. } = trouble;
    let next = next(next_try.map(|at| at.saturating_duration_since(Instant::now())), silent);
    let failed = format!("{code} ×{}", thousands(*failures));
    match remedy_of_credentials(code) {
        Some(remedy) => {
            format!("no accepted AWS credentials for SQS {endpoint}: {failed}; {remedy}{next}")
        }
        None if is_denied(code) => {
            format!("SQS refuses sqs:ReceiveMessage on {queue}: {failed}{next}")
        }
        None => format!("SQS {endpoint}: {failed}{next}"),
    }
}

/// The remedy for credentials that AWS refuses with this code. The worker reads them again.
fn remedy_of_credentials(code: &str) -> Option<String> {
    let log_in = sdk::provider().map_or("log in again", |provider| provider.remedy);
    is_of_credentials(code).then(|| Cause::of(code).remedy_of_credentials(log_in))
}

pub(super) fn of_silence(silence: Silence, endpoint: Option<&str>) -> String {
    let to = silence.action.map(|action| format!(" to {action}")).unwrap_or_default();
    let endpoint = endpoint.map(|endpoint| format!(" {endpoint}")).unwrap_or_default();
    format!("SQS{endpoint}: no response{to} for {}", seconds(silence.since))
}

pub(super) fn of_unsettled(unsettled: &Unsettled) -> String {
    let Unsettled { action, queue, code, messages, last_id, are_dead, .. } = unsettled;
    let count = format!("×{}", thousands(*messages));
    if code == TOO_LONG {
        let last = last_id.as_ref().map(|id| format!(", last in {id}")).unwrap_or_default();
        return format!(
            "no room for the retry fields {count}{last}; left to SQS and its redrive policy"
        );
    }
    let unsent = if *are_dead {
        "delivered again after the visibility timeout"
    } else {
        "delivered again in 5 min or more"
    };
    if code == NOT_SENT {
        return format!(
            "copies not sent {count}: sends wait up to 30 s after one without a response; {unsent}"
        );
    }
    // Without a response, the request may have taken effect.
    let again = match *action {
        Some("sqs:ChangeMessageVisibility") => "delivered again while their handlers run",
        Some("sqs:SendMessage") => unsent,
        Some("sqs:DeleteMessage") if is_denied(code) => {
            "done, but dead letters after maxReceiveCount receives"
        }
        _ if is_denied(code) => "delivered again",
        _ => "may be delivered again",
    };
    let of = action.map_or_else(|| "settling".to_owned(), |action| format!("{action} on {queue}"));
    match remedy_of_credentials(code) {
        Some(remedy) => {
            format!("no accepted AWS credentials for {of}: {code} {count}; {remedy}; {again}")
        }
        None if is_denied(code) => format!("SQS refuses {of}: {code} {count}; {again}"),
        None => format!("SQS: {of}: {code} {count}; {again}"),
    }
}

/// The three most frequent reasons; the others are counted: `and 4 more`.
pub(super) fn of_causes(what: &str, reasons: &BTreeMap<String, u64>) -> Option<String> {
    let mut reasons: Vec<_> = reasons.iter().collect();
    // First those that may be handled twice.
    reasons.sort_by_key(|(why, count)| (!why.starts_with(MAY_EXIST), Reverse(**count)));
    let (shown, rest) = reasons.split_at(reasons.len().min(3));
    let shown = shown.iter().map(|(why, count)| {
        // The reason of most, which leaves no room for the others.
        let why = why.replacen("non-retryable: ", "", 1);
        printable::line(&format!("{} ×{}", brief(&why), thousands(**count))).into_owned()
    });
    let shown = shown.collect::<Vec<_>>().join(", ");
    let left: u64 = rest.iter().map(|(_, count)| **count).sum();
    let left = if left == 0 { String::new() } else { format!(" and {} more", thousands(left)) };
    (!reasons.is_empty()).then(|| format!("{what}: {shown}{left}"))
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

#[derive(Default)]
pub(super) struct TroubleLog {
    target: RareLines,
    credentials: RareLines,
    silence: RareLines,
    silent: Option<Instant>,
    pub(super) circuit: CircuitLog,
}

impl TroubleLog {
    pub(super) fn note_target(
        &mut self,
        target: &str,
        trouble: Option<&DownstreamTrouble>,
        next_try: Option<Duration>,
    ) {
        let Some(DownstreamTrouble { cause, calls, since, .. }) = trouble else {
            if self.target.end() {
                tracing::info!(targetUrl = target, "the target responds again");
            }
            return;
        };
        if self.target.is_due() {
            tracing::warn!(
                targetUrl = target,
                cause,
                calls,
                troubleSeconds = since.elapsed().as_secs(),
                nextTrySeconds = next_try.map(|time| time.as_secs()),
                "the target does not respond"
            );
        }
    }

    pub(super) fn note_sqs(&mut self, sqs: &Sqs) {
        let code = sqs.trouble().map(|trouble| trouble.code).unwrap_or_default();
        if let Some(remedy) = remedy_of_credentials(&code) {
            if self.credentials.is_due() {
                tracing::error!(code, remedy, "there are no AWS credentials that SQS accepts");
            }
        } else {
            self.credentials.end();
        }
        let endpoint = sqs.state().endpoint.clone();
        let Some(Silence { since, action }) = sqs.requests.silence() else {
            // Between two tries, no request waits for a response.
            let is_over = self.silent.is_some_and(|last| sqs.requests.has_responded_since(last));
            if is_over && self.silence.end() {
                tracing::info!(endpoint, "SQS responds again");
            }
            return;
        };
        self.silent = Some(Instant::now());
        if self.silence.is_due() {
            tracing::warn!(
                endpoint,
                action,
                troubleSeconds = since.as_secs(),
                "SQS does not respond"
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::observe::Sqs;

    #[test]
    fn the_most_frequent_causes_are_named_and_the_others_counted() {
        let counts = [
            ("non-retryable: status 401", 25),
            ("retries-exhausted: status 503", 1_300),
            ("a", 1),
            ("b", 1),
        ];
        let reasons = counts.map(|(why, count)| (why.to_owned(), count)).into();
        let line = "dead-lettered: retries-exhausted: 503 ×1,300, 401 ×25, a ×1 and 1 more";
        assert_eq!(of_causes("dead-lettered", &reasons).as_deref(), Some(line));
        assert_eq!(of_causes("dead-lettered", &BTreeMap::new()), None);
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
        let mixed = of_target("http://a/", &mixed, None, false);
        let target = |next_try| of_target("http://a/", &refused, next_try, false);
        let trying = of_target("http://a/", &refused, Some(Duration::ZERO), true);
        let next = Some(Duration::from_millis(27_001));
        let endpoint = Some("http://mq:1");
        let silence = Silence { since: Duration::from_secs(8), action: None };
        let of_delete = Silence { action: Some("sqs:DeleteMessage"), ..silence };
        for (line, said) in [
            (target(next), "target http://a/: connection refused ×5; next try in 28 s"),
            (
                target(Some(Duration::ZERO)),
                "target http://a/: connection refused ×5; next try with the next message",
            ),
            (trying, "target http://a/: connection refused ×5; trying now"),
            (mixed, "target http://a/: 5 calls without a response, last: connection refused"),
            (target(None), "target http://a/: connection refused ×5"),
            (of_silence(silence, endpoint), "SQS http://mq:1: no response for 8 s"),
            (
                of_silence(of_delete, endpoint),
                "SQS http://mq:1: no response to sqs:DeleteMessage for 8 s",
            ),
            (
                of_receiving("orders", &receiving("NoConnection", 0), Some(silence.since)),
                "SQS http://mq:1: NoConnection ×3; trying now, no response for 8 s",
            ),
            (
                of_receiving("orders", &receiving("NoConnection", 8), None),
                "SQS http://mq:1: NoConnection ×3; next try in 8 s",
            ),
            (
                of_receiving("orders", &receiving("NoCredentials", 10), None),
                "no accepted AWS credentials for SQS http://mq:1: NoCredentials ×3; log in again; next try \
                 in 10 s",
            ),
            (
                of_receiving("orders", &receiving("AccessDenied", 10), None),
                "SQS refuses sqs:ReceiveMessage on orders: AccessDenied ×3; next try in 10 s",
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
                of_unsettled(&unsettled("MessageTooLong")),
                "no room for the retry fields ×4, last in 3f9a1c2e; left to SQS and its redrive policy",
            ),
            (
                of_unsettled(&unsettled("ExpiredToken")),
                "no accepted AWS credentials for sqs:DeleteMessage on orders: ExpiredToken ×4; log in \
                 again; may be delivered again",
            ),
            (
                of_unsettled(&unsettled("TimedOut")),
                "SQS: sqs:DeleteMessage on orders: TimedOut ×4; may be delivered again",
            ),
            (
                of_unsettled(&unsettled("AccessDenied")),
                "SQS refuses sqs:DeleteMessage on orders: AccessDenied ×4; done, but dead letters after \
                 maxReceiveCount receives",
            ),
        ] {
            assert_eq!(line, said);
        }
    }

    #[test]
    fn a_copy_is_hidden_if_sqs_refuses_it_and_a_dead_letter_is_not() {
        let sqs = Sqs::default();
        sqs.refused("sqs:SendMessage", "orders", "KMS.DisabledException");
        for (code, said) in [
            ("KMS.DisabledException", "SQS: sqs:SendMessage on orders: KMS.DisabledException ×1; "),
            (NOT_SENT, "copies not sent ×1: sends wait up to 30 s after one without a response; "),
        ] {
            sqs.not_settled(Some(code), None, 1);
            sqs.not_dead_lettered(code, None);
            let lines = sqs.unsettled().into_iter().rev().take(2).map(|one| of_unsettled(&one));
            let again = ["after the visibility timeout", "in 5 min or more"];
            let expected = again.map(|again| format!("{said}delivered again {again}"));
            assert_eq!(lines.collect::<Vec<_>>(), expected);
        }
    }

    /// SQS says `SignatureDoesNotMatch` of a signature that this clock dates too early or too late.
    #[test]
    fn credentials_that_sqs_does_not_accept_may_be_those_of_a_wrong_clock() {
        let clock = "check this machine's clock, the region and the account, or log in again";
        for code in [
            "SignatureDoesNotMatch",
            "InvalidSignatureException",
            "RequestExpired",
            "RequestInTheFuture",
            "RequestTimeTooSkewed",
        ] {
            assert_eq!(remedy_of_credentials(code).as_deref(), Some(clock), "{code}");
            let read = Cause::of(code).remedy("sqs:SendMessage", "orders");
            assert!(read.starts_with(clock), "the worker and the other commands: {read}");
        }
        for (code, remedy) in [("ExpiredToken", Some("log in again")), ("AccessDenied", None)] {
            assert_eq!(remedy_of_credentials(code).as_deref(), remedy, "{code}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_silence_lasts_to_the_next_response() {
        let (sqs, mut log) = (Sqs::default(), TroubleLog::default());
        for responds in [false, true] {
            let request = sqs.requests.begin("sqs:ReceiveMessage", Duration::ZERO);
            tokio::time::advance(Duration::from_secs(5)).await;
            log.note_sqs(&sqs);
            tokio::time::advance(Duration::from_secs(1)).await;
            if responds {
                request.responded();
            } else {
                drop(request);
            }
            tokio::time::advance(Duration::from_secs(10)).await;
            log.note_sqs(&sqs);
            assert_eq!(log.silence.end(), !responds);
        }
    }
}
