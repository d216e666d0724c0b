//! The schedule as an SVG chart: a column for each class. The same policy gives the same bytes,
//! and the SVG brings no fonts.

use std::time::Duration;

use plotters::prelude::*;
use plotters::style::text_anchor::HPos;
use requeue::FailureClass;

use super::panel::{
    Area, Axis, INK, LIMIT, Limit, Marks, Panel, Point, dashed, draw_title, style, with_dark_mode,
};
use super::timeline::{JitterRange, Timeline, TimelineRetry};
use super::{ClassSchedule, Schedule};
use crate::Error;
use crate::document::{max_retries, retries};
use crate::table::span;

const SIZE: (u32, u32) = (1_280, 800);
/// Up to this number, each retry is a dot on the line.
const MAX_DOTS: usize = 25;

/// With the axes that the chart of `beside` has too, so that a reader can compare both.
pub(crate) fn svg(schedule: &Schedule, beside: Option<&Schedule>) -> Result<String, Error> {
    let mut text = String::new();
    {
        let whole = SVGBackend::with_string(&mut text, SIZE).into_drawing_area();
        whole.fill(&WHITE)?;
        let (title, rest) = whole.split_vertically(64);
        let (charts, legend) = rest.split_vertically(SIZE.1 - 64 - 44);
        let below = format!(
            "strategy {}; the message fails on every attempt; calls take no time; the downstream \
             service names no delay",
            schedule.queue.strategy.as_str()
        );
        draw_title(&title, &format!("Retry schedule: {}", schedule.name), &below)?;
        // Requeue never retries the other classes, so there is nothing to draw.
        let retried =
            || schedule.classes.iter().filter(|of| schedule.policy.class(of.class).is_some());
        let columns = charts.split_evenly((1, retried().count()));
        for (column, class) in columns.iter().zip(retried()) {
            draw_class(column, &Drawn { schedule, of: class, beside })?;
        }
        draw_legend(&legend)?;
        whole.present()?;
    }
    Ok(with_dark_mode(&text))
}

/// Okabe and Ito's colours, which colour-blind readers distinguish.
const fn colour(class: FailureClass) -> RGBColor {
    match class {
        FailureClass::RateLimit => RGBColor(0, 114, 178),
        FailureClass::Quota => RGBColor(204, 121, 167),
        FailureClass::Temporary => RGBColor(0, 158, 115),
        FailureClass::NonRetryable => INK,
    }
}

struct Drawn<'a> {
    schedule: &'a Schedule,
    of: &'a ClassSchedule,
    beside: Option<&'a Schedule>,
}

impl Drawn<'_> {
    fn axis(&self, of: impl Fn(&Schedule, &ClassSchedule) -> Axis) -> Axis {
        let own = of(self.schedule, self.of);
        let Some(beside) = self.beside else { return own };
        let same = beside.classes.iter().find(|class| class.class == self.of.class);
        match same.filter(|class| class.is_retried()) {
            Some(class) => own.covering(&of(beside, class)),
            None => own,
        }
    }
}

fn draw_class(column: &Area<'_>, drawn: &Drawn<'_>) -> Result<(), Error> {
    let of = drawn.of;
    let (head, panels) = column.split_vertically(56);
    head.draw_text(of.class.as_str(), &style(19, HPos::Left).color(&colour(of.class)), (20, 16))?;
    head.draw_text(&end_summary(&of.timelines), &style(14, HPos::Left), (20, 38))?;
    if !of.is_retried() {
        panels.draw_text("never retried", &style(14, HPos::Left), (20, 20))?;
        return Ok(());
    }
    let (above, below) = panels.split_vertically(panels.dim_in_pixel().1 * 2 / 5);
    draw_delays(&above, drawn)?;
    draw_ages(&below, drawn)
}

fn end_summary(timelines: &JitterRange<Timeline>) -> String {
    let most = timelines.most(Timeline::count);
    let least = timelines.each().map(|(_, timeline)| timeline.count()).into_iter().min();
    let least = least.unwrap_or_default();
    let reasons = timelines.map(|timeline| timeline.end.as_str());
    let reason = if reasons.min == reasons.max { reasons.max } else { "at an end" };
    if most == 0 {
        return format!("{reason} at the first failure");
    }
    let ages = timelines.map(|timeline| span(timeline.age()));
    let ages =
        if ages.min == ages.max { ages.min } else { format!("{} to {}", ages.min, ages.max) };
    let from = if least == most { String::new() } else { format!("{least} to ") };
    format!("{reason} after {from}{}, {ages}", retries(most))
}

fn draw_delays(area: &Area<'_>, drawn: &Drawn<'_>) -> Result<(), Error> {
    let of = drawn.of;
    let panel = Panel {
        title: "wait before each retry",
        retries: drawn.axis(retry_axis),
        time: drawn.axis(delay_axis),
    };
    let lines = of.timelines.map(|timeline| steps(&timeline.retries));
    // The band ends with the shortest timeline, since a band needs both edges.
    let both = of.timelines.min.retries.len().min(of.timelines.max.retries.len());
    let band =
        band(steps(&of.timelines.min.retries[..both]), &steps(&of.timelines.max.retries[..both]));
    panel.draw(area, colour(of.class), &lines, &band, &Marks::default())
}

