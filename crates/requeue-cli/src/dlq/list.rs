//! `requeue dlq list`: shows the messages in groups.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::process::ExitCode;
use std::time::SystemTime;

use requeue::queue::QueueArn;
use requeue::{Clock, DeadLetter};
use serde::{Serialize, Serializer};
use serde_json::json;

use super::letter::{Filter, Letter, UNKNOWN, class, reason};
use super::queue::{Purpose, QueueArguments, progress};
use super::scan::ScanEnd;
use crate::stop::Stop;
use crate::table::Head::{Breakable, Number, Text};
use crate::table::{Rows, messages, moment, span, thousands};
use crate::{Error, output};

#[derive(clap::Args)]
pub(crate) struct Arguments {
    #[command(flatten)]
    place: QueueArguments,
    /// Print JSON instead of a table.
    #[arg(long, help_heading = "Output")]
    json: bool,
}

/// The most groups with the same class and reason. More would be too many to compare.
const MAX_KINDS: usize = 50;

/// Messages by class, reason and the kind of failure.
#[derive(Default)]
pub(crate) struct DeadLetterGroups {
    pub(crate) by_key: BTreeMap<GroupKey, DeadLetterGroup>,
    /// Those that SQS moved, by the names of their source queues.
    sources: BTreeMap<String, u64>,
    sent_here: u64,
    /// Those of them without a reason.
    silent_sent_here: u64,
    later_version: u64,
}

