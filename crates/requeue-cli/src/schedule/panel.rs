//! One panel of the chart: times by retry, with axes and limits. Knows nothing of policies.

use std::ops::Range;
use std::time::Duration;

use plotters::coord::Shift;
use plotters::coord::ranged1d::{DefaultFormatting, KeyPointHint, KeyPointWeight, Ranged};
use plotters::coord::types::RangedCoordf64;
use plotters::element::DashedPathElement;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use super::timeline::JitterRange;
use crate::Error;

pub(crate) type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;

const FONT: &str = "sans-serif";
pub(crate) const INK: RGBColor = RGBColor(51, 51, 51);
pub(crate) const GRID: RGBColor = RGBColor(230, 230, 230);
pub(crate) const LIMIT: RGBColor = RGBColor(178, 24, 43);
/// If a budget exceeds the longest timeline by this factor, the chart names it instead of drawing
/// it. Otherwise it would press the line flat.
const FAR: f64 = 1.7;

/// A point of a line: the number of the retry, and seconds.
pub(crate) type Point = (f64, f64);

/// A limit on an axis.
pub(super) struct Limit {
    pub(super) at: f64,
    pub(super) name: String,
}

pub(super) struct Axis {
    pub(super) end: f64,
    pub(super) limits: Vec<Limit>,
}

impl Axis {
    /// The axis fits the longest value and the limits that are not too far away.
    pub(super) fn new(longest: f64, limits: impl Iterator<Item = Limit>) -> Self {
        let limits: Vec<Limit> = limits.collect();
        let near = limits.iter().map(|limit| limit.at).filter(|at| *at <= longest * FAR);
        Self { end: near.fold(longest, f64::max) * 1.15, limits }
    }

    fn near(&self) -> impl Iterator<Item = &Limit> {
        self.limits.iter().filter(|limit| limit.at <= self.end)
    }

    fn far(&self) -> impl Iterator<Item = &Limit> {
        self.limits.iter().filter(|limit| limit.at > self.end)
    }
}

/// The unit of a time axis.
#[derive(Clone, Copy)]
pub(crate) struct Unit {
    pub(crate) name: &'static str,
    pub(crate) secs: f64,
}

impl Unit {
    pub(crate) fn of(longest: Duration) -> Self {
        match longest.as_secs() {
            0..=900 => Self { name: "s", secs: 1.0 },
            901..=7_200 => Self { name: "min", secs: 60.0 },
            7_201..=432_000 => Self { name: "h", secs: 3_600.0 },
            432_001.. => Self { name: "days", secs: 86_400.0 },
        }
    }
}

/// From 0 to an end, with marks at round numbers: plotters' own do not know minutes.
pub(crate) struct Ticked {
    scale: RangedCoordf64,
    ticks: Vec<f64>,
}

impl Ticked {
    pub(crate) fn to(end: f64, finest: f64) -> Self {
        Self { scale: (0.0..end).into(), ticks: ticks(end, finest) }
    }
}

impl Ranged for Ticked {
    type FormatOption = DefaultFormatting;
    type ValueType = f64;

    fn map(&self, value: &f64, limit: (i32, i32)) -> i32 {
        self.scale.map(value, limit)
    }

    fn key_points<H: KeyPointHint>(&self, hint: H) -> Vec<f64> {
        match hint.weight() {
            KeyPointWeight::Bold => self.ticks.clone(),
            KeyPointWeight::Any => Vec::new(),
        }
    }

    fn range(&self) -> Range<f64> {
        self.scale.range()
    }
}

/// Round numbers from 0 to the end, six at most.
fn ticks(end: f64, finest: f64) -> Vec<f64> {
    const STEPS: [f64; 20] = [
        0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 15.0, 20.0, 30.0, 60.0, 100.0, 120.0, 150.0, 200.0,
        300.0, 500.0, 1_000.0, 2_000.0, 5_000.0,
    ];
    let step =
        STEPS.into_iter().find(|step| *step >= finest && end / step <= 6.5).unwrap_or(end / 6.0);
    (0..=6).map(|number| f64::from(number) * step).take_while(|tick| *tick <= end).collect()
}

