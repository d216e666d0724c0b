//! Random numbers of a history: all of them follow from its seed.

use requeue::Sampler;

#[derive(Clone)]
pub struct Dice(Sampler);

impl Dice {
    pub fn seeded(seed: u64) -> Self {
        Self(Sampler::seeded(seed))
    }

    pub fn sampler(&self) -> Sampler {
        self.0.clone()
    }

    /// A number from `from` to `to`.
    pub fn roll(&self, from: u32, to: u32) -> u32 {
        let numbers = f64::from(to - from) + 1.0;
        let offset = (self.0.sample() * numbers).floor();
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "from 0 to the difference"
        )]
        let offset = offset as u32;
        from + offset
    }
}
