//! The calls of a run, and how they keep a limit: counts in windows and seconds.

use std::ops::Range;
use std::time::Duration;

#[derive(Clone, Copy, Debug)]
pub(crate) struct Call {
    /// Since the beginning of the run.
    pub(crate) at: Duration,
    pub(crate) message: u32,
    pub(crate) units: u32,
}

#[derive(Debug, Default)]
pub(crate) struct Calls(Vec<Call>);

impl Calls {
    pub(crate) fn push(&mut self, call: Call) {
        self.0.push(call);
    }

    pub(crate) fn count(&self) -> usize {
        self.0.len()
    }

    pub(super) fn each(&self) -> impl Iterator<Item = &Call> {
        self.0.iter()
    }

    /// Those of each sender, with so many units each.
    pub(super) fn by(
        &self,
        sender: impl Fn(u32) -> usize,
        units: impl Fn(u32) -> u32,
    ) -> Vec<Self> {
        let mut all = vec![Self::default()];
        for call in &self.0 {
            let sender = sender(call.message);
            if all.len() <= sender {
                all.resize_with(sender + 1, Self::default);
            }
            all[sender].push(Call { units: units(call.units), ..*call });
        }
        all
    }

    pub(super) fn units(&self) -> u64 {
        self.units_within(Duration::ZERO..Duration::MAX)
    }

    pub(super) fn units_within(&self, time: Range<Duration>) -> u64 {
        let calls = self.0.iter().filter(|call| time.contains(&call.at));
        calls.map(|call| u64::from(call.units)).sum()
    }

    pub(crate) fn last(&self) -> Duration {
        self.0.last().map_or(Duration::ZERO, |call| call.at)
    }

    pub(super) fn by_second(&self) -> Vec<u32> {
        let mut seconds = Vec::new();
        for call in &self.0 {
            let second = usize::try_from(call.at.as_secs()).unwrap_or(usize::MAX);
            if seconds.len() <= second {
                seconds.resize(second + 1, 0);
            }
            seconds[second] += call.units;
        }
        seconds
    }

    pub(crate) fn most_within(&self, window: Duration) -> u64 {
        let mut from = 0;
        let (mut units, mut most) = (0, 0);
        for call in &self.0 {
            units += u64::from(call.units);
            while self.0[from].at + window < call.at {
                units -= u64::from(self.0[from].units);
                from += 1;
            }
            most = most.max(units);
        }
        most
    }

    /// The part of the calls that each tenant gets while all of them have messages that wait. They send
    /// the messages below `count` in turn.
    pub(super) fn shares(&self, count: u32, tenants: usize) -> Vec<f64> {
        let each = f64::from(count) / f64::from(u32::try_from(tenants).unwrap_or(u32::MAX));
        let mut calls = vec![0.0; tenants];
        for call in self.0.iter().filter(|call| call.message < count) {
            let own = &mut calls[place(call.message, tenants)];
            *own += 1.0;
            if *own >= each.floor() {
                break;
            }
        }
        let all: f64 = calls.iter().sum();
        calls.iter().map(|own| own / all.max(1.0)).collect()
    }
}

/// The place of the tenant that sends a message of the backlog.
pub(super) fn place(message: u32, tenants: usize) -> usize {
    usize::try_from(message).unwrap_or_default() % tenants
}

#[expect(clippy::cast_precision_loss, reason = "far below 2^53")]
pub(super) fn float(count: u64) -> f64 {
    count as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn calls(millis: &[u64]) -> Calls {
        let call =
            |(message, at): (u32, &u64)| Call { at: Duration::from_millis(*at), message, units: 1 };
        Calls((0..).zip(millis).map(call).collect())
    }

    #[test]
    fn a_window_holds_its_ends() {
        let calls = calls(&[0, 400, 1_000, 1_400, 2_001]);
        let most =
            [0, 399, 400, 1_000, 1_001].map(|ms| calls.most_within(Duration::from_millis(ms)));
        assert_eq!(most, [1, 1, 2, 3, 3]);
        assert_eq!(calls.by_second(), [2, 2, 1]);
    }

    #[test]
    fn shares_are_counted_until_a_tenant_has_no_message_left() {
        let mut calls = Calls::default();
        for message in [0, 9, 1, 3, 5, 2, 4] {
            calls.push(Call { at: Duration::ZERO, message, units: 1 });
        }
        assert_eq!(calls.shares(6, 2), [0.25, 0.75]);
        assert_eq!(calls.shares(6, 7), [1.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0]);
        assert_eq!(Calls::default().shares(6, 2), [0.0, 0.0]);
    }
}
