//! `requeue dlq import`: sends the messages of an export to a queue, each as its line has it. A
//! report next to the file lists the sent lines, so that a second run sends only the others.

use std::fmt::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;

use requeue::printable;
use requeue::queue::QueueArn;
use serde_json::json;
use tokio::time::Instant;

mod file;
mod report;

use file::{ImportFile, Line, Summary};
use report::Report;

use super::list::by_class;
use super::outcome::{Failures, counted};
use super::queue::{agreed, named, progress, require_terminal};
use super::sender::{BEHIND, ConfirmedSender, add};
use super::sqs::Sqs;
use crate::progress::CommandProgress;
use crate::queue_argument::{QueueName, RegionArgument};
use crate::stop::Stop;
use crate::table::{messages, thousands};
use crate::{Error, output};

#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// The file that `requeue dlq export` or `discard` wrote.
    file: PathBuf,
    /// The queue to send the messages to: its name, URL or ARN.
    #[arg(long, alias = "queue-url", value_name = "QUEUE", help_heading = "Queue")]
    queue: QueueName,
    #[command(flatten)]
    region: RegionArgument,
    /// The report: a line of JSON for each message. Messages that it has as sent are left out.
    /// [default: FILE.report]
    #[arg(long, value_name = "FILE")]
    report: Option<PathBuf>,
    /// Send at most this many messages in a second.
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u16).range(1..=500))]
    rate: Option<u16>,
    /// Check the file and show the plan, and change nothing.
    #[arg(long)]
    dry_run: bool,
    /// Do not ask for confirmation.
    #[arg(long)]
    yes: bool,
    /// Print the result as JSON.
    #[arg(long, help_heading = "Output")]
    json: bool,
}

struct Importer<'a> {
    to: &'a QueueArn,
    sender: ConfirmedSender<'a>,
    report: Report,
    counts: Counts,
}

#[derive(Default)]
struct Counts {
    sent: u64,
    failed: Failures,
}

const REPEATED: &str = "left out, since an earlier line has the same message";
const CAN_GO_ON: &str = "the report has each message that was sent, but for those of the \
                         last request; the same command sends those again too, so they may then be \
                         in the queue twice";

pub(crate) async fn run(arguments: &Arguments) -> Result<ExitCode, Error> {
    let stop = Stop::end_unchanged()?;
    let file = ImportFile::at(&arguments.file, arguments.report.as_deref())?;
    let (sqs, to) = destination(arguments).await?;
    let mut report = Report::open(&file.report, &to)?;
    let summary = file.check(&report)?;
    if let Some(text) = summary.lost_source(&to) {
        output::remark(&text);
    }
    if arguments.dry_run || summary.left == 0 {
        tell(arguments, &to, &summary, &Counts::default())?;
        return Ok(ExitCode::SUCCESS);
    }
    let mut notes = String::new();
    for (count, note) in [
        (summary.in_doubt, "of them may be there already, as the report says"),
        (summary.repeated, REPEATED),
    ] {
        if count > 0 {
            let _ = write!(notes, "; {} {note}", thousands(count));
        }
    }
    let plan = format!(
        "{}: {} ({}) will be sent to {}{notes}",
        printable::line(&arguments.file.display().to_string()),
        messages(summary.left),
        by_class(&summary.classes),
        to.name()
    );
    if !arguments.yes {
        require_terminal(&plan)?;
    }
    stop.defer_end();
    if !arguments.yes && !agreed(&plan, &stop).await? {
        output::remark("nothing was sent");
        return Ok(stop.status(false));
    }
    let unchanged = file.check_unchanged(&summary);
    unchanged.map_err(|error| format!("{error}; nothing was sent"))?;
    stop.leaves(CAN_GO_ON);
    report.begin()?;
    let sender = ConfirmedSender::new(&sqs, &stop, "import", arguments.rate, Instant::now());
    let mut importer = Importer { to: &to, sender, report, counts: Counts::default() };
    let ended = importer.send_all(&file, &summary, &stop).await;
    let counts = &importer.counts;
    let told = tell(arguments, &to, &summary, counts);
    let has_all = counts.sent == summary.left;
    if !has_all && !importer.report.is_short {
        let mut next = if counts.failed.in_doubt() == 0 {
            "run the same command again to send the others".to_owned()
        } else {
            format!(
                "the same command sends the others, those without a confirmation too: look for them \
                 in {} first, by the originalMessageId of their lines, or they may be there twice",
                to.name()
            )
        };
        let lasting = counts.failed.lasting().join(" or ");
        if !lasting.is_empty() {
            next = format!(
                "correct the lines that it has with {lasting}, since SQS refuses them again as they \
                 are; then {next}"
            );
        }
        let report = file.report.display();
        output::remark(&format!("the report {report} has each message that was sent; {next}"));
    }
    ended?;
    told?;
    Ok(if has_all { ExitCode::SUCCESS } else { stop.status(false) })
}

