//! The embedded SQS with the queues of the command.

use requeue::Clock;
use requeue::embedded::{EmbeddedSqs, Server};
use requeue::queue::QueueArn;
use tokio::net::TcpListener;

use super::watched::Watched;
use super::{Arguments, taken, variables};
use crate::Error;
use crate::dlq::DeadLetters;
use crate::dlq::sqs::Sqs;
use crate::output::outln;
use crate::ui::{DeadLetterScreen, Site};

pub(super) struct ServedSqs {
    pub(super) embedded: EmbeddedSqs,
    pub(super) server: Server,
    /// At least one.
    pub(super) queues: Vec<ServedQueue>,
}

#[derive(Clone)]
pub(super) struct ServedQueue {
    pub(super) queue: QueueArn,
    pub(super) dead_letters: QueueArn,
}

/// The dead-letter queue of a served queue, by name or URL.
pub(crate) fn dead_letters_of(queue: &str) -> String {
    match queue.strip_suffix(".fifo") {
        Some(stem) => format!("{stem}-dlq.fifo"),
        None => format!("{queue}-dlq"),
    }
}

/// An error if two queues have the same name, dead-letter queues included.
pub(super) fn check_names(queues: &[String]) -> Result<(), Error> {
    for (at, name) in queues.iter().enumerate() {
        let of_other = queues.iter().find(|other| dead_letters_of(other) == *name);
        if queues[..at].contains(name) {
            return Err(format!("--queue {name} stands twice; remove one of them").into());
        }
        if let Some(other) = of_other {
            return Err(format!(
                "--queue {name} is the dead-letter queue of --queue {other}; choose another name"
            )
            .into());
        }
    }
    Ok(())
}

impl ServedSqs {
    pub(super) async fn open(arguments: &Arguments) -> Result<Self, Error> {
        let embedded = EmbeddedSqs::new(Clock::system());
        let queues =
            arguments.queues.iter().map(|name| ServedQueue::create(&embedded, name, arguments));
        let queues = queues.collect::<Result<_, _>>()?;
        let server = embedded.serve(arguments.sqs_port).await;
        let server = server.map_err(|error| taken(arguments.sqs_port, "--sqs-port", &error))?;
        Ok(Self { embedded, server, queues })
    }

    pub(super) async fn site(&self, watched: Option<&Watched>) -> Result<Site, Error> {
        let mut dead_letters = Vec::new();
        for ServedQueue { queue, dead_letters: of } in &self.queues {
            let sqs = Sqs::new(self.embedded.client());
            let of = DeadLetters::of(sqs, of, Some(queue)).await?;
            dead_letters.push(DeadLetterScreen::of(of));
        }
        Ok(Site { dead_letters, live: watched.map(Watched::routes), ..Site::default() })
    }

    pub(super) fn show(&self, endpoint: Option<&TcpListener>) -> Result<(), Error> {
        let url = self.server.url();
        if let Some(listener) = endpoint {
            outln!("endpoint      http://{}/orders", listener.local_addr()?)?;
        }
        outln!("SQS           {url}")?;
        for ServedQueue { queue, dead_letters } in &self.queues {
            outln!("queue         {}", queue.url_at(&url))?;
            outln!("dead letters  {}", dead_letters.url_at(&url))?;
        }
        outln!("{}", variables(&url))?;
        Ok(())
    }
}

impl ServedQueue {
    /// The one with this queue or, with `true`, with this dead-letter queue.
    pub(super) fn find<'q>(queues: &'q [Self], name: &str) -> Option<(&'q Self, bool)> {
        queues.iter().find_map(|served| {
            let is_dead = served.dead_letters.name() == name;
            (is_dead || served.queue.name() == name).then_some((served, is_dead))
        })
    }

    fn create(embedded: &EmbeddedSqs, name: &str, arguments: &Arguments) -> Result<Self, Error> {
        let refused = |error| format!("--queue {name}: {error}");
        let dead_letters = embedded
            .create_queue(&dead_letters_of(name), [("MessageRetentionPeriod", "1209600")])
            .map_err(refused)?;
        let redrive = format!(
            r#"{{"deadLetterTargetArn":"{dead_letters}","maxReceiveCount":{}}}"#,
            arguments.max_receive_count
        );
        let visibility = arguments.visibility_timeout().as_secs().to_string();
        let attributes = [("VisibilityTimeout", &*visibility), ("RedrivePolicy", &redrive)];
        let queue = embedded.create_queue(name, attributes).map_err(refused)?;
        Ok(Self { queue, dead_letters })
    }
}
