//! A self-signed certificate for a server on loopback.

use std::sync::Arc;

use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::crypto::ring::default_provider;
use tokio_rustls::rustls::pki_types::PrivateKeyDer;
use tokio_rustls::rustls::server::WebPkiClientVerifier;
use tokio_rustls::rustls::server::danger::ClientCertVerifier;

pub struct Certificate {
    /// The server's TLS configuration.
    pub acceptor: TlsAcceptor,
    /// The root certificate for clients.
    pub pem: String,
}

impl Certificate {
    /// Makes a certificate for `name`, on connections that may use `protocols`.
    pub fn new(name: &str, protocols: &[&[u8]]) -> Self {
        Self::verifying(WebPkiClientVerifier::no_client_auth(), name, protocols)
    }

    /// As [`new`](Self::new); `clients` sets the certificates that clients must have.
    pub fn verifying(
        clients: Arc<dyn ClientCertVerifier>,
        name: &str,
        protocols: &[&[u8]],
    ) -> Self {
        let made = rcgen::generate_simple_self_signed([name.to_owned()]).expect("a certificate");
        let key = PrivateKeyDer::try_from(made.signing_key.serialize_der()).expect("a key");
        let config = ServerConfig::builder_with_provider(Arc::new(default_provider()));
        let config = config
            .with_safe_default_protocol_versions()
            .expect("versions")
            .with_client_cert_verifier(clients);
        let config = config.with_single_cert(vec![made.cert.der().clone()], key);
        let mut config = config.expect("the key is the certificate's");
        config.alpn_protocols = protocols.iter().map(|name| name.to_vec()).collect();
        Self { acceptor: TlsAcceptor::from(Arc::new(config)), pem: made.cert.pem() }
    }
}
