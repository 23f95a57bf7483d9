//! What the screen shows: the rows, what is selected, filtered and sorted, and what a key changes of it.

use super::columns::shown_id;
use super::look::{Reply, Request, Scope};
use super::row_order::{self, JobSort, NodeSort};
use super::snapshot::Snapshot;
use jiff::tz::TimeZone;
use model::change::JobRef;
use model::id::JobId;
use model::run::LaunchKind;
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use wire::view::JobView;

/// Jobs are asked for by so many rows, from the head of the queue or from its end; a screen further away asks for more of them.
const LOADED_ROWS: usize = 256;
/// The longest filter that can be typed.
const FILTER_CHARS: usize = 60;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pane {
    Nodes,
    Jobs,
}

/// What keys are read for.
#[derive(Debug, PartialEq)]
pub enum Mode {
    Rows,
    /// A filter is typed for the pane.
    Filter,
    /// Whether to cancel a job.
    ConfirmCancel {
        job: JobRef,
        shown: String,
    },
    /// A text over the rows, and the first of its lines that is shown.
    Text {
        title: &'static str,
        lines: Vec<String>,
        first: usize,
    },
}

/// What is to be done after a key.
#[derive(Debug, PartialEq)]
pub enum Effect {
    None,
    Quit,
    /// Something else wrote to the terminal: all of it is drawn again.
    Redraw,
    Ask(Request),
}

/// A list of rows, by their indices in the snapshot.
#[derive(Default)]
pub struct Rows {
    pub order: Vec<u32>,
    pub selected: usize,
    pub filter: String,
    /// The first row that is visible, and how many are; the drawing says so.
    pub first: usize,
    pub visible: usize,
}

impl Rows {
    fn step(&mut self, by: isize) {
        let last = self.order.len().saturating_sub(1);
        self.selected = self.selected.saturating_add_signed(by).min(last);
    }

    /// Makes the selected row visible among so many.
    pub fn scroll(&mut self, visible: usize) {
        self.visible = visible;
        let lowest = (self.selected + 1).saturating_sub(visible.max(1));
        self.first = self.first.clamp(lowest, self.selected);
        // No room is left empty below the last row.
        self.first = self.first.min(self.order.len().saturating_sub(visible)).max(lowest);
    }
}

pub struct Screen {
    user: String,
    pub mine: bool,
    pub color: bool,
    /// A frame that is printed: without help line and selection.
    pub is_plain: bool,
    pub snapshot: Option<Box<Snapshot>>,
    pub pane: Pane,
    pub mode: Mode,
    pub nodes: Rows,
    pub jobs: Rows,
    pub job_sort: JobSort,
    pub node_sort: NodeSort,
    /// Whether jobs are loaded from the end of the queue.
    from_end: bool,
    /// Whether the first or the last job is to be selected, once it is loaded.
    goes_to_edge: bool,
    /// The selected job, which stays selected when others come before it.
    selected_job: Option<JobId>,
    pub log: Option<(JobId, Vec<String>)>,
    /// How the last action went.
    pub told: String,
    /// Why the last look failed.
    pub lost: Option<String>,
    pub tz: TimeZone,
}

impl Screen {
    pub fn new(user: String, mine: bool) -> Self {
        Self {
            user,
            mine,
            color: false,
            is_plain: false,
            snapshot: None,
            pane: Pane::Jobs,
            mode: Mode::Rows,
            nodes: Rows::default(),
            jobs: Rows::default(),
            job_sort: JobSort::Queue,
            node_sort: NodeSort::Name,
            from_end: false,
            goes_to_edge: false,
            selected_job: None,
            log: None,
            told: String::new(),
            lost: None,
            tz: timezone::local(),
        }
    }

    /// What the server is to be asked for.
    pub fn scope(&self) -> Scope {
        let has_log = |job: &&JobView| {
            !job.state.is_waiting() && job.spec.launch.kind != LaunchKind::Interactive
        };
        Scope {
            user: self.mine.then(|| self.user.clone()),
            log: self.job().filter(has_log).filter(|job| self.is_own(job)).map(|job| job.id),
            rows: Some(self.rows_needed()),
            from_end: self.from_end,
            filter: self.jobs.filter.clone(),
            order: self.job_sort.asked(),
        }
    }

