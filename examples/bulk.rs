//! An API that takes up to 100 items in one request and reports each: one call for many messages, and
//! a result for each. As Elasticsearch, DynamoDB and most bulk endpoints respond, the HTTP status
//! speaks of the request, and the body of the items.

#![allow(
    clippy::disallowed_methods,
    clippy::unused_async,
    clippy::unwrap_used,
    reason = "rules of the library"
)]

use requeue::{Bulk, BulkHandler, Failure, Message, Settings};

#[derive(serde::Deserialize, serde::Serialize)]
struct Doc {
    id: String,
}

/// The API, as its client shows it: a status for each item, or the failure of the whole request.
trait Search: Send + Sync + 'static {
    fn index(&self, ids: Vec<&str>) -> impl Future<Output = Result<Vec<u16>, Failure>> + Send;
}

struct Index<S>(S);

impl<S: Search> BulkHandler<Doc> for Index<S> {
    type Error = Failure;

    async fn handle(&self, messages: Vec<Message<Doc>>) -> Bulk<Failure> {
        let ids = messages.iter().map(|message| message.body().id.as_str()).collect();
        match self.0.index(ids).await {
            Ok(statuses) => statuses.into_iter().map(of_status).collect(),
            // Nobody knows what became of the items.
            Err(failure) => Bulk::Unclear(failure),
        }
    }

    fn messages_per_call(&self) -> usize {
        100
    }
}

fn of_status(status: u16) -> Result<(), Failure> {
    match status {
        200..=299 => Ok(()),
        429 => Err(Failure::rate_limit("429")),
        500.. => Err(Failure::temporary(status)),
        _ => Err(Failure::non_retryable(status)),
    }
}

/// Put your client here.
struct Sandbox;

impl Search for Sandbox {
    async fn index(&self, ids: Vec<&str>) -> Result<Vec<u16>, Failure> {
        Ok(vec![201; ids.len()])
    }
}

#[tokio::main]
async fn main() -> Result<(), requeue::Error> {
    requeue::run_with(requeue::bulk(Index(Sandbox)), Settings::from_env()?).await
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use requeue::bulk;
    use requeue::testing::World;

    use super::*;

    /// Answers by the names of the documents, and remembers the requests.
    #[derive(Clone, Default)]
    struct Scripted(Arc<Mutex<Vec<Vec<String>>>>);

    impl Scripted {
        /// In how many requests an item was.
        fn times(&self, id: &str) -> usize {
            self.0.lock().unwrap().iter().filter(|ids| ids.iter().any(|one| one == id)).count()
        }
    }

    impl Search for Scripted {
        async fn index(&self, ids: Vec<&str>) -> Result<Vec<u16>, Failure> {
            self.0.lock().unwrap().push(ids.iter().map(|id| (*id).to_owned()).collect());
            if ids.contains(&"crash") && self.times("crash") <= 4 {
                return Err(Failure::temporary("502"));
            }
            let status = |id: &&str| match *id {
                "busy" if self.times("busy") == 1 => 429,
                "wrong" => 400,
                _ => 201,
            };
            Ok(ids.iter().map(status).collect())
        }
    }

    #[tokio::test(start_paused = true)]
    async fn each_item_has_its_own_end() {
        let requests = Scripted::default();
        let mut world = World::new(bulk(Index(requests.clone())));
        let doc = |id: &str| Doc { id: id.to_owned() };
        let (new, wrong) = (world.send(doc("new")).await, world.send(doc("wrong")).await);
        let busy = world.send(doc("busy")).await;
        world.run_until_empty().await;
        assert_eq!(requests.0.lock().unwrap()[0], ["new", "wrong", "busy"]);
        assert_eq!(world.calls(), 2, "of all three, and of the busy one alone");
        world.assert_done(&new);
        world.assert_done(&busy);
        world.assert_dead(&wrong, "400");
    }

    #[tokio::test(start_paused = true)]
    async fn an_item_that_ends_every_request_is_found_and_the_others_are_done() {
        let requests = Scripted::default();
        let mut world = World::new(bulk(Index(requests.clone())));
        let mut others = Vec::new();
        for n in 0..9 {
            others.push(world.send(Doc { id: n.to_string() }).await);
        }
        let crash = world.send(Doc { id: "crash".to_owned() }).await;
        world.run_until_empty().await;
        for other in &others {
            world.assert_done(other);
        }
        let sizes: Vec<_> = requests.0.lock().unwrap().iter().map(Vec::len).collect();
        assert!(sizes[0] == 10 && sizes[1..].iter().all(|size| *size <= 3), "{sizes:?}");
        assert_eq!(world.attempts(&crash), 5, "two with others, three alone");
        world.assert_done(&crash);
    }
}
