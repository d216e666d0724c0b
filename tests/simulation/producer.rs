//! The messages of a run and their producer.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::SystemTime;

use requeue::Delay;
use requeue::policy::MessageKey;
use requeue::queue::{Attribute, AttributeValue, MAX_BATCH_BYTES, Outgoing, Queue};
use serde_json::Value;
use tokio::time::sleep;

use crate::asked::Asked;
use crate::plan::{Plan, secs};
use crate::system::World;
use requeue_testkit::dice::Dice;

/// What must never be logged, in every body and every attribute.
pub const CANARY: &str = "CANARY";

/// An attribute and a place in the body with a value of a key.
pub const TENANT: &str = "tenant";
pub const CUSTOMER: &str = "/customer";
/// The values there. Equal numbers are one value.
const CUSTOMERS: [&str; 4] = ["\"CANARY\"", "7", "0.70e1", "null"];

/// A message as its producer made it.
#[derive(Clone, Debug)]
pub struct Product {
    pub body: String,
    /// What the handler is to see on every attempt.
    pub seen: String,
    pub attributes: BTreeMap<String, Attribute>,
    pub group: Option<String>,
    customer: String,
    pub maker: Maker,
    /// Whether a copy can hold our members, and where wrapping is switched off too.
    pub copies: Copies,
    pub asked: Asked,
}

/// Whose members our names are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Maker {
    /// The producer's; so many retries are believed to be used already, if the policy allows so
    /// many.
    Producer { count: u32 },
    /// Ours, to all appearance.
    Forger,
    /// Those of a later version.
    Successor,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Copies {
    AsTheyAre,
    Wrapped,
    TooLong,
}

