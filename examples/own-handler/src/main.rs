#[tokio::main]
async fn main() -> Result<(), requeue::Error> {
    requeue::run(own_handler::charge).await
}
