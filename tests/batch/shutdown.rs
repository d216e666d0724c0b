//! A runtime of the handlers that ends at any moment leaves no thread behind.

use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;

use requeue::policy::RateLimit;
use requeue::table::MemoryTable;
use requeue::{Failure, Handler, Message, Scope, SharedTable};
use tokio::runtime::Builder;
use tokio::time::Instant;

use crate::world::{World, secs};

/// A handler that waits on its thread before its slot is asked for.
struct Waiting {
    begun: mpsc::Sender<()>,
    go_on: Arc<Mutex<mpsc::Receiver<()>>>,
}

impl Handler for Waiting {
    type Error = Failure;

    fn scope(&self, _: &Message) -> Scope {
        self.begun.send(()).unwrap();
        self.go_on.lock().unwrap().recv().unwrap();
        Scope::default()
    }

    async fn handle(&self, _: Message) -> Result<(), Failure> {
        Ok(())
    }
}

#[test]
fn a_slot_that_is_asked_for_while_the_runtime_shuts_down_blocks_no_thread() {
    let (begun, has_begun) = mpsc::channel();
    let (let_go, go_on) = mpsc::channel();
    let handlers = Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let handle = handlers.handle().clone();
    let working = std::thread::spawn(move || {
        let runtime = Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let mut world = World::new();
            world.settings.handlers = Some(handle);
            world.settings.policy.limit = Some(RateLimit::new(10, secs(1)));
            world.settings.shared_table = Some(SharedTable::by(Arc::new(MemoryTable::default())));
            world.function_timeout = secs(3);
            world.send("{}").await;
            let handler = Waiting { begun, go_on: Arc::new(Mutex::new(go_on)) };
            world.invoke(&world.processor(handler)).await;
        });
    });
    has_begun.recv().unwrap();
    let ending = std::thread::spawn(move || {
        let start = Instant::now();
        handlers.shutdown_timeout(secs(20));
        start.elapsed()
    });
    // The other thread of the runtime drops all tasks meanwhile.
    std::thread::sleep(Duration::from_millis(200));
    let_go.send(()).unwrap();
    let took = ending.join().unwrap();
    assert!(took < secs(10), "its thread was blocked for {took:?}");
    working.join().unwrap();
}