    /// How many jobs from the head of the queue are enough, or from its end.
    fn rows_needed(&self) -> u32 {
        let passed = if self.from_end {
            self.jobs.order.len().saturating_sub(self.jobs.selected)
        } else {
            self.jobs.selected
        };
        let rows = ((passed + self.jobs.visible) / LOADED_ROWS + 1) * LOADED_ROWS;
        u32::try_from(rows).unwrap_or(u32::MAX)
    }

    pub fn is_own(&self, job: &JobView) -> bool {
        job.spec.owner.name == self.user
    }

    pub fn show(&mut self, snapshot: Snapshot) {
        let has_edge = !snapshot.is_part || snapshot.from_end == self.from_end;
        self.snapshot = Some(Box::new(snapshot));
        self.lost = None;
        self.arrange();
        if has_edge && std::mem::take(&mut self.goes_to_edge) {
            self.jobs.step(if self.from_end { isize::MAX } else { isize::MIN });
            self.selected_job = self.job().map(|job| job.id);
        }
    }

    pub fn show_log(&mut self, job: JobId, lines: Vec<String>) {
        self.log = Some((job, lines));
    }

    pub fn take(&mut self, reply: Reply) {
        match reply {
            Reply::Snapshot(snapshot) => self.show(*snapshot),
            Reply::Log { job, lines } => self.show_log(job, lines),
            Reply::Explained(text) => {
                let lines = text.lines().map(str::to_owned).collect();
                self.mode = Mode::Text { title: "explain", lines, first: 0 };
            }
            Reply::Told(text) => self.told = text,
            Reply::Lost(why) => self.lost = Some(why),
        }
    }

    /// The job that keys are about.
    pub fn job(&self) -> Option<&JobView> {
        let at = *self.jobs.order.get(self.jobs.selected)?;
        self.snapshot.as_ref()?.jobs.get(at as usize)
    }

    /// Works the rows out again, with the same job selected if it is still there.
    fn arrange(&mut self) {
        let Some(snapshot) = &self.snapshot else { return };
        self.jobs.order = row_order::jobs(&snapshot.jobs, &self.jobs.filter, self.job_sort);
        self.nodes.order = row_order::nodes(&snapshot.nodes, &self.nodes.filter, self.node_sort);
        let is_it = |at: &u32| Some(snapshot.jobs[*at as usize].id) == self.selected_job;
        if let Some(place) = self.jobs.order.iter().position(is_it) {
            self.jobs.selected = place;
        }
        self.jobs.step(0);
        self.nodes.step(0);
        self.selected_job = self.job().map(|job| job.id);
    }

    pub fn rows(&mut self) -> &mut Rows {
        match self.pane {
            Pane::Nodes => &mut self.nodes,
            Pane::Jobs => &mut self.jobs,
        }
    }

    pub fn key(&mut self, key: KeyEvent) -> Effect {
        if key.kind == KeyEventKind::Release {
            return Effect::None;
        }
        if key.modifiers.contains(KeyModifiers::CONTROL) {
            match key.code {
                KeyCode::Char('c') => return Effect::Quit,
                KeyCode::Char('l') => return Effect::Redraw,
                _ => return Effect::None,
            }
        }
        match &mut self.mode {
            Mode::Rows => self.row_key(key.code),
            Mode::Filter => {
                self.filter_key(key.code);
                Effect::None
            }
            Mode::ConfirmCancel { .. } => {
                let mode = std::mem::replace(&mut self.mode, Mode::Rows);
                match (mode, key.code) {
                    (Mode::ConfirmCancel { job, shown }, KeyCode::Char('y' | 'Y')) => {
                        Effect::Ask(Request::Cancel { job, shown })
                    }
                    _ => Effect::None,
                }
            }
            Mode::Text { lines, first, .. } => {
                let last = lines.len().saturating_sub(1);
                match key.code {
                    KeyCode::Down | KeyCode::Char('j') => *first = (*first + 1).min(last),
                    KeyCode::Up | KeyCode::Char('k') => *first = first.saturating_sub(1),
                    _ => self.mode = Mode::Rows,
                }
                Effect::None
            }
        }
    }

