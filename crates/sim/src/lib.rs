//! The simulator: the same `cluster` and `sched` as in the server, in one process under a virtual clock.
//!
//! ```text
//!   trace/           a trace of jobs: the Standard Workload Format, or lists of nodes and pods; plain or gzip; or synthetic
//!   machine          the nodes that a trace is replayed on
//!   policy           the scheduling policies, as settings of the cluster
//!   admission        which jobs of a trace the cluster could start at all
//!   job_specs        a job of the trace as the cluster is asked for it
//!   virtual_cluster  the state machine and the planner, driven as the server drives them
//!   replay           a trace through the virtual cluster
//!   quiet_moments    moments of a replay at which nothing can start
//!   waiting_sizes    the sizes of the jobs that wait in a replay
//!   pod_replay       a list of pods onto a cluster that fills
//!   job_times        how long jobs waited and ran, and means of it
//!   summary          waits, slowdowns and utilisation of a replay
//!   kinds            the waits of short and long, narrow and wide jobs
//!   estimate_error   how far expected starts were from the starts
//!   history, chart   a replay over time, and its charts
//!   chance           random choices, the same for the same seed
//!   faults/          histories of random faults, and what must hold in them
//! ```
//!
//! Nothing of the scheduler is here: a replay submits, plans, starts and ends jobs by the commands that the server uses.
//! One trace, one configuration and one build give one answer.

#![cfg_attr(not(test), warn(clippy::unwrap_used))]

pub mod chart;
pub mod error;
pub mod estimate_error;
pub mod faults;
pub mod history;
pub mod kinds;
pub mod machine;
pub mod pod_replay;
pub mod policy;
pub mod replay;
pub mod summary;
pub mod trace;
pub mod virtual_cluster;

mod admission;
mod chance;
mod job_specs;
mod job_times;
mod quiet_moments;
mod waiting_sizes;

pub use admission::BeyondLimits;
pub use error::SimError;
pub use pod_replay::{Arrivals, PodSummary, replay_pods};
pub use policy::Policy;
pub use replay::{Measures, Outcome, Progress, replay};
pub use summary::Summary;
pub use trace::{Processors, Trace, TraceJob};
