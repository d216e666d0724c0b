//! What every client of the AWS SDK is made of: credentials, region and endpoints by AWS's own rules, and one HTTP client. It knows
//! no service.

use aws_config::BehaviorVersion;
use aws_smithy_http_client::tls::{self, rustls_provider::CryptoMode};

pub(crate) use aws_config::SdkConfig;

/// By AWS's standard environment.
pub(crate) async fn config() -> SdkConfig {
    let http =
        aws_smithy_http_client::Builder::new().tls_provider(tls::Provider::Rustls(CryptoMode::Ring)).build_https();
    aws_config::defaults(BehaviorVersion::latest()).http_client(http).load().await
}
