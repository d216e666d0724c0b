//! The port over DynamoDB. Only this file calls it.

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::SystemTime;

use aws_smithy_runtime_api::box_error::BoxError;
use aws_smithy_runtime_api::client::orchestrator::HttpResponse;
use aws_smithy_runtime_api::client::result::SdkError;
use aws_smithy_types::error::metadata::ProvideErrorMetadata;
use aws_smithy_types::retry::RetryConfig;
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use requeue_aws::{CallError, Service, call_json_with, is_throttled};
use requeue_sqs::printable;
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::{Map, Value, json};
use tokio::sync::OnceCell;

use super::{Action, Field, Item, Key, Table, TableError, TableResponse, Update};
use crate::aws::{self, SdkConfig};

/// The table's only key attribute, a string.
const ID: &str = "id";

/// The longest error code that is kept, since codes are logged.
const MAX_CODE_LEN: usize = 100;

/// A table in DynamoDB. Clones share their connections.
///
/// The table has one key attribute: the partition key `id`, a string. The attribute for time to
/// live is `expires`. The role needs `dynamodb:UpdateItem` and `dynamodb:GetItem` on the table.
///
/// A call is tried once and has no timeout of its own; the caller sets one. If DynamoDB's response
/// to an unmet condition has no item, a read follows: DynamoDB sends none if there is none, and some
/// emulators never send one.
#[derive(Clone, Debug)]
pub struct DynamoTable {
    table: Arc<str>,
    config: Arc<OnceCell<SdkConfig>>,
}

impl DynamoTable {
    /// Uses AWS's standard environment: credentials, region, endpoints (`AWS_ENDPOINT_URL_DYNAMODB`
    /// and `AWS_ENDPOINT_URL`). They are loaded at the first call. The table is a name or an ARN.
    pub fn from_env(table: &str) -> Self {
        Self { table: table.into(), config: Arc::default() }
    }

    /// Uses a configuration of your own, but for its retries.
    pub fn new(table: &str, config: &SdkConfig) -> Self {
        let config = OnceCell::new_with(Some(without_retries(config)));
        Self { table: table.into(), config: Arc::new(config) }
    }

    async fn call(&self, operation: &'static str, parameters: Value) -> Result<Found, CallError> {
        let make = async || without_retries(&aws::config().await);
        let config = self.config.get_or_init(make).await;
        call_json_with(config, Service::DynamoDb, operation, &parameters, found).await
    }

    /// The parameters that both operations have.
    fn parameters(&self, key: &Key) -> Value {
        json!({ "TableName": &*self.table, "Key": { ID: { "S": key.to_string() } } })
    }
}

fn without_retries(config: &SdkConfig) -> SdkConfig {
    config.to_builder().retry_config(RetryConfig::disabled()).build()
}

impl Table for DynamoTable {
    fn update<'a>(
        &'a self,
        key: &'a Key,
        update: &'a Update,
    ) -> BoxFuture<'a, Result<TableResponse, TableError>> {
        async move {
            let mut parameters = self.parameters(key);
            parameters["ReturnValues"] = "ALL_OLD".into();
            Expressions::default().write(update, &mut parameters);
            let error = match self.call("DynamoDB_20120810.UpdateItem", parameters).await {
                Ok(Found { item, date }) => {
                    return Ok(TableResponse {
                        is_changed: true,
                        before: item.unwrap_or_default(),
                        date,
                    });
                }
                Err(error) => error,
            };
            let Some(unmet) = unmet_condition(&error) else { return Err(table_error(&error)) };
            match found(unmet) {
                Ok(Found { item: Some(before), date }) => {
                    Ok(TableResponse { is_changed: false, before, date })
                }
                Ok(Found { item: None, .. }) => self.read(key).await,
                Err(_) => Err(TableError::Unavailable(Cow::Borrowed(aws::UNREADABLE))),
            }
        }
        .boxed()
    }

    fn read<'a>(&'a self, key: &'a Key) -> BoxFuture<'a, Result<TableResponse, TableError>> {
        async move {
            let mut parameters = self.parameters(key);
            parameters["ConsistentRead"] = true.into();
            let read = self.call("DynamoDB_20120810.GetItem", parameters).await;
            let Found { item, date } = read.map_err(|error| table_error(&error))?;
            Ok(TableResponse { is_changed: false, before: item.unwrap_or_default(), date })
        }
        .boxed()
    }
}

/// The names and the values of an update's expressions, by the positions of their placeholders.
/// DynamoDB refuses a placeholder that no expression uses.
#[derive(Default)]
struct Expressions {
    names: Vec<&'static str>,
    values: Vec<u64>,
}

