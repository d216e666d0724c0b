//! The HTTP client of every AWS client. It reuses no connection that may be dead: Lambda freezes
//! the environment, and a peer or a NAT gateway then drops connections. It knows no service.

use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

use aws_smithy_http_client::Builder;
use aws_smithy_http_client::tls::{self, rustls_provider::CryptoMode};
use aws_smithy_runtime_api::box_error::BoxError;
use aws_smithy_runtime_api::client::connector_metadata::ConnectorMetadata;
use aws_smithy_runtime_api::client::http::{
    HttpClient, HttpConnector, HttpConnectorFuture, HttpConnectorSettings, SharedHttpClient,
    SharedHttpConnector,
};
use aws_smithy_runtime_api::client::orchestrator::HttpRequest;
use aws_smithy_runtime_api::client::runtime_components::{
    RuntimeComponents, RuntimeComponentsBuilder,
};
use aws_smithy_types::config_bag::ConfigBag;
use tokio::time::Instant;

use super::Credentials;

use crate::lock::lock;

/// A connection that was unused for this long is not used again. A new one within the region takes
/// some milliseconds, and a request on a dead one may take a whole try.
pub(crate) const UNUSED: Duration = Duration::from_secs(2);

/// An HTTP client that uses only recent connections, each of a client that `make` makes. It shows
/// each response to the credentials.
pub(super) fn http_client(
    make: impl Fn() -> SharedHttpClient + Send + Sync + 'static,
    credentials: Option<Credentials>,
) -> SharedHttpClient {
    let pool = Arc::new(Mutex::new(Pool::new(Arc::new(make))));
    SharedHttpClient::new(Connections { pool, credentials })
}

pub(super) fn of_sdk() -> SharedHttpClient {
    Builder::new()
        .pool_idle_timeout(UNUSED)
        .tls_provider(tls::Provider::Rustls(CryptoMode::Ring))
        .build_https()
}

type Make = Arc<dyn Fn() -> SharedHttpClient + Send + Sync>;

#[derive(Clone)]
struct Connections {
    pool: Arc<Mutex<Pool>>,
    credentials: Option<Credentials>,
}

struct Pool {
    make: Make,
    client: SharedHttpClient,
    /// The difference of both clocks must stay what it was when the first connection was opened.
    opened: Option<Moment>,
    used: Option<Moment>,
    /// How many pools there were before.
    number: u64,
}

/// A moment by both clocks: the monotonic one may stop while Lambda freezes.
#[derive(Clone, Copy, Debug)]
pub struct Moment {
    at: Instant,
    by_clock: SystemTime,
}

impl Moment {
    /// Now, which is `by_clock` by the clock of the day.
    pub fn now(by_clock: SystemTime) -> Self {
        Self { at: Instant::now(), by_clock }
    }

    /// The times since then by both clocks. If the clock was set back, the second one is unknown.
    fn passed(self, now: Self) -> (Duration, Option<Duration>) {
        (now.at.duration_since(self.at), now.by_clock.duration_since(self.by_clock).ok())
    }

    /// Whether this much time has passed by either clock, or the clock was set back.
    pub fn is_older(self, limit: Duration, now: Self) -> bool {
        let (passed, by_clock) = self.passed(now);
        passed >= limit || by_clock.is_none_or(|passed| passed >= limit)
    }
}

impl Pool {
    fn new(make: Make) -> Self {
        let client = make();
        Self { make, client, opened: None, used: None, number: 0 }
    }

    /// Drops the connections if they may be dead. Their requests in progress continue.
    fn refresh(&mut self, now: Moment) {
        let is_unused = self.used.is_some_and(|used| used.is_older(UNUSED, now));
        // Many short freezes may add up for a connection that is rarely taken.
        let was_frozen = self.opened.is_some_and(|opened| {
            let (passed, by_clock) = opened.passed(now);
            by_clock.is_none_or(|by_clock| by_clock.abs_diff(passed) >= UNUSED)
        });
        if is_unused || was_frozen {
            self.replace();
        }
        self.opened.get_or_insert(now);
        self.used = Some(now);
    }

    fn replace(&mut self) {
        *self = Self { number: self.number + 1, ..Self::new(Arc::clone(&self.make)) };
    }
}

