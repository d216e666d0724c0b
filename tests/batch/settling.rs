//! Send, confirm, delete: and what happens when one of them fails.

use std::time::Duration;

use requeue::Failure;
use requeue::embedded::{Fault, MessageState};

use crate::world::{Act, Script, World};

#[tokio::test(start_paused = true)]
async fn ten_that_fail_together_cost_two_requests() {
    let world = World::new();
    for n in 0..10 {
        world.send(&format!(r#"{{"n":{n}}}"#)).await;
    }
    let processor = world.processor(Script::always(Failure::rate_limit("later").retry_after(Duration::from_secs(40))));
    let invocation = world.invoke(&processor).await.unwrap();

    assert_eq!(invocation.failed(), Vec::<&str>::new());
    assert_eq!((world.calls("SendMessageBatch"), world.calls("DeleteMessageBatch")), (1, 1));
    assert_eq!(world.calls("ChangeMessageVisibilityBatch"), 0);
    let copies = world.messages();
    assert_eq!(copies.len(), 10);
    let due = world.clock.now() + Duration::from_secs(40);
    assert!(copies.iter().all(|copy| copy.state == MessageState::DelayedUntil(due)));
    assert!(copies[0].body.starts_with(r#"{"n":0,"retryCount":1,"originalMessageId":""#), "{}", copies[0].body);
}

#[tokio::test(start_paused = true)]
async fn what_succeeds_costs_no_request_and_is_deleted_by_the_mapping() {
    let world = World::new();
    world.send("{}").await;
    let processor = world.processor(Script::new(|_| Act::Done));
    assert!(world.invoke(&processor).await.unwrap().failed().is_empty());
    assert!(world.messages().is_empty());
    for operation in ["SendMessageBatch", "DeleteMessageBatch", "ChangeMessageVisibilityBatch"] {
        assert_eq!(world.calls(operation), 0, "{operation}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_refused_send_deletes_nothing_and_is_reported() {
    let world = World::new();
    let id = world.send("{}").await;
    world.sqs.set_faults(|call| match call.operation.as_str() {
        "SendMessageBatch" => Fault::refuse(403, "AccessDeniedException"),
        _ => Fault::None,
    });
    let processor = world.processor(Script::always(Failure::temporary("no")));
    let invocation = world.invoke(&processor).await.unwrap();
    assert_eq!(invocation.failed(), [id.as_str()]);
    assert_eq!((world.calls("SendMessageBatch"), world.calls("DeleteMessageBatch")), (1, 0));
    assert_eq!(world.messages().len(), 1);
}
