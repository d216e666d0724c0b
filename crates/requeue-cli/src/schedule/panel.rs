//! One panel of the chart: times by retry, with axes and limits. Knows nothing of policies.

use std::time::Duration;

use plotters::coord::Shift;
use plotters::coord::cartesian::Cartesian2d;
use plotters::coord::combinators::{LogCoord, WithKeyPoints};
use plotters::element::DashedPathElement;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use super::timeline::JitterRange;
use crate::Error;
use crate::table::span;

pub(crate) type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;

const FONT: &str = "sans-serif";
pub(crate) const INK: RGBColor = RGBColor(51, 51, 51);
pub(crate) const GRID: RGBColor = RGBColor(230, 230, 230);
pub(crate) const LIMIT: RGBColor = RGBColor(178, 24, 43);
/// A limit that is this many times too far away is named: drawn, it would press the line flat.
const FAR: f64 = 20.0;

/// A point of a line: the number of the retry, and seconds.
pub(crate) type Point = (f64, f64);

pub(super) struct Limit {
    pub(super) at: f64,
    pub(super) name: String,
}

/// A logarithmic axis, because most retries are late and the first ones would share one point.
pub(super) struct Axis {
    pub(super) least: f64,
    pub(super) end: f64,
    pub(super) limits: Vec<Limit>,
}

impl Axis {
    /// The axis fits these values and the limits that are not too far away.
    pub(super) fn new(least: f64, longest: f64, limits: impl Iterator<Item = Limit>) -> Self {
        let limits: Vec<Limit> = limits.collect();
        let near = limits.iter().map(|limit| limit.at).filter(|at| *at <= longest * FAR);
        Self { least, end: near.fold(longest, f64::max).max(2.0 * least) * 1.4, limits }
    }

    /// The same limits on an axis that is as long as both.
    pub(super) fn covering(self, other: &Self) -> Self {
        Self { least: self.least.min(other.least), end: self.end.max(other.end), ..self }
    }

    fn near(&self) -> impl Iterator<Item = &Limit> {
        self.limits.iter().filter(|limit| limit.at <= self.end)
    }

    fn far(&self) -> impl Iterator<Item = &Limit> {
        self.limits.iter().filter(|limit| limit.at > self.end)
    }
}

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

type Logarithmic = WithKeyPoints<LogCoord<f64>>;

/// A logarithmic scale with those of the marks that are on it.
fn logarithmic(axis: &Axis, marks: &[f64]) -> Logarithmic {
    let Axis { least, end, .. } = *axis;
    let marks = marks.iter().copied().filter(|mark| (least..=end).contains(mark));
    (least..end).log_scale().with_key_points(marks.collect())
}

const RETRIES: [f64; 13] =
    [1.0, 2.0, 3.0, 5.0, 10.0, 20.0, 50.0, 100.0, 200.0, 500.0, 1_000.0, 2_000.0, 5_000.0];
/// The times with a mark, in seconds: up to a minute, an hour, a day, and ten days.
const TIMES: [f64; 15] = [
    0.01, 0.1, 1.0, 3.0, 10.0, 30.0, 60.0, 180.0, 600.0, 1_800.0, 3_600.0, 10_800.0, 43_200.0,
    172_800.0, 864_000.0,
];

#[derive(Default)]
pub(super) struct Marks {
    pub(super) dots: Vec<Point>,
    /// The point at which a message is dead-lettered.
    pub(super) crosses: Vec<Point>,
}

