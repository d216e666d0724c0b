//! The target of a worker: a URL that gets each message, or a function that gets several at once.

use std::time::Duration;
use std::{fmt, io};

use requeue::policy::RateLimit;
use requeue::queue::MAX_BATCH_ENTRIES;
use requeue::{DynBulk, Failure, Handler, InBulk, Message, Raw, Scope, bulk};
use requeue_lambda::{Config, FunctionTarget, HttpSettings, HttpTarget, LambdaFunction, TargetUrl};

use tokio::net::TcpStream;
use tokio::time::{Instant, sleep, timeout};

use crate::observe::{Observed, Observer};
use crate::{Error, bail};

pub(super) struct Target {
    handler: TargetHandler,
    name: String,
}

enum TargetHandler {
    Url(Box<Observed<HttpTarget>>),
    Function(Box<InBulk<Observed<FunctionTarget<LambdaFunction>>>>),
}

use TargetHandler::{Function, Url};

impl Target {
    pub(super) fn url(url: TargetUrl, http: HttpSettings, observer: Observer) -> io::Result<Self> {
        let name = url.to_string();
        let target = Observed::new(HttpTarget::new(url, http)?, observer);
        Ok(Self { handler: Url(Box::new(target)), name })
    }

    /// The function of the settings, whose time limit becomes the function's own.
    pub(super) async fn function(config: &mut Config, observer: Observer) -> io::Result<Self> {
        let target = config.target_function().await?;
        let name = config.function.as_ref().map(ToString::to_string).unwrap_or_default();
        Ok(Self { handler: Function(Box::new(bulk(Observed::new(target, observer)))), name })
    }

    pub(super) fn is_function(&self) -> bool {
        matches!(self.handler, Function(_))
    }

    /// The most messages of a call, which are of one receive.
    pub(super) fn messages_per_call(&self) -> usize {
        self.as_bulk().map_or(1, |bulk| bulk.messages_per_call().min(MAX_BATCH_ENTRIES))
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)
    }
}

impl Handler for Target {
    type Error = Failure;

    async fn handle(&self, message: Message) -> Result<(), Failure> {
        match &self.handler {
            Url(target) => target.handle(message).await,
            Function(target) => Box::pin(target.handle(message)).await,
        }
    }

    fn scope(&self, message: &Message) -> Scope {
        match &self.handler {
            Url(target) => Handler::scope(&**target, message),
            Function(target) => target.scope(message),
        }
    }

    fn rate_limit(&self, scope: Scope) -> Option<RateLimit> {
        match &self.handler {
            Url(target) => Handler::rate_limit(&**target, scope),
            Function(target) => target.rate_limit(scope),
        }
    }

    fn as_bulk(&self) -> Option<&dyn DynBulk<Raw>> {
        match &self.handler {
            Url(_) => None,
            Function(target) => target.as_bulk(),
        }
    }
}

const PAUSE: Duration = Duration::from_millis(200);

pub(super) async fn wait_for(target: &TargetUrl, limit: Duration) -> Result<(), Error> {
    const TRY: Duration = Duration::from_secs(2);
    let host = target.host().trim_matches(['[', ']']);
    let end = Instant::now() + limit;
    loop {
        if let Ok(Ok(_)) = timeout(TRY, TcpStream::connect((host, target.port()))).await {
            return Ok(());
        }
        if Instant::now() + PAUSE > end {
            bail!(
                "the target {target} accepted no connection within {} s; start it, or correct \
                 its URL",
                limit.as_secs()
            );
        }
        sleep(PAUSE).await;
    }
}
