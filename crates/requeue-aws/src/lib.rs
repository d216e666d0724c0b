//! Calls single operations of AWS services without a client crate for each. Those crates hold every
//! operation of a service and compile for minutes, but [Requeue](https://docs.rs/requeue) needs a
//! few operations of each service. This crate sends requests and reads errors; it does not know the
//! meaning of an operation.
//!
//! Signatures, retries, timeouts and endpoints are those of the SDK: it uses the same configuration
//! and the same runtime as the SDK's clients.

mod endpoint;

use std::fmt;

use aws_runtime::auth::SigV4OperationSigningConfig;
use aws_runtime::auth::sigv4::{SCHEME_ID, SigV4AuthScheme};
use aws_runtime::invocation_id::InvocationIdInterceptor;
use aws_runtime::request_info::RequestInfoInterceptor;
use aws_runtime::retries::classifiers::{AwsErrorCodeClassifier, THROTTLING_ERRORS};
use aws_runtime::service_clock_skew::ServiceClockSkewInterceptor;
use aws_runtime::user_agent::{ApiMetadata, UserAgentInterceptor};
use aws_smithy_runtime::client::orchestrator::operation::Operation;
use aws_smithy_runtime::client::retries::classifiers::{
    HttpStatusCodeClassifier, TransientErrorClassifier,
};
use aws_smithy_runtime_api::box_error::BoxError;
use aws_smithy_runtime_api::client::auth::AuthSchemeOptionResolverParams;
use aws_smithy_runtime_api::client::auth::static_resolver::StaticAuthSchemeOptionResolver;
use aws_smithy_runtime_api::client::orchestrator::{
    HttpRequest, HttpResponse, OrchestratorError, SensitiveOutput,
};
use aws_smithy_runtime_api::client::result::SdkError;
use aws_smithy_runtime_api::client::runtime_components::RuntimeComponentsBuilder;
use aws_smithy_runtime_api::client::runtime_plugin::StaticRuntimePlugin;
use aws_smithy_types::body::SdkBody;
use aws_smithy_types::config_bag::Layer;
use aws_smithy_types::error::ErrorMetadata;
use aws_smithy_types::error::metadata::ProvideErrorMetadata;
use aws_types::SigningName;
use http::header::CONTENT_TYPE;
use http::{Method, Request};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use endpoint::Endpoint;

pub use endpoint::{SqsEndpoint, set_endpoint};

pub use aws_types::SdkConfig;
pub use aws_types::region::Region;

/// Why a call has no result. The service's own errors have a code.
pub type CallError = SdkError<ErrorMetadata, HttpResponse>;

/// A service that this crate can call.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub enum Service {
    /// CloudWatch, for its metrics and alarms.
    CloudWatch,
    /// DynamoDB.
    DynamoDb,
    /// Identity and Access Management, which is one service for all regions of a partition.
    Iam,
    /// Key Management Service.
    Kms,
    /// Lambda.
    Lambda,
    /// CloudWatch Logs.
    Logs,
    /// Secrets Manager.
    SecretsManager,
    /// Systems Manager, for its Parameter Store.
    Ssm,
}

impl Service {
    /// Its name in host names and signatures, its name in settings, as in
    /// `AWS_ENDPOINT_URL_SECRETS_MANAGER`, and the version of its JSON protocol. Source: the
    /// services' models in botocore.
    const fn names(self) -> (&'static str, &'static str, &'static str) {
        match self {
            Self::CloudWatch => ("monitoring", "CloudWatch", "application/x-amz-json-1.0"),
            Self::DynamoDb => ("dynamodb", "DynamoDB", "application/x-amz-json-1.0"),
            Self::Iam => ("iam", "IAM", "application/x-amz-json-1.1"),
            Self::Kms => ("kms", "KMS", "application/x-amz-json-1.1"),
            Self::Lambda => ("lambda", "Lambda", "application/x-amz-json-1.1"),
            Self::Logs => ("logs", "CloudWatch Logs", "application/x-amz-json-1.1"),
            Self::SecretsManager => {
                ("secretsmanager", "Secrets Manager", "application/x-amz-json-1.1")
            }
            Self::Ssm => ("ssm", "SSM", "application/x-amz-json-1.1"),
        }
    }

    /// The code and the message of an error response, if the service itself sent it.
    fn error(self, answer: &HttpResponse) -> Result<ErrorMetadata, BoxError> {
        if self == Self::Iam {
            return error_of_xml(body(answer));
        }
        error_of_json(answer.headers().get("x-amzn-errortype"), body(answer))
    }
}

