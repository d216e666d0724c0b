//! `requeue dlq peek`: shows messages one by one.

use std::io::stdout;
use std::ops::ControlFlow;
use std::process::ExitCode;

use requeue::{DeadLetter, printable};

use super::letter::{DeadLetterJson, Filter, Letter, claimed_source, class, reason, text_of};
use super::queue::{Purpose, QueueArguments, progress};
use crate::stop::Stop;
use crate::table::{columns, hanging, moment, thousands};
use crate::{Error, output};

const SHOWN: u64 = 10;

#[derive(clap::Args)]
pub(crate) struct Arguments {
    #[command(flatten)]
    place: QueueArguments,
    #[command(flatten)]
    filter: Filter,
    /// Show the bodies too, as first delivered, without the fields that Requeue added, and the values
    /// of the message attributes. Only --json keeps control characters.
    #[arg(long)]
    bodies: bool,
    /// Print a JSON object for each message, one in a line.
    #[arg(long, help_heading = "Output")]
    json: bool,
}

pub(crate) async fn run(arguments: &Arguments) -> Result<ExitCode, Error> {
    let (stop, progress) = (Stop::end_at_once()?, progress());
    let dead_letters = arguments.place.find(Purpose::Look).await?;
    dead_letters.warn();
    stop.defer_end();
    let limit = arguments.filter.limit.unwrap_or(SHOWN);
    let (mut shown, mut more) = (0, false);
    let scan = dead_letters.scan(&stop, &progress);
    let looked = scan.each(&arguments.filter, |letter, dead| {
        if shown == limit {
            more = true;
            return Ok(ControlFlow::Break(()));
        }
        shown += 1;
        arguments.show(letter, dead)?;
        Ok(ControlFlow::Continue(()))
    });
    let looked = looked.await?;
    let mut finds_all = true;
    if more {
        output::remark(&format!("{shown} shown; --limit shows more"));
    } else if looked.is_complete() {
        finds_all = arguments.filter.finds_all(dead_letters.name(), shown > 0);
    }
    if shown == 0 {
        dead_letters.tell_waiting().await;
    }
    Ok(stop.status(looked.is_released() && finds_all))
}

impl Arguments {
    fn show(&self, letter: &Letter, dead: &DeadLetter<'_>) -> Result<(), Error> {
        let names =
            letter.record.attributes.iter().flatten().map(|(name, _)| name.as_str()).collect();
        if self.json {
            let body = self.bodies.then(|| dead.payload());
            let mut line = DeadLetterJson::of(letter, dead);
            (line.attribute_names, line.body) = (Some(names), body);
            line.message_attributes = self.bodies.then(|| letter.attributes_json());
            return output::json_line(&line);
        }
        output::text(&self.text(letter, dead, &names))
    }

    fn text(&self, letter: &Letter, dead: &DeadLetter<'_>, names: &[&str]) -> String {
        let why = match dead.detail() {
            Some(detail) => format!("{}: {detail}", reason(dead)),
            None => reason(dead).to_owned(),
        };
        let known = [
            ("original id", dead.original_message_id().map(str::to_owned)),
            ("class", Some(class(dead).to_owned())),
            ("reason", Some(why)),
            ("text", dead.text().map(str::to_owned)),
            ("retries", dead.retry_count().map(|count| count.to_string())),
            ("dead-lettered", dead.failed_at().and_then(moment)),
            ("first sent", letter.first_sent(dead).and_then(moment)),
            (
                "redrives",
                Some(dead.redrives()).filter(|count| *count > 0).map(|count| count.to_string()),
            ),
            ("group", letter.record.group_id.clone()),
            ("moved from", letter.record.dead_letter_source.as_ref().map(ToString::to_string)),
            ("claims source", claimed_source(letter, dead).map(str::to_owned)),
            ("size", Some(format!("{} bytes", thousands(letter.size())))),
            ("attributes", Some(names.join(", ")).filter(|all| !all.is_empty() && !self.bodies)),
        ];
        // A value with a line feed could imitate further lines of this output.
        let head = |name| format!("  {name:<14}  ");
        let columns = columns(stdout()).unwrap_or(usize::MAX);
        let row = |name, value: &str| hanging(&head(name), value, columns) + "\n";
        let rows = known
            .into_iter()
            .filter_map(|(name, value)| Some(row(name, &printable::line(&value?))));
        let attributes = letter.record.attributes.iter().flatten().filter(|_| self.bodies);
        let rows = rows.chain(attributes.map(|(name, attribute)| {
            let value = format!("{name} = {}", text_of(attribute));
            row("attribute", &printable::line(&value))
        }));
        // A body stays as it is, so that it can be copied.
        let body = dead.payload().replace('\n', INDENTED);
        let body = self.bodies.then(|| format!("{}{body}\n", head("body")));
        format!("{}\n{}\n", letter.id, rows.chain(body).collect::<String>())
    }
}

const INDENTED: &str = "\n                  ";