/// Class, reason, and the failure's text without the parts that vary between messages.
pub(crate) type GroupKey = (&'static str, String, Option<String>);

/// A failure's text without its words that have a digit: `order # timed out`. Requeue's own texts
/// for responses and rules stay whole, and so does a single word.
fn kind(detail: &str) -> String {
    let is_ours =
        detail.starts_with("status ") || !detail.contains(' ') || detail.starts_with("by rules[");
    if is_ours {
        return detail.to_owned();
    }
    let general = |word| if str::contains(word, |c: char| c.is_ascii_digit()) { "#" } else { word };
    detail.split_whitespace().map(general).collect::<Vec<_>>().join(" ")
}

#[derive(Default)]
pub(crate) struct DeadLetterGroup {
    count: u64,
    pub(crate) oldest: Option<SystemTime>,
    /// The first and the last time at which one was dead-lettered, as far as the messages say it.
    pub(crate) dead_lettered: Option<(SystemTime, SystemTime)>,
    example: String,
    detail: Option<String>,
    /// The service's own words, of the first message that has some.
    text: Option<String>,
}

pub(crate) async fn run(arguments: &Arguments) -> Result<ExitCode, Error> {
    let (stop, progress) = (Stop::end_at_once()?, progress());
    let dead_letters = arguments.place.find(Purpose::Look).await?;
    dead_letters.warn();
    stop.defer_end();
    let (mut groups, all) = (DeadLetterGroups::default(), Filter::default());
    let looked = dead_letters.scan(&stop, &progress).each(&all, |letter, dead| {
        groups.add(letter, dead);
        Ok(ControlFlow::Continue(()))
    });
    let looked = looked.await?;
    if looked.end == ScanEnd::Interrupted {
        return Ok(stop.status(false));
    }
    let (queue, seen) = (&dead_letters.queue, looked.looked_at);
    if arguments.json {
        output::json(&json!({
            "queue": queue.arn.to_string(),
            "approximateNumberOfMessages": dead_letters.visible(),
            "approximateNumberOfMessagesNotVisible": queue.in_flight,
            "lookedAt": seen,
            "complete": looked.is_complete(),
            "notReached": looked.unseen,
            "sentDirectly": groups.sent_here,
            "groups": groups,
        }))?;
    } else {
        let all = u64::try_from(seen).unwrap_or(u64::MAX).saturating_add(looked.unseen.count());
        let count = match (seen, looked.is_complete()) {
            (0, true) => "no message".to_owned(),
            (seen, true) => messages(seen),
            (seen, false) => format!("{} of about {}", thousands(seen), messages(all)),
        };
        let table = if seen == 0 { String::new() } else { format!("\n\n{}", groups.text()) };
        output::line(format_args!("{}: {count}{table}", dead_letters.name()))?;
        groups.tell(&queue.arn);
        dead_letters.tell_waiting().await;
    }
    Ok(stop.status(looked.is_released()))
}

impl DeadLetterGroups {
    pub(crate) fn add(&mut self, letter: &Letter, dead: &DeadLetter<'_>) -> GroupKey {
        let sent = letter.first_sent(dead);
        let key = self.key(class(dead), reason(dead), dead.detail());
        let group = self.by_key.entry(key.clone()).or_insert_with(|| DeadLetterGroup {
            example: letter.id.clone(),
            detail: dead.detail().map(str::to_owned),
            ..DeadLetterGroup::default()
        });
        group.count += 1;
        group.text = group.text.take().or_else(|| dead.text().map(str::to_owned));
        group.oldest = [group.oldest, sent].into_iter().flatten().min();
        if let Some(at) = dead.failed_at() {
            let (first, last) = group.dead_lettered.unwrap_or((at, at));
            group.dead_lettered = Some((first.min(at), last.max(at)));
        }
        if let Some(source) = &letter.record.dead_letter_source {
            *self.sources.entry(source.name().to_owned()).or_default() += 1;
        }
        if !letter.record.was_dead_lettered {
            self.sent_here += 1;
            let is_silent = reason(dead) == UNKNOWN && !dead.is_of_later_version();
            self.silent_sent_here += u64::from(is_silent);
        }
        self.later_version += u64::from(dead.is_of_later_version());
        key
    }

    fn key(&self, class: &'static str, reason: &str, detail: Option<&str>) -> GroupKey {
        let key = (class, reason.to_owned(), detail.map(kind));
        let kinds = self
            .by_key
            .keys()
            .filter(|(of_class, of_reason, _)| *of_class == class && of_reason == reason);
        // All further kinds share one group, so that the table stays readable.
        if self.by_key.contains_key(&key) || kinds.count() < MAX_KINDS {
            key
        } else {
            (class, key.1, Some("…".to_owned()))
        }
    }

    pub(crate) fn count(&self) -> u64 {
        self.by_key.values().map(|group| group.count).sum()
    }

    pub(crate) fn by_class(&self) -> String {
        let mut counts: BTreeMap<&str, u64> = BTreeMap::new();
        for ((class, ..), group) in &self.by_key {
            *counts.entry(class).or_default() += group.count;
        }
        by_class(&counts)
    }

    fn sorted(&self) -> Vec<(&GroupKey, &DeadLetterGroup)> {
        let mut sorted: Vec<_> = self.by_key.iter().collect();
        sorted.sort_by_key(|(_, group)| std::cmp::Reverse(group.count));
        sorted
    }

    pub(crate) fn text(&self) -> String {
        let heads = [
            Number("messages"),
            Text("class"),
            Text("reason"),
            Text("oldest sent"),
            Text("dead-lettered"),
            Text("example"),
            Breakable("failure"),
        ];
        let any = |is: fn(&DeadLetterGroup) -> bool| self.by_key.values().any(is);
        let has_times = any(|group| group.dead_lettered.is_some());
        let has_details = any(|group| group.detail.is_some());
        let is_shown = |at: &usize| (has_times || *at != 4) && (has_details || *at != 6);
        let shown = || (0..heads.len()).filter(is_shown);
        // The age, the example, and then the time.
        let spare: &[usize] = if has_times { &[3, 5, 4] } else { &[3, 4] };
        let mut rows = Rows::under(shown().map(|at| heads[at])).sparing(spare);
        let now = Clock::system().now();
        for ((class, reason, _), group) in self.sorted() {
            let row = [
                thousands(group.count),
                (*class).to_owned(),
                reason.clone(),
                group.oldest.map(|oldest| ago(now, oldest)).unwrap_or_default(),
                group.dead_lettered.map(between).unwrap_or_default(),
                group.example.clone(),
                group.failure(),
            ];
            rows.add(shown().map(|at| row[at].clone()));
        }
        rows.text()
    }

    /// Notes about messages without a known reason.
    pub(crate) fn tell(&self, queue: &QueueArn) {
        let silent = self
            .by_key
            .iter()
            .filter(|((_, reason, _), _)| reason == UNKNOWN)
            .map(|(_, group)| group.count);
        let moved = silent.sum::<u64>() - self.later_version - self.silent_sent_here;
        if self.silent_sent_here > 0 {
            let sent = messages(self.silent_sent_here);
            output::remark(&format!(
                "{sent} without a reason: sent to this queue, not moved by SQS"
            ));
        }
        if self.sources.len() > 1 {
            let counted =
                |(name, count): (&String, &u64)| format!("{name} ({})", thousands(*count));
            let counts: Vec<String> = self.sources.iter().map(counted).collect();
            let counts = counts.join(", ");
            output::remark(&format!("moved by SQS from {counts}; choose with --source"));
        }
        if moved > 0 {
            // On a FIFO queue Requeue sends no annotated copies: they would lose their order.
            let mode = if queue.is_fifo() { "redrive or annotate" } else { "redrive" };
            output::remark(&format!(
                "{} without a reason: SQS moved them before Requeue wrote one (mode {mode}; crash, \
                 kill, timeout or throttle; another consumer): see docs/concepts/dead-letters.md",
                messages(moved)
            ));
        }
        if self.later_version > 0 {
            output::remark(&format!(
                "a later version of Requeue wrote {}; this version cannot read their state",
                messages(self.later_version)
            ));
        }
    }
}

impl DeadLetterGroup {
    /// The failure of the example, and the service's own words for it.
    fn failure(&self) -> String {
        let parts: Vec<&str> =
            [&self.detail, &self.text].into_iter().flatten().map(String::as_str).collect();
        parts.join(" – ")
    }
}

impl Serialize for DeadLetterGroups {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.sorted().into_iter().map(|((class, reason, _), group)| {
            json!({
                "class": class,
                "reason": reason,
                "count": group.count,
                "oldestFirstSent": group.oldest.and_then(moment),
                "firstFailedAt": group.dead_lettered.and_then(|(first, _)| moment(first)),
                "lastFailedAt": group.dead_lettered.and_then(|(_, last)| moment(last)),
                "exampleMessageId": group.example,
                "exampleDetail": group.detail,
                "exampleText": group.text,
            })
        }))
    }
}

