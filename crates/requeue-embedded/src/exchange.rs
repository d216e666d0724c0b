//! One request and its response: faults, execution, long polling. It is the same for every
//! transport.

use std::collections::BTreeMap;
use std::time::{Duration, SystemTime};

use tokio::time::{Instant, sleep, sleep_until};

use crate::EmbeddedSqs;
use crate::engine::Engine;
use crate::engine::error::SqsError;
use crate::fault::{Call, EntryFaults, Fault, FaultHook};
use crate::protocol::{self, Context, LongPoll};

/// A request from any transport.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Request<'a> {
    /// The header `x-amz-target`.
    pub(crate) target: &'a str,
    /// The header `x-amzn-trace-id`.
    pub(crate) trace: Option<&'a str>,
    pub(crate) body: &'a [u8],
    /// The beginning of the URLs of queues, as this client sees them.
    pub(crate) endpoint: &'a str,
}

/// The result for the client.
#[derive(Debug)]
pub(crate) enum ExchangeResult {
    Response(WireResponse),
    /// The connection is to break.
    Broken,
}

/// A response for any transport.
#[derive(Debug)]
pub(crate) struct WireResponse {
    pub(crate) status: u16,
    pub(crate) body: Vec<u8>,
    /// The header `x-amzn-query-error`.
    pub(crate) query_error: Option<String>,
    /// The header `Date`.
    pub(crate) date: String,
}

/// The content type of requests and responses.
pub(crate) const CONTENT_TYPE: &str = "application/x-amz-json-1.0";

/// Formats a time. HTTP dates have no year before 1970 or after 9999, but the caller's clock may
/// show one.
fn http_date(time: SystemTime) -> String {
    const LAST: Duration = Duration::from_secs(253_402_300_799);
    let since = time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    httpdate::fmt_http_date(SystemTime::UNIX_EPOCH + since.min(LAST))
}

/// The effect of a fault on a request.
pub(crate) enum FaultEffect {
    /// It is refused.
    Refused { status: u16, code: String },
    /// It never arrives.
    Lost,
    /// It is carried out, except for the entries that have a fault of their own.
    CarriedOut { entry_faults: EntryFaults, after: Transmission },
}

/// The result of the engine, whether others have to check again, and how long to wait if it found
/// nothing.
type Asked<T> = Result<(T, bool, Option<LongPoll>), SqsError>;

/// The transmission of a response.
pub(crate) enum Transmission {
    Arrives,
    Lost,
    Late(std::time::Duration),
}

impl EmbeddedSqs {
    /// Responds to a request, or never, if a fault says so.
    pub(crate) async fn exchange(&self, request: Request<'_>) -> ExchangeResult {
        let operation = request.target.strip_prefix("AmazonSQS.").unwrap_or(request.target);
        let outline = || protocol::outline(request.body);
        let (entry_faults, after) = match self.fault_effect(operation, outline).await {
            FaultEffect::Refused { status, code } => {
                return ExchangeResult::Response(self.refusal(status, &code, &code, REFUSED));
            }
            FaultEffect::Lost => return ExchangeResult::Broken,
            FaultEffect::CarriedOut { entry_faults, after } => (entry_faults, after),
        };
        let performed = self
            .with_long_poll(|engine, now| {
                let context = Context {
                    now,
                    endpoint: request.endpoint,
                    trace: request.trace,
                    entry_faults: &entry_faults,
                };
                let performed = protocol::perform(engine, operation, request.body, &context)?;
                Ok((performed.json, performed.news, performed.long_poll))
            })
            .await;
        match after {
            Transmission::Arrives => {}
            Transmission::Lost => return ExchangeResult::Broken,
            Transmission::Late(latency) => sleep(latency).await,
        }
        ExchangeResult::Response(match performed {
            Ok(body) => WireResponse {
                status: 200,
                body,
                query_error: None,
                date: http_date(self.0.clock.now()),
            },
            Err(error) => self.refusal(400, error.code.shape(), error.code.query(), &error.message),
        })
    }

