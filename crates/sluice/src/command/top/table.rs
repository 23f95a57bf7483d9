//! Rows of text in columns: as many columns as the width has room for, and only the rows that are visible.

use ::slurm::output::Moment;
use model::printable::printable;
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::Style;

/// A column of rows of type `R`.
pub struct Column<R: 'static> {
    pub title: &'static str,
    pub width: u16,
    /// The last columns to be left out on a narrow terminal have the lowest rank.
    pub rank: u8,
    /// Takes the room that is left.
    pub grows: bool,
    pub cell: fn(&R, Moment<'_>) -> String,
}

/// The columns that fit into a width, each with its own, in their order.
pub fn fitting<R>(columns: &'static [Column<R>], width: u16) -> Vec<(&'static Column<R>, u16)> {
    let mut chosen = vec![false; columns.len()];
    let mut by_rank: Vec<usize> = (0..columns.len()).collect();
    by_rank.sort_by_key(|at| columns[*at].rank);
    let mut used = 0;
    for at in by_rank {
        let wide = columns[at].width + u16::from(used > 0);
        if used + wide > width && used > 0 {
            break;
        }
        used += wide;
        chosen[at] = true;
    }
    let left = width.saturating_sub(used);
    let all = columns.iter().zip(chosen).filter(|(_, chosen)| *chosen).map(|(column, _)| column);
    let growing = all.clone().filter(|column| column.grows).count().max(1) as u16;
    all.map(|column| {
        let more = if column.grows { left / growing } else { 0 };
        (column, (column.width + more).min(width))
    })
    .collect()
}

/// The first line has the titles.
pub fn titles<R>(columns: &[(&Column<R>, u16)], area: Rect, buffer: &mut Buffer, style: Style) {
    if area.height == 0 {
        return;
    }
    buffer.set_style(Rect { height: 1, ..area }, style);
    cells(columns, Rect { height: 1, ..area }, buffer, style, |column| column.title.to_owned());
}

/// A row in the one line of `area`.
pub fn row<R>(
    columns: &[(&Column<R>, u16)],
    row: &R,
    at: Moment<'_>,
    area: Rect,
    buffer: &mut Buffer,
    style: Style,
) {
    buffer.set_style(area, style);
    cells(columns, area, buffer, style, |column| (column.cell)(row, at));
}

fn cells<R>(
    columns: &[(&Column<R>, u16)],
    area: Rect,
    buffer: &mut Buffer,
    style: Style,
    text: impl Fn(&Column<R>) -> String,
) {
    let mut x = area.x;
    for (column, width) in columns {
        if x >= area.right() {
            break;
        }
        let room = (*width).min(area.right() - x);
        buffer.set_stringn(x, area.y, printable(&text(column)), usize::from(room), style);
        x = x.saturating_add(width + 1);
    }
}
