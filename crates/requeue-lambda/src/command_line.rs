//! `--help` and `--version` of the ready Lambda, for a person who starts it by hand.

use std::io::Write;

const VERSION: &str = concat!("requeue-lambda ", env!("CARGO_PKG_VERSION"));
const HELP: &str = "

The ready Lambda of Requeue posts each SQS message to REQUEUE_TARGET_URL, and settles it by the
response. It runs in AWS Lambda on the runtime provided.al2023, as the file `bootstrap`. It takes no
options: environment variables that begin with REQUEUE_ are its settings.

Deploy it:            sam build && sam deploy --guided, with the template of `requeue new --http`
Run it on a laptop:   requeue serve --function PATH
Run without Lambda:   requeue work --queue QUEUE --target-url URL
Show its settings:    requeue config --function NAME";

/// Prints the text that the first argument asks for; `false` without such an argument. This function
/// is public for the program of this package alone.
#[doc(hidden)]
#[must_use]
pub fn answers_an_option() -> bool {
    let help = match std::env::args_os().nth(1) {
        Some(option) if option == "--help" || option == "-h" => HELP,
        Some(option) if option == "--version" || option == "-V" => "",
        _ => return false,
    };
    // A closed standard output leaves no other place.
    let _ = writeln!(std::io::stdout(), "{VERSION}{help}");
    true
}
