//! The runs of a simulation side by side, as a table, as JSON, and as rows for the local page.

use std::collections::BTreeMap;
use std::process::ExitCode;

use serde_json::{Map, Value, json};
use tokio::time::{Duration, Instant};

use crate::Error;
use crate::document::PolicyArgument;
use crate::output::{self, outln};
use crate::progress::CommandProgress;
use crate::stop::Stop;
use crate::table::Head::{Number, Text};
use crate::table::{Rows, decimal, span, thousands};

#[derive(clap::Args)]
pub(crate) struct SimulationArguments {
    #[command(flatten)]
    pub(crate) policy: PolicyArgument,
    /// The seed of all random numbers: the same seed gives the same run.
    #[arg(long, default_value_t = 1)]
    pub(crate) seed: u64,
    /// Print JSON.
    #[arg(long, help_heading = "Output")]
    json: bool,
}

pub(crate) struct Run<S> {
    pub(crate) name: &'static str,
    pub(crate) key: &'static str,
    pub(crate) settings: S,
}

/// The figures of a run: rows for a reader, and values by their names in JSON.
#[derive(Default)]
pub(crate) struct Figures {
    rows: Vec<(String, String)>,
    json: Map<String, Value>,
}

impl Figures {
    /// A figure for JSON alone.
    pub(crate) fn value(&mut self, name: &str, value: impl Into<Value>) {
        self.json.insert(name.to_owned(), value.into());
    }

    /// A figure for readers alone.
    pub(crate) fn row(&mut self, head: impl Into<String>, shown: String) {
        self.rows.push((head.into(), shown));
    }

    pub(crate) fn count(&mut self, head: &str, name: &str, count: impl TryInto<u64>) {
        let count = count.try_into().unwrap_or(u64::MAX);
        self.row(head, thousands(count));
        self.value(name, count);
    }

    pub(crate) fn decimal(&mut self, head: &str, name: &str, value: f64, digits: usize) {
        self.row(head, decimal(value, digits));
        self.value(name, value);
    }

    /// In whole seconds for a reader.
    pub(crate) fn time(&mut self, head: &str, name: &str, time: Duration) {
        self.row(head, span(Duration::from_secs(time.as_secs())));
        self.value(name, time.as_secs_f64());
    }
}

/// The runs with their figures, and with what else is known of each.
pub(crate) struct Comparison<T>(Vec<(Run<()>, Figures, T)>);

impl<T> Comparison<T> {
    /// For a command: says first what is simulated, and goes on until a signal ends the process.
    pub(crate) fn shown<S>(
        arguments: &SimulationArguments,
        head: &str,
        runs: impl IntoIterator<Item = Run<S>>,
        simulate: &impl AsyncFn(S, RunProgress<'_>) -> Result<(Figures, T), Error>,
    ) -> Result<Self, Error> {
        if !arguments.json {
            output::words(&format!("{head}\n\n"))?;
        }
        Stop::end_at_once()?;
        let (_never, stop) = Stop::by_hand();
        Self::of(runs, &CommandProgress::shown("simulating"), &stop, simulate)
    }

    pub(crate) fn of<S>(
        runs: impl IntoIterator<Item = Run<S>>,
        progress: &CommandProgress,
        stop: &Stop,
        simulate: &impl AsyncFn(S, RunProgress<'_>) -> Result<(Figures, T), Error>,
    ) -> Result<Self, Error> {
        let mut compared = Vec::new();
        for Run { name, key, settings } in runs {
            let mut runtime = tokio::runtime::Builder::new_current_thread();
            let runtime = runtime.enable_all().start_paused(true).build()?;
            let (figures, more) = runtime.block_on(async {
                tokio::select! {
                    biased;
                    () = stop.told() => Err("stopped before its end".into()),
                    ended = simulate(settings, RunProgress::begin(progress, name)) => ended,
                }
            })?;
            compared.push((Run { name, key, settings: () }, figures, more));
        }
        Ok(Self(compared))
    }

    /// Each run's name, and what is known of it beside the figures.
    pub(crate) fn each(&self) -> impl Iterator<Item = (&'static str, &T)> {
        self.0.iter().map(|(run, _, more)| (run.name, more))
    }

    pub(crate) fn print(&self, arguments: &SimulationArguments) -> Result<ExitCode, Error> {
        if arguments.json {
            let runs = self.0.iter().map(|(run, figures, _)| (run.key.to_owned(), &figures.json));
            output::json(&runs.collect::<BTreeMap<_, _>>())?;
        } else {
            let heads = self.0.iter().map(|(run, ..)| Number(run.name));
            let mut rows = Rows::under([Text("")].into_iter().chain(heads));
            for (name, values) in self.rows() {
                rows.add([name].into_iter().chain(values).map(str::to_owned));
            }
            outln!("{}", rows.text())?;
        }
        Ok(ExitCode::SUCCESS)
    }

    pub(crate) fn page(&self) -> Value {
        let names: Vec<&str> = self.0.iter().map(|(run, ..)| run.name).collect();
        let row = |(name, values)| json!({ "name": name, "values": values });
        json!({ "names": names, "rows": self.rows().map(row).collect::<Vec<_>>() })
    }

    /// Each name with the values of all runs, which have the same rows.
    fn rows(&self) -> impl Iterator<Item = (&str, Vec<&str>)> {
        let first = self.0.first().map_or(&[][..], |(_, figures, _)| &figures.rows);
        first.iter().enumerate().map(|(at, (name, _))| {
            let values = self.0.iter().map(|(_, figures, _)| figures.rows[at].1.as_str());
            (name.as_str(), values.collect())
        })
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
