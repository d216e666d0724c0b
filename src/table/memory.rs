//! A table in this process.

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use tokio::time::Instant;

use super::{Answer, Item, Key, Table, TableError, Update};
use crate::clock::after;
use crate::lock::lock;

const MAX_ITEMS: usize = 100_000;

/// A table in this process, for tests and for a single worker. Clones share their items. It has at
/// most 100,000 items. A new one takes the place of those that were written the longest ago; one that
/// an event in progress, a probe lock, a limit or a pause still needs is kept. If all are, a new item finds no room, and the table is
/// unavailable for it.
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
    /// Nobody depends on it after this.
    needed_until: Instant,
}

impl Items {
    /// Forgets the half that was changed the longest ago, of the items that nobody needs. Returns
    /// whether there is room.
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

    fn change(&self, key: &Key, update: &Update) -> Result<Answer, TableError> {
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
        Ok(Answer { is_changed, before, date: None })
    }

    fn find(&self, key: &Key) -> Answer {
        let items = lock(&self.0);
        let before = items.kept.get(key).map(|kept| kept.item.clone()).unwrap_or_default();
        Answer { is_changed: false, before, date: None }
    }
}

impl Table for MemoryTable {
    fn update<'a>(
        &'a self,
        key: &'a Key,
        update: &'a Update,
    ) -> BoxFuture<'a, Result<Answer, TableError>> {
        async { self.change(key, update) }.boxed()
    }

    fn read<'a>(&'a self, key: &'a Key) -> BoxFuture<'a, Result<Answer, TableError>> {
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
