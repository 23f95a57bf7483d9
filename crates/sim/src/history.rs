//! What a replay was like over time, for charts.

use model::time::Timestamp;

/// Jobs that are drawn one by one; of a longer trace none is.
pub const BARS_MAX: usize = 500;

#[derive(Debug, Clone, Default)]
pub struct History {
    /// All CPUs that jobs may get.
    pub processors: u64,
    /// In the order of the cluster's nodes.
    pub nodes: Vec<String>,
    /// One for each moment at which something happened.
    pub moments: Vec<Moment>,
    /// The submission of each job, and how long it waited, seconds.
    pub waits: Vec<(Timestamp, f64)>,
    /// The attempts of all jobs, if there are not too many.
    pub bars: Vec<Bar>,
}

/// The cluster from this time on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Moment {
    pub time: Timestamp,
    pub busy_processors: u64,
    pub waiting_jobs: u64,
}

/// One attempt of a job on its nodes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Bar {
    /// The job's line in the trace.
    pub line: u64,
    pub start: Timestamp,
    pub end: Timestamp,
    pub nodes: Vec<String>,
}
