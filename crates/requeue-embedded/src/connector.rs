//! The interface for the real SDK client: an HTTP client without HTTP. Everything above the socket
//! is the SDK's own: serialisation, signing, retries, timeouts.

use std::io;
use std::time::{Duration, SystemTime};

use aws_sdk_sqs::config::{
    BehaviorVersion, Credentials, Region, SharedAsyncSleep, SharedHttpClient,
    StalledStreamProtectionConfig,
};
use aws_smithy_async::rt::sleep::TokioSleep;
use aws_smithy_async::time::TimeSource;
use aws_smithy_runtime_api::client::http::{
    HttpClient, HttpConnector, HttpConnectorFuture, HttpConnectorSettings, SharedHttpConnector,
};
use aws_smithy_runtime_api::client::orchestrator::{HttpRequest, HttpResponse};
use aws_smithy_runtime_api::client::result::ConnectorError;
use aws_smithy_runtime_api::client::runtime_components::RuntimeComponents;
use aws_smithy_types::body::SdkBody;
use aws_smithy_types::retry::ErrorKind;
use requeue_sqs::Clock;

use crate::EmbeddedSqs;
use crate::exchange::within_dates;

impl EmbeddedSqs {
    /// A client that talks to these queues.
    ///
    /// Its retries and timeouts are the SDK's defaults: see [`client_config`](Self::client_config)
    /// for others.
    pub fn client(&self) -> aws_sdk_sqs::Client {
        aws_sdk_sqs::Client::from_conf(self.client_config().build())
    }

    /// The configuration of [`client`](Self::client), to be changed before a client is built from
    /// it.
    pub fn client_config(&self) -> aws_sdk_sqs::config::Builder {
        aws_sdk_sqs::Config::builder()
            .behavior_version(BehaviorVersion::latest())
            .region(Region::new(self.engine().region.clone()))
            .credentials_provider(Credentials::new("embedded", "embedded", None, None, "embedded"))
            .sleep_impl(SharedAsyncSleep::new(TokioSleep::new()))
            .time_source(Time(self.0.clock.clone()))
            // This protection measures by that clock, which jumps over waits.
            .stalled_stream_protection(StalledStreamProtectionConfig::disabled())
            .http_client(self.http_client())
    }

    /// The HTTP client alone, for a configuration of the caller's own.
    pub fn http_client(&self) -> SharedHttpClient {
        SharedHttpClient::new(self.clone())
    }
}

#[derive(Debug)]
struct Time(Clock);

impl TimeSource for Time {
    fn now(&self) -> SystemTime {
        within_dates(self.0.now())
    }
}

impl HttpClient for EmbeddedSqs {
    fn http_connector(
        &self,
        settings: &HttpConnectorSettings,
        _: &RuntimeComponents,
    ) -> SharedHttpConnector {
        SharedHttpConnector::new(Connector {
            sqs: self.clone(),
            read_timeout: settings.read_timeout(),
        })
    }
}

#[derive(Debug)]
struct Connector {
    sqs: EmbeddedSqs,
    /// The trait requires every HTTP client to apply it; connecting takes no time here.
    read_timeout: Option<Duration>,
}

impl HttpConnector for Connector {
    fn call(&self, request: HttpRequest) -> HttpConnectorFuture {
        let (sqs, read_timeout) = (self.sqs.clone(), self.read_timeout);
        HttpConnectorFuture::new(async move {
            let answer = answer(&sqs, request);
            match read_timeout {
                None => answer.await,
                Some(limit) => match tokio::time::timeout(limit, answer).await {
                    Ok(answer) => answer,
                    Err(elapsed) => Err(ConnectorError::timeout(elapsed.into())),
                },
            }
        })
    }
}

async fn answer(sqs: &EmbeddedSqs, request: HttpRequest) -> Result<HttpResponse, ConnectorError> {
    let endpoint = origin(request.uri()).to_owned();
    let request = request.try_into_http1x().map_err(|error| ConnectorError::user(error.into()))?;
    // Requests of SQS are never streams.
    let body = request.body().bytes().unwrap_or_default();
    // The SDK's own HTTP client reports the same when the other side closes the connection.
    let broken =
        |error: io::Error| ConnectorError::other(error.into(), Some(ErrorKind::TransientError));
    let response = sqs.exchange(request.headers(), body, &endpoint).await.map_err(broken)?;
    HttpResponse::try_from(response.map(SdkBody::from))
        .map_err(|error| ConnectorError::user(error.into()))
}

fn origin(uri: &str) -> &str {
    let authority = uri.find("://").map_or(0, |at| at + 3);
    uri[authority..].find('/').map_or(uri, |path| &uri[..authority + path])
}
