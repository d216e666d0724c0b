//! `requeue simulate rate`, in virtual time: without a limit, with it in each environment, with a
//! table that all share, and with fair shares of tenants.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use plotters::prelude::*;
use plotters::style::text_anchor::HPos;
use requeue::policy::{RateLimit, RetryPolicy};
use serde_json::Value;

use crate::Error;
use crate::duration_argument::{parse, within};
use crate::output::ChartFile;
use crate::progress::CommandProgress;
use crate::schedule::panel::{
    Area, GRID, INK, LIMIT, Point, Unit, dashed, draw_title, label, style, with_dark_mode,
};
use crate::simulated::{Comparison, Run, RunProgress, SimulationArguments};
use crate::stop::Stop;
use crate::table::{duration, span, thousands};

mod calls;
mod simulation;

use calls::rate;
pub(crate) use calls::{Call, Calls};
use simulation::{Sharing, simulate};

const RUNS: [Run<Sharing>; 3] = [
    Run { name: "without a rate limit", key: "withoutLimit", settings: Sharing::None },
    Run { name: "limit without a table", key: "withoutTable", settings: Sharing::Nothing },
    Run { name: "limit with a table", key: "withTable", settings: Sharing::Table },
];
const FAIR: Run<Sharing> =
    Run { name: "and fair shares", key: "withFairShares", settings: Sharing::Fair };
/// The tenants' part of the limit, in percent.
const LOAD: u32 = 30;

#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Messages that are in the queue at the beginning.
    #[arg(long, help_heading = "Messages", default_value_t = 100_000,
          value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    messages: u32,
    /// Calls in each period that the service takes: `limit` of `rateLimit`.
    #[arg(long, help_heading = "Service", default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    limit: u32,
    /// The period: `periodSeconds` of `rateLimit`.
    #[arg(long, help_heading = "Service", value_name = "DURATION", default_value = "1s", value_parser = within(1..=3_600))]
    period: Duration,
    /// Calls that may come at once: `burst` of `rateLimit`.
    #[arg(long, help_heading = "Service", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    burst: u32,
    /// Calls in each period that the service really takes, and refuses the others by a 429.
    /// [default: it takes all calls, and counts]
    #[arg(long, help_heading = "Service", value_name = "LIMIT", value_parser = clap::value_parser!(u32).range(1..=10_000))]
    true_limit: Option<u32>,
    /// Let the limit adapt to refused calls: `adaptive` of `rateLimit`.
    #[arg(long, help_heading = "Service")]
    adaptive: bool,
    /// Execution environments of the function.
    #[arg(long, help_heading = "Function", default_value_t = 200, value_parser = clap::value_parser!(u32).range(1..=1_000))]
    environments: u32,
    /// Begin with all execution environments. Otherwise Lambda begins with 5, and adds 5 each second.
    #[arg(long, help_heading = "Function")]
    warm: bool,
    /// Other tenants. Each sends one message within the first minute, and is a scope with a limit of
    /// its own. With --load, or `fairBy` in the policy, they share the limit instead.
    #[arg(long, help_heading = "Messages", default_value_t = 0, value_parser = clap::value_parser!(u32).range(0..=100_000))]
    tenants: u32,
    /// Percentage of the limit that the other tenants send together, until the backlog is done. They
    /// are in one scope. [default: 30 if the policy has `fairBy`]
    #[arg(long, help_heading = "Messages", value_name = "PERCENT", requires = "tenants",
          value_parser = clap::value_parser!(u32).range(1..=500))]
    load: Option<u32>,
    /// The weights of the tenants of the backlog, as in `1,1,2,4`. Each sends an equal part of it.
    /// [default: one tenant]
    #[arg(long, help_heading = "Messages", value_delimiter = ',', value_parser = clap::value_parser!(u8).range(1..))]
    weights: Vec<u8>,
    /// The time in which the table does not respond, as in `60-120` or `1m-2m`.
    #[arg(long, help_heading = "Function", value_name = "FROM-TO", value_parser = times)]
    table_down: Option<(Duration, Duration)>,
    /// Percentage of receives after which SQS delivers the same message again, up to 20 s later.
    #[arg(long, help_heading = "Function", value_name = "PERCENT", default_value_t = 0,
          value_parser = clap::value_parser!(u32).range(0..=50))]
    duplicates: u32,
    /// The most by which the clocks of execution environments are wrong.
    #[arg(long, help_heading = "Function", value_name = "DURATION", default_value = "0s", value_parser = within(0..=3_600))]
    skew: Duration,
    #[command(flatten)]
    simulation: SimulationArguments,
    /// Write a chart of the calls to this file.
    #[arg(long, value_name = "FILE", help_heading = "Output")]
    svg: Option<PathBuf>,
}

