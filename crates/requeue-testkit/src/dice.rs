//! Random numbers for tests: every number follows from a seed.

use std::sync::{Arc, Mutex};

use rand::distr::uniform::SampleUniform;
use rand::rngs::SmallRng;
use rand::{RngExt as _, SeedableRng as _};

/// One sequence of numbers; a clone continues the same sequence.
#[derive(Clone)]
pub struct Dice(Arc<Mutex<SmallRng>>);

impl Dice {
    /// The dice of one actor. The rolls of other actors do not affect them.
    pub fn of(seed: u64, actor: u64) -> Self {
        let seed =
            seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ actor.wrapping_mul(0xD1B5_4A32_D192_ED03);
        Self(Arc::new(Mutex::new(SmallRng::seed_from_u64(seed))))
    }

    fn draw<T>(&self, of: impl FnOnce(&mut SmallRng) -> T) -> T {
        of(&mut self.0.lock().expect("no panic while it is held"))
    }

    /// A number from `from` to `to`.
    pub fn roll<N: SampleUniform + PartialOrd>(&self, from: N, to: N) -> N {
        self.draw(|numbers| numbers.random_range(from..=to))
    }

    /// Whether an event happens that has this chance in a thousand.
    pub fn happens(&self, permille: u64) -> bool {
        self.roll(0, 999) < permille
    }

    pub fn pick<T: Clone>(&self, all: &[T]) -> T {
        all[self.roll(0, all.len() - 1)].clone()
    }
}