fn draw_ages(area: &Area<'_>, drawn: &Drawn<'_>) -> Result<(), Error> {
    let of = drawn.of;
    let panel = Panel {
        title: "time since the first receive",
        retries: drawn.axis(retry_axis),
        time: drawn.axis(age_axis),
    };
    let dots = if of.timelines.median.retries.len() <= MAX_DOTS {
        dots(&of.timelines.median)
    } else {
        Vec::new()
    };
    let lines = of.timelines.map(ages);
    // With mixed draws a message may reach as many retries, but no greater age.
    let mut oldest = lines.max.clone();
    oldest
        .extend(lines.min.last().map(|(retry, _)| (*retry, of.timelines.max.age().as_secs_f64())));
    let marks =
        Marks { dots, crosses: of.timelines.each().map(|(_, timeline)| end(timeline)).into() };
    panel.draw(area, colour(of.class), &lines, &band(lines.min.clone(), &oldest), &marks)
}

fn delay_axis(_: &Schedule, of: &ClassSchedule) -> Axis {
    let (least, longest) = range(&of.timelines, |retry| retry.delay);
    Axis::new(least, longest, std::iter::empty())
}

fn age_axis(schedule: &Schedule, of: &ClassSchedule) -> Axis {
    let (least, longest) = range(&of.timelines, |retry| retry.age);
    let budget = schedule.policy.class(of.class).map(|class| ("age limit", class.total_timeout));
    let ttl = schedule.policy.message_ttl.map(|ttl| ("TTL", ttl));
    let limits = [budget, ttl].into_iter().flatten().map(|(name, limit)| Limit {
        at: limit.as_secs_f64(),
        name: format!("{name} {}", span(limit)),
    });
    Axis::new(least, longest, limits)
}

fn retry_axis(schedule: &Schedule, of: &ClassSchedule) -> Axis {
    let most = of.timelines.most(Timeline::count);
    let allowed = max_retries(&schedule.policy, of.class);
    let own = Limit { at: f64::from(allowed) + 0.5, name: retries(allowed) };
    let received = schedule.queue.max_receives();
    let queues = of.needed.filter(|needed| *needed > received).map(|_| Limit {
        at: f64::from(received) - 0.5,
        name: format!("maxReceiveCount {received}"),
    });
    Axis::new(0.5, f64::from(most) + 0.5, [Some(own), queues].into_iter().flatten())
}

/// The least and the longest time of an axis, in seconds. Jitter may give a first wait of zero, which
/// a logarithmic axis cannot show.
fn range(timelines: &JitterRange<Timeline>, of: impl Fn(&TimelineRetry) -> Duration) -> (f64, f64) {
    let all = || timelines.each().into_iter().flat_map(|(_, timeline)| &timeline.retries).map(&of);
    let secs = |time: Option<Duration>| time.unwrap_or(Duration::from_secs(1)).as_secs_f64();
    let least = secs(all().filter(|time| !time.is_zero()).min());
    (least / 2.0, secs(all().max()).max(least))
}

fn band(below: Vec<Point>, above: &[Point]) -> Vec<Point> {
    below.into_iter().chain(above.iter().rev().copied()).collect()
}

/// The age at each retry, without those that are closer than a pixel.
fn ages(timeline: &Timeline) -> Vec<Point> {
    const CLOSE: f64 = 1.005;
    let all = dots(timeline);
    let mut points: Vec<Point> = Vec::new();
    for (place, point) in all.iter().enumerate() {
        let is_last = place + 1 == all.len();
        if is_last || points.last().is_none_or(|(retry, _)| point.0 > retry * CLOSE) {
            points.push(*point);
        }
    }
    points
}

fn dots(timeline: &Timeline) -> Vec<Point> {
    (1..)
        .zip(&timeline.retries)
        .map(|(number, retry)| (count(number), retry.age.as_secs_f64()))
        .collect()
}

fn end(timeline: &Timeline) -> Point {
    (count(timeline.retries.len()), timeline.age().as_secs_f64())
}

/// Each retry is half a step wide on both sides of its number; equal steps are one.
fn steps(course: &[TimelineRetry]) -> Vec<Point> {
    let mut points = Vec::new();
    let mut from = 0;
    for run in course.chunk_by(|one, other| one.delay == other.delay) {
        let delay = run[0].delay.as_secs_f64();
        points.extend([(count(from) + 0.5, delay), (count(from + run.len()) + 0.5, delay)]);
        from += run.len();
    }
    points
}

fn count(number: usize) -> f64 {
    u32::try_from(number).map_or(f64::INFINITY, f64::from)
}

fn draw_legend(area: &Area<'_>) -> Result<(), Error> {
    const Y: i32 = 20;
    let text = style(14, HPos::Left);
    let line = |x| [(x, Y), (x + 34, Y)];
    let band = |x| [(x, Y - 8), (x + 34, Y + 8)];
    area.draw(&PathElement::new(line(20), INK.stroke_width(2)))?;
    area.draw_text("median of the jitter", &text, (62, Y))?;
    area.draw(&Rectangle::new(band(240), INK.mix(0.22).filled()))?;
    area.draw_text("from the least jitter to the greatest", &text, (282, Y))?;
    area.draw(&dashed((560, Y), (594, Y)))?;
    area.draw_text("limit of policy or queue", &text, (602, Y))?;
    area.draw(&Cross::new((777, Y), 5, LIMIT.stroke_width(2)))?;
    area.draw_text("dead-lettered: moves to the dead-letter queue", &text, (790, Y))?;
    Ok(())
}