impl Arguments {
    fn rate_limit(&self) -> RateLimit {
        let mut limit = RateLimit::new(self.limit, self.period);
        limit.burst = self.burst;
        limit.adaptive = self.adaptive;
        limit
    }

    fn tenants_of_backlog(&self) -> usize {
        self.weights.len().max(1)
    }

    fn has_shares(&self) -> bool {
        self.load.is_some() || self.tenants_of_backlog() > 1
    }

    /// Lets the tenants share the limit if the policy does.
    fn with_policy(mut self, policy: &RetryPolicy) -> Self {
        if policy.fair_shares.is_some() && self.tenants > 0 {
            self.load.get_or_insert(LOAD);
        }
        self
    }

    fn runs(&self) -> impl Iterator<Item = Run<Sharing>> + use<> {
        RUNS.into_iter().chain(self.has_shares().then_some(FAIR))
    }
}

fn times(text: &str) -> Result<(Duration, Duration), String> {
    const LATEST: Duration = Duration::from_secs(1_000_000);
    let times = text.split_once('-').and_then(|(from, to)| parse(from).ok().zip(parse(to).ok()));
    let times = times.filter(|(from, to)| from < to && *to <= LATEST);
    times.ok_or_else(|| {
        "it must be two times, the earlier one first, as in 60-120 or 1m-2m".to_owned()
    })
}

pub(crate) fn run(arguments: Arguments) -> Result<ExitCode, Error> {
    let policy = arguments.simulation.policy.read()?;
    let arguments = &arguments.with_policy(&policy);
    let options = &arguments.simulation;
    // Opened first: the simulation takes its time.
    let chart = arguments.svg.as_deref().map(ChartFile::open).transpose()?;
    let simulate = async |sharing, progress: RunProgress<'_>| {
        simulate(arguments, policy.clone(), sharing, progress).await
    };
    let compared = Comparison::shown(options, &head(arguments), arguments.runs(), &simulate)?;
    if let Some(chart) = chart {
        chart.write(&svg(arguments, &compared)?)?;
    }
    compared.print(options)
}

pub(crate) fn rows(
    arguments: &Arguments,
    policy: &RetryPolicy,
    progress: &CommandProgress,
    stop: &Stop,
) -> Result<Value, Error> {
    let simulate = async |sharing, progress: RunProgress<'_>| {
        simulate(arguments, policy.clone(), sharing, progress).await
    };
    Ok(Comparison::of(arguments.runs(), progress, stop, &simulate)?.page())
}

fn head(arguments: &Arguments) -> String {
    let Arguments { messages, limit, period, burst, environments, tenants, .. } = arguments;
    let others = arguments.load.map_or_else(String::new, |load| {
        format!("{} other tenants, which send {load} % of the limit; ", thousands(*tenants))
    });
    format!(
        "{} messages at once; {others}a service that takes {} calls in {} and a burst of {}; {} execution \
         environments, which get batches of 10 within a window of 1 s",
        thousands(*messages),
        thousands(*limit),
        span(*period),
        thousands(*burst),
        thousands(*environments),
    )
}

const SIZE: (u32, u32) = (960, 760);
const MAX_POINTS: usize = 900;
/// Okabe and Ito's blue, which colour-blind readers distinguish from the limit.
const CALLS: RGBColor = RGBColor(0, 114, 178);

