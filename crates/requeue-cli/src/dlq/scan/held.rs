//! The messages that a scan hides, the FIFO groups to receive again, and the release at the end.

use std::collections::{HashMap, HashSet, VecDeque};

use futures_util::future::join_all;
use requeue::Clock;
use requeue::queue::{CallError, CallErrorKind, MAX_BATCH_ENTRIES};
use tokio::time::Instant;

use super::{AT_ONCE, Scan};
use crate::Error;
use crate::dlq::letter::Letter;
use crate::table::{clock_time, messages};

#[derive(Default)]
pub(crate) struct HeldMessages {
    /// The receipt handle and the group of each.
    hidden: HashMap<String, (String, Option<String>)>,
    /// The time of the request that brought the first of them.
    pub(super) since: Option<Instant>,
    pub(super) deleted: u64,
}

impl HeldMessages {
    pub(crate) fn hold(&mut self, letter: &Letter) {
        // SQS accepts the receipt handle of the latest receive.
        let hidden = (letter.receipt_handle.clone(), letter.record.group_id.clone());
        self.hidden.insert(letter.id.clone(), hidden);
        self.since = Some(self.since.map_or(letter.asked, |since| since.min(letter.asked)));
    }

    pub(crate) fn forget(&mut self, id: &str) {
        self.deleted += 1;
        self.show(id);
    }

    pub(crate) fn show(&mut self, id: &str) {
        self.hidden.remove(id);
        if self.hidden.is_empty() {
            self.since = None;
        }
    }

    pub(crate) fn count(&self) -> usize {
        self.hidden.len()
    }

    /// Whether some FIFO group has reached SQS's limit for one group.
    pub(crate) fn has_a_full_group(&self) -> bool {
        let mut counts: HashMap<&str, usize> = HashMap::new();
        self.hidden.values().filter_map(|(_, group)| group.as_deref()).any(|group| {
            let count = counts.entry(group).or_default();
            *count += 1;
            *count >= MAX_BATCH_ENTRIES
        })
    }

    /// Takes the receipt handles of all messages. The scan then hides none.
    pub(crate) fn take(&mut self) -> Vec<String> {
        self.since = None;
        self.hidden.drain().map(|(_, (receipt_handle, _))| receipt_handle).collect()
    }

    fn of_group(&self, group: &str) -> Vec<(String, String)> {
        let of_group = self.hidden.iter().filter(|(_, (_, of))| of.as_deref() == Some(group));
        of_group.map(|(id, (receipt_handle, _))| (id.clone(), receipt_handle.clone())).collect()
    }
}

/// FIFO groups of which a receive may have brought only a part. SQS blocks the rest while one of
/// the messages is in flight, so it arrives only with the received ones, once those are visible.
#[derive(Default)]
pub(crate) struct CutGroups(VecDeque<String>);

impl CutGroups {
    /// Notes the groups of a full receive. SQS delivers as many messages of a group as fit before
    /// the next group, so only the last group is cut. If the groups are mixed, each of them may be.
    pub(crate) fn note(&mut self, letters: &[Letter]) {
        let groups: Vec<&str> =
            letters.iter().filter_map(|letter| letter.record.group_id.as_deref()).collect();
        let mut runs = groups.clone();
        runs.dedup();
        let distinct: HashSet<&str> = groups.iter().copied().collect();
        let cut = if runs.len() == distinct.len() {
            &runs[runs.len().saturating_sub(1)..]
        } else {
            &runs[..]
        };
        for group in cut {
            if !self.0.iter().any(|waiting| waiting == group) {
                self.0.push_back((*group).to_owned());
            }
        }
    }

    /// The next group to receive again. One receive returns ten messages, so ten hidden messages
    /// block the rest of their group. SQS does not block a group without a hidden message.
    pub(crate) fn next(&mut self, held: &HeldMessages) -> Option<Vec<(String, String)>> {
        while let Some(group) = self.0.pop_front() {
            let of_group = held.of_group(&group);
            if (1..MAX_BATCH_ENTRIES).contains(&of_group.len()) {
                return Some(of_group);
            }
        }
        None
    }

    pub(crate) fn stop(&mut self) {
        *self = Self::default();
    }
}

