//! The end of a scan: makes the held messages visible again.

use futures_util::future::join_all;
use requeue::Clock;
use requeue::queue::{CallError, CallErrorKind, MAX_BATCH_ENTRIES};

use super::{AT_ONCE, Scan};
use crate::Error;
use crate::table::{clock_time, messages};

impl Scan<'_> {
    /// Makes all held messages visible again, and returns the number of those that stay hidden.
    /// That may take minutes, so its progress tells the error that ended the scan.
    pub(super) async fn release(&mut self, error: Option<&Error>) -> usize {
        let held = self.held.take();
        let error = error.map(ToString::to_string);
        let told = error.as_ref().map(|error| format!("{error}; ")).unwrap_or_default();
        self.progress.step(format!("{told}making {} visible again", messages(held.len())));
        let (hidden, why) = self.show(&held).await;
        let until = clock_time(Clock::system().now() + self.visibility);
        let until = format!("until {until} UTC at the latest");
        if let Some(why) = why {
            // The error of the command is told by itself.
            let why = if error.as_ref() == Some(&why) { String::new() } else { format!(": {why}") };
            let stay = if hidden == 1 { "stays" } else { "stay" };
            let hidden = messages(hidden);
            self.progress.note(format!("{hidden} {stay} hidden {until}, then visible again{why}"));
        }
        if self.was_late && self.not_seen() > 0 {
            self.progress.note(format!(
                "SQS responded late, so it may hide messages that are missing here, {until}"
            ));
        }
        hidden
    }

    /// The number of messages that stay hidden, and the reason of the last of them.
    async fn show(&self, held: &[String]) -> (usize, Option<String>) {
        let (sqs, queue) = (self.sqs, &self.queue.arn);
        let handles: Vec<&str> = held.iter().map(String::as_str).collect();
        let chunks: Vec<&[&str]> = handles.chunks(MAX_BATCH_ENTRIES).collect();
        let (mut hidden, mut why) = (0, None);
        let mut rest = chunks.chunks(AT_ONCE);
        while let Some(some) = rest.next() {
            let responses = join_all(some.iter().map(|chunk| sqs.release(queue, chunk))).await;
            if responses.iter().all(|response| response.as_ref().is_err_and(is_lost)) {
                // Further requests would last longer than the messages are hidden.
                hidden += rest.by_ref().flatten().map(|chunk| chunk.len()).sum::<usize>();
            }
            for (response, chunk) in responses.into_iter().zip(some) {
                match response {
                    Ok(each) => {
                        let refused = each.into_iter().filter_map(Result::err);
                        for error in refused.filter(|error| !is_visible_or_gone(&error.code)) {
                            hidden += 1;
                            let code = error.code;
                            why = Some(format!("SQS refuses ChangeMessageVisibility: {code}"));
                        }
                    }
                    Err(error) => {
                        hidden += chunk.len();
                        let error = sqs.refusal("ChangeMessageVisibilityBatch", queue, &error);
                        why = Some(error.to_string());
                    }
                }
            }
        }
        (hidden, why)
    }
}

/// Whether a request had no response.
fn is_lost(error: &CallError) -> bool {
    error.kind == CallErrorKind::Ambiguous
}

/// Codes for a message that is no longer hidden. Source: SQS API reference,
/// `ChangeMessageVisibility`.
fn is_visible_or_gone(code: &str) -> bool {
    ["MessageNotInflight", "InvalidParameterValue", "ReceiptHandleIsInvalid"].contains(&code)
}