/// Sends a request whose URI is a path. `read` turns the response into the result.
///
/// # Errors
///
/// The errors of the SDK's clients. If `read` fails, the error is an [`SdkError::ResponseError`].
pub async fn call<T: Send + Sync + 'static>(
    sdk: &SdkConfig,
    service: Service,
    request: Request<impl Into<SdkBody>>,
    read: impl Fn(&HttpResponse) -> Result<T, BoxError> + Send + Sync + 'static,
) -> Result<T, CallError> {
    let endpoint = Endpoint::of(service, sdk).await.map_err(SdkError::construction_failure)?;
    let mut config = Layer::new("requeue-aws");
    config.store_put(SensitiveOutput);
    config.store_put(ApiMetadata::new(service.names().0, env!("CARGO_PKG_VERSION")));
    config.store_put(AuthSchemeOptionResolverParams::new(()));
    config.store_put(SigV4OperationSigningConfig {
        region: Some(endpoint.signing_region.into()),
        name: Some(SigningName::from_static(service.names().0)),
        ..SigV4OperationSigningConfig::default()
    });
    if let Some(retries) = sdk.retry_config() {
        config.store_put(retries.clone());
    }
    if let Some(timeouts) = sdk.timeout_config() {
        config.store_put(timeouts.clone());
    }
    let mut operation = Operation::builder()
        .service_name(service.names().0)
        .operation_name("call")
        .endpoint_url(&endpoint.url)
        .with_connection_poisoning()
        .serializer(|request: Request<SdkBody>| Ok(HttpRequest::try_from(request)?))
        .deserializer(move |answer: &HttpResponse| {
            if !answer.status().is_success() {
                let error = service.error(answer).map_err(OrchestratorError::other)?;
                return Err(OrchestratorError::operation(error));
            }
            read(answer).map(Unprinted).map_err(OrchestratorError::other)
        })
        .runtime_plugin(
            StaticRuntimePlugin::new()
                .with_config(config.freeze())
                .with_runtime_components(components(sdk)),
        );
    if let Some(version) = sdk.behavior_version() {
        operation = operation.behavior_version(version);
    }
    if let Some(protection) = sdk.stalled_stream_protection() {
        operation = operation.stalled_stream_protection(protection);
    }
    // The future has some kilobytes, and callers await several of them at once.
    Box::pin(operation.build().invoke(request.map(Into::into))).await.map(|Unprinted(read)| read)
}

/// Posts an operation of AWS's query protocol. `form` has its parameters, `Action` and `Version`.
///
/// # Errors
///
/// As [`call`].
pub async fn call_query<T: Send + Sync + 'static>(
    sdk: &SdkConfig,
    service: Service,
    form: String,
    read: fn(&[u8]) -> Result<T, BoxError>,
) -> Result<T, CallError> {
    let request = Request::builder()
        .method(Method::POST)
        .uri("/")
        .header(CONTENT_TYPE, "application/x-www-form-urlencoded")
        .body(form)
        .map_err(SdkError::construction_failure)?;
    call(sdk, service, request, move |answer| read(body(answer))).await
}

/// Posts an operation of AWS's JSON protocol, as in `AmazonSSM.GetParameter`.
///
/// # Errors
///
/// As [`call`].
pub async fn call_json<T: DeserializeOwned + Send + Sync + 'static>(
    sdk: &SdkConfig,
    service: Service,
    operation: &'static str,
    parameters: &impl Serialize,
) -> Result<T, CallError> {
    call_json_with(sdk, service, operation, parameters, json).await
}

/// As [`call_json`]. `read` turns the response into the result, since it sees the headers too.
///
/// # Errors
///
/// As [`call`].
pub async fn call_json_with<T: Send + Sync + 'static>(
    sdk: &SdkConfig,
    service: Service,
    operation: &'static str,
    parameters: &impl Serialize,
    read: fn(&HttpResponse) -> Result<T, BoxError>,
) -> Result<T, CallError> {
    let request = serde_json::to_string(parameters).map_err(SdkError::construction_failure)?;
    let request = Request::builder()
        .method(Method::POST)
        .uri("/")
        .header(CONTENT_TYPE, service.names().2)
        .header("x-amz-target", operation)
        .body(request)
        .map_err(SdkError::construction_failure)?;
    call(sdk, service, request, read).await
}

/// Reads a body of JSON.
///
/// # Errors
///
/// If it is not JSON of this form.
pub fn json<T: DeserializeOwned>(answer: &HttpResponse) -> Result<T, BoxError> {
    Ok(serde_json::from_slice(body(answer))?)
}

fn body(answer: &HttpResponse) -> &[u8] {
    answer.body().bytes().unwrap_or_default()
}

/// Whether the service throttles, by the status or the SDK's list of error codes, without effect.
pub fn is_throttled(error: &CallError) -> bool {
    error.raw_response().is_some_and(|answer| answer.status().as_u16() == 429)
        || error.code().is_some_and(|code| THROTTLING_ERRORS.contains(&code))
}

