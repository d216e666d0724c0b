//! The open connections of the local page. Their number has a bound, and idle ones make room for new
//! ones, so that no other program keeps the user out. It knows no HTTP.

use std::sync::{Arc, Mutex, PoisonError};

use tokio::task::{AbortHandle, JoinSet};
use tokio::time::Instant;

/// Connections at once. A browser opens six for a page. Beyond them, the longest idle one ends.
const MAX_CONNECTIONS: usize = 64;

#[derive(Default)]
pub(super) struct Connections {
    pub(super) tasks: JoinSet<()>,
    open: Vec<(AbortHandle, ConnectionUse)>,
}

/// The time since which a connection has no request; `None` while it has one.
#[derive(Clone)]
pub(super) struct ConnectionUse(Arc<Mutex<Option<Instant>>>);

/// A request of a connection, until its response is sent.
pub(super) struct Busy(ConnectionUse);

impl Connections {
    /// Whether there is room for one more, perhaps in the place of the longest idle one.
    pub(super) fn make_room(&mut self) -> bool {
        self.open.retain(|(task, _)| !task.is_finished());
        if self.open.len() < MAX_CONNECTIONS {
            return true;
        }
        let idle = self.open.iter().enumerate();
        let idle = idle.filter_map(|(at, (_, connection))| Some((connection.idle_since()?, at)));
        let Some((_, longest)) = idle.min() else { return false };
        self.open.swap_remove(longest).0.abort();
        true
    }

    pub(super) fn serve<F>(&mut self, serve: impl FnOnce(ConnectionUse) -> F)
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let connection = ConnectionUse::new();
        let task = self.tasks.spawn(serve(connection.clone()));
        self.open.push((task, connection));
    }
}

impl ConnectionUse {
    fn new() -> Self {
        Self(Arc::new(Mutex::new(Some(Instant::now()))))
    }

    fn idle_since(&self) -> Option<Instant> {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn set(&self, idle_since: Option<Instant>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = idle_since;
    }

    pub(super) fn begin(&self) -> Busy {
        self.set(None);
        Busy(self.clone())
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        self.0.set(Some(Instant::now()));
    }
}

#[cfg(test)]
mod tests {
    use std::future::pending;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn the_longest_idle_connection_makes_room_and_one_with_a_request_does_not() {
        let mut connections = Connections::default();
        let mut busy = Vec::new();
        for _ in 0..MAX_CONNECTIONS {
            assert!(connections.make_room());
            connections.serve(|connection| {
                busy.push(connection.begin());
                pending()
            });
            tokio::time::advance(std::time::Duration::from_millis(1)).await;
        }
        assert!(!connections.make_room(), "all have a request");
        let longest = busy.swap_remove(1);
        let (task, _) = &connections.open[1];
        let task = task.clone();
        drop(longest);
        tokio::time::advance(std::time::Duration::from_millis(1)).await;
        drop(busy.swap_remove(0));
        assert!(connections.make_room());
        assert!(connections.tasks.join_next().await.is_some_and(|ended| ended.is_err()));
        assert!(task.is_finished(), "the one that was idle longer");
        assert_eq!(connections.open.len(), MAX_CONNECTIONS - 1);
    }
}
