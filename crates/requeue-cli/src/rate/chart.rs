//! The calls of each second as an SVG chart: a panel for each run, with the same time axis. The
//! same runs give the same bytes, and the SVG brings no fonts.

use std::time::Duration;

use plotters::prelude::*;
use plotters::style::text_anchor::HPos;

use super::Arguments;
use super::calls::{Calls, rate};
use crate::Error;
use crate::schedule::panel::{
    Area, GRID, INK, LIMIT, Point, Unit, dashed, draw_title, label, style, with_dark_mode,
};
use crate::simulated::Comparison;
use crate::table::duration;

const SIZE: (u32, u32) = (960, 760);
const MAX_POINTS: usize = 900;
/// Okabe and Ito's blue, which colour-blind readers can tell from the limit.
const CALLS: RGBColor = RGBColor(0, 114, 178);

pub(super) fn svg(arguments: &Arguments, runs: &Comparison<Calls>) -> Result<String, Error> {
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