/// The parts that a client of the SDK would take from the configuration, and this crate's own.
fn components(sdk: &SdkConfig) -> RuntimeComponentsBuilder {
    let mut components = RuntimeComponentsBuilder::new("requeue-aws")
        .with_http_client(sdk.http_client())
        .with_identity_cache(sdk.identity_cache())
        .with_sleep_impl(sdk.sleep_impl())
        .with_time_source(sdk.time_source())
        .with_auth_scheme(SigV4AuthScheme::new())
        .with_auth_scheme_option_resolver(Some(StaticAuthSchemeOptionResolver::new(vec![
            SCHEME_ID,
        ])))
        .with_retry_classifier(AwsErrorCodeClassifier::<ErrorMetadata>::new())
        .with_retry_classifier(TransientErrorClassifier::<ErrorMetadata>::new())
        .with_retry_classifier(HttpStatusCodeClassifier::default())
        .with_interceptor(ServiceClockSkewInterceptor::new())
        .with_interceptor(RequestInfoInterceptor::new())
        .with_interceptor(UserAgentInterceptor::new())
        .with_interceptor(InvocationIdInterceptor::new());
    if let Some(credentials) = sdk.credentials_provider() {
        components.set_identity_resolver(SCHEME_ID, credentials);
    }
    components
}

/// A response that the SDK's runtime cannot log, since it may hold a secret.
struct Unprinted<T>(T);

impl<T> fmt::Debug for Unprinted<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("…")
    }
}

/// The header has precedence over the body. Source: Smithy's AWS JSON 1.1 and REST JSON 1.
fn error_of_json(header: Option<&str>, body: &[u8]) -> Result<ErrorMetadata, BoxError> {
    let body: Value = if body.is_empty() { Value::Null } else { serde_json::from_slice(body)? };
    let text = |names: &[&str]| names.iter().find_map(|name| body[*name].as_str());
    // As in "aws.protocoltests#FooError:http://internal.amazon.com/coral/".
    let code = header.or_else(|| text(&["code", "__type"])).map(|code| {
        let code = code.split(':').next().unwrap_or_default();
        code.rsplit('#').next().unwrap_or_default()
    });
    Ok(error(code, text(&["message", "Message", "errorMessage"])))
}

/// Source: Smithy's AWS query and EC2 query protocols.
fn error_of_xml(body: &[u8]) -> Result<ErrorMetadata, BoxError> {
    let body = std::str::from_utf8(body)?;
    let text = |name: &str| {
        let (_, rest) = body.split_once(&format!("<{name}>"))?;
        rest.split_once('<').map(|(text, _)| text)
    };
    let code = text("Code").ok_or("the error has no code")?;
    Ok(error(Some(code), text("Message")))
}

fn error(code: Option<&str>, message: Option<&str>) -> ErrorMetadata {
    let mut error = ErrorMetadata::builder();
    if let Some(code) = code {
        error = error.code(code);
    }
    if let Some(message) = message {
        error = error.message(message);
    }
    error.build()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_has_the_code_and_the_message_of_its_protocol() {
        let url = "Denied:http://internal.amazon.com/coral/";
        for (header, body, expected) in [
            (
                None,
                r#"{"__type": "com.amazonaws.ssm#Denied", "Message": "no"}"#,
                Some("Denied: no"),
            ),
            (None, r#"{"code": "Denied", "__type": "Other", "message": "no"}"#, Some("Denied: no")),
            (Some(url), r#"{"Type": "User", "message": "no"}"#, Some("Denied: no")),
            (Some("Denied"), "", Some("Denied: ")),
            (None, "[]", Some(": ")),
            (None, "", Some(": ")),
            (Some("Denied"), "<html>", None),
        ] {
            assert_eq!(told(error_of_json(header, body.as_bytes())).as_deref(), expected, "{body}");
        }
        let xml = "<ErrorResponse><Error><Type>Sender</Type><Code>Denied</Code>\n\
                   <Message>no</Message></Error></ErrorResponse>";
        let ec2 = "<Response><Errors><Error><Code>Denied</Code><Message>no</Message></Error>\
                   </Errors><RequestID>1</RequestID></Response>";
        for (body, expected) in [
            (xml, Some("Denied: no")),
            (ec2, Some("Denied: no")),
            ("<Code>Denied", None),
            ("{}", None),
            ("", None),
        ] {
            assert_eq!(told(error_of_xml(body.as_bytes())).as_deref(), expected, "{body}");
        }
    }

    fn told(error: Result<ErrorMetadata, BoxError>) -> Option<String> {
        let error = error.ok()?;
        let [code, message] = [error.code(), error.message()].map(Option::unwrap_or_default);
        Some(format!("{code}: {message}"))
    }
}
