//! The operations of CloudWatch, its logs and SQS that the first hour calls.

use std::collections::{BTreeMap, HashMap};

use aws_sdk_sqs::types::{MessageAttributeValue, QueueAttributeName};
use requeue::queue::QueueArn;
use serde_json::Value;
use uuid::Uuid;

use super::super::calls::{LogEvent, function_configuration, log_events, metric_sum};
use super::super::facts::{Deployment, Function};
use super::super::fetch::{ATTRIBUTES, CONFIGURATION, Clients};
use super::message::MARK;
use crate::Error;
use crate::failed_call::call_error;

/// Counts of a queue's messages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    pub(crate) visible: u64,
    pub(crate) in_flight: u64,
    pub(crate) delayed: u64,
}

impl Counts {
    pub(crate) fn all(self) -> u64 {
        self.visible + self.in_flight + self.delayed
    }
}

/// The time that one request for a metric covers, in seconds: the longest wait, and an hour.
const METRICS_SPAN: u32 = 7_200;
/// Longest part of a log that is read, in pages of at most 1 MB.
const MOST_PAGES: u32 = 20;

impl Clients {
    /// The environment of the function, or of the version that the mapping invokes.
    pub(crate) async fn variables(
        &self,
        deployment: &Deployment,
    ) -> Result<HashMap<String, String>, Error> {
        let name = deployment.function.as_ref().map(Function::qualified).unwrap_or_default();
        let configuration = function_configuration(&self.sdk, &name);
        let configuration = self.ask(CONFIGURATION, &name, configuration).await;
        let configuration = configuration.map_err(|unread| self.told(&unread))?;
        let environment = configuration.environment.unwrap_or_default();
        Ok(environment.variables.unwrap_or_default())
    }

    pub(crate) async fn counts(&self, queue: &QueueArn) -> Result<Counts, Error> {
        const NAMES: [QueueAttributeName; 3] = [
            QueueAttributeName::ApproximateNumberOfMessages,
            QueueAttributeName::ApproximateNumberOfMessagesNotVisible,
            QueueAttributeName::ApproximateNumberOfMessagesDelayed,
        ];
        let request = self.sqs.get_queue_attributes().queue_url(queue.url());
        let request = request.set_attribute_names(Some(NAMES.to_vec())).send();
        let output = self.ask(ATTRIBUTES, queue.name(), request).await;
        let output = output.map_err(|unread| self.told(&unread))?;
        let attributes = output.attributes.unwrap_or_default();
        let [visible, in_flight, delayed] = NAMES.map(|name| {
            attributes.get(&name).and_then(|count| count.parse().ok()).unwrap_or_default()
        });
        Ok(Counts { visible, in_flight, delayed })
    }

    /// The lines of metrics in the log since this time, in milliseconds of the epoch, by all that
    /// tells them apart: emulators give their ids again.
    pub(crate) async fn lines(
        &self,
        group: &str,
        since: u64,
    ) -> Result<BTreeMap<String, String>, Error> {
        let (mut lines, mut token) = (BTreeMap::new(), None);
        for _ in 0..MOST_PAGES {
            let page = log_events(&self.sdk, group, since, token.as_deref());
            let page = match self.ask("logs:FilterLogEvents", group, page).await {
                Ok(page) => page,
                // Lambda makes the group at the first invocation.
                Err(unread) if unread.error.code == "ResourceNotFoundException" => {
                    return Ok(lines);
                }
                Err(unread) => return Err(self.told(&unread).into()),
            };
            let of_metrics = |line: &LogEvent| line.message.contains("CloudWatchMetrics");
            lines.extend(page.events.into_iter().filter(of_metrics).map(|line| {
                let LogEvent { log_stream_name, timestamp, message, .. } = line;
                (format!("{log_stream_name} {timestamp} {message}"), message)
            }));
            token = page.next_token.filter(|token| !token.is_empty());
            if token.is_none() {
                return Ok(lines);
            }
        }
        Err(format!("{group} has too many lines of the last minutes; try again later").into())
    }

    /// The sum of a metric since this time, in seconds of the epoch. `None` if it has no values.
    /// The error is CloudWatch's code.
    pub(crate) async fn metric(
        &self,
        name: &str,
        dimensions: [(&str, &str); 2],
        since: i64,
    ) -> Result<Option<f64>, String> {
        // CloudWatch has no values of the future, and AWS's clock may be ahead.
        let sum = metric_sum(&self.sdk, name, dimensions, (since, METRICS_SPAN)).await;
        sum.map_err(|error| call_error(&error).code)
    }

    /// Sends a test message, and returns its id.
    pub(crate) async fn send(
        &self,
        queue: &QueueArn,
        run: &str,
        body: String,
    ) -> Result<String, Error> {
        let mark =
            MessageAttributeValue::builder().data_type("String").string_value(run).build()?;
        // Each message has a group of its own, so that none waits for another.
        let group = queue.is_fifo().then(|| Uuid::new_v4().to_string());
        let request = self.sqs.send_message().queue_url(queue.url()).message_body(body);
        let sent = request
            .message_attributes(MARK, mark)
            .set_message_deduplication_id(group.clone())
            .set_message_group_id(group)
            .send()
            .await;
        let sent = sent.map_err(|error| {
            format!(
                "no test message can be sent to {} ({}); use valid credentials with \
                 sqs:SendMessage",
                queue.name(),
                call_error(&error).code
            )
        })?;
        Ok(sent.message_id.unwrap_or_default())
    }

    /// Looks for a dead letter by the id of its first delivery. The messages are visible again at
    /// once. The error is SQS's code.
    pub(crate) async fn dead_letter(
        &self,
        queue: &QueueArn,
        id: &str,
    ) -> Result<Option<Value>, String> {
        let request = self.sqs.receive_message().queue_url(queue.url());
        let request = request.max_number_of_messages(10).visibility_timeout(0);
        let received =
            request.wait_time_seconds(2).send().await.map_err(|error| call_error(&error).code)?;
        let bodies = received.messages.unwrap_or_default().into_iter().filter_map(|m| m.body);
        let mut letters = bodies.filter_map(|body| serde_json::from_str::<Value>(&body).ok());
        Ok(letters.find(|letter| letter["originalMessageId"] == id))
    }
}
