//! The ready-made function: sends each SQS message to `REQUEUE_TARGET_URL`, or invokes
//! `REQUEUE_TARGET_FUNCTION` with several, and settles each by the response.

use std::io::Write;

use requeue::{Error, Settings, bulk};
use requeue_lambda::{Config, FunctionTarget, HttpTarget, LambdaFunction};

const VERSION: &str = concat!("requeue-lambda ", env!("CARGO_PKG_VERSION"));
const HELP: &str = "

The ready-made function of Requeue posts each SQS message to REQUEUE_TARGET_URL, or invokes the
function REQUEUE_TARGET_FUNCTION with several, and settles each by the response.
It runs in AWS Lambda on the runtime provided.al2023, as the file `bootstrap`. It takes no options:
environment variables that begin with REQUEUE_ are its settings.

Deploy it:            sam build && sam deploy --guided, with the template of `requeue new --http`
Run it on a laptop:   requeue serve --function PATH
Run without Lambda:   requeue work --queue QUEUE --target-url URL
Show its settings:    requeue check --settings --function NAME";

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Error> {
    if answers_an_option() {
        return Ok(());
    }
    // Fetching logs the version of each stored text.
    requeue::init_logging_in_lambda();
    match start().await.inspect_err(|error| requeue::log_start_error(error))? {
        (Target::Url(target), settings) => requeue::run_on_this_thread(*target, settings).await,
        (Target::Function(target), settings) => {
            requeue::run_on_this_thread(bulk(*target), settings).await
        }
    }
}

enum Target {
    Url(Box<HttpTarget>),
    Function(Box<FunctionTarget<LambdaFunction>>),
}

async fn start() -> Result<(Target, Settings), Error> {
    let mut config = Config::load().await?;
    config.warn_of_variables_without_effect();
    let target = if config.function.is_some() {
        Target::Function(Box::new(config.target_function().await?))
    } else {
        let url = config.required_target()?.clone();
        Target::Url(Box::new(HttpTarget::new(url, config.http)?))
    };
    Ok((target, config.settings))
}

/// Prints the text for the first argument; `false` if it is no option.
fn answers_an_option() -> bool {
    let help = match std::env::args_os().nth(1) {
        Some(option) if option == "--help" || option == "-h" => HELP,
        Some(option) if option == "--version" || option == "-V" => "",
        _ => return false,
    };
    // If the standard output is closed, there is no other output.
    let _ = writeln!(std::io::stdout(), "{VERSION}{help}");
    true
}
