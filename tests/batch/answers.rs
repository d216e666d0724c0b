//! Responses of SQS, as bytes: Requeue deletes an original only if the response confirms its copy
//! by id, whatever else the response says.

use std::sync::{Arc, Mutex};

use aws_sdk_sqs::Client;
use aws_smithy_runtime_api::client::http::{
    HttpConnector, HttpConnectorFuture, SharedHttpConnector, http_client_fn,
};
use aws_smithy_runtime_api::client::orchestrator::{HttpRequest, HttpResponse};
use aws_smithy_types::body::SdkBody;
use requeue::queue::SqsQueue;
use requeue::{BatchProcessor, Failure};
use serde_json::{Value, json};

use crate::world::{DELETE, SEND, Script, World, records};

/// SQS that answers every send with the same bytes, and notes each call: the operation and its
/// body.
#[derive(Clone, Debug)]
struct Canned {
    answer: String,
    calls: Arc<Mutex<Vec<(String, Value)>>>,
}

impl HttpConnector for Canned {
    fn call(&self, request: HttpRequest) -> HttpConnectorFuture {
        let target = request.headers().get("x-amz-target").expect("an operation");
        let operation = target.rsplit('.').next().expect("a name").to_owned();
        let body =
            serde_json::from_slice(request.body().bytes().expect("no stream")).expect("JSON");
        let answer = if operation == SEND {
            self.answer.clone()
        } else {
            r#"{"Successful":[],"Failed":[]}"#.to_owned()
        };
        self.calls.lock().expect("no panic while it is held").push((operation, body));
        HttpConnectorFuture::ready(Ok(HttpResponse::new(
            200.try_into().expect("a status"),
            SdkBody::from(answer),
        )))
    }
}

impl Canned {
    fn queue(&self, world: &World) -> SqsQueue {
        let connector = SharedHttpConnector::new(self.clone());
        let client = http_client_fn(move |_, _| connector.clone());
        SqsQueue::new(&Client::from_conf(world.sqs.client_config().http_client(client).build()))
    }

    fn calls(&self, operation: &str) -> Vec<Value> {
        let calls = self.calls.lock().expect("no panic while it is held");
        calls.iter().filter(|call| call.0 == operation).map(|call| call.1.clone()).collect()
    }
}

#[tokio::test(start_paused = true)]
async fn only_what_an_answer_confirms_by_id_is_deleted() {
    let sent = |ids: &[&str]| -> Vec<Value> {
        ids.iter()
            .map(|id| json!({ "Id": id, "MessageId": "m", "MD5OfMessageBody": "d" }))
            .collect()
    };
    let refused = |ids: &[&str]| -> Vec<Value> {
        ids.iter()
            .map(|id| json!({ "Id": id, "Code": "InvalidParameterValue", "SenderFault": true }))
            .collect()
    };
    let answer = |confirmed: &[&str], failed: &[&str]| {
        json!({ "Successful": sent(confirmed), "Failed": refused(failed) }).to_string()
    };
    let text = str::to_owned;
    for (answer, sends, confirmed) in [
        (answer(&["0", "1", "2"], &[]), 1, &[0, 1, 2][..]),
        (answer(&["2", "0", "1"], &[]), 1, &[0, 1, 2]),
        (answer(&["1", "0"], &["2"]), 1, &[0, 1]),
        (answer(&["1", "1", "1"], &[]), 1, &[1]),
        (answer(&["0", "1", "2"], &["1"]), 1, &[0, 2]),
        (answer(&["0"], &["1"]), 1, &[0]),
        (answer(&["3", "-1", "", "zero", "18446744073709551616"], &["9"]), 1, &[]),
        (answer(&[], &["0", "1", "2"]), 1, &[]),
        (answer(&[], &[]), 1, &[]),
        (json!({ "Failed": refused(&["2"]) }).to_string(), 1, &[]),
        (json!({ "Successful": sent(&["2"]) }).to_string(), 1, &[2]),
        (text(r#"{"Successful":null,"Failed":null}"#), 1, &[]),
        (text("{}"), 1, &[]),
        // Of no answer that can be read the copies may be there: one more try, and no third.
        (text("<html>Welcome to the hotel</html>"), 2, &[]),
        (text(r#"{"Successful":[{"Id":"0","#), 2, &[]),
        (text(r#"{"Successful":"0"}"#), 2, &[]),
        (text("[]"), 2, &[]),
    ] {
        let world = World::new();
        let ids = world.send_numbered(3).await;
        let canned = Canned { answer: answer.clone(), calls: Arc::default() };
        let script = Script::always(Failure::temporary("no"));
        let processor = BatchProcessor::new(script, canned.queue(&world), world.settings.clone());
        let event = world.receive().await;
        let answered = world.invoke_with(&processor, &event).await.expect("an answer");

        assert_eq!(canned.calls(SEND).len(), sends, "{answer}");
        // The first delete; nothing is confirmed by its answer, so a second one follows.
        let calls = canned.calls(DELETE);
        let entries = calls.first().and_then(|call| call["Entries"].as_array());
        let deleted: Vec<&Value> =
            entries.into_iter().flatten().map(|entry| &entry["ReceiptHandle"]).collect();
        let handles: Vec<&Value> =
            confirmed.iter().map(|at| &records(&event)[*at]["receiptHandle"]).collect();
        assert_eq!(deleted, handles, "{answer}");
        let kept: Vec<&String> =
            (0..3).filter(|at| !confirmed.contains(at)).map(|at| &ids[at]).collect();
        let failed: Vec<&String> =
            answered.batch_item_failures.iter().map(|item| &item.item_identifier).collect();
        assert_eq!(failed, kept, "{answer}");
    }
}
