//! Events that are handled once, by a table in this process.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use ::http::{Request, Response};
use http_body_util::{BodyExt, Full};
use hyper::body::{Bytes, Incoming};
use requeue_testkit::http;
use serde_json::{Map, Value, json};

use crate::stage::{Stage, TIMEOUT};

/// The items of a table, by key.
type Items = Arc<Mutex<BTreeMap<String, Map<String, Value>>>>;

/// As much of DynamoDB as the table asks for: its conditions join comparisons by `AND`, and its
/// actions set fields.
async fn table() -> http::Server {
    let items = Items::default();
    http::Server::start(move |request| respond(request, Arc::clone(&items))).await
}

async fn respond(request: Request<Incoming>, items: Items) -> Response<Full<Bytes>> {
    let is_update = request.headers()["x-amz-target"].to_str().unwrap().ends_with("UpdateItem");
    let body = request.into_body().collect().await.unwrap().to_bytes();
    let asked: Value = serde_json::from_slice(&body).unwrap();
    let mut items = items.lock().unwrap();
    let key = asked["Key"]["id"]["S"].as_str().unwrap().to_owned();
    let before = items.get(&key).cloned();
    let item = |name: &str| before.clone().map_or(json!({}), |item| json!({ name: item }));
    if !is_update {
        return answer(200, &item("Item"));
    }
    let name = |placeholder: &str| asked["ExpressionAttributeNames"][placeholder].as_str().unwrap();
    let value = |placeholder: &str| &asked["ExpressionAttributeValues"][placeholder];
    let number = |value: &Value| value["N"].as_str().map_or(0, |number| number.parse().unwrap());
    let is_met = |condition: &str| {
        let comparison = condition.rsplit(" OR ").next().unwrap().trim_end_matches(')');
        let [field, sign, limit] = comparison.split(' ').collect::<Vec<_>>()[..] else {
            panic!("{condition}")
        };
        let found = before.as_ref().and_then(|item| item.get(name(field)));
        let found: u64 = found.map_or(0, number);
        if sign == ">=" { found >= number(value(limit)) } else { found <= number(value(limit)) }
    };
    let conditions = asked["ConditionExpression"].as_str();
    if !conditions.is_none_or(|conditions| conditions.split(" AND ").all(is_met)) {
        let mut refusal = item("Item");
        refusal["__type"] = "ConditionalCheckFailedException".into();
        return answer(400, &refusal);
    }
    let set = asked["UpdateExpression"].as_str().unwrap().strip_prefix("SET ").unwrap();
    let item_after = items.entry(key).or_default();
    for (field, placeholder) in set.split(", ").map(|action| action.split_once(" = ").unwrap()) {
        item_after.insert(name(field).to_owned(), value(placeholder).clone());
    }
    answer(200, &item("Attributes"))
}

fn answer(status: u16, body: &Value) -> Response<Full<Bytes>> {
    Response::builder().status(status).body(Full::from(body.to_string())).unwrap()
}

#[tokio::test]
async fn while_a_service_may_work_on_beyond_the_timeout_no_other_call_of_its_event_begins() {
    for (wish, calls) in [("hang", 1), ("gateway-timeout", 1), ("unavailable", 3)] {
        let (stage, table) = (Stage::new().await, table().await);
        let settings = [
            ("AWS_ENDPOINT_URL_DYNAMODB", table.url()),
            ("REQUEUE_TABLE", "events".to_owned()),
            ("REQUEUE_TIMEOUT_SECONDS", "1".to_owned()),
            (
                "REQUEUE_POLICY",
                r#"{"idempotency": {"key": "/n"}, "circuitBreaker": "off", "jitterPercentage": 0.0,
                    "errorConfigs": {"TEMPORARY": {"baseDelay": 1, "maxDelay": 1}}}"#
                    .to_owned(),
            ),
        ];
        let settings = settings.each_ref().map(|(name, value)| (*name, value.as_str()));
        let mut function = stage.requeue_lambda(&settings).await;
        let body = format!(r#"{{"n":7,"answer":"{wish}"}}"#);
        stage.send(&body).await;
        stage.invoke(&mut function, TIMEOUT).await;
        // Its retry, and another message about the same event.
        stage.invoke(&mut function, TIMEOUT).await;
        stage.send(&body).await;
        stage.invoke(&mut function, TIMEOUT).await;
        let log = function.stop().await;
        assert_eq!(stage.target.bodies().len(), calls, "{wish}: {log}");
        let waits = log.matches(r#""reason":"in-progress""#).count();
        assert_eq!(waits, if calls == 1 { 2 } else { 0 }, "{wish}: {log}");
    }
}
