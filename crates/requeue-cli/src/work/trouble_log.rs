//! The same trouble in the log, where no terminal shows it: rarely, and when it is over.

use std::time::Duration;

use tokio::time::Instant;

use super::trouble::remedy_of_credentials;
use crate::observe::{DownstreamTrouble, RareLines, ReceivingTrouble, Sqs};
use crate::silence::Silence;

/// Logs the trouble with the target where no terminal shows it.
#[derive(Default)]
pub(super) struct TargetLog(RareLines);

impl TargetLog {
    pub(super) fn note(
        &mut self,
        target: &str,
        trouble: Option<&DownstreamTrouble>,
        next_try: Option<Duration>,
    ) {
        let Some(DownstreamTrouble { cause, calls, lasted, .. }) = trouble else {
            if self.0.end() {
                tracing::info!(targetUrl = target, "the target responds again");
            }
            return;
        };
        if self.0.is_due() {
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

/// Logs what refused credentials need where no terminal shows it.
#[derive(Default)]
pub(super) struct CredentialsLog(RareLines);

impl CredentialsLog {
    pub(super) fn note(&mut self, trouble: Option<&ReceivingTrouble>) {
        let code = trouble.map(|trouble| trouble.code.as_str()).unwrap_or_default();
        let Some(remedy) = remedy_of_credentials(code) else {
            self.0.end();
            return;
        };
        if self.0.is_due() {
            tracing::error!(code, remedy, "SQS does not accept the AWS credentials");
        }
    }
}

/// Logs an SQS that does not respond where no terminal shows it.
#[derive(Default)]
pub(super) struct SilenceLog {
    lines: RareLines,
    /// When it was silent last.
    last: Option<Instant>,
}

impl SilenceLog {
    pub(super) fn note(&mut self, sqs: &Sqs) {
        let endpoint = sqs.endpoint();
        let Some(Silence { since, action }) = sqs.silence() else {
            // Between two tries nobody waits for a response.
            let is_over = self.last.is_some_and(|last| sqs.has_responded_since(last));
            if is_over && self.lines.end() {
                tracing::info!(endpoint, "SQS responds again");
            }
            return;
        };
        self.last = Some(Instant::now());
        if self.lines.is_due() {
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

    #[tokio::test(start_paused = true)]
    async fn a_silence_lasts_to_the_next_response() {
        let (sqs, mut log) = (Sqs::default(), SilenceLog::default());
        for responds in [false, true] {
            let request = sqs.request("sqs:ReceiveMessage", Duration::ZERO);
            tokio::time::advance(Duration::from_secs(5)).await;
            log.note(&sqs);
            tokio::time::advance(Duration::from_secs(1)).await;
            if responds {
                request.responded();
            } else {
                drop(request);
            }
            tokio::time::advance(Duration::from_secs(10)).await;
            log.note(&sqs);
            assert_eq!(log.lines.end(), !responds);
        }
    }
}