impl HttpClient for Connections {
    fn http_connector(
        &self,
        settings: &HttpConnectorSettings,
        components: &RuntimeComponents,
    ) -> SharedHttpConnector {
        let Some(time) = components.time_source() else {
            return lock(&self.pool).client.http_connector(settings, components);
        };
        let now = move || Moment::now(time.now());
        let asked = now();
        let (connector, number) = {
            let mut pool = lock(&self.pool);
            pool.refresh(asked);
            (pool.client.http_connector(settings, components), pool.number)
        };
        let connections = self.clone();
        SharedHttpConnector::new(Connector {
            inner: connector,
            connections,
            number,
            now: Arc::new(now),
        })
    }

    fn validate_base_client_config(
        &self,
        components: &RuntimeComponentsBuilder,
        config: &ConfigBag,
    ) -> Result<(), BoxError> {
        lock(&self.pool).client.validate_base_client_config(components, config)
    }

    fn connector_metadata(&self) -> Option<ConnectorMetadata> {
        lock(&self.pool).client.connector_metadata()
    }
}

requeue_sqs::debug_by_name!(Connections);

/// Notes the end of each request.
struct Connector {
    inner: SharedHttpConnector,
    connections: Connections,
    number: u64,
    now: Arc<dyn Fn() -> Moment + Send + Sync>,
}

impl HttpConnector for Connector {
    fn call(&self, request: HttpRequest) -> HttpConnectorFuture {
        let connections = self.connections.clone();
        let mut end = RequestEnd { connections, number: self.number, answered: None };
        let (now, response) = (Arc::clone(&self.now), self.inner.call(request));
        HttpConnectorFuture::new(async move {
            // All of it is moved here, and dropped here.
            let end = &mut end;
            let response = response.await?;
            end.answered = Some(now());
            match &end.connections.credentials {
                Some(credentials) => credentials.look_at(response).await,
                None => Ok(response),
            }
        })
    }
}

requeue_sqs::debug_by_name!(Connector);

/// The end of a request. If its connection is dead, the others may be too.
struct RequestEnd {
    connections: Connections,
    number: u64,
    answered: Option<Moment>,
}

impl Drop for RequestEnd {
    fn drop(&mut self) {
        let mut pool = lock(&self.connections.pool);
        match self.answered {
            _ if pool.number != self.number => {}
            Some(answered) => pool.used = Some(answered),
            None => pool.replace(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    /// For each request: the time since the one before it by both clocks, in milliseconds, and
    /// whether it uses the connections of that one.
    #[tokio::test]
    async fn no_connection_is_used_that_was_left_alone_by_either_clock() {
        let cases: &[&[(u64, i64, bool)]] = &[
            &[(0, 0, true), (1_999, 1_999, true), (1_999, 1_999, true), (1_999, 1_999, true)],
            &[(2_000, 2_000, false), (10, 10, true)],
            // The monotonic clock stood still.
            &[(5, 60_000, false), (10, 10, true)],
            // The clock was set.
            &[(10, -1, false), (10, 10, true)],
            // Each freeze is short. A connection that is rarely taken goes through them all.
            &[(10, 1_000, true), (10, 1_000, true), (10, 1_000, false), (10, 1_000, true)],
        ];
        for (case, requests) in cases.iter().enumerate() {
            let mut pool = Pool::new(Arc::new(of_sdk));
            let mut now = Moment::now(SystemTime::UNIX_EPOCH + SECOND);
            pool.refresh(now);
            for (request, (passed, by_clock, is_same)) in requests.iter().enumerate() {
                now.at += Duration::from_millis(*passed);
                let by = Duration::from_millis(by_clock.unsigned_abs());
                now.by_clock = if *by_clock < 0 { now.by_clock - by } else { now.by_clock + by };
                let number = pool.number;
                pool.refresh(now);
                assert_eq!(pool.number == number, *is_same, "case {case}, request {request}");
            }
        }
    }

    #[tokio::test]
    async fn after_a_request_without_a_response_no_other_connection_is_used() {
        let pool = Arc::new(Mutex::new(Pool::new(Arc::new(of_sdk))));
        let connections = Connections { pool, credentials: None };
        let now = Moment::now(SystemTime::UNIX_EPOCH + SECOND);
        let end = |number, answered| {
            drop(RequestEnd { connections: connections.clone(), number, answered });
            lock(&connections.pool).number
        };
        assert_eq!(end(0, Some(now)), 0);
        assert_eq!(lock(&connections.pool).used.map(|used| used.by_clock), Some(now.by_clock));
        assert_eq!(end(0, None), 1);
        assert_eq!(end(0, None), 1, "it was one of those that are dropped already");
        assert_eq!(end(1, None), 2);
    }
}
