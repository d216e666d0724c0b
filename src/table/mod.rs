//! The table that the execution environments of a function share: small items of numbers, each
//! changed by one atomic request. It knows neither messages nor limits.

use std::borrow::Cow;
use std::collections::HashMap;
use std::fmt;
use std::ops::RangeInclusive;
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use sha2::{Digest, Sha256};
use tokio::time::Instant;

use crate::clock::after;
use crate::lock::lock;

#[cfg(feature = "table")]
mod dynamodb;

#[cfg(feature = "table")]
pub use dynamodb::DynamoTable;

/// A table of items. Each method is one request, and is not tried again.
///
/// [`MemoryTable`] is one in this process, and [`DynamoTable`] a table in DynamoDB.
#[cfg_attr(
    not(feature = "table"),
    doc = "",
    doc = "[`DynamoTable`]: https://docs.rs/requeue/latest/requeue/table/struct.DynamoTable.html"
)]
pub trait Table: fmt::Debug + Send + Sync {
    /// Changes an item if it meets all conditions. A missing item is created.
    ///
    /// # Errors
    ///
    /// If there is no response, or the table refuses the request. The change may have been made.
    fn update<'a>(
        &'a self,
        key: &'a Key,
        update: &'a Update,
    ) -> BoxFuture<'a, Result<TableResponse, TableError>>;

    /// Reads an item, with all changes that were confirmed before.
    fn read<'a>(&'a self, key: &'a Key) -> BoxFuture<'a, Result<TableResponse, TableError>>;
}

/// The key of an item: a hash of all its parts. A hash of a short value can be guessed, so a key is
/// no secret, but a table shows no value as such.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key([u8; 32]);

impl Key {
    /// The key of these parts.
    pub fn of(parts: impl IntoIterator<Item = impl AsRef<[u8]>>) -> Self {
        let mut hash = Sha256::new();
        for part in parts {
            let part = part.as_ref();
            hash.update((part.len() as u64).to_le_bytes());
            hash.update(part);
        }
        Self(hash.finalize().into())
    }
}

/// In hexadecimal digits.
impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Key({self})")
    }
}

/// The name of a number in an item.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Field(&'static str);

impl Field {
    /// The time after which the table may delete the item, in seconds since the epoch. A table may
    /// do so days later or never, so conditions check the times of their own fields.
    pub const EXPIRES: Self = Self("expires");

    /// A field of this name.
    pub const fn new(name: &'static str) -> Self {
        Self(name)
    }

    pub(crate) const fn each<const N: usize>(names: [&'static str; N]) -> [Self; N] {
        let (mut fields, mut at) = ([Self(""); N], 0);
        while at < N {
            fields[at] = Self(names[at]);
            at += 1;
        }
        fields
    }

    /// Its name.
    pub const fn name(self) -> &'static str {
        self.0
    }
}