/// `3 h 20 min ago`, from two days on in days.
fn ago(now: SystemTime, time: SystemTime) -> String {
    let age = now.duration_since(time).unwrap_or_default();
    match age.as_secs() / 86_400 {
        0 | 1 => format!("{} ago", span(age)),
        days => format!("{days} days ago"),
    }
}

/// `2026-11-23T06:53:58Z to 07:20:11Z`: a second time of the same day without the day.
fn between((first, last): (SystemTime, SystemTime)) -> String {
    let [first, last] = [first, last].map(|time| moment(time).unwrap_or_default());
    match first.split_once('T') {
        _ if first == last => first,
        Some((day, _)) if last.starts_with(day) => format!("{first} to {}", &last[day.len() + 1..]),
        _ => format!("{first} to {last}"),
    }
}

/// `3 quota, 1 temporary`
pub(super) fn by_class(counts: &BTreeMap<&str, u64>) -> String {
    let counts = counts.iter().map(|(class, count)| format!("{} {class}", thousands(*count)));
    counts.collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn times_are_a_range_and_an_age() {
        let at = |secs: u64| SystemTime::UNIX_EPOCH + Duration::from_secs(secs);
        for (first, last, range) in [
            (0, 0, "1970-01-01T00:00:00Z"),
            (61, 3_600, "1970-01-01T00:01:01Z to 01:00:00Z"),
            (86_399, 86_400, "1970-01-01T23:59:59Z to 1970-01-02T00:00:00Z"),
        ] {
            assert_eq!(between((at(first), at(last))), range);
        }
        for (age, said) in [
            (0, "0 s ago"),
            (5_400, "1 h 30 min ago"),
            (172_799, "47 h 59 min ago"),
            (172_800, "2 days ago"),
        ] {
            assert_eq!(ago(at(age), at(0)), said);
        }
    }

    #[test]
    fn failures_of_one_kind_are_one_group_and_codes_tell_kinds_apart() {
        for (one, other, is_one_kind) in [
            ("order 84010 timed out", "order 84011 timed out", true),
            ("order A-84010 timed out", "order B-7 timed out", true),
            ("status 422: outdated-fare", "status 422: no-seat", false),
            ("status 422", "status 400", false),
            ("status 422: outdated-fare", "status 422", false),
            ("status 422: E4221", "status 422: E4222", false),
            ("status 404, by rules[0]", "status 404, by rules[1]", false),
            ("by rules[0]", "by rules[1]", false),
            ("v1-outdated", "v2-outdated", false),
        ] {
            assert_eq!(kind(one) == kind(other), is_one_kind, "{one}; {other}");
        }
    }

    #[test]
    fn what_makes_too_many_kinds_shares_one_group() {
        let mut groups = DeadLetterGroups::default();
        let names = (0..60)
            .map(|n: u8| format!("{}{}", char::from(b'a' + n / 10), char::from(b'a' + n % 10)));
        for name in names.chain(["aa".to_owned()]) {
            let key = groups.key("temporary", "too-old", Some(&name));
            let group = DeadLetterGroup { detail: Some(name), ..DeadLetterGroup::default() };
            groups.by_key.entry(key).or_insert(group).count += 1;
        }
        assert_eq!((groups.by_key.len(), groups.count()), (MAX_KINDS + 1, 61));
        let most = groups.sorted()[0].1.count;
        assert_eq!(most, 10, "the rest");
        assert_eq!(
            groups.key("quota", "too-old", Some("zz")).2.as_deref(),
            Some("zz"),
            "another class has its own"
        );
    }
}
