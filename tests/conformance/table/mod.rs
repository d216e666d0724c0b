//! One script of the port `Table`, against the table in this process and, by the adapter for
//! DynamoDB, against three independent implementations of DynamoDB. `REQUEUE_TEST_DYNALITE` is the
//! endpoint URL of the third; it sends no item with an unmet condition.

mod checks;
mod faults;

use std::sync::Arc;
use std::time::Duration;

use futures_util::{StreamExt, stream};
use requeue::table::{DynamoTable, Field, Item, Key, MemoryTable, Table, TableError, Update};
use requeue_testkit::dynamodb::{config, create_table};
use requeue_testkit::tools::tool;

use crate::AT_ONCE;

const A: Field = Field::new("a");
const B: Field = Field::new("b");

/// An item that no other check has used.
#[derive(Clone)]
struct Bench {
    table: Arc<dyn Table>,
    key: Key,
    /// The most callers at once.
    callers: usize,
}

impl Bench {
    fn new(table: Arc<dyn Table>, callers: usize) -> Self {
        Self { table, key: Key::of([uuid::Uuid::new_v4()]), callers }
    }

    async fn update(&self, update: Update) -> Result<String, TableError> {
        let answer = self.table.update(&self.key, &update).await?;
        let done = if answer.is_changed { "changed" } else { "kept" };
        Ok(format!("{done} {}", told(&answer.before)))
    }

    async fn read(&self) -> Result<String, TableError> {
        Ok(told(&self.table.read(&self.key).await?.before))
    }
}

fn told(item: &Item) -> String {
    format!("a={} b={}", item.get(A), item.get(B))
}

#[tokio::test]
async fn the_store_in_memory_keeps_the_rules_of_the_port() {
    judge("memory", &(Arc::new(MemoryTable::default()) as Arc<dyn Table>)).await;
}

#[tokio::test]
async fn a_table_of_moto_keeps_the_rules_of_the_port() {
    of_dynamodb("moto", "REQUEUE_TEST_MOTO").await;
}

#[tokio::test]
async fn a_table_of_ministack_keeps_the_rules_of_the_port() {
    of_dynamodb("ministack", "REQUEUE_TEST_MINISTACK").await;
}

#[tokio::test]
async fn a_table_of_dynalite_keeps_the_rules_of_the_port() {
    of_dynamodb("dynalite", "REQUEUE_TEST_DYNALITE").await;
}

async fn of_dynamodb(name: &str, variable: &str) {
    let Some(url) = tool(variable) else { return };
    let (config, table) = (config(&url), format!("check-{}", uuid::Uuid::new_v4()));
    create_table(&config, &table).await;
    let table: Arc<dyn Table> = Arc::new(DynamoTable::new(&table, &config));
    judge(name, &table).await;

    let answer = table.read(&Key::of(["date"])).await.expect("an answer");
    let date = answer.date.expect("a table tells its time");
    let skew = date.elapsed().unwrap_or_else(|ahead| ahead.duration());
    assert!(skew < Duration::from_mins(1), "the date of a read: {skew:?}");
    for update in [Update::new().set(B, 1), Update::new().when(B, 2..=3)] {
        let answer = table.update(&Key::of(["date"]), &update).await.expect("an answer");
        assert!(answer.date >= Some(date), "{update:?}");
    }

    let missing = DynamoTable::new("missing", &config);
    let (key, update) = (Key::of(["key"]), Update::new().when(A, 0..=1).add(A, 1));
    let refused = Err(TableError::Unavailable("ResourceNotFoundException".into()));
    assert_eq!(missing.update(&key, &update).await.map(drop), refused);
    assert_eq!(missing.read(&key).await.map(drop), refused);
}

/// An implementation that breaks a rule, and how. moto 5.2.5 needs an `UpdateExpression`, which is
/// optional by the API reference of DynamoDB, `UpdateItem`.
const DIFFERENCES: [(&str, &str, &str); 1] =
    [("moto", "an update without a change is done too", "unexpected UnreadableResponse")];

async fn judge(implementation: &str, table: &Arc<dyn Table>) {
    // moto 5.2.5 loses updates, since its threads share items without a lock.
    let callers = if implementation == "moto" { 1 } else { usize::MAX };
    let runs = checks::all().into_iter().map(|(name, expected, run)| {
        // Also when it has become right: the table must stay true.
        let known =
            DIFFERENCES.iter().find(|(who, rule, _)| (*who, *rule) == (implementation, name));
        let expected = known.map_or(expected, |(.., instead)| instead);
        let bench = Bench::new(Arc::clone(table), callers);
        async move {
            let observed = run(bench).await.unwrap_or_else(|error| format!("unexpected {error}"));
            (observed != expected)
                .then(|| format!("{name}\n    expected: {expected}\n    observed: {observed}"))
        }
    });
    let runs = stream::iter(runs.collect::<Vec<_>>()).buffer_unordered(AT_ONCE);
    let wrong: Vec<String> = runs.filter_map(std::future::ready).collect().await;
    assert!(wrong.is_empty(), "{implementation}:\n{}", wrong.join("\n"));
}
