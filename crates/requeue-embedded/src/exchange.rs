//! One request and its response over any transport: faults, execution, long polling.

use std::collections::BTreeMap;
use std::future::Future;
use std::io;
use std::time::{Duration, SystemTime};

use http::{HeaderMap, Response, header};
use tokio::time::{Instant, sleep, sleep_until};

use crate::EmbeddedSqs;
use crate::engine::error::SqsError;
use crate::engine::{Answered, Engine};
use crate::fault::{Call, EntryFault, Fault, FaultHook, REFUSED};
use crate::protocol::{self, Context};

const CONTENT_TYPE: &str = "application/x-amz-json-1.0";

/// HTTP dates and signatures have no year before 1970 or after 9999, but a clock may show one.
pub(crate) fn within_dates(time: SystemTime) -> SystemTime {
    const LAST: Duration = Duration::from_secs(253_402_300_799);
    time.clamp(SystemTime::UNIX_EPOCH, SystemTime::UNIX_EPOCH + LAST)
}

pub(crate) enum Untransmitted {
    Refused { status: u16, code: String },
    Lost,
}

impl EmbeddedSqs {
    /// Responds to a request of any transport. A fault may drop the response, or turn it into an
    /// error for a connection that breaks. `endpoint` is the beginning of the URLs of queues.
    pub(crate) async fn exchange(
        &self,
        headers: &HeaderMap,
        body: &[u8],
        endpoint: &str,
    ) -> io::Result<Response<Vec<u8>>> {
        let header = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
        let target = header("x-amz-target").unwrap_or_default();
        let operation = target.strip_prefix("AmazonSQS.").unwrap_or(target);
        let trace = header("x-amzn-trace-id");
        let perform = async |entry_faults: Vec<EntryFault>| {
            self.with_long_poll(|engine| {
                let context = Context { endpoint, trace, entry_faults: &entry_faults };
                protocol::perform(engine, operation, body, &context)
            })
            .await
        };
        match self.with_faults(operation, || protocol::outline(body), perform).await {
            Ok(Ok(body)) => self.response(200, None, body),
            Ok(Err(error)) => self.refusal(400, error.shape(), error.code, &error.message),
            Err(Untransmitted::Refused { status, code }) => {
                self.refusal(status, &code, &code, REFUSED)
            }
            Err(Untransmitted::Lost) => {
                Err(io::Error::other("the connection was broken by a fault"))
            }
        }
    }

    /// Asks the engine again and again while it finds nothing and the request may wait.
    pub(crate) async fn with_long_poll<T>(
        &self,
        mut ask: impl FnMut(&mut Engine) -> Result<Answered<T>, SqsError>,
    ) -> Result<T, SqsError> {
        let begun = Instant::now();
        loop {
            // Registered before the engine is asked, so that no news is missed in between.
            let mut news = std::pin::pin!(self.0.news.notified());
            news.as_mut().enable();
            let (answered, now) = {
                let mut engine = self.engine();
                (ask(&mut engine)?, engine.now)
            };
            let Answered { value, is_news, long_poll } = answered;
            if is_news {
                self.0.news.notify_waiters();
            }
            let Some(long_poll) = long_poll.filter(|long_poll| begun.elapsed() < long_poll.wait)
            else {
                return Ok(value);
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

    /// Counts a request, and carries it out as far as its fault allows.
    pub(crate) async fn with_faults<F, T>(
        &self,
        operation: &str,
        outline: impl FnOnce() -> (Option<String>, usize),
        carry_out: impl FnOnce(Vec<EntryFault>) -> F,
    ) -> Result<T, Untransmitted>
    where
        F: Future<Output = T>,
    {
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
        match fault {
            // The loop above has ended every latency.
            Fault::None | Fault::After(..) => Ok(carry_out(Vec::new()).await),
            Fault::Entries(faults) => Ok(carry_out(faults).await),
            Fault::Refuse { status, code } => Err(Untransmitted::Refused { status, code }),
            Fault::LoseRequest => Err(Untransmitted::Lost),
            Fault::LoseResponse => {
                carry_out(Vec::new()).await;
                Err(Untransmitted::Lost)
            }
            Fault::RespondAfter(latency) => {
                let result = carry_out(Vec::new()).await;
                sleep(latency).await;
                Ok(result)
            }
            Fault::Hang => std::future::pending().await,
        }
    }

    fn refusal(
        &self,
        status: u16,
        shape: &str,
        query: &str,
        message: &str,
    ) -> io::Result<Response<Vec<u8>>> {
        let blame = if status < 500 { "Sender" } else { "Receiver" };
        let query_error = Some(format!("{query};{blame}"));
        self.response(status, query_error, protocol::error_body(shape, message))
    }

    fn response(
        &self,
        status: u16,
        query_error: Option<String>,
        body: Vec<u8>,
    ) -> io::Result<Response<Vec<u8>>> {
        let date = httpdate::fmt_http_date(within_dates(self.0.clock.now()));
        let mut response = Response::builder()
            .status(status)
            .header(header::CONTENT_TYPE, CONTENT_TYPE)
            .header(header::DATE, date);
        if let Some(error) = query_error {
            response = response.header("x-amzn-query-error", error);
        }
        response.body(body).map_err(io::Error::other)
    }
}

#[derive(Default)]
pub(crate) struct Calls {
    by_operation: BTreeMap<String, u64>,
    all: u64,
    pub(crate) hook: Option<FaultHook>,
}

impl Calls {
    pub(crate) fn count(&self, operation: &str) -> u64 {
        self.by_operation.get(operation).copied().unwrap_or_default()
    }

    /// Its number, its number among those of its operation, and the function that decides about it.
    fn arrived(&mut self, operation: &str) -> (u64, u64, Option<FaultHook>) {
        self.all += 1;
        let of_operation = self.by_operation.entry(operation.to_owned()).or_default();
        *of_operation += 1;
        (self.all, *of_operation, self.hook.clone())
    }
}