impl Scan<'_> {
    /// Makes all hidden messages visible again, and returns the number of those that stay hidden.
    /// That may take minutes, so its progress shows the error that ended the scan.
    pub(super) async fn release(&mut self, error: Option<&Error>) -> usize {
        let held = self.held.take();
        let error = error.map(ToString::to_string);
        let told = error.as_ref().map(|error| format!("{error}; ")).unwrap_or_default();
        self.progress.step(format!("{told}making {} visible again", messages(held.len())));
        let (hidden, why) = self.show(&held).await;
        let until =
            |rest| format!("until {} UTC at the latest", clock_time(Clock::system().now() + rest));
        if let Some(why) = why {
            // The command itself shows its error.
            let why = if error.as_ref() == Some(&why) { String::new() } else { format!(": {why}") };
            let stay = if hidden == 1 { "stays" } else { "stay" };
            let (hidden, until) = (messages(hidden), until(self.visibility));
            self.progress.note(format!("{hidden} {stay} hidden {until}, then visible again{why}"));
        }
        if let Some(late) = self.late.filter(|_| self.not_seen() > 0) {
            let until = until(self.visibility.saturating_sub(late.elapsed()));
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
            let is_lost = |error: &CallError| error.kind == CallErrorKind::Ambiguous;
            if responses.iter().all(|response| response.as_ref().is_err_and(is_lost)) {
                // Further requests would take longer than the messages are hidden.
                hidden += rest.by_ref().flatten().map(|chunk| chunk.len()).sum::<usize>();
            }
            for (response, chunk) in responses.into_iter().zip(some) {
                match response {
                    Ok(each) => {
                        let refused = each.into_iter().filter_map(Result::err);
                        for error in
                            refused.filter(|error| !VISIBLE_OR_GONE.contains(&&*error.code))
                        {
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

/// Of a message that is no longer hidden. Source: SQS API reference, `ChangeMessageVisibility`.
const VISIBLE_OR_GONE: [&str; 3] =
    ["MessageNotInflight", "InvalidParameterValue", "ReceiptHandleIsInvalid"];

#[cfg(test)]
mod tests {
    use requeue::Record;

    use super::*;

    /// Messages of these groups, in this order.
    fn received(groups: &str) -> (Vec<Letter>, HeldMessages) {
        let letter = |(at, group): (usize, char)| {
            let id = Some(format!("{group}{at}"));
            let (receipt_handle, body) = (id.clone(), Some(String::new()));
            let mut record = Record::default();
            (record.message_id, record.receipt_handle, record.body) = (id, receipt_handle, body);
            record.group_id = Some(group.into());
            Letter::new(record, Instant::now()).expect("it has all")
        };
        let letters: Vec<Letter> = groups.chars().enumerate().map(letter).collect();
        let mut held = HeldMessages::default();
        for letter in &letters {
            held.hold(letter);
        }
        (letters, held)
    }

    #[test]
    fn a_receive_may_have_cut_its_last_group_or_where_they_are_mixed_each() {
        for (groups, again) in [
            ("aaaaaaabbb", "b"),
            ("aaaabbbccc", "c"),
            ("abcabcabca", "abc"),
            ("a", "a"),
            ("aaaaaaaaaa", ""),
            ("", ""),
        ] {
            let (letters, held) = received(groups);
            let mut cut = CutGroups::default();
            cut.note(&letters);
            let mut found = Vec::new();
            while let Some(of_group) = cut.next(&held) {
                let group = of_group[0].0.chars().next().expect("a group");
                assert_eq!(of_group.len(), groups.matches(group).count(), "{groups}: all of it");
                found.push(group);
            }
            found.sort_unstable();
            found.dedup();
            assert_eq!(found.into_iter().collect::<String>(), again, "{groups}");
        }
    }

    #[test]
    fn a_group_of_which_nothing_is_held_is_not_received_again() {
        let (letters, mut held) = received("aab");
        let mut cut = CutGroups::default();
        cut.note(&letters);
        held.forget("b2");
        assert!(cut.next(&held).is_none());
        assert_eq!((held.deleted, held.count()), (1, 2));
    }
}
