//! The picture of a screen, drawn into a buffer of any size.

use super::columns::{JOBS, NODES, shown_id};
use super::screen::{Mode, Pane, Screen};
use super::table::{fitting, row, titles};
use ::slurm::output::Moment;
use ::slurm::words::node::NodeState;
use model::run::{JobState, LaunchKind};
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::{Color, Modifier, Style};
use ratatui::widgets::{Block, Clear, Paragraph, Widget, Wrap};

/// Below this height the list that keys are about is shown alone.
const ALL_PANES_HEIGHT: u16 = 14;
/// The lines of a list that are shown in any case: its title, the columns' and a row.
const LIST_HEIGHT_MIN: u16 = 3;

const KEYS: &str =
    "q quit  Tab list  c cancel  h hold/release  e explain  / filter  s sort  m mine  ? help";
const NARROW_KEYS: &str = "q quit  ? help";

pub fn draw(screen: &mut Screen, area: Rect, buffer: &mut Buffer) {
    let mut lines = Lines { area };
    head(screen, lines.take(1), buffer);
    let foot_height = u16::from(!screen.is_plain);
    let foot_area = lines.take_last(foot_height);
    match (lines.area.height, screen.pane) {
        (height, Pane::Nodes) if height < ALL_PANES_HEIGHT => nodes(screen, lines.area, buffer),
        (height, Pane::Jobs) if height < ALL_PANES_HEIGHT => jobs(screen, lines.area, buffer),
        (height, _) => {
            let (nodes_height, log_height) = heights(screen, height);
            nodes(screen, lines.take(nodes_height), buffer);
            let log_area = lines.take_last(log_height);
            jobs(screen, lines.area, buffer);
            log(screen, log_area, buffer);
        }
    }
    if foot_height > 0 {
        foot(screen, foot_area, buffer);
    }
    if let Mode::Text { .. } = screen.mode {
        text(screen, area, buffer);
    }
}

/// Lines of an area that are not given away yet.
struct Lines {
    area: Rect,
}

impl Lines {
    fn take(&mut self, height: u16) -> Rect {
        let height = height.min(self.area.height);
        let taken = Rect { height, ..self.area };
        self.area.y += height;
        self.area.height -= height;
        taken
    }

    fn take_last(&mut self, height: u16) -> Rect {
        let height = height.min(self.area.height);
        self.area.height -= height;
        Rect { y: self.area.bottom(), height, ..self.area }
    }
}

/// How many lines nodes and log get: nodes no more than they need and a third at most, the log a quarter.
fn heights(screen: &Screen, height: u16) -> (u16, u16) {
    let rows = u16::try_from(screen.nodes.order.len()).unwrap_or(u16::MAX);
    let most = if screen.pane == Pane::Nodes { height / 2 } else { height / 3 };
    let nodes = rows.saturating_add(2).clamp(LIST_HEIGHT_MIN, most.max(LIST_HEIGHT_MIN));
    (nodes, height / 4)
}

fn head(screen: &Screen, area: Rect, buffer: &mut Buffer) {
    let Some(snapshot) = &screen.snapshot else { return };
    let totals = &snapshot.totals;
    let gpus = match totals.gpus {
        0 => String::new(),
        total => format!("  GPUs {}/{total}", totals.gpus_used),
    };
    let text = format!(
        "{}  nodes {}/{}  CPUs {}/{}{gpus}  jobs {} running, {} waiting{}",
        snapshot.cluster,
        totals.nodes_available,
        snapshot.nodes.len(),
        totals.cpus_used,
        totals.cpus,
        totals.running,
        totals.waiting,
        if screen.mine { " (yours)" } else { "" },
    );
    line(area, buffer, &text, Style::new().add_modifier(Modifier::BOLD));
}

fn line(area: Rect, buffer: &mut Buffer, text: &str, style: Style) {
    if area.height > 0 {
        buffer.set_stringn(area.x, area.y, text, usize::from(area.width), style);
    }
}

/// The line above a list: what it is, its sort and its filter.
fn list_title(screen: &Screen, pane: Pane, area: Rect, buffer: &mut Buffer) {
    let (name, rows, sort) = match pane {
        Pane::Nodes => ("Nodes", &screen.nodes, screen.node_sort.word()),
        Pane::Jobs if screen.mine => ("Your jobs", &screen.jobs, screen.job_sort.word()),
        Pane::Jobs => ("Jobs", &screen.jobs, screen.job_sort.word()),
    };
    let is_current = screen.pane == pane && !screen.is_plain;
    let mark = if is_current { ">" } else { " " };
    // All jobs are counted, even where the queue is loaded in part.
    let count = match &screen.snapshot {
        Some(snapshot) if pane == Pane::Jobs && snapshot.is_part => snapshot.matching,
        _ => rows.order.len() as u64,
    };
    let mut text = format!("{mark}{name} {count}  sorted by {sort}");
    if !rows.filter.is_empty() || (is_current && screen.mode == Mode::Filter) {
        text += &format!("  with {:?}", rows.filter);
    }
    let style = colored(screen, Color::Cyan).add_modifier(Modifier::BOLD);
    line(area, buffer, &text, style);
}

