use own_handler::{Charge, Sandbox};

#[tokio::main]
async fn main() -> Result<(), requeue::Error> {
    requeue::run(Charge(Sandbox::default())).await
}