async fn destination(arguments: &Arguments) -> Result<(Sqs, QueueArn), Error> {
    let sdk = crate::sdk::config().await;
    let _asking = progress();
    let found = named(&arguments.queue, "--queue", &arguments.region, &sdk).await?;
    let sqs = Sqs::of(&sdk, found.endpoint);
    let to = sqs.describe(&found.arn).await?.arn;
    Ok((sqs, to))
}

impl Importer<'_> {
    /// Sends the lines in their order, in batches as large as SQS accepts.
    async fn send_all(
        &mut self,
        file: &ImportFile,
        summary: &Summary,
        stop: &Stop,
    ) -> Result<(), Error> {
        let progress = CommandProgress::shown("sending");
        progress.count("messages", Some(summary.left));
        let mut batch = Vec::new();
        // Nothing follows the last line, so the rest is a batch too.
        let lines = file.unsent(summary)?.map(Some).chain([None]);
        for line in lines {
            let full = match line {
                Some(line) => add(&mut batch, line?, self.to),
                None => Some(std::mem::take(&mut batch)).filter(|rest| !rest.is_empty()),
            };
            let Some(full) = full else { continue };
            self.send(full).await?;
            progress.done(self.counts.sent);
            self.sender.wait().await;
            if stop.is_told() {
                break;
            }
        }
        Ok(())
    }

    async fn send(&mut self, mut batch: Vec<Line>) -> Result<(), Error> {
        for line in self.sender.take_blocked(self.to, &mut batch) {
            self.note(&line, &Err(BEHIND.to_owned()))?;
        }
        if batch.is_empty() {
            return self.report.flush();
        }
        let sent = self.sender.send(self.to, &batch).await;
        for (line, sent) in batch.iter().zip(&sent.each) {
            self.note(line, sent)?;
        }
        self.report.flush()?;
        self.sender.note(self.to, &batch, &sent)
    }

    fn note(&mut self, line: &Line, sent: &Result<(), String>) -> Result<(), Error> {
        match sent {
            Ok(()) => self.counts.sent += 1,
            Err(code) => self.counts.failed.add(code),
        }
        self.report.add(line.number, &line.message_id, sent)
    }
}

fn tell(
    arguments: &Arguments,
    to: &QueueArn,
    summary: &Summary,
    Counts { sent, failed }: &Counts,
) -> Result<(), Error> {
    let json = arguments.json.then(|| {
        json!({
            "queue": to.to_string(),
            "dryRun": arguments.dry_run,
            "lines": summary.lines,
            "sentBefore": summary.sent_before,
            "repeated": summary.repeated,
            "sent": sent,
            "failed": failed.count(),
            "failedByCode": failed,
            "inDoubt": failed.in_doubt(),
            "inDoubtBefore": summary.in_doubt,
            "left": summary.left.saturating_sub(*sent),
            "byClass": summary.classes,
        })
    });
    let name = to.name();
    let mut text = match summary.left {
        0 if summary.lines == 0 => "the file has no message\n".to_owned(),
        0 => format!("no message left to send to {name}\n"),
        left if arguments.dry_run => {
            format!("{} ({}) would be sent to {name}\n", messages(left), by_class(&summary.classes))
        }
        _ => format!("{} sent to {name}\n", messages(*sent)),
    };
    let waiting =
        if arguments.dry_run { 0 } else { summary.left.saturating_sub(sent + failed.count()) };
    let doubt = "of these without a confirmation in an earlier run: SQS may have stored them then";
    let counts = counted([
        (summary.sent_before, "sent before, by the report"),
        (summary.in_doubt, doubt),
        (summary.repeated, REPEATED),
        (waiting, "left, not sent yet"),
    ]);
    let failed = failed.lines("not sent", "without a confirmation, so SQS may have stored them");
    text.extend(counts.into_iter().chain(failed).map(|line| line + "\n"));
    output::result(&text, json.as_ref())
}