fn svg(arguments: &Arguments, runs: &Comparison<Calls>) -> Result<String, Error> {
    let mut text = String::new();
    {
        let whole = SVGBackend::with_string(&mut text, SIZE).into_drawing_area();
        whole.fill(&WHITE)?;
        let (title, rest) = whole.split_vertically(64);
        let (panels, legend) = rest.split_vertically(SIZE.1 - 64 - 40);
        let Arguments { messages, environments, limit, period, .. } = arguments;
        let below = format!(
            "{environments} execution environments; the service takes {limit} calls in {}",
            duration(*period)
        );
        let head = format!("Calls in each second: {messages} messages at once");
        draw_title(&title, &head, &below)?;
        let end = runs.each().map(|(_, calls)| calls.by_second().len()).max().unwrap_or_default();
        let panels = panels.split_evenly((runs.each().count(), 1));
        for (panel, (name, calls)) in panels.iter().zip(runs.each()) {
            draw_run(panel, arguments, name, calls, end)?;
        }
        draw_legend(&legend)?;
        whole.present()?;
    }
    Ok(with_dark_mode(&text))
}

fn draw_run(
    area: &Area<'_>,
    arguments: &Arguments,
    name: &str,
    calls: &Calls,
    end: usize,
) -> Result<(), Error> {
    let (head, panel) = area.split_vertically(30);
    let by_second = calls.by_second();
    let most = by_second.iter().copied().max().unwrap_or_default();
    let title = format!(
        "{name}: at most {most} calls in a second, the last one after {}",
        duration(calls.last())
    );
    head.draw_text(&title, &style(15, HPos::Left), (20, 18))?;
    let limit = rate(&arguments.rate_limit());
    let height = f64::from(most).max(limit) * 1.2;
    let seconds = u32::try_from(end).map_or(f64::INFINITY, f64::from);
    let unit = Unit::of(Duration::from_secs_f64(seconds));
    let mut chart = ChartBuilder::on(&panel)
        .margin_left(14)
        .margin_right(20)
        .x_label_area_size(42)
        .y_label_area_size(70)
        .build_cartesian_2d(0.0..seconds / unit.secs, 0.0..height)?;
    chart
        .configure_mesh()
        .x_labels(7)
        .y_labels(6)
        .light_line_style(TRANSPARENT)
        .bold_line_style(GRID)
        .axis_style(INK)
        .label_style(style(13, HPos::Center))
        .axis_desc_style(style(14, HPos::Center))
        .x_desc(format!("time ({})", unit.name))
        .y_desc("calls")
        .x_label_formatter(&|tick| label(*tick))
        .y_label_formatter(&|tick| label(*tick))
        .draw()?;
    let area = chart.plotting_area();
    let outline: Vec<Point> =
        steps(&by_second).into_iter().map(|(x, y)| (x / unit.secs, y)).collect();
    area.draw(&Polygon::new(outline, CALLS.mix(0.65).filled()))?;
    area.draw(&dashed((0.0, limit), (seconds / unit.secs, limit)))?;
    Ok(())
}

/// The outline of the calls. A long run shows the second with most calls of several.
fn steps(by_second: &[u32]) -> Vec<Point> {
    let width = by_second.len().div_ceil(MAX_POINTS).max(1);
    let mut points = vec![(0.0, 0.0)];
    let mut from = 0.0;
    for seconds in by_second.chunks(width) {
        let calls = f64::from(seconds.iter().copied().max().unwrap_or_default());
        let to = from + u32::try_from(seconds.len()).map_or(0.0, f64::from);
        points.extend([(from, calls), (to, calls)]);
        from = to;
    }
    points.push((from, 0.0));
    points
}

fn draw_legend(area: &Area<'_>) -> Result<(), Error> {
    const Y: i32 = 18;
    let text = style(14, HPos::Left);
    area.draw(&Rectangle::new([(20, Y - 8), (54, Y + 8)], CALLS.mix(0.65).filled()))?;
    area.draw_text("calls in a second", &text, (62, Y))?;
    area.draw(&dashed((240, Y), (274, Y)))?;
    area.draw_text("limit of the service", &text.color(&LIMIT), (282, Y))?;
    Ok(())
}
