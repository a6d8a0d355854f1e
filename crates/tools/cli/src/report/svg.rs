//! The SVG report: memory over time, one panel per trace, one line per candidate.

use anyhow::{Result, anyhow};
use drystone_trace::replay::CurvePoint;
use plotters::prelude::*;

use crate::runs::TraceReport;
use crate::units;

const WIDTH: u32 = 1100;
const PANEL_HEIGHT: u32 = 380;
pub(super) const PAPER: RGBColor = WHITE;
pub(super) const INK: RGBColor = RGBColor(35, 37, 42);
pub(super) const SOFT: RGBColor = RGBColor(107, 111, 118);
const ASKED: RGBColor = RGBColor(154, 165, 177);
/// The page's colours, for the same candidates.
pub(super) const LINES: [RGBColor; 8] = [
    RGBColor(0, 121, 107),
    RGBColor(63, 127, 208),
    RGBColor(217, 100, 44),
    RGBColor(142, 78, 198),
    RGBColor(176, 134, 44),
    RGBColor(194, 53, 107),
    RGBColor(92, 127, 47),
    RGBColor(86, 96, 107),
];

pub fn render(reports: &[TraceReport]) -> Result<String> {
    picture(reports.len(), PANEL_HEIGHT, 1, |row, _, area| panel(&reports[row], area))
}

pub(super) fn picture(
    rows: usize,
    row_height: u32,
    columns: usize,
    panel: impl for<'a> Fn(usize, usize, &Area<'a>) -> Drawn<'a>,
) -> Result<String> {
    let mut text = String::new();
    let size = (WIDTH, row_height * rows.max(1) as u32);
    let root = SVGBackend::with_string(&mut text, size).into_drawing_area();
    root.fill(&PAPER).map_err(|error| anyhow!("SVG: {error}"))?;
    let areas = root.split_evenly((rows.max(1), columns));
    for (at, area) in areas.iter().enumerate().take(rows * columns) {
        panel(at / columns, at % columns, area).map_err(|error| anyhow!("SVG: {error}"))?;
    }
    root.present().map_err(|error| anyhow!("SVG: {error}"))?;
    drop(areas);
    drop(root);
    Ok(text)
}

pub(super) type Area<'a> = DrawingArea<SVGBackend<'a>, plotters::coord::Shift>;
pub(super) type Drawn<'a> =
    Result<(), DrawingAreaErrorKind<<SVGBackend<'a> as DrawingBackend>::ErrorType>>;

fn panel<'a>(report: &TraceReport, area: &Area<'a>) -> Drawn<'a> {
    let points = || report.runs.iter().flat_map(|run| &run.curve.points);
    let top = points().map(|p| p.reserved_bytes.max(p.requested_bytes)).max().unwrap_or(1).max(1);
    let per_point = report.runs.first().map_or(1, |run| run.curve.events_per_point);
    let right = report.summary.events.max(1);
    // Drawn in the unit of the largest value, so that the axis has round labels.
    let (unit, scale) = units::unit_of(top);
    let title = format!(
        "{}: {} requested at the peak",
        report.trace,
        units::bytes(report.summary.peak_requested_bytes)
    );
    let mut chart = ChartBuilder::on(area)
        .caption(title, ("sans-serif", 18).into_font().color(&INK))
        .margin(12)
        .x_label_area_size(32)
        .y_label_area_size(78)
        .build_cartesian_2d(0u64..right, 0.0..top as f64 / scale * 1.05)?;
    chart
        .configure_mesh()
        .disable_x_mesh()
        .light_line_style(TRANSPARENT)
        .bold_line_style(SOFT.mix(0.2))
        .axis_style(SOFT)
        .label_style(("sans-serif", 12).into_font().color(&SOFT))
        .x_desc("events")
        .x_label_formatter(&|event| units::count(*event))
        .y_labels(6)
        .y_label_formatter(&|value| format!("{value} {unit}"))
        .draw()?;
    let series = |points: &[CurvePoint], pick: fn(&CurvePoint) -> u64| -> Vec<(u64, f64)> {
        let scaled = |point: &CurvePoint| pick(point) as f64 / scale;
        (0u64..).zip(points).map(|(at, point)| (at * per_point, scaled(point))).collect()
    };
    if let Some(run) = report.runs.first() {
        let asked = series(&run.curve.points, |point| point.requested_bytes);
        chart
            .draw_series(AreaSeries::new(asked, 0.0, ASKED.mix(0.5)))?
            .label("requested")
            .legend(|(x, y)| Rectangle::new([(x, y - 5), (x + 16, y + 5)], ASKED.filled()));
    }
    // Lines that lie on each other show as stripes: each later one is thinner.
    let widths = (1..=2 * report.runs.len() as u32).rev().step_by(2);
    for ((run, colour), width) in report.runs.iter().zip(LINES.iter().cycle()).zip(widths) {
        let reserved = series(&run.curve.points, |point| point.reserved_bytes);
        chart
            .draw_series(LineSeries::new(reserved, colour.stroke_width(width)))?
            .label(run.label())
            .legend(|(x, y)| PathElement::new([(x, y), (x + 16, y)], colour.stroke_width(2)));
    }
    chart
        .configure_series_labels()
        .position(SeriesLabelPosition::LowerRight)
        .background_style(PAPER.mix(0.85))
        .border_style(SOFT.mix(0.3))
        .label_font(("sans-serif", 12).into_font().color(&INK))
        .draw()
}