pub(super) struct Panel {
    pub(super) title: &'static str,
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
        let mut chart = ChartBuilder::on(area)
            .margin_top(12)
            .margin_left(14)
            .margin_right(20)
            .x_label_area_size(44)
            .y_label_area_size(62)
            .build_cartesian_2d(
                logarithmic(&self.retries, &RETRIES),
                logarithmic(&self.time, &TIMES),
            )?;
        chart
            .configure_mesh()
            .light_line_style(TRANSPARENT)
            .bold_line_style(GRID)
            .axis_style(INK)
            .label_style(style(13, HPos::Center))
            .axis_desc_style(style(14, HPos::Center))
            .x_desc("retry")
            .y_desc(self.title)
            .x_label_formatter(&|tick| label(*tick))
            .y_label_formatter(&|tick| time(*tick))
            .draw()?;
        let area = chart.plotting_area();
        // A lower value than the least is drawn there.
        let within = |points: &[Point]| -> Vec<Point> {
            let (retry, time) = (self.retries.least, self.time.least);
            points.iter().map(|(x, y)| (x.max(retry), y.max(time))).collect()
        };
        let JitterRange { min, median, max } = lines.map(|line| within(line));
        area.draw(&Polygon::new(within(band), colour.mix(0.22).filled()))?;
        area.draw(&PathElement::new(min, colour.mix(0.5).stroke_width(1)))?;
        area.draw(&PathElement::new(max, colour.mix(0.5).stroke_width(1)))?;
        area.draw(&PathElement::new(median, colour.stroke_width(2)))?;
        self.draw_limits(area)?;
        for dot in within(&marks.dots) {
            area.draw(&Circle::new(dot, 3, colour.filled()))?;
        }
        for cross in within(&marks.crosses) {
            area.draw(&Cross::new(cross, 5, LIMIT.stroke_width(2)))?;
        }
        Ok(())
    }

    fn draw_limits(&self, area: &LogArea<'_>) -> Result<(), Error> {
        let Axis { least: first, end: width, .. } = self.retries;
        let Axis { least: floor, end: height, .. } = self.time;
        // Each name has a line of its own: the limits may be close to each other.
        for (line, limit) in (0..).zip(&self.retries.limits) {
            let label = style(12, HPos::Right).color(&LIMIT);
            let (at, name) = if limit.at <= width {
                area.draw(&dashed((limit.at, floor), (limit.at, height)))?;
                (limit.at, limit.name.clone())
            } else {
                (width, format!("{} →", limit.name))
            };
            area.draw(
                &(EmptyElement::at((at, floor)) + Text::new(name, (-5, -10 - 16 * line), label)),
            )?;
        }
        for limit in self.time.near() {
            area.draw(&dashed((first, limit.at), (width, limit.at)))?;
            let label = style(12, HPos::Left).color(&LIMIT);
            let name = limit.name.clone();
            area.draw(&(EmptyElement::at((first, limit.at)) + Text::new(name, (6, -9), label)))?;
        }
        for (line, limit) in (0..).zip(self.time.far()) {
            let label = style(12, HPos::Left).color(&LIMIT);
            let text = format!("↑ {}", limit.name);
            area.draw(
                &(EmptyElement::at((first, height)) + Text::new(text, (6, 10 + 16 * line), label)),
            )?;
        }
        Ok(())
    }
}

type LogArea<'a> = DrawingArea<SVGBackend<'a>, Cartesian2d<Logarithmic, Logarithmic>>;

/// `3 min`, in the shortest form.
fn time(secs: f64) -> String {
    if secs < 1.0 {
        return format!("{secs} s");
    }
    span(Duration::from_secs_f64(secs))
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

pub(crate) fn draw_title(area: &Area<'_>, title: &str, below: &str) -> Result<(), Error> {
    area.draw_text(title, &style(22, HPos::Left), (20, 24))?;
    area.draw_text(below, &style(14, HPos::Left), (20, 48))?;
    Ok(())
}

/// With the colours of dark mode, as rules that replace the attributes of the elements.
pub(crate) fn with_dark_mode(svg: &str) -> String {
    const RULES: [(&str, &str); 7] = [
        ("#FFFFFF", "#0d1117"),
        ("#333333", "#e6edf3"),
        ("#E6E6E6", "#30363d"),
        ("#B2182B", "#ff7b72"),
        ("#0072B2", "#58a6ff"),
        ("#CC79A7", "#e49cc5"),
        ("#009E73", "#3fb98f"),
    ];
    let rules = RULES.map(|(light, dark)| {
        format!("[fill=\"{light}\"]{{fill:{dark}}}[stroke=\"{light}\"]{{stroke:{dark}}}")
    });
    let rules = rules.concat();
    let style = format!("<style>@media (prefers-color-scheme:dark){{{rules}}}</style>\n");
    let at = svg.find('\n').map_or(0, |end| end + 1);
    [&svg[..at], &style, &svg[at..]].concat()
}
