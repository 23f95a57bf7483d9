//! A trace: jobs in the order of their submission.

pub mod destinations;
mod lines;
pub mod lublin;
pub mod pods;
pub mod swf;

/// The jobs of a trace that can be replayed.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Trace {
    /// In the order of submission.
    pub jobs: Vec<TraceJob>,
    /// The machine's processors, where the trace or the caller says how many.
    pub processors: Option<u32>,
    /// Seconds since the epoch at which the trace's clock was zero.
    pub epoch_s: i64,
    /// Records without a run time or processors, which are left out.
    pub left_out: u64,
    /// The partitions that jobs name by their position here.
    pub partitions: Vec<String>,
    /// The numbers that were to stand for partitions, and that no job has.
    pub unused_numbers: Vec<u32>,
    /// What the numbers of jobs count.
    pub numbering: Numbering,
}

impl Trace {
    /// Where the job is found, for a message.
    pub fn place(&self, job: &TraceJob) -> String {
        let unit = match self.numbering {
            Numbering::Lines => "line",
            Numbering::Jobs => "job",
        };
        format!("{unit} {}", job.line)
    }
}

/// What the number of a job counts.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Numbering {
    /// The lines of the file that it was read from.
    #[default]
    Lines,
    /// The jobs that were drawn.
    Jobs,
}

/// One job; times are in seconds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct TraceJob {
    /// Its line in the trace, or its number where it was drawn; counted from one.
    pub line: u64,
    pub submit_s: i64,
    /// How long it runs; at most its estimate, where it is ended.
    pub run_s: u32,
    /// The estimate reached it before it was done.
    pub is_cut: bool,
    pub processors: u32,
    /// The user's estimate, which is the job's time limit; the run time itself where there is none.
    pub estimate_s: u32,
    pub user: i64,
    /// The partition that it goes to, by its position in the trace's list; `None` for the default one.
    pub partition: Option<u16>,
}

/// How many processors the machine has, which no job may exceed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Processors {
    /// As many as the trace's header says.
    FromHeader,
    Given(u32),
    /// The cluster's configuration says it, and the cluster refuses what is too large.
    FromConfiguration,
}