fn nodes(screen: &mut Screen, area: Rect, buffer: &mut Buffer) {
    list_title(screen, Pane::Nodes, area, buffer);
    let area = below(area);
    let columns = fitting(&NODES, area.width);
    titles(&columns, area, buffer, Style::new().add_modifier(Modifier::UNDERLINED));
    let area = below(area);
    screen.nodes.scroll(usize::from(area.height));
    let Some(snapshot) = &screen.snapshot else { return };
    let at = Moment::at(snapshot.now(), &screen.tz);
    let visible = screen.nodes.order.iter().enumerate().skip(screen.nodes.first);
    for (y, (place, index)) in (area.y..area.bottom()).zip(visible) {
        let node = &snapshot.nodes[*index as usize];
        let state = NodeState::of(node);
        let style = match (state.is_available(), state.is_busy()) {
            (false, _) => colored(screen, Color::Red),
            (true, true) => colored(screen, Color::Green),
            (true, false) => Style::new(),
        };
        let style = selected(screen, Pane::Nodes, place == screen.nodes.selected, style);
        row(&columns, node, at, Rect { y, height: 1, ..area }, buffer, style);
    }
}

fn jobs(screen: &mut Screen, area: Rect, buffer: &mut Buffer) {
    list_title(screen, Pane::Jobs, area, buffer);
    let area = below(area);
    let columns = fitting(&JOBS, area.width);
    titles(&columns, area, buffer, Style::new().add_modifier(Modifier::UNDERLINED));
    let area = below(area);
    screen.jobs.scroll(usize::from(area.height));
    let Some(snapshot) = &screen.snapshot else { return };
    let at = Moment::at(snapshot.now(), &screen.tz);
    let visible = screen.jobs.order.iter().enumerate().skip(screen.jobs.first);
    for (y, (place, index)) in (area.y..area.bottom()).zip(visible) {
        let job = &snapshot.jobs[*index as usize];
        let style = match job.state {
            JobState::Running => colored(screen, Color::Green),
            _ if job.hold.is_some() => colored(screen, Color::Yellow),
            _ => Style::new(),
        };
        let own = if screen.is_own(job) { Modifier::BOLD } else { Modifier::empty() };
        let style = style.add_modifier(own);
        let style = selected(screen, Pane::Jobs, place == screen.jobs.selected, style);
        row(&columns, job, at, Rect { y, height: 1, ..area }, buffer, style);
    }
}

/// The last lines that the selected job wrote.
fn log(screen: &Screen, area: Rect, buffer: &mut Buffer) {
    let Some(job) = screen.job() else { return };
    let (name, id) = (&job.name, shown_id(job));
    let style = colored(screen, Color::Cyan).add_modifier(Modifier::BOLD);
    line(area, buffer, &format!(" Log of job {id} ({name})"), style);
    let area = below(area);
    let none = |why: &str| vec![format!("({why})")];
    let lines = match &screen.log {
        _ if !screen.is_own(job) => none("it is another's job"),
        _ if job.state.is_waiting() => none("it has not started"),
        _ if job.spec.launch.kind == LaunchKind::Interactive => {
            none("it writes to the terminal of its srun or salloc")
        }
        Some((of, lines)) if *of == job.id && !lines.is_empty() => lines.clone(),
        Some((of, _)) if *of == job.id => none("it has written nothing yet"),
        _ => Vec::new(),
    };
    let first = lines.len().saturating_sub(usize::from(area.height));
    for (y, text) in (area.y..area.bottom()).zip(&lines[first..]) {
        line(Rect { y, height: 1, ..area }, buffer, text, Style::new());
    }
}

fn foot(screen: &Screen, area: Rect, buffer: &mut Buffer) {
    let reversed = Style::new().add_modifier(Modifier::REVERSED);
    buffer.set_style(area, reversed);
    let text = match &screen.mode {
        Mode::ConfirmCancel { shown, .. } => format!("Cancel job {shown}? y/n"),
        Mode::Filter => "filter: type, Enter keeps it, Esc ends it".to_owned(),
        Mode::Text { .. } => "Up, Down scroll; another key closes it".to_owned(),
        Mode::Rows => match (&screen.lost, screen.told.as_str()) {
            (Some(why), _) => format!("{why}; looking again"),
            (None, "") if usize::from(area.width) < KEYS.len() - "  ? help".len() => {
                NARROW_KEYS.to_owned()
            }
            (None, "") => KEYS.to_owned(),
            (None, told) => told.to_owned(),
        },
    };
    line(area, buffer, &text, reversed);
}

/// A text over the middle of the screen.
fn text(screen: &Screen, area: Rect, buffer: &mut Buffer) {
    let Mode::Text { title, lines, first } = &screen.mode else { return };
    let (width, height) = (area.width.saturating_sub(2), area.height.saturating_sub(3));
    let wanted = u16::try_from(lines.len()).unwrap_or(u16::MAX).saturating_add(2);
    // Long lines are wrapped, and take more than one.
    let height = height.min(wanted.saturating_mul(2).max(5));
    let over =
        Rect { x: area.x + 1.min(area.width), y: area.y + 1.min(area.height), width, height };
    let over = over.intersection(area);
    Clear.render(over, buffer);
    let shown = lines[(*first).min(lines.len())..].join("\n");
    Paragraph::new(shown)
        .wrap(Wrap { trim: false })
        .block(Block::bordered().title(*title))
        .render(over, buffer);
}

fn below(area: Rect) -> Rect {
    let height = area.height.saturating_sub(1);
    Rect { y: area.bottom() - height, height, ..area }
}

fn colored(screen: &Screen, color: Color) -> Style {
    if screen.color { Style::new().fg(color) } else { Style::new() }
}

fn selected(screen: &Screen, pane: Pane, is_selected: bool, style: Style) -> Style {
    match (is_selected && !screen.is_plain, screen.pane == pane) {
        (true, true) => style.add_modifier(Modifier::REVERSED),
        // The selected job is that of the log also while the nodes have the keys.
        (true, false) if pane == Pane::Jobs => style.add_modifier(Modifier::UNDERLINED),
        _ => style,
    }
}
