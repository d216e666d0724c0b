//! `requeue simulate rate`, in virtual time: without limits, with them in each environment, with a
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
use crate::table::{duration, thousands};

mod calls;
mod figures;
mod limits;
mod simulation;

pub(crate) use calls::{Call, Calls};
use figures::Kept;
use limits::{Bound, Change};
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
/// The calls in a second of a policy without a limit.
const CALLS_IN_A_SECOND: u32 = 50;

#[derive(clap::Args)]
#[command(after_help = "Exit status: 0; 1 if the calls with a table break the bound of a limit.")]
pub(crate) struct Arguments {
    /// Messages that are in the queue at the beginning.
    #[arg(long, help_heading = "Messages", default_value_t = 100_000,
          value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    messages: u32,
    /// Calls in each period that the service takes: `limit` of `rateLimit`. [default: the policy's,
    /// or 50 if it has no limit]
    #[arg(long, help_heading = "Service", value_parser = clap::value_parser!(u32).range(1..=10_000))]
    limit: Option<u32>,
    /// The period: `periodSeconds` of `rateLimit`. [default: the policy's, or 1s]
    #[arg(long, help_heading = "Service", value_name = "DURATION", value_parser = within(1..=3_600))]
    period: Option<Duration>,
    /// Calls that may come at once: `burst` of `rateLimit`. [default: the policy's, or 1]
    #[arg(long, help_heading = "Service", value_parser = clap::value_parser!(u32).range(1..=10_000))]
    burst: Option<u32>,
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
    /// its own. With --load, `fairBy` or a `key` in the policy, they are in one scope instead, and are
    /// the values of each key.
    #[arg(long, help_heading = "Messages", default_value_t = 0, value_parser = clap::value_parser!(u32).range(0..=100_000))]
    tenants: u32,
    /// Percentage of the limit that the other tenants send together, until the backlog is done. They
    /// are in one scope. [default: 30 if the policy has `fairBy` or a `key`]
    #[arg(long, help_heading = "Messages", value_name = "PERCENT", requires = "tenants",
          value_parser = clap::value_parser!(u32).range(1..=500))]
    load: Option<u32>,
    /// The weights of the tenants of the backlog, as in `1,1,2,4`. Each sends an equal part of it.
    /// [default: one tenant]
    #[arg(long, help_heading = "Messages", value_delimiter = ',', value_parser = clap::value_parser!(u8).range(1..))]
    weights: Vec<u8>,
    /// A change of the limit while it runs, as by `requeue limits`: as in `set=10@60-120` or
    /// `pause@1m-6m`. If the policy has only limits with a key, that of the backlog's tenant changes.
    #[arg(long, help_heading = "Service", value_name = "CHANGE@FROM-TO", value_parser = change)]
    change: Option<Change>,
    /// The execution environments that die during a batch, with the reservations that it has. Others
    /// take their places.
    #[arg(long, help_heading = "Function", value_name = "ENVIRONMENTS", default_value_t = 0,
          value_parser = clap::value_parser!(u32).range(0..=1_000))]
    deaths: u32,
    /// The time in which the table does not respond, as in `60-120` or `1m-2m`.
    #[arg(long, help_heading = "Function", value_name = "FROM-TO", value_parser = times)]
    table_down: Option<(Duration, Duration)>,
    #[command(flatten)]
    simulation: SimulationArguments,
    /// Write a chart of the calls to this file.
    #[arg(long, value_name = "FILE", help_heading = "Output")]
    svg: Option<PathBuf>,
}

impl Arguments {
    fn tenants_of_backlog(&self) -> usize {
        self.weights.len().max(1)
    }

    fn has_shares(&self) -> bool {
        self.load.is_some() || self.tenants_of_backlog() > 1
    }

    /// The limits of the run: the policy's, with the numbers that are given here.
    fn plan(&mut self, policy: &mut RetryPolicy) {
        let has_keys = !policy.key_limits.is_empty();
        if self.tenants > 0 && (has_keys || policy.fair_shares.is_some()) {
            self.load.get_or_insert(LOAD);
        }
        let Self { limit, period, burst, adaptive, .. } = *self;
        let is_given = limit.is_some() || period.is_some() || burst.is_some() || adaptive;
        if policy.limit.is_none() && (is_given || !has_keys) {
            policy.limit = Some(RateLimit::new(CALLS_IN_A_SECOND, Duration::from_secs(1)));
        }
        if let Some(of_policy) = &mut policy.limit {
            of_policy.limit = limit.unwrap_or(of_policy.limit);
            of_policy.period = period.unwrap_or(of_policy.period);
            of_policy.burst = burst.unwrap_or(of_policy.burst);
            of_policy.adaptive |= adaptive;
        }
    }

