//! `requeue dlq list`: the messages in groups.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::process::ExitCode;
use std::time::SystemTime;

use requeue::DeadLetter;
use serde::Serialize;

use super::letter::{Letter, UNKNOWN, class, moment, reason};
use super::scan::{End, Scan};
use super::stop::Stop;
use super::{Place, messages, note};
use crate::table::table;
use crate::{Error, output};

#[derive(clap::Args)]
pub(crate) struct Arguments {
    #[command(flatten)]
    place: Place,
    /// JSON instead of a table.
    #[arg(long)]
    json: bool,
}

/// Messages by class and reason.
#[derive(Default)]
pub(crate) struct Groups {
    by_key: BTreeMap<(&'static str, String), Group>,
    sent_here: u64,
    later_version: u64,
}

struct Group {
    count: u64,
    oldest: Option<SystemTime>,
    /// The first one seen.
    example: String,
    detail: Option<String>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct GroupShape<'a> {
    class: &'a str,
    reason: &'a str,
    count: u64,
    oldest_first_sent: Option<String>,
    example_message_id: &'a str,
    example_detail: Option<&'a str>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Listing<'a> {
    queue: String,
    approximate_number_of_messages: u64,
    approximate_number_of_messages_not_visible: u64,
    looked_at: usize,
    complete: bool,
    sent_directly: u64,
    groups: Vec<GroupShape<'a>>,
}

pub(crate) async fn run(arguments: &Arguments) -> Result<ExitCode, Error> {
    let dead_letters = arguments.place.find().await?;
    dead_letters.warn();
    let stop = Stop::listen()?;
    let mut scan = dead_letters.scan(&arguments.place, &stop);
    let mut groups = Groups::default();
    let walked = scan
        .walk(async |letters, _| {
            for letter in &letters {
                groups.add(letter, &letter.read());
            }
            Ok(ControlFlow::Continue(()))
        })
        .await;
    let is_released = scan.release().await;
    let end = walked?;
    let is_complete = scan.tell(end);
    if end != End::Interrupted {
        show(arguments, &groups, &scan, dead_letters.queue.visible, dead_letters.queue.in_flight, is_complete)?;
    }
    Ok(stop.exit_code(if is_released { ExitCode::SUCCESS } else { ExitCode::FAILURE }))
}

fn show(
    arguments: &Arguments,
    groups: &Groups,
    scan: &Scan<'_>,
    visible: u64,
    in_flight: u64,
    complete: bool,
) -> Result<(), Error> {
    if arguments.json {
        let listing = Listing {
            queue: scan.queue().to_string(),
            approximate_number_of_messages: visible,
            approximate_number_of_messages_not_visible: in_flight,
            looked_at: scan.looked_at(),
            complete,
            sent_directly: groups.sent_here,
            groups: groups.shapes(),
        };
        return output::json(&listing);
    }
    let name = scan.queue().name();
    match (scan.looked_at(), complete) {
        (0, _) => output::line(format_args!("{name}: no message")),
        (seen, true) => output::line(format_args!("{name}: {}\n\n{}", messages(seen), groups.table())),
        (seen, false) => output::line(format_args!("{name}: {seen} of about {visible} messages\n\n{}", groups.table())),
    }?;
    groups.tell();
    Ok(())
}

impl Groups {
    pub(crate) fn add(&mut self, letter: &Letter, dead: &DeadLetter<'_>) {
        let sent = letter.first_sent(dead);
        let key = (class(dead), reason(dead).to_owned());
        let group = self.by_key.entry(key).or_insert_with(|| Group {
            count: 0,
            oldest: None,
            example: letter.id.clone(),
            detail: dead.detail().map(str::to_owned),
        });
        group.count += 1;
        group.oldest = [group.oldest, sent].into_iter().flatten().min();
        if !letter.record.was_dead_lettered {
            self.sent_here += 1;
        }
        self.later_version += u64::from(dead.is_of_later_version());
    }

    pub(crate) fn count(&self) -> u64 {
        self.by_key.values().map(|group| group.count).sum()
    }

    /// The largest first.
    fn sorted(&self) -> Vec<(&(&'static str, String), &Group)> {
        let mut sorted: Vec<_> = self.by_key.iter().collect();
        sorted.sort_by_key(|(_, group)| std::cmp::Reverse(group.count));
        sorted
    }

    pub(crate) fn table(&self) -> comfy_table::Table {
        let heads = ["messages", "class", "reason", "oldest, first sent", "for example", "which failed with"];
        let has_details = self.by_key.values().any(|group| group.detail.is_some());
        let mut rows = table(if has_details { &heads } else { &heads[..heads.len() - 1] });
        for ((class, reason), group) in self.sorted() {
            let detail = group.detail.clone().unwrap_or_default();
            let row = vec![
                group.count.to_string(),
                (*class).to_owned(),
                reason.clone(),
                group.oldest.and_then(moment).unwrap_or_default(),
                group.example.clone(),
            ];
            rows.add_row(row.into_iter().chain(has_details.then_some(detail)));
        }
        rows
    }

    pub(crate) fn shapes(&self) -> Vec<GroupShape<'_>> {
        self.sorted()
            .into_iter()
            .map(|((class, reason), group)| GroupShape {
                class,
                reason,
                count: group.count,
                oldest_first_sent: group.oldest.and_then(moment),
                example_message_id: &group.example,
                example_detail: group.detail.as_deref(),
            })
            .collect()
    }

    /// What a reader of the table has to know besides.
    pub(crate) fn tell(&self) {
        let silent = self.by_key.iter().filter(|((_, reason), _)| reason == UNKNOWN).map(|(_, group)| group.count);
        let silent = silent.sum::<u64>() - self.later_version;
        if silent > 0 {
            note(&format!(
                "{} without a reason: Requeue writes it down with REQUEUE_DEAD_LETTER=annotate or direct",
                messages(silent)
            ));
        }
        if self.later_version > 0 {
            note(&format!(
                "a later version of Requeue wrote {}: nothing is known of them here",
                messages(self.later_version)
            ));
        }
    }
}
