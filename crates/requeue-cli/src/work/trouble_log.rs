//! The same trouble in the log, where no terminal shows it: rarely, and when it is over.

use std::time::Duration;

use tokio::time::Instant;

use super::trouble::remedy_of_credentials;
use crate::observe::{DownstreamTrouble, RareLines, Sqs};
use crate::silence::Silence;

#[derive(Default)]
pub(super) struct TroubleLog {
    target: RareLines,
    credentials: RareLines,
    silence: RareLines,
    /// When SQS was silent last.
    silent: Option<Instant>,
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

    /// Notes whether SQS responds, and what credentials need that it refuses.
    pub(super) fn note_sqs(&mut self, sqs: &Sqs) {
        let code = sqs.trouble().map(|trouble| trouble.code).unwrap_or_default();
        if let Some(remedy) = remedy_of_credentials(&code) {
            if self.credentials.is_due() {
                tracing::error!(code, remedy, "there are no valid AWS credentials");
            }
        } else {
            self.credentials.end();
        }
        let endpoint = sqs.endpoint();
        let Some(Silence { since, action }) = sqs.requests.silence() else {
            // Between two tries nobody waits for a response.
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
