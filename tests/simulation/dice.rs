//! Chance: every number of a run follows from its seed.

use requeue::Sampler;

#[derive(Clone)]
pub struct Dice(Sampler);

impl Dice {
    /// The dice of one actor: what others roll changes nothing for it.
    pub fn of(seed: u64, actor: u64) -> Self {
        Self(Sampler::seeded(
            seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ actor.wrapping_mul(0xD1B5_4A32_D192_ED03),
        ))
    }

    pub fn sampler(&self) -> Sampler {
        self.0.clone()
    }

    /// A number from `from` to `to`.
    pub fn roll(&self, from: u64, to: u64) -> u64 {
        #[expect(clippy::cast_precision_loss, reason = "small numbers")]
        let offset = (self.0.sample() * ((to - from) as f64 + 1.0)).floor();
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "from 0 to the difference"
        )]
        let offset = (offset as u64).min(to - from);
        from + offset
    }

    pub fn count(&self, from: u64, to: u64) -> usize {
        usize::try_from(self.roll(from, to)).expect("a small number")
    }

    /// Whether something happens that does so many times in a thousand.
    pub fn happens(&self, permille: u64) -> bool {
        self.roll(0, 999) < permille
    }

    pub fn pick<T: Clone>(&self, all: &[T]) -> T {
        all[self.count(0, all.len() as u64 - 1)].clone()
    }
}
