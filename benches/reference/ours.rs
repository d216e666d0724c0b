//! A Lambda on the library whose handler does nothing: each message completes, or with
//! `OUTCOME=fail` fails.

use requeue::{Error, Failure, Message};

#[allow(clippy::disallowed_methods, reason = "a setting of this program alone")]
#[tokio::main]
async fn main() -> Result<(), Error> {
    let fails = std::env::var("OUTCOME").is_ok_and(|outcome| outcome == "fail");
    requeue::run(move |_: Message| async move {
        if fails { Err(Failure::temporary("not yet")) } else { Ok(()) }
    })
    .await
}
