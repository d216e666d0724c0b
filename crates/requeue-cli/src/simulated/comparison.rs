//! The runs of a simulation side by side: one after the other in virtual time, as a table, as JSON,
//! and as rows for the local page.

use std::process::ExitCode;

use serde_json::{Map, Value, json};
use tokio::time::{Duration, Instant};

use crate::Error;
use crate::output::outln;
use crate::progress::CommandProgress;
use crate::stop::Stop;
use crate::table::Head::{Number, Text};
use crate::table::Rows;

/// A run to compare.
pub(crate) struct Run<S> {
    pub(crate) name: &'static str,
    /// Its name in JSON.
    pub(crate) key: &'static str,
    /// What sets it apart from the others.
    pub(crate) settings: S,
}

/// The result of a run.
pub(crate) trait Figures {
    /// Names and values. All runs of a simulation have the same names.
    fn rows(&self) -> Vec<(String, String)>;
    fn json(&self) -> Value;
}

/// The runs with their results.
pub(crate) struct Comparison<F>(Vec<(Run<()>, F)>);

impl<F: Figures> Comparison<F> {
    /// For a command: with a line of progress, and until a signal ends the process.
    pub(crate) fn shown<S>(
        runs: impl IntoIterator<Item = Run<S>>,
        simulate: &impl AsyncFn(S, RunProgress<'_>) -> Result<F, Error>,
    ) -> Result<Self, Error> {
        Stop::end_at_once()?;
        let (_never, stop) = Stop::by_hand();
        Self::of(runs, &CommandProgress::shown("simulating"), &stop, simulate)
    }

    pub(crate) fn of<S>(
        runs: impl IntoIterator<Item = Run<S>>,
        progress: &CommandProgress,
        stop: &Stop,
        simulate: &impl AsyncFn(S, RunProgress<'_>) -> Result<F, Error>,
    ) -> Result<Self, Error> {
        let mut compared = Vec::new();
        for Run { name, key, settings } in runs {
            let mut runtime = tokio::runtime::Builder::new_current_thread();
            let runtime = runtime.enable_all().start_paused(true).build()?;
            let figures = runtime.block_on(async {
                tokio::select! {
                    biased;
                    () = stop.told() => Err("stopped before its end".into()),
                    ended = simulate(settings, RunProgress::begin(progress, name)) => ended,
                }
            })?;
            compared.push((Run { name, key, settings: () }, figures));
        }
        Ok(Self(compared))
    }

    pub(crate) fn figures(&self) -> impl Iterator<Item = &F> {
        self.0.iter().map(|(_, figures)| figures)
    }

    pub(crate) fn print_json(&self) -> Result<ExitCode, Error> {
        let runs = self.0.iter().map(|(run, figures)| (run.key.to_owned(), figures.json()));
        outln!("{:#}", Value::from(runs.collect::<Map<_, _>>()))?;
        Ok(ExitCode::SUCCESS)
    }

    pub(crate) fn print(&self) -> Result<ExitCode, Error> {
        let heads = self.0.iter().map(|(run, _)| Number(run.name));
        let mut rows = Rows::under([Text("")].into_iter().chain(heads));
        for (name, values) in self.rows() {
            rows.add([name].into_iter().chain(values));
        }
        outln!("{}", rows.text())?;
        Ok(ExitCode::SUCCESS)
    }

    /// For the local page: names, and a value of each run.
    pub(crate) fn page(&self) -> Value {
        let names: Vec<&str> = self.0.iter().map(|(run, _)| run.name).collect();
        let row = |(name, values)| json!({ "name": name, "values": values });
        let rows: Vec<Value> = self.rows().into_iter().map(row).collect();
        json!({ "names": names, "rows": rows })
    }

    /// Each name with the values of all runs.
    fn rows(&self) -> Vec<(String, Vec<String>)> {
        let mut rows: Vec<(String, Vec<String>)> = Vec::new();
        for figures in self.figures() {
            for (at, (name, value)) in figures.rows().into_iter().enumerate() {
                match rows.get_mut(at) {
                    Some((_, values)) => values.push(value),
                    None => rows.push((name, vec![value])),
                }
            }
        }
        rows
    }
}

/// The progress of a run: the virtual time of an outage, and then the messages that left the queue.
pub(crate) struct RunProgress<'a> {
    command: &'a CommandProgress,
    messages: u64,
    began: Instant,
    outage: Duration,
}

impl<'a> RunProgress<'a> {
    fn begin(command: &'a CommandProgress, name: &'static str) -> Self {
        command.step(name);
        Self { command, messages: 0, began: Instant::now(), outage: Duration::ZERO }
    }

    /// For so many messages, of which none is done before the end of the outage.
    pub(crate) fn counting(self, messages: u32, outage: Duration) -> Self {
        Self { messages: messages.into(), outage, ..self }
    }

    /// Tells how many messages are left.
    pub(crate) fn tell(&self, left: usize) {
        let (time, left) = (self.began.elapsed(), u64::try_from(left).unwrap_or(u64::MAX));
        if time < self.outage {
            self.command.count("virtual s", Some(self.outage.as_secs()));
            self.command.done(time.as_secs());
        } else {
            self.command.count("messages", Some(self.messages));
            self.command.done(self.messages.saturating_sub(left));
        }
    }
}
