//! The connections to the target: the choice for a request, and the lifetime of unused ones.
//!
//! Clients for many hosts share one HTTP/2 connection per host in all cases. A hanging stream, a
//! target with few streams, or one broken response would then fail other messages. So this pool
//! shares a connection only after its first response and only while it has room. A resent request
//! gets a new connection for itself.

use std::mem;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use bytes::Bytes;
use futures_util::FutureExt;
use http_body_util::BodyExt;
use hyper::body::Incoming;
use requeue::aws::Moment;
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};
use tokio::time::{sleep, timeout};

use super::connection::{Connection, Http1, Http2, MAX_AGE, Stream};
use super::connector::{BoxError, ConnectTimedOut, Connector, Connectors};
use super::url::Address;
use super::watched::lock;
use super::{BODY_TIMEOUT, HttpSettings, MAX_BODY_BYTES};

/// The most rests of responses that are read, and connections that end: each uses a descriptor.
const MAX_BACKGROUND: usize = 16;
/// The longest wait for a connection whose last response is still being read.
const SOON: Duration = Duration::from_millis(10);

pub(super) struct Pool<C>(Arc<Inner<C>>);

impl<C> Clone for Pool<C> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

struct Inner<C> {
    address: Address,
    connectors: Connectors<C>,
    settings: HttpSettings,
    unused: Mutex<Unused>,
    /// Signals that a connection or a stream was returned, or will not be soon.
    returned: Notify,
    /// [`MAX_BACKGROUND`] permits.
    background: Arc<Semaphore>,
    wants_http1: AtomicBool,
}

#[derive(Default)]
struct Unused {
    http1: Vec<UnusedHttp1>,
    http2: Vec<Arc<Http2>>,
    /// The number of connections that may soon be returned.
    returning: usize,
    is_watched: bool,
}

struct UnusedHttp1 {
    connection: Http1,
    last_use: Moment,
}

impl UnusedHttp1 {
    fn is_fit(&self, limit: Duration, now: Moment) -> bool {
        let is_old = self.connection.opened.is_older(MAX_AGE, now);
        self.connection.sender.is_ready() && !is_old && !self.last_use.is_older(limit, now)
    }
}

impl Unused {
    fn close_old(&mut self, limit: Duration, now: Moment) {
        self.http1.retain(|unused| unused.is_fit(limit, now));
        self.http2.retain(|connection| connection.is_fit(limit, now));
    }

    /// Takes the last used connection, so that unneeded ones time out.
    fn take(&mut self, limit: Duration, now: Moment) -> Option<Connection> {
        self.http2.retain(|connection| connection.is_fit(limit, now));
        let shared = self.http2.iter().rev().find(|connection| connection.has_room());
        let shared =
            shared.map(|connection| Connection::Http2(Stream::new(Arc::clone(connection), true)));
        let mut last = std::iter::from_fn(|| self.http1.pop());
        shared.or_else(|| {
            last.find(|unused| unused.is_fit(limit, now))
                .map(|unused| Connection::Http1(unused.connection))
        })
    }
}

impl<C> Inner<C> {
    fn unused(&self) -> MutexGuard<'_, Unused> {
        lock(&self.unused)
    }
}

impl<C> Pool<C> {
    pub(super) fn settings(&self) -> &HttpSettings {
        &self.0.settings
    }
}

impl<C: Connector> Pool<C> {
    pub(super) fn new(address: Address, connectors: Connectors<C>, settings: HttpSettings) -> Self {
        Self(Arc::new(Inner {
            address,
            connectors,
            settings,
            unused: Mutex::default(),
            returned: Notify::new(),
            background: Arc::new(Semaphore::new(MAX_BACKGROUND)),
            wants_http1: AtomicBool::new(false),
        }))
    }

    pub(super) fn address(&self) -> &Address {
        &self.0.address
    }

    /// An idle connection, one that is returned while a new one is opened, or the new one.
    pub(super) async fn get(&self) -> Result<Connection, BoxError> {
        let mut opening = pin!(self.open());
        let mut is_opening = false;
        loop {
            let returned = self.0.returned.notified();
            {
                let mut unused = self.0.unused();
                if let Some(connection) = unused
                    .take(self.0.settings.idle_timeout, Moment::now(self.0.settings.clock.now()))
                {
                    return Ok(connection);
                }
                is_opening |= unused.returning == 0;
            }
            if is_opening {
                tokio::select! {
                    biased;
                    opened = &mut opening => return opened,
                    () = returned => {}
                }
            } else {
                returned.await;
            }
        }
    }

    /// A new connection. No other request uses it before its first response.
    pub(super) async fn open(&self) -> Result<Connection, BoxError> {
        let Inner { address, connectors, settings, background, wants_http1, .. } = &*self.0;
        let http1 = connectors.http1.as_ref().filter(|_| wants_http1.load(Ordering::Relaxed));
        let connector = http1.unwrap_or(&connectors.best).clone();
        // Boxed, since it is large and rarely needed.
        let opening = Box::pin(Connection::open(connector, address, &settings.clock, background));
        timeout(settings.connect_timeout, opening).await.map_err(|_| ConnectTimedOut)?
    }