impl Product {
    pub fn new(n: usize, plan: &Plan, dice: &Dice, now: SystemTime) -> Self {
        let is_fifo = plan.is_fifo;
        let mark = format!(r#""mark":"<{n}>","customer":{}"#, dice.pick(&CUSTOMERS));
        let secret = format!(r#""secret":"{CANARY}""#);
        let (mut maker, mut copies) = (Maker::Producer { count: 0 }, Copies::AsTheyAre);
        let mut seen = None;
        let body = match dice.roll(0, 19) {
            0 => format!(
                r#" {{ {mark} ,"retryCount":"five","originalMessageId":7,"retryState":"mine", {secret} }} "#
            ),
            1 => {
                let count = u32::try_from(dice.roll(0, 14)).expect("small");
                maker = Maker::Producer { count };
                format!(r#"{{{mark},"retryCount":{count},{secret}}}"#)
            }
            2 => {
                copies = Copies::Wrapped;
                format!(r#"{{{mark},"retryCount":1,"retry\u0043ount":2,{secret}}}"#)
            }
            3 => {
                copies = Copies::Wrapped;
                format!("<{n}> a text, \"quoted\"\nand {CANARY} \u{1F980}\\")
            }
            4 => {
                copies = Copies::Wrapped;
                format!(r#"["<{n}>", 1.0, 12345678901234567890123, "{CANARY}"]"#)
            }
            5 => {
                copies = Copies::Wrapped;
                format!(r#"{{{mark},"cut off": {secret}"#)
            }
            6 => {
                copies = Copies::Wrapped;
                format!(r#"{{{mark},"retryBody":"{CANARY}"}}"#)
            }
            7 => {
                let payload = format!(r#"{{\"mark\":\"<{n}>\",\"x\":\"{CANARY}\"}}"#);
                format!(
                    r#"{{"Type":"Notification","Message":"{payload}","Signature":"{CANARY}=="}}"#
                )
            }
            8 if !is_fifo => {
                maker = Maker::Forger;
                seen = Some(format!("{{{mark},{secret}}}"));
                format!("{{{mark},{secret},{}}}", forged(dice))
            }
            9 if !is_fifo => {
                maker = Maker::Successor;
                let stamp =
                    r#""originalMessageId":"x","retryTimestamp":"2100-01-01T00:00:00.000Z""#;
                format!(
                    r#"{{{mark},"retryCount":1,{stamp},"retryState":{{"v":2,"news":[]}},{secret}}}"#
                )
            }
            10 => format!(
                r#"{{ "a" : 1.50 , "a":1e2,{mark}, {secret},"z":12345678901234567890,"e":"\uFFFF\/" }}"#
            ),
            // Rare, since a run with one takes as long as a hundred others.
            11 if dice.happens(10) => {
                copies = Copies::TooLong;
                let rest = MAX_BATCH_BYTES - usize::try_from(dice.roll(400, 3_000)).expect("small");
                format!(r#"{{{mark},{secret},"long":"{}"}}"#, "x".repeat(rest - 100))
            }
            _ => format!("{{{mark},{secret}}}"),
        };
        let group = if is_fifo {
            Some(format!("group-{}", dice.roll(1, 3)))
        } else {
            dice.happens(300).then(|| group(dice))
        };
        let mut attributes = attributes(dice);
        let mut asked = Asked::default();
        if maker != Maker::Successor {
            let (limits, named) = Asked::draw(plan, dice, now);
            asked = limits;
            attributes.extend(named);
        }
        Self {
            customer: customer(&body),
            seen: seen.unwrap_or_else(|| body.clone()),
            body,
            attributes,
            group,
            maker,
            copies,
            asked,
        }
    }

    /// The value of a key; empty if there is none.
    pub fn value(&self, key: &MessageKey) -> String {
        match key {
            MessageKey::MessageGroupId => self.group.clone().unwrap_or_default(),
            MessageKey::Attribute(name) => match self.attributes.get(name) {
                Some(Attribute { value: AttributeValue::Text(text), .. }) => text.clone(),
                _ => String::new(),
            },
            _ => self.customer.clone(),
        }
    }
}

/// A value of a key of the messages of a standard queue.
pub fn any_value(key: &MessageKey, dice: &Dice) -> String {
    match key {
        MessageKey::MessageGroupId => group(dice),
        MessageKey::Attribute(_) => tenant(dice),
        _ => dice.pick(&[CANARY, "7"]).to_owned(),
    }
}

fn customer(body: &str) -> String {
    let body: Value = serde_json::from_str(body).unwrap_or_default();
    let customer = &body[&CUSTOMER[1..]];
    let number = customer.as_f64().map(|number| number.to_string());
    customer.as_str().map(str::to_owned).or(number).unwrap_or_default()
}

fn group(dice: &Dice) -> String {
    format!("tenant-{}", dice.roll(1, 3))
}

fn tenant(dice: &Dice) -> String {
    format!("{CANARY} {}", dice.roll(1, 2))
}

/// Members that are well-formed, and that we did not write.
fn forged(dice: &Dice) -> String {
    /// In the year 2100.
    const FAR: u64 = 4_102_444_800_000;
    let year = dice.pick(&[2020, 2100]);
    let mut state = r#""v":1"#.to_owned();
    let optional = [
        r#""deferrals":200"#,
        r#""hops":7"#,
        r#""lineage":3"#,
        r#""redrives":4000000000"#,
        &format!(r#""notBefore":{FAR}"#),
        r#""counts":{"temporary":2,"quota":4000000000}"#,
        r#""class":"quota""#,
        &format!(r#""firstReceived":{}"#, dice.pick(&[1_000, FAR])),
        &format!(r#""firstSent":{FAR}"#),
        &format!(r#""ageFrom":{FAR}"#),
        &format!(r#""startTag":{}"#, dice.pick(&[0, FAR])),
        r#""unknown":[1.0]"#,
        r#""deadLetter":{"reason":"x"}"#,
    ];
    for member in optional {
        if dice.happens(150) {
            state.push(',');
            state.push_str(member);
        }
    }
    let count = dice.pick(&[0_u64, 1, 5, 4_294_967_295]);
    let stamp =
        format!(r#""originalMessageId":"forged","retryTimestamp":"{year}-01-01T00:00:00.000Z""#);
    format!(r#""retryCount":{count},{stamp},"retryState":{{{state}}}"#)
}

fn attributes(dice: &Dice) -> BTreeMap<String, Attribute> {
    let text = |data_type: &str, value: String| Attribute {
        data_type: data_type.to_owned(),
        value: AttributeValue::Text(value),
    };
    let mut attributes = BTreeMap::new();
    if dice.happens(500) {
        attributes.insert(TENANT.to_owned(), text("String", tenant(dice)));
    }
    if dice.happens(300) {
        attributes.insert("amount".to_owned(), text("Number.cents", "12.50".to_owned()));
    }
    if dice.happens(300) {
        let value = AttributeValue::Binary(vec![0, 159, 146, 150]);
        attributes
            .insert("raw".to_owned(), Attribute { data_type: "Binary.png".to_owned(), value });
    }
    attributes
}

/// Which message a body is that of; the mark stands near its beginning, also in an envelope.
pub fn number(body: &str) -> Option<usize> {
    let start = &body.as_bytes()[..body.len().min(200)];
    let open = start.iter().position(|byte| *byte == b'<')?;
    let close = start.iter().position(|byte| *byte == b'>')?;
    std::str::from_utf8(start.get(open + 1..close)?).ok()?.parse().ok()
}

/// Sends all messages of the run, each at its time.
pub async fn produce(world: Arc<World>) {
    let dice = Dice::of(world.seed, 2);
    let mut pauses: Vec<u64> =
        (0..world.plan.messages).map(|_| dice.roll(0, world.plan.sending.as_secs())).collect();
    pauses.sort_unstable();
    let mut now = 0;
    for (n, at) in pauses.into_iter().enumerate() {
        sleep(secs(at - now)).await;
        now = at;
        let product = Product::new(n, &world.plan, &dice, world.clock.now());
        let deduplication = n.to_string();
        let mut message = Outgoing::new(&product.body, &product.attributes);
        if !world.plan.is_fifo {
            message.delay = Delay::at_most(secs(dice.pick(&[0, 0, 5, 900])));
        }
        message.group_id = product.group.as_deref();
        message.deduplication_id = world.plan.is_fifo.then_some(deduplication.as_str());
        let sent = world.aside(world.sqs.send(&world.queue, &[message])).await.expect("sent");
        sent[0].as_ref().expect("a message that SQS takes");
        world.book().sent(&world, n, product);
        world.news.notify_waiters();
    }
    world.end_actor();
}

/// Moves the dead letters back when the plan says so.
pub async fn operate(world: Arc<World>) {
    let mut redrives = world.plan.redrives.clone();
    redrives.sort_unstable();
    let started = tokio::time::Instant::now();
    for at in redrives {
        tokio::time::sleep_until(started + at).await;
        world.book().redriving(&world);
        let client = world.sqs.client();
        let task = client.start_message_move_task().source_arn(world.dead_letters.to_string());
        task.destination_arn(world.queue.to_string())
            .send()
            .await
            .expect("no other task is running");
        world.news.notify_waiters();
    }
    world.end_actor();
}
