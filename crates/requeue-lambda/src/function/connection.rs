//! The HTTP client of the Invoke API. A response is read up to a limit.

use std::io;
use std::time::Duration;

use ::http::Response;
use aws_smithy_runtime_api::client::http::{
    HttpConnector as SdkConnector, HttpConnectorFuture, SharedHttpClient, SharedHttpConnector,
    http_client_fn,
};
use aws_smithy_runtime_api::client::orchestrator::{HttpRequest, HttpResponse};
use aws_smithy_runtime_api::client::result::ConnectorError;
use aws_smithy_types::body::SdkBody;
use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper_rustls::{ConfigBuilderExt, HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use rustls::RootCertStore;

use crate::http::{tcp, tls};

/// The longest response. Source: Lambda quotas, "Invocation payload". A part of it would be no
/// JSON, and a function whose messages are all done may return any amount.
pub(super) const MAX_ANSWER: usize = 6 * 1024 * 1024 + 64 * 1024;

const CONNECT_TIMEOUT: Duration = Duration::from_millis(3_100);

/// Makes clients, each with connections of its own. Root certificates are loaded here.
pub(super) fn http_clients() -> io::Result<impl Fn() -> SharedHttpClient + Send + Sync> {
    let tls = tls()?;
    // An emulator uses plain HTTP, and a machine for tests may have no certificates.
    let tls = match tls.clone().with_native_roots() {
        Ok(tls) => tls,
        Err(error) => {
            tracing::warn!(%error, "no root certificate, so Lambda can be called by plain HTTP only");
            tls.with_root_certificates(RootCertStore::empty())
        }
    };
    let tls = tls.with_no_client_auth();
    Ok(move || {
        let tcp = tcp(HttpConnector::new(), CONNECT_TIMEOUT);
        // HTTP/1.1 alone: one lost connection costs one response.
        let https = HttpsConnectorBuilder::new().with_tls_config(tls.clone());
        let https = https.https_or_http().enable_http1().wrap_connector(tcp);
        let client = Client::builder(TokioExecutor::new()).build(https);
        let connector = SharedHttpConnector::new(Requests(client));
        http_client_fn(move |_, _| connector.clone())
    })
}

#[derive(Clone, Debug)]
struct Requests(Client<HttpsConnector<HttpConnector>, Full<Bytes>>);

impl SdkConnector for Requests {
    fn call(&self, request: HttpRequest) -> HttpConnectorFuture {
        let client = self.0.clone();
        HttpConnectorFuture::new(async move {
            let request =
                request.try_into_http1x().map_err(|error| ConnectorError::user(error.into()))?;
            let request = request
                .map(|body| Full::new(Bytes::copy_from_slice(body.bytes().unwrap_or_default())));
            let response =
                client.request(request).await.map_err(|error| ConnectorError::io(error.into()))?;
            let (head, body) = response.into_parts();
            let body = beginning(body).await.map_err(|error| ConnectorError::io(error.into()))?;
            let response = Response::from_parts(head, SdkBody::from(body));
            HttpResponse::try_from(response).map_err(|error| ConnectorError::user(error.into()))
        })
    }
}

/// The beginning of a body. The connection of a longer one is not used again.
async fn beginning(mut body: Incoming) -> Result<Vec<u8>, hyper::Error> {
    let mut bytes = Vec::new();
    while let Some(frame) = body.frame().await {
        let data = frame?.into_data().unwrap_or_default();
        let room = MAX_ANSWER - bytes.len();
        bytes.extend_from_slice(&data[..data.len().min(room)]);
        if data.len() > room {
            break;
        }
    }
    Ok(bytes)
}
