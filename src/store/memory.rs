//! A store in this process.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use futures_util::FutureExt;
use futures_util::future::BoxFuture;

use super::{Answer, Field, Item, Key, Store, StoreError, Update};

/// The most items. At so many, the half that expires first is dropped.
const MAX_ITEMS: usize = 100_000;

/// A store in this process, for tests and for a single worker. Clones share their items. It has at
/// most 100,000 items, and drops those that expire first.
#[derive(Clone, Debug, Default)]
pub struct MemoryStore(Arc<Mutex<HashMap<Key, Item>>>);

impl MemoryStore {
    /// Deletes all items.
    pub fn clear(&self) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }

    fn change(&self, key: &Key, update: &Update) -> Answer {
        let mut items = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if items.len() >= MAX_ITEMS && !items.contains_key(key) {
            let mut ends: Vec<_> = items.values().map(|item| item.get(Field::EXPIRES)).collect();
            let (_, median, _) = ends.select_nth_unstable(MAX_ITEMS / 2);
            let median = *median;
            items.retain(|_, item| item.get(Field::EXPIRES) > median);
        }
        let item = items.entry(*key).or_default();
        let before = item.clone();
        Answer { is_changed: update.apply(item), before, date: None }
    }

    fn find(&self, key: &Key) -> Answer {
        let items = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let before = items.get(key).cloned().unwrap_or_default();
        Answer { is_changed: false, before, date: None }
    }
}

impl Store for MemoryStore {
    fn update<'a>(
        &'a self,
        key: &'a Key,
        update: &'a Update,
    ) -> BoxFuture<'a, Result<Answer, StoreError>> {
        async { Ok(self.change(key, update)) }.boxed()
    }

    fn read<'a>(&'a self, key: &'a Key) -> BoxFuture<'a, Result<Answer, StoreError>> {
        async { Ok(self.find(key)) }.boxed()
    }
}
