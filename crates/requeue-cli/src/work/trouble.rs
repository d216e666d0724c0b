//! Trouble of a worker with the target, SQS or credentials, each in one line.

use std::time::Duration;

use requeue::printable;
use tokio::time::Instant;

use super::line::seconds;
use crate::observe::{DownstreamTrouble, ReceivingTrouble, TROUBLE_LINES};

/// Codes with which AWS refuses credentials. Source: SQS API reference, "Common errors", and those
/// of STS.
const OF_CREDENTIALS: [&str; 9] = [
    "ExpiredToken",
    "ExpiredTokenException",
    "InvalidAccessKeyId",
    "InvalidClientTokenId",
    "InvalidSecurity",
    requeue::aws::NO_CREDENTIALS,
    "RequestExpired",
    "SignatureDoesNotMatch",
    "UnrecognizedClientException",
];

/// `target http://127.0.0.1:3000/: connection refused ×5; next try in 28 s`, without the URL if that
/// has more columns.
pub(super) fn of_target(
    target: &str,
    trouble: &DownstreamTrouble,
    next_try: Option<Duration>,
    columns: usize,
) -> String {
    let DownstreamTrouble { cause, calls, .. } = trouble;
    let rest = format!(": {cause} ×{calls}{}", next(next_try));
    fitting([format!("target {target}{rest}"), format!("target{rest}")], columns)
}

/// `SQS http://127.0.0.1:9324: NoConnection ×3; next try in 8 s`, as above.
pub(super) fn of_receiving(trouble: &ReceivingTrouble, columns: usize) -> String {
    let ReceivingTrouble { endpoint, code, failures, next_try } = trouble;
    let what =
        if OF_CREDENTIALS.contains(&code.as_str()) { "AWS credentials for SQS" } else { "SQS" };
    let rest = format!(": {code} ×{failures}{}", next(Some(*next_try)));
    fitting([format!("{what} {endpoint}{rest}"), format!("{what}{rest}")], columns)
}

/// `SQS: NoConnection ×4 while settling; SQS delivers these messages again`
pub(super) fn of_unsettled(code: &str, messages: u64, columns: usize) -> String {
    let line = format!("SQS: {code} ×{messages} while settling");
    fitting([format!("{line}; SQS delivers these messages again"), line], columns)
}

/// The first of these lines that fits, or the beginning of the last one.
fn fitting(lines: [String; 2], columns: usize) -> String {
    let [long, short] = lines.map(|line| printable::line(&line).into_owned());
    let fits = |line: &str| line.chars().count() <= columns;
    if fits(&long) {
        long
    } else if fits(&short) {
        short
    } else {
        short.chars().take(columns.saturating_sub(1)).chain(['…']).collect()
    }
}

fn next(next_try: Option<Duration>) -> String {
    match next_try {
        Some(Duration::ZERO) => "; trying now".to_owned(),
        Some(time) => format!("; next try in {}", seconds(time)),
        None => String::new(),
    }
}

/// Logs the trouble with the target where no terminal shows it.
#[derive(Default)]
pub(super) struct TargetLog {
    written: Option<Instant>,
}

impl TargetLog {
    pub(super) fn note(
        &mut self,
        target: &str,
        trouble: Option<&DownstreamTrouble>,
        next_try: Option<Duration>,
    ) {
        let Some(DownstreamTrouble { cause, calls, lasted }) = trouble else {
            if self.written.take().is_some() {
                tracing::info!(targetUrl = target, "the target responds again");
            }
            return;
        };
        if self.written.is_none_or(|written| written.elapsed() >= TROUBLE_LINES) {
            self.written = Some(Instant::now());
            tracing::warn!(
                targetUrl = target,
                cause,
                calls,
                troubleSeconds = lasted.as_secs(),
                nextTrySeconds = next_try.map(|time| time.as_secs()),
                "the target does not respond"
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn trouble_is_one_line_with_url_cause_count_and_next_try() {
        let refused = DownstreamTrouble {
            cause: "connection refused".to_owned(),
            calls: 5,
            lasted: Duration::from_secs(9),
        };
        let receiving = |code: &str, secs| ReceivingTrouble {
            endpoint: "http://mq:1".to_owned(),
            code: code.to_owned(),
            failures: 3,
            next_try: Duration::from_secs(secs),
        };
        let target = |next_try, columns| of_target("http://a/", &refused, next_try, columns);
        let next = Some(Duration::from_millis(27_001));
        for (line, said) in [
            (target(next, 80), "target http://a/: connection refused ×5; next try in 28 s"),
            (target(next, 57), "target http://a/: connection refused ×5; next try in 28 s"),
            (target(next, 56), "target: connection refused ×5; next try in 28 s"),
            (target(next, 46), "target: connection refused ×5; next try in 28…"),
            (
                target(Some(Duration::ZERO), 80),
                "target http://a/: connection refused ×5; trying now",
            ),
            (target(None, 80), "target http://a/: connection refused ×5"),
            (
                of_receiving(&receiving("NoConnection", 8), 80),
                "SQS http://mq:1: NoConnection ×3; next try in 8 s",
            ),
            (
                of_receiving(&receiving("ExpiredToken", 10), 80),
                "AWS credentials for SQS http://mq:1: ExpiredToken ×3; next try in 10 s",
            ),
            (
                of_unsettled("ExpiredToken", 4, 80),
                "SQS: ExpiredToken ×4 while settling; SQS delivers these messages again",
            ),
            (of_unsettled("ExpiredToken", 4, 60), "SQS: ExpiredToken ×4 while settling"),
        ] {
            assert_eq!(line, said);
        }
    }
}
