//! The picture of a sweep: memory held and device time against the size of the device, one row per
//! trace, one line per allocator.
//!
//! Invariant: an allocator's line begins, with a dot, at the smallest device on which it refused
//! nothing; sizes on which it refused something are left out.

use anyhow::Result;
use plotters::prelude::*;

use super::svg::{Area, Drawn, INK, LINES, PAPER, SOFT, picture};
use crate::sweeps::{Cell, Report};
use crate::units;

const ROW_HEIGHT: u32 = 300;
/// Devices larger than this tell nothing more.
const MOST: f64 = 1.5;
/// Sizes are whole granules: `1.5x` may be a little more.
const ROUNDING: f64 = 0.01;

struct Figure {
    title: &'static str,
    of: fn(&Cell) -> Option<f64>,
    /// The lowest value that the axis shows.
    least: f64,
}

const FIGURES: [Figure; 2] = [
    Figure { title: "held over requested", of: |cell| cell.reserved_per_requested, least: 1.0 },
    Figure { title: "device time over ideal", of: |cell| cell.makespan_over_ideal, least: 1.0 },
];

pub fn render(reports: &[Report]) -> Result<String> {
    picture(reports.len(), ROW_HEIGHT, FIGURES.len(), |row, column, area| {
        panel(&reports[row], &FIGURES[column], area, (row, column) == (0, 0))
    })
}

fn panel<'a>(report: &Report, figure: &Figure, area: &Area<'a>, has_names: bool) -> Drawn<'a> {
    let lines = lines(report, figure);
    let values = lines.iter().flat_map(|(_, points)| points).map(|point| point.1);
    let top = values.fold(figure.least, f64::max);
    let top = figure.least + (top - figure.least).max(1e-3) * 1.08;
    let peak = units::bytes(report.summary.peak_requested_bytes);
    let title = format!("{}, peak {peak}: {}", report.trace, figure.title);
    let mut chart = ChartBuilder::on(area)
        .caption(title, ("sans-serif", 14).into_font().color(&INK))
        .margin(10)
        .x_label_area_size(34)
        .y_label_area_size(50)
        .build_cartesian_2d(1.0..MOST, figure.least..top)?;
    chart
        .configure_mesh()
        .disable_x_mesh()
        .light_line_style(TRANSPARENT)
        .bold_line_style(SOFT.mix(0.2))
        .axis_style(SOFT)
        .label_style(("sans-serif", 12).into_font().color(&SOFT))
        .x_desc("size of the device over the peak request")
        .x_label_formatter(&|size| format!("{size:.1}"))
        .x_labels(6)
        .y_labels(5)
        .draw()?;
    // Lines that lie on each other show as stripes: each later one is thinner.
    let widths = (1..=2 * lines.len() as u32).rev().step_by(2);
    for (((name, points), colour), width) in lines.iter().zip(LINES.iter().cycle()).zip(widths) {
        let series = LineSeries::new(points.clone(), colour.stroke_width(width));
        let drawn = chart.draw_series(series)?;
        if has_names {
            drawn.label(name).legend(move |(x, y)| {
                PathElement::new([(x, y), (x + 16, y)], colour.stroke_width(2))
            });
        }
        let first = points.first().map(|&point| Circle::new(point, 4, colour.filled()));
        chart.draw_series(first)?;
    }
    if has_names {
        chart
            .configure_series_labels()
            .position(SeriesLabelPosition::UpperLeft)
            .background_style(PAPER.mix(0.85))
            .border_style(SOFT.mix(0.3))
            .label_font(("sans-serif", 12).into_font().color(&INK))
            .draw()?;
    }
    Ok(())
}

/// An allocator's name, and its points in the order of the device's size.
type Line = (String, Vec<(f64, f64)>);

fn lines(report: &Report, figure: &Figure) -> Vec<Line> {
    let first = report.cells.first().map(|cell| &cell.costs);
    let has_prices = report.cells.iter().any(|cell| Some(&cell.costs) != first);
    let mut lines: Vec<Line> = Vec::new();
    for cell in &report.cells {
        let name =
            if has_prices { format!("{}, {}", cell.label(), cell.costs) } else { cell.label() };
        let at = lines.iter().position(|(other, _)| *other == name).unwrap_or_else(|| {
            lines.push((name, Vec::new()));
            lines.len() - 1
        });
        let peak = report.summary.peak_requested_bytes.max(1);
        let size = cell.capacity_bytes as f64 / peak as f64;
        if let Some(value) = (figure.of)(cell)
            && cell.metrics.out_of_memory_events == 0
            && (1.0..MOST + ROUNDING).contains(&size)
        {
            lines[at].1.push((size.min(MOST), value));
        }
    }
    for (_, points) in &mut lines {
        points.sort_by(|one, other| one.0.total_cmp(&other.0));
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::{FIGURES, lines};
    use crate::sweeps::{Cell, Report};
    use drystone_trace::metrics::{Metrics, Summary};

    fn cell(allocator: &str, capacity_bytes: u64, refused: u64) -> Cell {
        Cell {
            capacity_bytes,
            allocator: allocator.to_owned(),
            reserved_per_requested: Some(1.25),
            metrics: Metrics { out_of_memory_events: refused, ..Metrics::default() },
            ..Cell::default()
        }
    }

    #[test]
    fn lines_begin_where_nothing_is_refused_and_end_where_devices_are_ample() {
        let cells = vec![
            cell("a", 400, 0),
            cell("b", 110, 3),
            cell("a", 140, 0),
            cell("b", 130, 0),
            cell("a", 110, 0),
        ];
        let summary = Summary { peak_requested_bytes: 100, ..Summary::default() };
        let report = Report { summary, cells, ..Report::default() };
        let expected = vec![
            ("a".to_owned(), vec![(1.1, 1.25), (1.4, 1.25)]),
            ("b".to_owned(), vec![(1.3, 1.25)]),
        ];
        assert_eq!(lines(&report, &FIGURES[0]), expected);
    }
}