    /// Opens all further connections over HTTP/1.1; `false` if there is no choice.
    pub(super) fn use_http1(&self) -> bool {
        self.0.wants_http1.store(true, Ordering::Relaxed);
        // Dropped after the lock is free: the end of a connection may take time.
        let ended = mem::take(&mut self.0.unused().http2);
        drop(ended);
        self.0.connectors.http1.is_some()
    }

    /// Returns a connection after a response. A short rest of the body is read in the background.
    /// If those of too many others are being read, the connection is closed.
    pub(super) fn give_back(&self, connection: Connection, mut body: Option<Incoming>) {
        // The rest has usually arrived, and then needs no task.
        if body.as_mut().is_some_and(|body| read(body).now_or_never() == Some(true)) {
            body = None;
        }
        match connection {
            Connection::Http2(stream) => {
                self.share(&stream.connection);
                let (Some(mut body), Some(permit)) = (body, self.permit()) else {
                    drop(stream);
                    return self.0.returned.notify_waiters();
                };
                // A connection may have room for other requests before the body ends.
                self.0.returned.notify_waiters();
                let pool = self.clone();
                tokio::spawn(async move {
                    let _ = timeout(BODY_TIMEOUT, read(&mut body)).await;
                    drop((body, stream, permit));
                    pool.0.returned.notify_waiters();
                });
            }
            Connection::Http1(connection) if body.is_none() && connection.sender.is_ready() => {
                self.keep(connection);
            }
            Connection::Http1(connection) => {
                let Some(permit) = self.permit() else { return };
                self.0.unused().returning += 1;
                let returning = Returning(self.clone());
                tokio::spawn(async move {
                    let pool = returning.0.clone();
                    let mut fit = pin!(finish(connection, body));
                    let connection = if let Ok(connection) = timeout(SOON, &mut fit).await {
                        connection
                    } else {
                        drop(returning);
                        timeout(BODY_TIMEOUT, fit).await.ok().flatten()
                    };
                    if let Some(connection) = connection {
                        pool.keep(connection);
                    }
                    drop(permit);
                });
            }
        }
    }

    fn permit(&self) -> Option<OwnedSemaphorePermit> {
        Arc::clone(&self.0.background).try_acquire_owned().ok()
    }

    /// Gives the connection to no further request. Its open requests continue.
    pub(super) fn forget(&self, connection: &Connection) {
        if let Connection::Http2(stream) = connection {
            self.0.unused().http2.retain(|other| !Arc::ptr_eq(other, &stream.connection));
        }
    }

    fn keep(&self, connection: Http1) {
        let last_use = Moment::now(self.0.settings.clock.now());
        self.0.unused().http1.push(UnusedHttp1 { connection, last_use });
        self.0.returned.notify_waiters();
        self.watch();
    }

    fn share(&self, connection: &Arc<Http2>) {
        let mut unused = self.0.unused();
        if !unused.http2.iter().any(|other| Arc::ptr_eq(other, connection)) {
            unused.http2.push(Arc::clone(connection));
            drop(unused);
            self.watch();
        }
    }

    /// Closes unused connections if no request comes to do it.
    fn watch(&self) {
        if mem::replace(&mut self.0.unused().is_watched, true) {
            return;
        }
        let pool = Arc::downgrade(&self.0);
        let idle = self.0.settings.idle_timeout;
        tokio::spawn(async move {
            loop {
                sleep(idle).await;
                let Some(pool) = pool.upgrade() else { return };
                let mut unused = pool.unused();
                unused.close_old(idle, Moment::now(pool.settings.clock.now()));
                unused.is_watched = !unused.http1.is_empty() || !unused.http2.is_empty();
                if !unused.is_watched {
                    return;
                }
            }
        });
    }
}

struct Returning<C: Connector>(Pool<C>);

impl<C: Connector> Drop for Returning<C> {
    fn drop(&mut self) {
        self.0.0.unused().returning -= 1;
        self.0.0.returned.notify_waiters();
    }
}

async fn finish(mut connection: Http1, body: Option<Incoming>) -> Option<Http1> {
    if let Some(mut body) = body
        && !read(&mut body).await
    {
        return None;
    }
    connection.sender.ready().await.ok().map(|()| connection)
}

/// Reads a body to its end; `false` if it is too long, or breaks off.
async fn read(body: &mut Incoming) -> bool {
    let mut room = MAX_BODY_BYTES;
    while let Some(frame) = body.frame().await {
        let length = frame.ok().map(|frame| frame.data_ref().map_or(0, Bytes::len));
        match length.and_then(|length| room.checked_sub(length)) {
            Some(rest) => room = rest,
            None => return false,
        }
    }
    true
}