/// The texts on the lines.
#[derive(Default)]
pub(super) struct Marks {
    pub(super) dots: Vec<Point>,
    /// The point at which a message is given up.
    pub(super) crosses: Vec<Point>,
}

/// A chart of times by retry.
pub(super) struct Panel {
    pub(super) title: &'static str,
    pub(super) unit: Unit,
    pub(super) retries: Axis,
    pub(super) time: Axis,
}

impl Panel {
    pub(super) fn draw(
        &self,
        area: &Area<'_>,
        colour: RGBColor,
        lines: &JitterRange<Vec<Point>>,
        band: &[Point],
        marks: &Marks,
    ) -> Result<(), Error> {
        let scale = |points: &[Point]| {
            points.iter().map(|(x, y)| (*x, y / self.unit.secs)).collect::<Vec<Point>>()
        };
        let (width, height) = (self.retries.end, self.time.end / self.unit.secs);
        let mut chart = ChartBuilder::on(area)
            .margin_top(12)
            .margin_left(14)
            .margin_right(20)
            .x_label_area_size(44)
            .y_label_area_size(62)
            .build_cartesian_2d(Ticked::to(width, 1.0), Ticked::to(height, 0.1))?;
        chart
            .configure_mesh()
            .light_line_style(TRANSPARENT)
            .bold_line_style(GRID)
            .axis_style(INK)
            .label_style(style(13, HPos::Center))
            .axis_desc_style(style(14, HPos::Center))
            .x_desc("retry")
            .y_desc(format!("{} ({})", self.title, self.unit.name))
            .x_label_formatter(&|tick| label(*tick))
            .y_label_formatter(&|tick| label(*tick))
            .draw()?;
        let JitterRange { min, median, max } = lines.map(|line| scale(line));
        let area = chart.plotting_area();
        area.draw(&Polygon::new(scale(band), colour.mix(0.22).filled()))?;
        area.draw(&PathElement::new(min, colour.mix(0.5).stroke_width(1)))?;
        area.draw(&PathElement::new(max, colour.mix(0.5).stroke_width(1)))?;
        area.draw(&PathElement::new(median, colour.stroke_width(2)))?;
        // Each name has a line of its own: the limits may be close to each other.
        for (line, limit) in (0..).zip(&self.retries.limits) {
            let label = style(12, HPos::Right).color(&LIMIT);
            let (at, name) = if limit.at <= width {
                area.draw(&dashed((limit.at, 0.0), (limit.at, height)))?;
                (limit.at, limit.name.clone())
            } else {
                (width, format!("{} →", limit.name))
            };
            area.draw(
                &(EmptyElement::at((at, height)) + Text::new(name, (-5, 8 + 16 * line), label)),
            )?;
        }
        for limit in self.time.near() {
            let at = limit.at / self.unit.secs;
            area.draw(&dashed((0.0, at), (width, at)))?;
            let label = style(12, HPos::Left).color(&LIMIT);
            area.draw(
                &(EmptyElement::at((0.0, at)) + Text::new(limit.name.clone(), (6, -9), label)),
            )?;
        }
        for (line, limit) in (0..).zip(self.time.far()) {
            let label = style(12, HPos::Left).color(&LIMIT);
            let text = format!("↑ {}", limit.name);
            area.draw(
                &(EmptyElement::at((0.0, height)) + Text::new(text, (6, 10 + 16 * line), label)),
            )?;
        }
        for dot in scale(&marks.dots) {
            area.draw(&Circle::new(dot, 3, colour.filled()))?;
        }
        for cross in scale(&marks.crosses) {
            area.draw(&Cross::new(cross, 5, LIMIT.stroke_width(2)))?;
        }
        Ok(())
    }
}

/// 0.6, not 0.6000000000000001.
pub(crate) fn label(tick: f64) -> String {
    ((tick * 10.0).round() / 10.0).to_string()
}

pub(crate) fn dashed<P: Clone>(
    from: P,
    to: P,
) -> DashedPathElement<std::array::IntoIter<P, 2>, i32> {
    DashedPathElement::new([from, to], 6, 4, LIMIT.stroke_width(1))
}

pub(crate) fn style(size: u32, h: HPos) -> TextStyle<'static> {
    (FONT, size).into_font().color(&INK).pos(Pos::new(h, VPos::Center))
}
