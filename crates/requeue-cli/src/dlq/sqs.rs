//! The calls to SQS: the library's port for messages, the SDK for operations of a queue's owner.

use std::time::Duration;

use aws_sdk_sqs::Client;
use aws_sdk_sqs::config::retry::RetryConfig;
use aws_sdk_sqs::config::{Config, Region};
pub(crate) use aws_sdk_sqs::types::ListMessageMoveTasksResultEntry as MoveTask;
use requeue::Record;
use requeue::aws::SdkConfig;
use requeue::queue::{
    CallError, CallErrorKind, Confirmation, Description, EntryError, MAX_BATCH_ENTRIES, Outgoing,
    Queue, QueueArn, QueueUrl, ReceiveRequest, Source, SqsQueue,
};
use tokio::time::{Instant, sleep, timeout};

use crate::Error;
use crate::failed_call::{FailedCall, call_error, is_of_credentials};
use crate::progress::SQS_REQUESTS;

const CALL_TIMEOUT: Duration = Duration::from_secs(20);
const MAX_ATTEMPTS: u32 = 5;
/// The code of a call without a response in time.
const TIMED_OUT: &str = "TimedOut";
/// The delay before the second attempt; each further delay is twice as long.
const PAUSE: Duration = Duration::from_millis(200);

#[derive(Clone)]
pub(crate) struct Sqs {
    port: SqsQueue,
    client: Client,
    endpoint: String,
}

macro_rules! ask {
    ($sqs:ident, $operation:literal, $queue:expr, $request:expr) => {
        ask!($request).map_err(|error| $sqs.refusal($operation, $queue, &error))
    };
    ($request:expr) => {{
        let running = SQS_REQUESTS.begin("sqs", Duration::ZERO);
        let response = match timeout(CALL_TIMEOUT, $request.send()).await {
            Ok(response) => response.map_err(|error| call_error(&error)),
            Err(_) => Err(CallError::ambiguous(TIMED_OUT)),
        };
        running.ended(response)
    }};
}

impl Sqs {
    pub(crate) fn new(client: Client) -> Self {
        let endpoint = "its endpoint".to_owned();
        Self { port: SqsQueue::new(&client), client, endpoint }
    }

    pub(crate) fn of(sdk: &SdkConfig, endpoint: String) -> Self {
        Self { endpoint, ..Self::new(Client::new(sdk)) }
    }

    pub(crate) fn refusal(&self, operation: &str, queue: &QueueArn, error: &CallError) -> Error {
        let queue = queue.to_string();
        FailedCall::of_sqs(operation, &queue, &self.endpoint, error).to_string().into()
    }

    /// The SDK's client, with its own retries, in the queue's region.
    fn client(&self, queue: &QueueArn) -> Client {
        let config =
            self.client.config().to_builder().region(Region::new(queue.region().to_owned()));
        Client::from_conf(config.build())
    }

    /// Without a response in time, another request would have none either.
    pub(crate) async fn describe(&self, queue: &QueueArn) -> Result<Description, Error> {
        let is_retried = |error: &CallError| is_passing(error) && error.code != TIMED_OUT;
        let described =
            with_retries(is_retried, Duration::ZERO, async || self.port.describe(queue).await);
        described.await.map_err(|error| self.refusal("GetQueueAttributes", queue, &error))
    }

    pub(crate) async fn sources(&self, queue: &QueueArn) -> Result<Vec<QueueArn>, Error> {
        let client = self.client(queue);
        let mut sources = Vec::new();
        let mut token = None;
        loop {
            let request =
                client.list_dead_letter_source_queues().queue_url(queue.url()).max_results(1_000);
            let page =
                ask!(self, "ListDeadLetterSourceQueues", queue, request.set_next_token(token))?;
            let arn = |url: &String| {
                Some(url.parse::<QueueUrl>().ok()?.arn(queue.partition(), queue.region()))
            };
            sources.extend(page.queue_urls().iter().filter_map(arn));
            token = page.next_token().map(str::to_owned);
            if token.is_none() {
                return Ok(sources);
            }
        }
    }

    /// Starts a task that moves all messages, and returns its handle. Sent once: the SDK would
    /// repeat a request that had an effect and no response.
    pub(crate) async fn start_move(
        &self,
        queue: &QueueArn,
        to: Option<&QueueArn>,
        rate: Option<u16>,
    ) -> Result<String, CallError> {
        let request = self
            .client(queue)
            .start_message_move_task()
            .source_arn(queue.to_string())
            .set_destination_arn(to.map(ToString::to_string))
            .set_max_number_of_messages_per_second(rate.map(i32::from))
            .customize()
            .config_override(Config::builder().retry_config(RetryConfig::disabled()));
        Ok(ask!(request)?.task_handle.unwrap_or_default())
    }

