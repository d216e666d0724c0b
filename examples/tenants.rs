//! A scope for each tenant: if the downstream service limits one tenant, or is down for one tenant,
//! Requeue still handles the messages of the others.

#![allow(
    clippy::disallowed_methods,
    clippy::unused_async,
    clippy::unwrap_used,
    reason = "rules of the library"
)]

use std::time::Duration;

use requeue::{Failure, Message, Scope, scoped};

#[derive(serde::Deserialize, serde::Serialize)]
struct Order {
    tenant: String,
}

async fn charge(message: Message<Order>) -> Result<(), Failure> {
    if message.body().tenant == "acme" && message.attempt().get() == 1 {
        let limit = Failure::rate_limit("this tenant's limit is reached");
        return Err(limit.retry_after(Duration::from_secs(30)));
    }
    Ok(())
}

fn scope(message: &Message<Order>) -> Scope {
    Scope::of(&message.body().tenant)
}

#[tokio::main]
async fn main() -> Result<(), requeue::Error> {
    requeue::run(scoped(charge, scope)).await
}

#[cfg(test)]
mod tests {
    use requeue::Disposition;
    use requeue::testing::World;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn the_limit_of_one_tenant_delays_no_other() {
        // One at a time, so that the second message meets the limit of the first.
        let mut world = World::with(scoped(charge, scope), "orders", |settings| {
            settings.limits.concurrency = 1;
        });
        let order = |tenant: &str| Order { tenant: tenant.to_owned() };
        let limited = world.send(order("acme")).await;
        let behind = world.send(order("acme")).await;
        let other = world.send(order("globex")).await;
        world.invoke().await;
        assert!(matches!(world.outcomes(&limited)[0].disposition, Disposition::Requeue { .. }));
        assert!(matches!(world.outcomes(&behind)[0].disposition, Disposition::Defer { .. }));
        world.assert_done(&other);

        world.run_until_empty().await;
        world.assert_done(&limited);
        world.assert_done(&behind);
    }
}