impl Expressions {
    fn write(mut self, update: &Update, parameters: &mut Value) {
        let conditions = self.conditions(update);
        if !conditions.is_empty() {
            parameters["ConditionExpression"] = conditions.into();
            parameters["ReturnValuesOnConditionCheckFailure"] = "ALL_OLD".into();
        }
        let actions = self.actions(update);
        if !actions.is_empty() {
            parameters["UpdateExpression"] = actions.into();
        }
        if !self.names.is_empty() {
            let names = self.names.iter().enumerate();
            let names = names.map(|(at, name)| (format!("#n{at}"), (*name).into()));
            parameters["ExpressionAttributeNames"] = names.collect::<Map<_, _>>().into();
            let values = self.values.iter().enumerate();
            let values =
                values.map(|(at, value)| (format!(":v{at}"), json!({ "N": value.to_string() })));
            parameters["ExpressionAttributeValues"] = values.collect::<Map<_, _>>().into();
        }
    }

    /// An absent field is 0. Two comparisons, since DynamoDB refuses `BETWEEN` for an empty range.
    fn conditions(&mut self, update: &Update) -> String {
        let mut conditions = Vec::new();
        for (field, range) in update.conditions() {
            let (min, max) = (*range.start(), *range.end());
            if min > 0 {
                conditions.push(format!("{} >= {}", self.name(*field), self.value(min)));
            }
            if max < u64::MAX {
                let (name, max) = (self.name(*field), self.value(max));
                conditions.push(if min == 0 {
                    format!("(attribute_not_exists({name}) OR {name} <= {max})")
                } else {
                    format!("{name} <= {max}")
                });
            }
        }
        conditions.join(" AND ")
    }

    fn actions(&mut self, update: &Update) -> String {
        let (mut sets, mut adds) = (Vec::new(), Vec::new());
        for (field, action) in update.actions() {
            let name = self.name(*field);
            match action {
                Action::Set(number) => sets.push(format!("{name} = {}", self.value(*number))),
                Action::Add(number) => adds.push(format!("{name} {}", self.value(*number))),
            }
        }
        let clauses = [("SET", sets), ("ADD", adds)].into_iter();
        let clauses = clauses.filter(|(_, list)| !list.is_empty());
        let clauses: Vec<String> =
            clauses.map(|(verb, list)| format!("{verb} {}", list.join(", "))).collect();
        clauses.join(" ")
    }

    fn name(&mut self, field: Field) -> String {
        let known = self.names.iter().position(|name| *name == field.name());
        let at = known.unwrap_or_else(|| {
            self.names.push(field.name());
            self.names.len() - 1
        });
        format!("#n{at}")
    }

    fn value(&mut self, number: u64) -> String {
        self.values.push(number);
        format!(":v{}", self.values.len() - 1)
    }
}

/// A response of either operation, or the error of an unmet condition.
struct Found {
    item: Option<Item>,
    date: Option<SystemTime>,
}

fn found(answer: &HttpResponse) -> Result<Found, BoxError> {
    #[derive(Deserialize)]
    struct Body {
        #[serde(rename = "Attributes", alias = "Item")]
        item: Option<HashMap<String, Attribute>>,
    }
    let Body { item } = requeue_aws::json(answer)?;
    let date = answer.headers().get("date");
    let date = date.and_then(|date| httpdate::parse_http_date(date).ok());
    Ok(Found { item: item.map(numbers).transpose()?, date })
}

/// An attribute of an item. Items of a [`Table`] have no other types.
#[derive(Deserialize)]
enum Attribute {
    N(String),
    S(IgnoredAny),
}

fn numbers(attributes: HashMap<String, Attribute>) -> Result<Item, BoxError> {
    let attributes = attributes.into_iter().filter(|(name, _)| name != ID);
    let number = |(name, attribute)| match attribute {
        Attribute::N(number) => Ok((name, number.parse::<u64>()?)),
        Attribute::S(_) => Err("an attribute is a string".into()),
    };
    attributes.map(number).collect()
}

fn unmet_condition(error: &CallError) -> Option<&HttpResponse> {
    let is_unmet = error.code() == Some("ConditionalCheckFailedException");
    error.raw_response().filter(|_| is_unmet)
}

fn table_error(error: &CallError) -> TableError {
    if is_throttled(error) {
        return TableError::Throttled;
    }
    TableError::Unavailable(match error {
        SdkError::ServiceError(refusal) => {
            let code = refusal.err().code().unwrap_or("Unknown");
            Cow::Owned(printable::start_of_line(code, MAX_CODE_LEN).into_owned())
        }
        _ => Cow::Borrowed(aws::code_without_error(error)),
    })
}
