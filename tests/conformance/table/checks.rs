//! The rules of the port.

#![allow(clippy::too_many_lines, reason = "tables")]

use futures_util::future::BoxFuture;
use futures_util::{FutureExt, StreamExt, TryStreamExt, stream};
use requeue::table::{Field, Key, TableError, Update};

use super::{A, B, Bench};

type Observed = Result<String, TableError>;

/// A rule, and how to see whether it is so.
type Check = (&'static str, &'static str, Box<dyn Fn(Bench) -> BoxFuture<'static, Observed>>);

/// Callers at once.
const CALLERS: u64 = 60;

pub(super) fn all() -> Vec<Check> {
    vec![
        check("an absent item is read as 0", "a=0 b=0", async |bench| bench.read().await),
        check(
            "an update creates the item, and tells the one before",
            "changed a=0 b=0, changed a=5 b=0, a=6 b=0",
            async |bench| {
                let first = bench.update(Update::new().set(A, 5)).await?;
                let second = bench.update(Update::new().set(A, 6)).await?;
                Ok(format!("{first}, {second}, {}", bench.read().await?))
            },
        ),
        check(
            "an unmet condition changes nothing, and tells the item",
            "kept a=5 b=7, a=5 b=7",
            async |bench| {
                bench.update(Update::new().set(A, 5).set(B, 7)).await?;
                let refused = Update::new().when(A, 6..=9).set(A, 1).add(B, 1);
                Ok(format!("{}, {}", bench.update(refused).await?, bench.read().await?))
            },
        ),
        check(
            "a range has both of its ends and none of their neighbours",
            "10..=10 9..=11 10..=20 0..=10 10..=MAX 0..=MAX 1..=MAX",
            async |bench| {
                bench.update(Update::new().set(A, 10)).await?;
                bench
                    .met(&[
                        (10, 10),
                        (9, 11),
                        (10, 20),
                        (0, 10),
                        (10, u64::MAX),
                        (0, u64::MAX),
                        (1, u64::MAX),
                        (11, 20),
                        (0, 9),
                        (8, 9),
                        (11, u64::MAX),
                        (u64::MAX, u64::MAX),
                        (0, 0),
                        (11, 9),
                    ])
                    .await
            },
        ),
        check("an absent field is 0", "0..=0 0..=5 0..=MAX", async |bench| {
            bench.update(Update::new().set(B, 3)).await?;
            bench.met(&ABOUT_ZERO).await
        }),
        check("a field of an absent item is 0", "0..=0 0..=5 0..=MAX", async |bench| {
            let mut met = Vec::new();
            for range in ABOUT_ZERO {
                met.push(Bench::new(bench.table.clone(), bench.callers).met(&[range]).await?);
            }
            met.retain(|range| !range.is_empty());
            Ok(met.join(" "))
        }),
        check("a stored 0 is as an absent one", "0..=0 0..=5 0..=MAX", async |bench| {
            bench.update(Update::new().set(A, 0)).await?;
            bench.met(&ABOUT_ZERO).await
        }),
        check(
            "all conditions must be met, also two for one field",
            "kept a=5 b=7, kept a=5 b=7, kept a=5 b=7, changed a=5 b=7",
            async |bench| {
                bench.update(Update::new().set(A, 5).set(B, 7)).await?;
                let mut seen = Vec::new();
                for (a, b, other) in [(6, 7, 9), (5, 8, 9), (5, 7, 6), (5, 7, 7)] {
                    let update = Update::new().when(A, a..=a).when(B, b..=9).when(B, 0..=other);
                    seen.push(bench.update(update.set(A, 1)).await?);
                }
                Ok(seen.join(", "))
            },
        ),
        check(
            "an update sets and adds in one step, and an absent field grows from 0",
            "changed a=0 b=0, changed a=1 b=2, a=9 b=4",
            async |bench| {
                let first = bench.update(Update::new().set(A, 1).add(B, 2)).await?;
                let second = bench.update(Update::new().add(B, 2).set(A, 9)).await?;
                Ok(format!("{first}, {second}, {}", bench.read().await?))
            },
        ),
        check(
            "an update without a change is done too",
            "changed a=0 b=0, kept a=0 b=0, a=0 b=0",
            async |bench| {
                let nothing = bench.update(Update::new()).await?;
                let unmet = bench.update(Update::new().when(A, 1..=1)).await?;
                Ok(format!("{nothing}, {unmet}, {}", bench.read().await?))
            },
        ),
        check("0 can be added", "changed a=0 b=0, changed a=0 b=0, a=0 b=0", async |bench| {
            let first = bench.update(Update::new().add(A, 0)).await?;
            let second = bench.update(Update::new().when(A, 0..=0).add(A, 0)).await?;
            Ok(format!("{first}, {second}, {}", bench.read().await?))
        }),
        check("an item is reached by its own key only", "a=1 b=0, a=0 b=0", async |bench| {
            bench.update(Update::new().set(A, 1)).await?;
            let other = Bench { key: Key::of(["other"]), ..bench.clone() };
            Ok(format!("{}, {}", bench.read().await?, other.read().await?))
        }),
        check("a field may have a reserved name, or end the item", "1 2 3", async |bench| {
            let fields = [Field::new("count"), Field::new("hash"), Field::EXPIRES];
            let update = Update::new().set(fields[0], 1).add(fields[1], 2).set(fields[2], 3);
            let update = update.when(fields[0], 0..=1).when(fields[2], 0..=2);
            bench.table.update(&bench.key, &update).await?;
            let item = bench.table.read(&bench.key).await?.before;
            Ok(fields.map(|field| item.get(field).to_string()).join(" "))
        }),
        check(
            "a number is exact up to the greatest",
            "changed a=18446744073709551614 b=9007199254740993, kept a=18446744073709551615 \
             b=9007199254740993, changed a=18446744073709551615 b=9007199254740993",
            async |bench| {
                const MAX: u64 = u64::MAX;
                // A double has no such number.
                let odd = (1 << 53) + 1;
                bench.update(Update::new().set(A, MAX - 1).set(B, odd)).await?;
                let add = bench.update(Update::new().when(A, MAX - 1..=MAX - 1).add(A, 1)).await?;
                let unmet = bench.update(Update::new().when(A, 0..=MAX - 1).set(A, 0)).await?;
                let met = Update::new().when(A, MAX..=MAX).when(B, odd..=odd).set(A, 0);
                Ok(format!("{add}, {unmet}, {}", bench.update(met).await?))
            },
        ),
        check("no addition is lost, and each sees its own number", "60, a=60 b=0", async |bench| {
            let calls = (0..CALLERS).map(async |_| {
                let update = Update::new().add(A, 1);
                Ok(bench.table.update(&bench.key, &update).await?.before.get(A))
            });
            let mut seen = bench.at_once(calls).await?;
            seen.sort_unstable();
            seen.dedup();
            Ok(format!("{}, {}", seen.len(), bench.read().await?))
        }),
        check("additions within a range never leave it", "10 changed, a=30 b=0", async |bench| {
            let calls = (0..CALLERS).map(async |_| {
                let update = Update::new().when(A, 0..=27).add(A, 3);
                Ok(bench.table.update(&bench.key, &update).await?.is_changed)
            });
            let changed = bench.at_once(calls).await?;
            let changed = changed.into_iter().filter(|is_changed| *is_changed).count();
            Ok(format!("{changed} changed, {}", bench.read().await?))
        }),
    ]
}

const ABOUT_ZERO: [(u64, u64); 6] = [(0, 0), (0, 5), (0, u64::MAX), (1, 5), (1, u64::MAX), (5, 1)];

impl Bench {
    async fn at_once<T>(
        &self,
        calls: impl Iterator<Item = impl Future<Output = Result<T, TableError>>>,
    ) -> Result<Vec<T>, TableError> {
        stream::iter(calls).buffer_unordered(self.callers).try_collect().await
    }

    /// Those of the ranges that field A is in.
    async fn met(&self, ranges: &[(u64, u64)]) -> Observed {
        let mut met = Vec::new();
        for (min, max) in ranges {
            let update = Update::new().when(A, *min..=*max).set(B, 1);
            if self.table.update(&self.key, &update).await?.is_changed {
                met.push(format!("{min}..={max}").replace(&u64::MAX.to_string(), "MAX"));
            }
        }
        Ok(met.join(" "))
    }
}

fn check<F>(name: &'static str, expected: &'static str, run: impl Fn(Bench) -> F + 'static) -> Check
where
    F: Future<Output = Observed> + Send + 'static,
{
    (name, expected, Box::new(move |bench| run(bench).boxed()))
}