    fn row_key(&mut self, code: KeyCode) -> Effect {
        self.told.clear();
        let page = self.rows().visible.max(1) as isize;
        match code {
            KeyCode::Char('q') | KeyCode::Esc => return Effect::Quit,
            KeyCode::Down | KeyCode::Char('j') => self.step(1),
            KeyCode::Up | KeyCode::Char('k') => self.step(-1),
            KeyCode::PageDown => self.step(page),
            KeyCode::PageUp => self.step(-page),
            KeyCode::Home => self.go_to_edge(false),
            KeyCode::End => self.go_to_edge(true),
            KeyCode::Tab | KeyCode::BackTab => {
                self.pane = if self.pane == Pane::Jobs { Pane::Nodes } else { Pane::Jobs };
            }
            KeyCode::Char('m') => self.mine = !self.mine,
            KeyCode::Char('/') => self.mode = Mode::Filter,
            KeyCode::Char('s') => {
                match self.pane {
                    Pane::Nodes => self.node_sort = self.node_sort.next(),
                    Pane::Jobs => self.job_sort = self.job_sort.next(),
                }
                self.arrange();
            }
            KeyCode::Char('?') => {
                let lines = HELP.lines().map(str::to_owned).collect();
                self.mode = Mode::Text { title: "keys", lines, first: 0 };
            }
            KeyCode::Char('c') => {
                if let Some(job) = self.job() {
                    let (job, shown) = (target(job), shown_id(job));
                    self.mode = Mode::ConfirmCancel { job, shown };
                }
            }
            KeyCode::Char('h') => {
                let Some(job) = self.job() else { return Effect::None };
                let (shown, is_held) = (shown_id(job), job.hold.is_some());
                if !job.state.is_waiting() {
                    self.told = format!("Job {shown} does not wait: only a job that waits is held");
                    return Effect::None;
                }
                let job = target(job);
                return Effect::Ask(if is_held {
                    Request::Release { job, shown }
                } else {
                    Request::Hold { job, shown }
                });
            }
            KeyCode::Char('e') | KeyCode::Enter => {
                let Some(job) = self.job() else { return Effect::None };
                // The tasks of an array that wait are explained by the array.
                let waiting_tasks = job.array.as_ref().filter(|array| array.index.is_none());
                let word = waiting_tasks.map_or_else(|| shown_id(job), |a| a.array.to_string());
                return Effect::Ask(Request::Explain(word));
            }
            _ => {}
        }
        Effect::None
    }

    fn step(&mut self, by: isize) {
        self.rows().step(by);
        self.selected_job = self.job().map(|job| job.id);
    }

    /// Selects the first or the last row; of a queue that is loaded in part, the other end is asked for first.
    fn go_to_edge(&mut self, end: bool) {
        if self.pane == Pane::Jobs {
            let part = self.snapshot.as_ref().filter(|snapshot| snapshot.is_part);
            self.goes_to_edge = part.is_some_and(|snapshot| snapshot.from_end != end);
            self.from_end = end && (part.is_some() || self.from_end);
        }
        self.step(if end { isize::MAX } else { isize::MIN });
    }

    fn filter_key(&mut self, code: KeyCode) {
        match code {
            KeyCode::Enter => self.mode = Mode::Rows,
            KeyCode::Esc => {
                self.rows().filter.clear();
                self.mode = Mode::Rows;
            }
            KeyCode::Backspace => drop(self.rows().filter.pop()),
            KeyCode::Char(c) => {
                let filter = &mut self.rows().filter;
                if filter.chars().count() < FILTER_CHARS {
                    filter.push(c);
                }
            }
            _ => return,
        }
        self.arrange();
    }
}

/// The job, or those tasks of an array that one row shows.
fn target(job: &JobView) -> JobRef {
    let pending = job.array.as_ref().and_then(|array| array.pending.clone());
    match (pending, job.het) {
        (Some(pending), _) => JobRef::tasks(job.id, pending),
        (None, Some(het)) if het.offset > 0 => {
            JobRef { component_of: Some(het.first), ..JobRef::whole(job.id) }
        }
        _ => JobRef::whole(job.id),
    }
}

const HELP: &str = "\
Tab           the other list: nodes, jobs
Up, Down      the row above, below (also k, j); Page Up, Page Down, Home, End
m             your own jobs alone, or all
/             filter the list by a part of a name, user, partition, state, node or reason; Esc ends it
s             sort the list by another column
c             cancel the job; asks first
h             hold the job if it waits, or release it if it is held
e, Enter      why the job waits, and when it is expected to start
Ctrl-L        draw all again
q, Ctrl-C     quit
A start with ~ is an estimate of the last plan; the log is that of your own job on its first node.";
