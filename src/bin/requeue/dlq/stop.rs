//! The signals that ask the command to end. The first lets it clean up; the second ends it at once.

use std::io;
use std::process::ExitCode;

use tokio::signal::unix::signal;
use tokio::sync::{mpsc, watch};

use crate::signals;

/// Whether somebody has asked.
#[derive(Clone)]
pub(crate) struct Stop(watch::Receiver<Option<u8>>);

impl Stop {
    /// From now on signals do not end the process by themselves.
    pub(crate) fn listen() -> io::Result<Self> {
        let (told, mut signals) = mpsc::channel(1);
        for kind in signals::ending() {
            let mut arrivals = signal(kind)?;
            let number = u8::try_from(kind.as_raw_value()).unwrap_or(2);
            let told = told.clone();
            tokio::spawn(async move { while arrivals.recv().await.is_some() && told.send(number).await.is_ok() {} });
        }
        let (first, stop) = watch::channel(None);
        tokio::spawn(async move {
            while let Some(number) = signals.recv().await {
                if first.borrow().is_some() {
                    std::process::exit(128 + i32::from(number));
                }
                first.send_replace(Some(number));
            }
        });
        Ok(Self(stop))
    }

    pub(crate) fn is_told(&self) -> bool {
        self.0.borrow().is_some()
    }

    /// Ends when somebody asks.
    pub(crate) async fn told(&self) {
        if self.0.clone().wait_for(Option::is_some).await.is_err() {
            std::future::pending::<()>().await;
        }
    }

    /// As the shell has it: 130 after Ctrl-C; `otherwise` if nobody asked.
    pub(crate) fn exit_code(&self, otherwise: ExitCode) -> ExitCode {
        self.0.borrow().map_or(otherwise, |number| ExitCode::from(128 + number))
    }
}
