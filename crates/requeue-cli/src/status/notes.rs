//! The notes of a status: the meaning of its numbers, and the next step.

use requeue::queue::MAX_IN_FLIGHT;

use super::log::{Circuit, LogFacts};
use super::{Depth, FunctionStatus, Status};
use crate::table::{counted, thousands};

impl Status {
    pub(super) fn notes(&self) -> Vec<String> {
        let pairs = self.queues.windows(2).filter_map(|pair| self.note(&pair[0], &pair[1]));
        self.queues.iter().filter_map(Depth::in_flight).chain(pairs).collect()
    }

    /// Why messages may not be in an apparently empty dead-letter queue yet.
    fn note(&self, source: &Depth, dead: &Depth) -> Option<String> {
        let (name, dead_letters) = (source.queue.name(), dead.queue.name());
        let is_pair = dead.is_of_dead_letters && !source.is_of_dead_letters;
        let count = source.counts.as_ref().map(|counts| counts.messages);
        let count = count.filter(|count| is_pair && *count > 0)?;
        let is_of = |function: &&FunctionStatus| function.mappings.iter().any(|(to, _)| to == name);
        let of: Vec<_> = self.functions.iter().filter(is_of).collect();
        let is_open = |log: &LogFacts| matches!(log.circuit(), Circuit::Open { .. });
        let open = of.iter().find(|function| function.log.as_ref().is_some_and(is_open));
        let why = match open.map(|function| &function.name) {
            Some(function) => format!("the circuit of {function} is open, so that takes longer"),
            None if of.is_empty() => {
                "while a circuit is open, a worker receives only messages that may probe, and its \
                 output, and its page with --ui, say until when"
                    .to_owned()
            }
            None => return None,
        };
        Some(format!(
            "of {} in {name}, a dead-lettered one reaches {dead_letters} only when it is received \
             again, unless REQUEUE_DEAD_LETTER is direct; {why}; look again with `requeue dlq list \
             {dead_letters}`",
            counted(count, "message")
        ))
    }
}

impl Depth {
    /// Whether few more messages can be in flight. A long poll then receives nothing, and no error.
    fn in_flight(&self) -> Option<String> {
        let (name, count) = (self.queue.name(), self.counts.as_ref()?.in_flight);
        let most = u64::from(MAX_IN_FLIGHT);
        (count >= most / 6 * 5).then(|| {
            format!(
                "{name} has {} messages in flight; at {}, SQS delivers no others, without an error; \
                 look for failing invocations or a consumer that does not delete its messages; with \
                 REQUEUE_STRATEGY=visibility, messages that wait are in flight too: use copy",
                thousands(count),
                thousands(most)
            )
        })
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, SystemTime};

    use requeue::queue::Description;

    use super::super::Age;
    use super::*;

    #[test]
    fn a_queue_close_to_the_most_messages_in_flight_has_a_note() {
        for (name, in_flight, count) in [
            ("orders", 99_999, None),
            ("orders", 100_000, Some("100,000")),
            ("orders.fifo", 120_000, Some("120,000")),
        ] {
            let queue = format!("arn:aws:sqs:eu-west-1:123456789012:{name}");
            let mut counts =
                Description::new(queue.parse().expect("an ARN"), Duration::from_secs(30));
            (counts.messages, counts.in_flight) = (in_flight + 7, in_flight);
            let depth = Depth {
                queue: counts.arn.clone(),
                is_of_dead_letters: false,
                counts: Some(counts),
                oldest: Age::Unknown,
            };
            let (queues, now) = (vec![depth], SystemTime::UNIX_EPOCH);
            let (since, functions, unknown) = Default::default();
            let status = Status { now, since, queues, functions, unknown };
            let note = count.map(|count| {
                format!("note: {name} has {count} messages in flight; at 120,000, SQS delivers no")
            });
            let text = status.text();
            assert_eq!(text.contains("note: "), note.is_some(), "{text}");
            assert!(text.contains(&note.unwrap_or_default()), "{text}");
            assert_eq!(
                status.json()["notes"].as_array().map(Vec::len),
                Some(usize::from(count.is_some()))
            );
        }
    }
}