    /// Tenants share the limit of all.
    fn runs(&self, bounds: &[Bound]) -> impl Iterator<Item = Run<Sharing>> + use<> {
        let is_shared = self.has_shares() && !bounds[0].is_of_key();
        RUNS.into_iter().chain(is_shared.then_some(FAIR))
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

fn change(text: &str) -> Result<Change, String> {
    let change = text.split_once('@').and_then(|(word, time)| {
        let limit = match word.split_once('=') {
            Some(("set", limit)) => {
                Some(limit.parse().ok().filter(|limit| (1..=10_000).contains(limit))?)
            }
            None if word == "pause" => None,
            _ => return None,
        };
        let (from, to) = times(time).ok()?;
        Some(Change { limit, from, to })
    });
    change.ok_or_else(|| {
        "it must be pause or set=LIMIT with two times, as in pause@1m-6m or set=10@60-120"
            .to_owned()
    })
}

pub(crate) fn run(mut arguments: Arguments) -> Result<ExitCode, Error> {
    let mut policy = arguments.simulation.policy.read()?;
    arguments.plan(&mut policy);
    let (arguments, bounds) = (&arguments, &Bound::all(&arguments, &policy)[..]);
    let options = &arguments.simulation;
    // Opened first: the simulation takes its time.
    let chart = arguments.svg.as_deref().map(ChartFile::open).transpose()?;
    let simulate = async |sharing, progress: RunProgress<'_>| {
        simulate(arguments, &policy, bounds, sharing, progress).await
    };
    let head = head(arguments, bounds);
    let compared = Comparison::shown(options, &head, arguments.runs(bounds), &simulate)?;
    if let Some(chart) = chart {
        chart.write(&svg(arguments, bounds, &compared)?)?;
    }
    let status = compared.print(options)?;
    let broken = compared
        .each()
        .flat_map(|(name, kept)| kept.broken.iter().map(move |broken| format!("{name}: {broken}")));
    let broken: Vec<String> = broken.collect();
    if broken.is_empty() { Ok(status) } else { Err(broken.join("; ").into()) }
}

pub(crate) fn rows(
    mut arguments: Arguments,
    mut policy: RetryPolicy,
    progress: &CommandProgress,
    stop: &Stop,
) -> Result<Value, Error> {
    arguments.plan(&mut policy);
    let (arguments, bounds) = (&arguments, &Bound::all(&arguments, &policy)[..]);
    let simulate = async |sharing, progress: RunProgress<'_>| {
        simulate(arguments, &policy, bounds, sharing, progress).await
    };
    Ok(Comparison::of(arguments.runs(bounds), progress, stop, &simulate)?.page())
}

fn head(arguments: &Arguments, bounds: &[Bound]) -> String {
    let Arguments { messages, environments, tenants, .. } = arguments;
    let others = arguments.load.map_or_else(String::new, |load| {
        format!("{} other tenants, which send {load} % of the limit; ", thousands(*tenants))
    });
    format!(
        "{} messages at once; {others}{}; {} execution environments, which get batches of 10 within \
         a window of 1 s",
        thousands(*messages),
        texts(bounds),
        thousands(*environments),
    )
}

fn texts(bounds: &[Bound]) -> String {
    bounds.iter().map(Bound::text).collect::<Vec<_>>().join("; ")
}

const SIZE: (u32, u32) = (960, 760);
const MAX_POINTS: usize = 900;
/// Okabe and Ito's blue, which colour-blind readers distinguish from the limit.
const CALLS: RGBColor = RGBColor(0, 114, 178);

fn svg(arguments: &Arguments, bounds: &[Bound], runs: &Comparison<Kept>) -> Result<String, Error> {
    let mut text = String::new();
    {
        let whole = SVGBackend::with_string(&mut text, SIZE).into_drawing_area();
        whole.fill(&WHITE)?;
        let (title, rest) = whole.split_vertically(64);
        let (panels, legend) = rest.split_vertically(SIZE.1 - 64 - 40);
        let Arguments { messages, environments, .. } = arguments;
        let below = format!("{environments} execution environments; {}", texts(bounds));
        let head = format!("Calls in each second: {messages} messages at once");
        draw_title(&title, &head, &below)?;
        let end = runs.each().map(|(_, kept)| kept.calls.by_second().len()).max();
        let end = end.unwrap_or_default();
        let panels = panels.split_evenly((runs.each().count(), 1));
        for (panel, (name, kept)) in panels.iter().zip(runs.each()) {
            draw_run(panel, &bounds[0], name, &kept.calls, end)?;
        }
        draw_legend(&legend)?;
        whole.present()?;
    }
    Ok(with_dark_mode(&text))
}

fn draw_run(
    area: &Area<'_>,
    bound: &Bound,
    name: &str,
    calls: &Calls,
    end: usize,
) -> Result<(), Error> {
    let (head, panel) = area.split_vertically(30);
    let by_second = calls.by_second();
    let most = by_second.iter().copied().max().unwrap_or_default();
    let units = if bound.has_units { "units" } else { "calls" };
    let title = format!(
        "{name}: at most {most} {units} in a second, the last one after {}",
        duration(calls.last())
    );
    head.draw_text(&title, &style(15, HPos::Left), (20, 18))?;
    let rates: Vec<_> = bound.rates(Duration::from_secs(end.try_into()?)).collect();
    let height = rates.iter().map(|(.., rate)| *rate).fold(most.into(), f64::max) * 1.2;
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
        .y_desc(units)
        .x_label_formatter(&|tick| label(*tick))
        .y_label_formatter(&|tick| label(*tick))
        .draw()?;
    let area = chart.plotting_area();
    let outline: Vec<Point> =
        steps(&by_second).into_iter().map(|(x, y)| (x / unit.secs, y)).collect();
    area.draw(&Polygon::new(outline, CALLS.mix(0.65).filled()))?;
    for (from, to, rate) in rates {
        let [from, to] = [from, to].map(|time| time.as_secs_f64() / unit.secs);
        area.draw(&dashed((from, rate), (to, rate)))?;
    }
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