    pub(crate) async fn latest_move(&self, queue: &QueueArn) -> Result<Option<MoveTask>, Error> {
        let request = self.client(queue).list_message_move_tasks();
        let request = request.source_arn(queue.to_string()).max_results(10);
        let response = ask!(self, "ListMessageMoveTasks", queue, request)?;
        let tasks = response.results.unwrap_or_default().into_iter();
        Ok(tasks.max_by_key(MoveTask::started_timestamp))
    }

    pub(crate) async fn cancel_move(&self, queue: &QueueArn, handle: &str) -> Result<u64, Error> {
        let request = self.client(queue).cancel_message_move_task().task_handle(handle);
        let response = ask!(self, "CancelMessageMoveTask", queue, request)?;
        Ok(u64::try_from(response.approximate_number_of_messages_moved()).unwrap_or_default())
    }

    /// With the time of the request: SQS has hidden the messages since then at the earliest.
    pub(crate) async fn receive(
        &self,
        queue: &QueueArn,
        ask: ReceiveRequest,
    ) -> Result<(Vec<Record>, Instant), Error> {
        let received = with_retries(is_passing, ask.wait, async || {
            let asked = Instant::now();
            Ok((self.port.receive(queue, ask).await?, asked))
        });
        received.await.map_err(|error| self.refusal("ReceiveMessage", queue, &error))
    }

    /// At most [`MAX_BATCH_ENTRIES`]. Never resends a message that SQS may have stored.
    pub(crate) async fn send(
        &self,
        queue: &QueueArn,
        entries: &[Outgoing<'_>],
    ) -> Result<Vec<Confirmation>, CallError> {
        let is_refused = |error: &CallError| error.kind == CallErrorKind::Unavailable;
        with_retries(is_refused, Duration::ZERO, async || self.port.send(queue, entries).await)
            .await
    }

    pub(crate) async fn delete(
        &self,
        queue: &QueueArn,
        handles: &[&str],
    ) -> Result<Vec<Confirmation>, CallError> {
        each(handles, async |handles| self.port.delete(queue, handles).await).await
    }

    pub(crate) async fn release(
        &self,
        queue: &QueueArn,
        handles: &[&str],
    ) -> Result<Vec<Confirmation>, CallError> {
        let show = async |handles: &[&str]| {
            let entries: Vec<_> = handles.iter().map(|handle| (*handle, Duration::ZERO)).collect();
            self.port.change_visibility(queue, &entries).await
        };
        each(handles, show).await
    }
}

/// Whether SQS may accept a call that may run twice: it had no effect, or its effect is unknown.
fn is_passing(error: &CallError) -> bool {
    matches!(error.kind, CallErrorKind::Unavailable | CallErrorKind::Ambiguous)
        && !is_of_credentials(&error.code)
}

async fn with_retries<T>(
    is_retried: impl Fn(&CallError) -> bool,
    wait: Duration,
    call: impl AsyncFn() -> Result<T, CallError>,
) -> Result<T, CallError> {
    let mut pause = PAUSE;
    for _ in 1..MAX_ATTEMPTS {
        match once(wait, &call).await {
            Err(error) if is_retried(&error) => {}
            ended => return ended,
        }
        sleep(pause).await;
        pause *= 2;
    }
    once(wait, &call).await
}

async fn once<T>(
    wait: Duration,
    call: &impl AsyncFn() -> Result<T, CallError>,
) -> Result<T, CallError> {
    let running = SQS_REQUESTS.begin("sqs", wait);
    let response = timeout(wait + CALL_TIMEOUT, call()).await;
    running.ended(response.unwrap_or_else(|_| Err(CallError::ambiguous(TIMED_OUT))))
}

/// Calls that may take effect twice: unconfirmed entries are tried again.
async fn each(
    handles: &[&str],
    call: impl AsyncFn(&[&str]) -> Result<Vec<Confirmation>, CallError>,
) -> Result<Vec<Confirmation>, CallError> {
    debug_assert!(handles.len() <= MAX_BATCH_ENTRIES);
    let mut results = vec![Err(EntryError::unconfirmed()); handles.len()];
    for attempt in 0..MAX_ATTEMPTS {
        let open: Vec<usize> = (0..handles.len()).filter(|at| !is_settled(&results[*at])).collect();
        if open.is_empty() {
            break;
        }
        if attempt > 0 {
            sleep(PAUSE).await;
        }
        let some: Vec<&str> = open.iter().map(|at| handles[*at]).collect();
        let responses =
            with_retries(is_passing, Duration::ZERO, async || call(&some).await).await?;
        for (at, response) in open.into_iter().zip(responses) {
            results[at] = response;
        }
    }
    Ok(results)
}

/// Whether another attempt cannot change the result.
fn is_settled(confirmation: &Confirmation) -> bool {
    match confirmation {
        Ok(()) => true,
        Err(error) => error.sender_fault && *error != EntryError::unconfirmed(),
    }
}