/// The numbers of an item. A missing field is 0, and so is each field of a missing item.
#[derive(Clone, Debug, Default)]
pub struct Item(Vec<(Cow<'static, str>, u64)>);

impl Item {
    /// The number of a field.
    pub fn get(&self, field: Field) -> u64 {
        self.0.iter().find(|(name, _)| *name == field.0).map_or(0, |(_, number)| *number)
    }

    /// Sets the number of a field.
    pub fn set(&mut self, field: Field, number: u64) {
        match self.0.iter_mut().find(|(name, _)| *name == field.0) {
            Some((_, old)) => *old = number,
            None => self.0.push((Cow::Borrowed(field.0), number)),
        }
    }
}

impl FromIterator<(Field, u64)> for Item {
    fn from_iter<I: IntoIterator<Item = (Field, u64)>>(fields: I) -> Self {
        Self(fields.into_iter().map(|(field, number)| (Cow::Borrowed(field.0), number)).collect())
    }
}

impl FromIterator<(String, u64)> for Item {
    fn from_iter<I: IntoIterator<Item = (String, u64)>>(fields: I) -> Self {
        Self(fields.into_iter().map(|(name, number)| (Cow::Owned(name), number)).collect())
    }
}

/// A change of an item, made only if all its conditions are met. It names each field at most once
/// in its actions.
///
/// ```
/// use requeue::table::{Field, Item, Update};
///
/// const CALLS: Field = Field::new("calls");
/// let update = Update::new().when(CALLS, 0..=9).add(CALLS, 2);
/// let mut item = Item::default();
/// assert!(update.apply(&mut item));
/// assert_eq!(item.get(CALLS), 2);
/// ```
#[derive(Clone, Debug, Default)]
pub struct Update {
    conditions: Vec<(Field, RangeInclusive<u64>)>,
    actions: Vec<(Field, Action)>,
    /// The item is needed for this long from now.
    needed_for: Duration,
}

/// The action of an update on a field. A table has to know each action, so a third one would be a
/// new major version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// It becomes this number.
    Set(u64),
    /// It grows by this number.
    Add(u64),
}

impl Update {
    /// A change without actions and conditions.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds the condition that a field is within this range.
    #[must_use]
    pub fn when(mut self, field: Field, range: RangeInclusive<u64>) -> Self {
        self.conditions.push((field, range));
        self
    }

    /// Sets a field.
    #[must_use]
    pub fn set(mut self, field: Field, number: u64) -> Self {
        self.actions.push((field, Action::Set(number)));
        self
    }

    /// Adds to a field.
    #[must_use]
    pub fn add(mut self, field: Field, number: u64) -> Self {
        self.actions.push((field, Action::Add(number)));
        self
    }

    /// The item is needed for this long after the change, for an event in progress, a probe lock, a
    /// limit or a pause. A table without room may drop any other item.
    pub(crate) fn needed_for(self, needed_for: Duration) -> Self {
        Self { needed_for, ..self }
    }

    /// Its conditions.
    pub fn conditions(&self) -> &[(Field, RangeInclusive<u64>)] {
        &self.conditions
    }

    /// Its actions, one for each field at most.
    pub fn actions(&self) -> &[(Field, Action)] {
        &self.actions
    }

    /// Changes an item in this process. Returns whether it met the conditions.
    #[must_use]
    pub fn apply(&self, item: &mut Item) -> bool {
        let is_met = self.conditions.iter().all(|(field, range)| range.contains(&item.get(*field)));
        if is_met {
            for (field, action) in &self.actions {
                let number = match action {
                    Action::Set(number) => *number,
                    Action::Add(number) => item.get(*field).saturating_add(*number),
                };
                item.set(*field, number);
            }
        }
        is_met
    }
}

/// The response of a table, which writes it as a literal. So another field would be a new major
/// version.
#[derive(Clone, Debug)]
pub struct TableResponse {
    /// Whether the item was changed; `false` also after a read.
    pub is_changed: bool,
    /// The item before the change. After an unmet condition, it may be a later one.
    pub before: Item,
    /// The time of the table, if known. It may be cut to a whole second.
    pub date: Option<SystemTime>,
}

/// A request without effect, or without a response.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TableError {
    /// The table throttles. It changed nothing.
    #[error("throttled")]
    Throttled,
    /// The table did not make the change, or did not confirm it. The error code is the reason.
    #[error("{0}")]
    Unavailable(Cow<'static, str>),
}

const MAX_ITEMS: usize = 100_000;

/// A table in this process, for tests and for a single worker. Clones share their items. It has at
/// most 100,000 items. A further item replaces those that were written the longest ago, but none
/// that an event in progress, a probe lock, a limit or a pause still needs. If all items are
/// needed, the table is unavailable for the new one.
#[derive(Clone, Debug, Default)]
pub struct MemoryTable(Arc<Mutex<Items>>);

#[derive(Debug, Default)]
struct Items {
    kept: HashMap<Key, Kept>,
    changes: u64,
}

#[derive(Debug)]
struct Kept {
    item: Item,
    /// The number of its last change.
    changed: u64,
    /// No caller needs it after this.
    needed_until: Instant,
}

impl Items {
    /// Drops the older half of the items that no caller needs.
    fn make_room(&mut self) -> bool {
        let now = Instant::now();
        let unneeded = self.kept.values().filter(|kept| kept.needed_until <= now);
        let mut changes: Vec<_> = unneeded.map(|kept| kept.changed).collect();
        if changes.is_empty() {
            return false;
        }
        let middle = changes.len() / 2;
        let (_, median, _) = changes.select_nth_unstable(middle);
        let median = *median;
        self.kept.retain(|_, kept| kept.needed_until > now || kept.changed > median);
        true
    }
}

impl MemoryTable {
    /// Deletes all items.
    pub fn clear(&self) {
        lock(&self.0).kept.clear();
    }

    fn change(&self, key: &Key, update: &Update) -> Result<TableResponse, TableError> {
        let mut items = lock(&self.0);
        let before = items.kept.get(key).map(|kept| kept.item.clone()).unwrap_or_default();
        let mut item = before.clone();
        let is_changed = update.apply(&mut item);
        if is_changed {
            let is_new = !items.kept.contains_key(key);
            if is_new && items.kept.len() >= MAX_ITEMS && !items.make_room() {
                return Err(TableError::Unavailable(Cow::Borrowed("TableFull")));
            }
            items.changes += 1;
            let (changed, needed_until) = (items.changes, after(update.needed_for));
            items.kept.insert(*key, Kept { item, changed, needed_until });
        }
        Ok(TableResponse { is_changed, before, date: None })
    }

    fn find(&self, key: &Key) -> TableResponse {
        let items = lock(&self.0);
        let before = items.kept.get(key).map(|kept| kept.item.clone()).unwrap_or_default();
        TableResponse { is_changed: false, before, date: None }
    }
}

impl Table for MemoryTable {
    fn update<'a>(
        &'a self,
        key: &'a Key,
        update: &'a Update,
    ) -> BoxFuture<'a, Result<TableResponse, TableError>> {
        async { self.change(key, update) }.boxed()
    }

    fn read<'a>(&'a self, key: &'a Key) -> BoxFuture<'a, Result<TableResponse, TableError>> {
        async { Ok(self.find(key)) }.boxed()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::time::advance;

    use super::*;
    use crate::table::Field;

    const OWNER: Field = Field::new("owner");

    fn key(number: usize) -> Key {
        Key::of([number.to_string()])
    }

    fn owner(table: &MemoryTable, number: usize) -> u64 {
        table.find(&key(number)).before.get(OWNER)
    }

    #[tokio::test(start_paused = true)]
    async fn a_full_store_forgets_the_oldest_change_and_nothing_that_is_in_use() {
        let minute = Duration::from_secs(60);
        let table = MemoryTable::default();
        let write = |number, update: Update| table.change(&key(number), &update.set(OWNER, 7));
        // Some are needed for a minute. Of the others, one in ten is changed again at the end.
        let needed = |number: usize| Duration::from_secs(u64::from(number.is_multiple_of(2)) * 60);
        for number in 0..MAX_ITEMS {
            write(number, Update::new().needed_for(needed(number))).expect("room");
        }
        for number in (1..MAX_ITEMS).step_by(10) {
            write(number, Update::new()).expect("it is known");
        }
        write(MAX_ITEMS + 1, Update::new()).expect("room");
        for number in 0..MAX_ITEMS {
            let (is_needed, is_there) = (number.is_multiple_of(2), owner(&table, number) != 0);
            assert!(is_there || !is_needed, "{number}");
            let is_recent = number % 10 == 1 || number >= MAX_ITEMS * 2 / 3;
            assert!(is_there || !is_recent, "{number}");
        }
        assert_eq!([owner(&table, 3), owner(&table, 11)], [0, 7]);
        // An update without effect, and a read, need no room.
        write(MAX_ITEMS + 2, Update::new().when(OWNER, 1..=1)).expect("no change");
        advance(minute).await;
        assert!(lock(&table.0).kept.len() <= MAX_ITEMS);
    }

    #[tokio::test(start_paused = true)]
    async fn if_all_items_are_in_use_a_new_one_finds_no_room_until_one_is_free() {
        let table = MemoryTable::default();
        let needed = Update::new().set(OWNER, 7).needed_for(Duration::from_secs(60));
        for number in 0..MAX_ITEMS {
            table.change(&key(number), &needed).expect("room");
        }
        let full = Err(TableError::Unavailable("TableFull".into()));
        let change = |number, update: &Update| table.change(&key(number), update).map(|_| ());
        assert_eq!(change(MAX_ITEMS, &needed), full);
        assert_eq!(change(3, &needed), Ok(()), "it is known");
        // It is given back.
        assert_eq!(change(3, &Update::new().set(OWNER, 0)), Ok(()));
        assert_eq!(change(MAX_ITEMS, &needed), Ok(()));
        assert_eq!(change(MAX_ITEMS + 1, &needed), full);
        advance(Duration::from_secs(60)).await;
        assert_eq!(change(MAX_ITEMS + 1, &needed), Ok(()));
        assert!(lock(&table.0).kept.len() <= MAX_ITEMS);
    }
}
