//! `requeue invoke --target`: Requeue invokes a function on this machine.

use std::process::ExitCode;

use requeue::Record;
use requeue_lambda::Config;

use super::Arguments;
use crate::local_function::{
    FunctionProcesses, LatestStart, LineOutput, ProcessGroups, Program, SHUTDOWN_GRACE,
    local_target,
};
use crate::serve::SQS_PORT;
use crate::stop::Stop;
use crate::{Error, environment};

pub(super) async fn invoke(
    arguments: &Arguments,
    mut config: Config,
    records: Vec<Record>,
) -> Result<ExitCode, Error> {
    let groups = ProcessGroups::default();
    let at_end = groups.clone();
    Stop::end_at_once_after(move || at_end.kill_all())?;
    // The embedded queue has no port. A function that sends messages reaches that of `requeue serve`,
    // or of the endpoint that this command was given.
    let given = environment::endpoint_variable("SQS").map(|(_, url)| url);
    let sqs_url = given.unwrap_or_else(|| format!("http://127.0.0.1:{SQS_PORT}"));
    let program = Program::target(&arguments.command, sqs_url, LineOutput::Stderr)?;
    let most = u16::try_from(config.settings.limits.concurrency).unwrap_or(u16::MAX).max(1);
    let (mut processes, function) =
        FunctionProcesses::new(program, groups.clone(), most, arguments.timeout, None);
    let mut starts = function.starts();
    let target = local_target(function, arguments.timeout, most, &mut config);
    let ended = tokio::select! {
        error = processes.run() => Err(error),
        ended = async {
            // The first process may take its time, as when its command builds it.
            let _ = starts.wait_for(|latest| *latest != LatestStart::Pending).await;
            super::invoke(arguments, config.settings, records, target).await
        } => ended,
    };
    groups.end_all(SHUTDOWN_GRACE).await;
    ended
}