    /// Asks the engine, again and again while it finds nothing and the request may wait.
    pub(crate) async fn with_long_poll<T>(
        &self,
        mut ask: impl FnMut(&mut Engine, SystemTime) -> Asked<T>,
    ) -> Result<T, SqsError> {
        let begun = Instant::now();
        loop {
            // Registered before the engine is asked, so that no news is missed in between.
            let mut news = std::pin::pin!(self.0.news.notified());
            news.as_mut().enable();
            let now = self.0.clock.now();
            let (answer, is_news, long_poll) = ask(&mut self.engine(), now)?;
            if is_news {
                self.0.news.notify_waiters();
            }
            let Some(long_poll) = long_poll.filter(|long_poll| begun.elapsed() < long_poll.wait)
            else {
                return Ok(answer);
            };
            let end = begun + long_poll.wait;
            let due = long_poll
                .next_due
                .map(|due| Instant::now() + due.duration_since(now).unwrap_or_default());
            tokio::select! {
                biased;
                () = &mut news => {}
                () = sleep_until(due.map_or(end, |due| due.min(end))) => {}
            }
        }
    }

    /// Counts a request and applies the faults to it.
    pub(crate) async fn fault_effect(
        &self,
        operation: &str,
        outline: impl FnOnce() -> (Option<String>, usize),
    ) -> FaultEffect {
        let (number, of_operation, hook) = self.calls().arrived(operation);
        let mut fault = hook.map_or(Fault::None, |hook| {
            // Only a fault function needs the outline, and reading it costs a pass over the body.
            let (queue, entries) = outline();
            hook(&Call { operation: operation.to_owned(), number, of_operation, queue, entries })
        });
        while let Fault::After(latency, then) = fault {
            sleep(latency).await;
            fault = *then;
        }
        let carried_out = |entry_faults, after| FaultEffect::CarriedOut { entry_faults, after };
        match fault {
            // The loop above has ended every latency.
            Fault::None | Fault::After(..) => {
                carried_out(EntryFaults::default(), Transmission::Arrives)
            }
            Fault::Refuse { status, code } => FaultEffect::Refused { status, code },
            Fault::LoseRequest => FaultEffect::Lost,
            Fault::LoseResponse => carried_out(EntryFaults::default(), Transmission::Lost),
            Fault::RespondAfter(latency) => {
                carried_out(EntryFaults::default(), Transmission::Late(latency))
            }
            Fault::Hang => std::future::pending().await,
            Fault::Entries(faults) => carried_out(EntryFaults::new(faults), Transmission::Arrives),
        }
    }

    fn refusal(&self, status: u16, shape: &str, query: &str, message: &str) -> WireResponse {
        let blame = if status < 500 { "Sender" } else { "Receiver" };
        WireResponse {
            status,
            body: protocol::error_body(shape, message),
            query_error: Some(format!("{query};{blame}")),
            date: http_date(self.0.clock.now()),
        }
    }
}

const REFUSED: &str = "refused by a fault";

/// The number of requests that have arrived, and the function that decides about faults.
#[derive(Default)]
pub(crate) struct Calls {
    by_operation: BTreeMap<String, u64>,
    all: u64,
    hook: Option<FaultHook>,
}

impl Calls {
    pub(crate) fn set_hook(&mut self, hook: Option<FaultHook>) {
        self.hook = hook;
    }

    pub(crate) fn count(&self, operation: &str) -> u64 {
        self.by_operation.get(operation).copied().unwrap_or_default()
    }

    /// The request's number, its number among those of its operation, and the function that decides
    /// about it.
    fn arrived(&mut self, operation: &str) -> (u64, u64, Option<FaultHook>) {
        self.all += 1;
        let of_operation = self.by_operation.entry(operation.to_owned()).or_default();
        *of_operation += 1;
        (self.all, *of_operation, self.hook.clone())
    }
}
